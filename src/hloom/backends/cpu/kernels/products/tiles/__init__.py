"""Tiles of sums that a product keeps in registers: their choice and the loops that add them up."""
