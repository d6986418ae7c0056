"""Matrix times a few vectors as LLVM IR: the matrix is read once, in memory order, or computed where it is read.

If K is contiguous, a few rows at a time are multiplied by the vectors, with several sums each (matvec_rows.py). If M is
contiguous, a tile of the result stays in the L1 cache while a few columns at a time are added to it
(matvec_columns.py). Either way blocks of K are summed from zero, and their sums added up, so that no chain of additions
is long (GEN-13).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from hloom.backends.cpu.kernels.kernel_function import KernelFunction, size_of
from hloom.backends.cpu.kernels.products.computed_operand import ComputedOperand, OperandEmitter
from hloom.backends.cpu.kernels.products.matrix import Matrix
from hloom.backends.cpu.kernels.products.matvec_columns import ColumnSums
from hloom.backends.cpu.kernels.products.matvec_rows import ROWS_PER_ITERATION, RowSums
from hloom.backends.cpu.kernels.products.streamed_matrix import ComputedMatrix, StoredMatrix, StreamedMatrix, Vectors
from hloom.lir import I64, PTR, Type
from hloom.target import Target

MIN_TASK_BYTES = 128 << 10  # of the matrix


@dataclass(frozen=True)
class Matvec:
    """out[b, i, r] = sum over k of matrix[b, i, k] * vectors[b, k, r].

    The matrix is in memory or, with `computed`, computed from other arrays.
    """

    batch: int
    m: int
    k: int
    count: int
    matrix: Matrix
    vectors: Matrix
    out: Matrix
    batch_strides: tuple[int, int, int]
    computed: ComputedOperand | None = None

    @property
    def has_contiguous_rows(self) -> bool:
        """Whether elements of K are contiguous in the matrix and in the vectors."""
        return self.matrix.column == 1 and (self.vectors.row == 1 or self.k == 1)

    @property
    def is_streamed(self) -> bool:
        """Whether there is code for these distances."""
        paired = self.matrix.paired or self.vectors.paired or self.out.paired
        return not paired and (self.has_contiguous_rows or self.matrix.row == 1)

    def shares(self, type: Type, target: Target) -> int:
        """Returns the number of tasks among which the rows of one product are divided."""
        parts = self.batch * self.m * self.k * size_of(type.element) // MIN_TASK_BYTES
        wanted = math.ceil(target.tasks(parts) / self.batch)
        return max(1, min(wanted, self.m // max(ROWS_PER_ITERATION, type.width)))

    def task(self, name: str, type: Type, shares: int) -> KernelFunction:
        """Returns `name(context, chunk)`: one share of the rows of one product; the context has the pointers of the
        vectors, of the result, and of the arrays of the matrix.
        """
        f = KernelFunction(name, context=PTR, chunk=I64)
        context, chunk = f.parameters
        batch, share = f.divide(chunk, shares), f.remainder(chunk, shares)
        count = len(self.computed.buffers) if self.computed else 1
        vectors, out, *arrays = f.unpack(context, *[PTR] * (2 + count))
        of_matrix, of_vectors, of_out = self.batch_strides
        vectors = f.at(vectors, f.multiply(batch, of_vectors), self.vectors.element)
        out = f.at(out, f.multiply(batch, of_out), self.out.element)
        matrix: StreamedMatrix
        if self.computed is not None:
            matrix = ComputedMatrix(OperandEmitter(f, self.computed, arrays, type), batch)
        else:
            base = f.at(arrays[0], f.multiply(batch, of_matrix), self.matrix.element)
            matrix = StoredMatrix(f, type, self.matrix, base)
        work = Vectors(f, type, self.k, self.count, self.vectors, vectors, self.out, out)
        if self.has_contiguous_rows:
            RowSums(matrix, work).emit(*f.share(self.m, ROWS_PER_ITERATION, shares, share))
        else:
            ColumnSums(matrix, work, self.m % type.width > 0).emit(*f.share(self.m, type.width, shares, share))
        return f
