"""Winograd convolution: convolutions with small windows in fewer products."""
