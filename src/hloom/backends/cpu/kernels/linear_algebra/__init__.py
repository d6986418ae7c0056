"""BLAS and LAPACK routines: calls of them, and code of our own for small matrices and for large ones."""
