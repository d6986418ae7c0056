"""Loop nests to LLVM IR: loops and expressions, indices, memory, reductions, tiles."""
