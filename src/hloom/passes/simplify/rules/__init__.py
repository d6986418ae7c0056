"""The rewrite rules of the algebraic simplifier, whose docstring states the law that they obey; a file per family."""
