"""Simplifications: rewrite rules, constant folding, elimination of common subexpressions and dead code, tuples."""
