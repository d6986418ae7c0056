"""The compiler for CPUs: native code made with LLVM, its threads and its memory."""
