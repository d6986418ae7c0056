"""Emission of loop nests as LLVM IR: loops and expressions, indices, memory accesses, reductions, tiles."""
