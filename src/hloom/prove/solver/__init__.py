"""Decisions whether terms are equal: by cases, by trying values, and as formulas of the SMT solver."""
