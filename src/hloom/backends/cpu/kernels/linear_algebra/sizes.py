"""Sizes and batches of matrices for which there is code without LAPACK."""

from __future__ import annotations

MIN_COUNT = 4
"""Matrices of the smallest batch of small matrices that is vectorised."""
SMALL_ORDER = 16
SMALL_ELEMENTS = 512
"""Elements of the largest small operand, for example of the right-hand sides of a triangular system."""
MIN_LARGE_COUNT = 16
"""Matrices of the smallest batch of larger ones that is vectorised: as many f32 as a group has."""
MAX_ORDER = 64
MAX_ELEMENTS = 4096
MIN_CHOLESKY_ORDER = 160
"""Rows of a matrix from which a factorisation by blocks is faster than LAPACK's routine."""


def can_vectorise(order: int, elements: int, count: int, batch_invariant: bool) -> bool:
    """Whether a batch of matrices is factored in lanes, one matrix in each."""
    if order <= SMALL_ORDER and elements <= SMALL_ELEMENTS:
        return batch_invariant or count >= MIN_COUNT
    return order <= MAX_ORDER and elements <= MAX_ELEMENTS and count >= MIN_LARGE_COUNT and not batch_invariant


def can_factorise(order: int, count: int, batch_invariant: bool) -> bool:
    """Whether Cholesky factorisations of a batch have code of their own, without LAPACK."""
    is_small = can_vectorise(order, order**2, count, batch_invariant)
    return order > 0 and (is_small or order >= MIN_CHOLESKY_ORDER)
