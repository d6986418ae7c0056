"""The reference interpreter: evaluates each instruction by its operation's NumPy semantics."""
