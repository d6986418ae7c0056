"""Ways of running a module: the interpreter (the reference) and compilers."""
