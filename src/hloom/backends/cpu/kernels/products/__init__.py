"""Products of matrices and vectors, for dot and convolution."""
