"""Passes that make a module smaller: rewrite rules, constant folding, common subexpressions, dead code, tuples."""
