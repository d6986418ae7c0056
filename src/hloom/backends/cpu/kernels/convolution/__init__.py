"""Convolutions: which form computes one, how it is cut into tiles, packed and written."""
