"""Operands of products that are computed where they are read."""
