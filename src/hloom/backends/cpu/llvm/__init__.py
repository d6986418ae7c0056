"""LLVM: IR as text, functions, machine code, and what of it is kept on disk."""
