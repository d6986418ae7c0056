"""Code generation: steps to code or call tables, functions of nests and kernels, partition into LLVM modules."""
