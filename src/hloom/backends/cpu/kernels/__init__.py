"""Kernels that are more than loop nests: products, convolutions, sorts, scans, scatters, Fourier transforms."""
