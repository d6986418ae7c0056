"""A module as one native program: steps, the memory of its buffers, and the LLVM IR of the whole."""
