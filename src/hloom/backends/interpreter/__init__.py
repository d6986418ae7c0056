"""The interpreter: runs a module with the meaning that `hloom.ops` gives each operation. It is the reference."""
