"""Matrix products in one form: batches that are only more rows or columns are collapsed into them, rows of the result
are contiguous if possible, and complex matrices are viewed as real ones of twice the size.
"""

from __future__ import annotations

from dataclasses import replace

from hloom.backends.cpu.kernels.products.matrix import Matrix
from hloom.system.records import record
from hloom.types import PrimitiveType

MULTIPLY_ADD_COST = 0.625  # in additions


@record
class MatmulSpec:
    """out[b, i, j] = sum over k of lhs[b, i, k] * rhs[b, k, j].

    Strides are in elements: of lhs along (batch, m, k), of rhs along (batch, k, n), of out along (batch, m, n). Sums
    are kept in f32 for f16 and bf16; integers wrap around.
    """

    batch: int
    m: int
    n: int
    k: int
    lhs_type: PrimitiveType
    rhs_type: PrimitiveType
    out_type: PrimitiveType
    lhs_strides: tuple[int, int, int]
    rhs_strides: tuple[int, int, int]
    out_strides: tuple[int, int, int]

    @property
    def is_complex(self) -> bool:
        """Whether the elements are complex."""
        return self.out_type.is_complex

    def transposed(self) -> MatmulSpec:
        """Returns the product of the transposes, in reverse order, which is the transpose of the result."""
        (a0, a1, a2), (b0, b1, b2), (c0, c1, c2) = self.lhs_strides, self.rhs_strides, self.out_strides
        strides = (b0, b2, b1), (a0, a2, a1), (c0, c2, c1)
        return MatmulSpec(self.batch, self.n, self.m, self.k, self.rhs_type, self.lhs_type, self.out_type, *strides)

    def collapsed(self) -> MatmulSpec:
        """Returns the product with its batch collapsed into rows, if all share one rhs and rows are evenly spaced."""
        (a0, a1, a2), b, (c0, c1, c2) = self.lhs_strides, self.rhs_strides, self.out_strides
        if b[0] != 0 or self.batch == 1:
            return self
        if self.m == 1:
            return replace(self, batch=1, m=self.batch, lhs_strides=(0, a0, a2), out_strides=(0, c0, c2))
        if a0 == self.m * a1 and c0 == self.m * c1:
            return replace(self, batch=1, m=self.batch * self.m)
        return self


@record
class Product:
    """A batch of real products C = A B; with `is_complex`, n and k count real and imaginary parts."""

    batch: int
    m: int
    n: int
    k: int
    a: Matrix
    b: Matrix
    c: Matrix
    batch_strides: tuple[int, int, int]
    is_complex: bool
    swapped: bool  # A is the right operand of the spec, B the left

    @property
    def work(self) -> int:
        """Multiply-adds."""
        return self.batch * self.m * self.n * self.k

    def transposed(self) -> Product:
        """Returns the product of the transposes, in reverse order."""
        a, b, c = (replace(matrix, row=matrix.column, column=matrix.row) for matrix in (self.b, self.a, self.c))
        of_a, of_b, of_c = self.batch_strides
        strides, swapped = (of_b, of_a, of_c), not self.swapped
        return replace(self, m=self.n, n=self.m, a=a, b=b, c=c, batch_strides=strides, swapped=swapped)


def normalised(spec: MatmulSpec, fixed_order: bool = False) -> Product:
    """Returns the product in normal form; with `fixed_order` one that adds up products as it does for other sizes."""
    spec = spec.collapsed().transposed().collapsed().transposed()
    swapped = _swap_pays(spec, fixed_order)
    if swapped:
        spec = spec.transposed()
    (a0, a1, a2), (b0, b1, b2), (c0, c1, c2) = spec.lhs_strides, spec.rhs_strides, spec.out_strides
    m, n, k = spec.m, spec.n, spec.k
    view = _real_view if spec.is_complex else Matrix
    a = view(spec.lhs_type, a1 if m > 1 else 0, a2 if k > 1 else 1)
    b = view(spec.rhs_type, b1 if k > 1 else 0, b2 if n > 1 else 1)
    c = view(spec.out_type, c1 if m > 1 else 0, c2 if n > 1 else 1)
    parts = 2 if spec.is_complex else 1
    strides = parts * a0, parts * b0, parts * c0
    return Product(spec.batch, m, parts * n, parts * k, a, b, c, strides, spec.is_complex, swapped)


def _swap_pays(spec: MatmulSpec, fixed_order: bool) -> bool:
    """Whether the transposed product is cheaper: a matrix times a vector, or contiguous rows of the result.

    With `fixed_order` vectors are matrices of one row, and complex products, whose parts it would reorder, stay.
    """
    if fixed_order and spec.is_complex:
        return False
    if spec.n == 1 or spec.m == 1:
        return spec.m > 1 if fixed_order else spec.n > 1
    return spec.out_strides[1] == 1 != spec.out_strides[2]


def _real_view(type: PrimitiveType, row: int, column: int) -> Matrix:
    if column == 1:
        return Matrix(type.real, 2 * row, 1)
    return Matrix(type.real, 2 * row, 2 * column, paired=True)
