"""LLVM: IR as text, functions, native Python, machine code, and the cache of object files on disk."""
