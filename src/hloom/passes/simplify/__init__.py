"""Passes that make a module smaller: rewrite rules, folding, common subexpressions, dead code, tuples."""
