"""A matrix times a vector, or a few: the matrix is read once."""
