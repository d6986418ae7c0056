"""The arithmetic of elements in LLVM IR: how types lie in registers, operations on them, mathematical functions."""
