"""The compiler for CPUs: native code generated with LLVM, with a thread pool and memory pool of its own."""
