"""Matrix factorisation and substitution: cholesky, triangular-solve (spec 13, 114)."""

from __future__ import annotations

import numpy as np

from hloom.numerics import convert, widen
from hloom.ops.attributes import Transpose
from hloom.ops.context import Context
from hloom.ops.kinds import BOOL, EnumKind
from hloom.ops.operation import Operation, attribute
from hloom.ops.rules import check_array
from hloom.shape import Shape
from hloom.values import Array


class Cholesky(Operation, opcode="cholesky", builder="cholesky"):
    """Computes the Cholesky factor of each matrix: a = l l^H with lower-triangular l, or u^H u (CHOLESKY-1 to -5).

    The other triangle of the result is zero. The result for a matrix that is not positive definite is NaN.
    """

    see_also = ("triangular-solve",)
    operands = {"a": "Hermitian positive definite matrices, [.., M, M], of which one triangle is read"}
    lower: bool = attribute(
        BOOL,
        default=False,
        proto="cholesky_options.lower",
        doc="whether the lower triangle is read and returned, else the upper one",
    )

    def infer(self, a: Shape) -> Shape:
        check_array(self, "CHOLESKY-6", a)
        if not (a.element_type.is_float or a.element_type.is_complex):
            self.reject("CHOLESKY-6", f"takes floating or complex matrices, got {a}")
        if a.rank < 2 or a.dimensions[-1] != a.dimensions[-2]:
            self.reject("CHOLESKY-6", f"takes square matrices [.., M, M], got {a}")
        return a.without_layout()

    def evaluate(self, ctx: Context, a: Array) -> Array:
        wide = widen(a)
        symmetric = wide if self.lower else np.swapaxes(wide, -1, -2).conj()
        result = np.empty(a.shape, wide.dtype)
        for index in np.ndindex(a.shape[:-2]):
            try:
                # NumPy reads the lower triangle and leaves zeros above it.
                result[index] = np.linalg.cholesky(symmetric[index])
            except np.linalg.LinAlgError:
                result[index] = np.nan
        # LAPACK may go on where a pivot is NaN.
        result[np.isnan(result).any((-2, -1))] = np.nan
        factor = result if self.lower else np.swapaxes(result, -1, -2).conj()
        return convert(factor, a.dtype)


class TriangularSolve(Operation, opcode="triangular-solve", builder="triangular_solve"):
    """Solves op(a) x = b, or x op(a) = b, by substitution (TRIANGULARSOLVE-1 to -4).

    The result has the shape of `b`.
    """

    operands = {
        "a": "triangular matrices, [.., M, M]",
        "b": "right sides, [.., M, K], or [.., K, M] unless `left_side`",
    }
    left_side: bool = attribute(
        BOOL, default=False, proto="triangular_solve_options.left_side", doc="whether `a` stands on the left of x"
    )
    lower: bool = attribute(
        BOOL,
        default=False,
        proto="triangular_solve_options.lower",
        doc="whether the lower triangle of `a` is read, else the upper one",
    )
    unit_diagonal: bool = attribute(
        BOOL,
        default=False,
        proto="triangular_solve_options.unit_diagonal",
        doc="whether the diagonal of `a` is taken as 1, and not read",
    )
    transpose_a: Transpose = attribute(
        EnumKind(Transpose),
        default=Transpose.NO_TRANSPOSE,
        proto="triangular_solve_options.transpose_a",
        always_printed=True,
        doc="operation on `a`: none, transpose or adjoint",
    )

    def infer(self, a: Shape, b: Shape) -> Shape:
        check_array(self, "TRIANGULARSOLVE-5", a, b)
        if a.element_type is not b.element_type or not (a.element_type.is_float or a.element_type.is_complex):
            self.reject("TRIANGULARSOLVE-5", f"takes floating or complex arrays of one type, got {a} and {b}")
        if a.rank < 2 or a.rank != b.rank or a.dimensions[-1] != a.dimensions[-2]:
            self.reject("TRIANGULARSOLVE-5", f"takes a [.., M, M] and b of its rank, got {a} and {b}")
        if a.dimensions[:-2] != b.dimensions[:-2] or b.dimensions[-2 if self.left_side else -1] != a.dimensions[-1]:
            wanted = "[.., M, K]" if self.left_side else "[.., K, M]"
            self.reject("TRIANGULARSOLVE-5", f"b is {wanted} with a's batch and M, got {a} and {b}")
        return b.without_layout()

    def evaluate(self, ctx: Context, a: Array, b: Array) -> Array:
        matrix, right = widen(a), widen(b)
        lower = self.lower
        if self.transpose_a is not Transpose.NO_TRANSPOSE:
            matrix, lower = np.swapaxes(matrix, -1, -2), not lower
            if self.transpose_a is Transpose.ADJOINT:
                matrix = matrix.conj()
        if not self.left_side:
            matrix, right, lower = np.swapaxes(matrix, -1, -2), np.swapaxes(right, -1, -2), not lower
        solved = substitute(matrix, right, lower, self.unit_diagonal)
        return convert(solved if self.left_side else np.swapaxes(solved, -1, -2), b.dtype)


def substitute(matrix: Array, right: Array, lower: bool, unit_diagonal: bool) -> Array:
    """Returns x with matrix x = right for a batch of triangular matrices; zeros on the diagonal give infinities or
    NaN.
    """
    size = matrix.shape[-1]
    x = np.array(right)
    for i in range(size) if lower else range(size - 1, -1, -1):
        if not unit_diagonal:
            x[..., i, :] /= matrix[..., i, i, None]
        rest = slice(i + 1, None) if lower else slice(None, i)
        x[..., rest, :] -= matrix[..., rest, i, None] * x[..., None, i, :]
    return x
