"""Factorisations and solves of small matrices: one in each lane of vectors."""
