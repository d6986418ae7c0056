"""Convolutions: the choice of a geometry and tile, packing of operands, and the loops over tiles."""
