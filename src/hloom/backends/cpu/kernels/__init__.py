"""Kernels that are more than a loop nest: products, sorts, scatters."""
