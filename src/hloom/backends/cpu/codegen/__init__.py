"""A program as LLVM modules: steps as code or data, the functions of nests and kernels, what is compiled apart."""
