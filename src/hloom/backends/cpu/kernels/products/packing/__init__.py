"""The packing of B of a matrix product, an array or computed, into panels."""
