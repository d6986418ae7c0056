"""Products of matrices and vectors: what dot and convolutions call."""
