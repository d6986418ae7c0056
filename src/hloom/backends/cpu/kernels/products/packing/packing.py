"""Packing of matrices for tiles, by functions that products of all sizes share."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hloom.backends.cpu.kernels.distances import Distances
from hloom.backends.cpu.kernels.kernel_function import KernelFunction, shared_function
from hloom.backends.cpu.kernels.products.matrix import Matrix, element_offset
from hloom.lir import I64, PTR, Function, IndexValue, Type, Value
from hloom.system.records import record

UNITS_OF_B = "columns", "first", "count"
"""Parameters of a packing of B: the columns to pack, the first step of K or panel, and the number of those."""
UNITS_OF_A = "rows", "elements"
"""Parameters of a packing of A: the rows to pack, and the elements of K as they are in memory."""


@record
class PackedMatrix:
    """A matrix, by the distances of its rows and columns and of the elements of a word, which code reads."""

    matrix: Matrix
    row: IndexValue
    column: IndexValue
    distance: IndexValue

    def offset(self, f: KernelFunction, row: IndexValue, column: IndexValue) -> IndexValue:
        """Returns the offset of an element, in elements."""
        return element_offset(f, (row, column), (self.row, self.column), self.matrix.paired)

    def load_step(
        self, f: KernelFunction, pointer: Value, type: Type, left: IndexValue, mask: Value | None = None
    ) -> Value:
        """Loads one step of K (see `Matrix.load_step`)."""
        return self.matrix.load_step(f, pointer, type, left, mask, self.distance)


Write = Callable[[KernelFunction, PackedMatrix, Sequence[IndexValue]], None]
"""Writes a packing, given the matrix and the sizes that its code reads."""


@record
class Packing:
    """The shared function `(source, target, units .., distances)` that packs a matrix.

    Its code reads the `sizes`, and the distances of the matrix unless these are 0 or 1; `words` name all else that it
    depends on.
    """

    words: Sequence[str]
    matrix: Matrix
    units: Sequence[str]
    sizes: tuple[IndexValue, ...]
    write: Write

    def call(self, f: KernelFunction, table: str, source: Value, target: Value, *units: Value) -> None:
        """Calls the function, with the distances in a constant of a name."""
        distances = f.address_of(self._distances.table(table))
        f.call_function(self._function(), source, target, *units, distances)

    def _function(self) -> Function:
        matrix = self.matrix
        name = ".".join(["pack", *self.words, str(matrix.type), *_traits(matrix), self._distances.kinds])
        parameters = {"source": PTR, "target": PTR, **dict.fromkeys(self.units, I64)}
        return shared_function(name, self._write, **parameters, distances=PTR)

    @property
    def _distances(self) -> Distances:
        matrix = self.matrix
        of_matrix = matrix.row, matrix.column, matrix.words.distance if matrix.words else 0
        fixed = *(distance in (0, 1) for distance in of_matrix), *[False] * len(self.sizes)
        return Distances((*of_matrix, *self.sizes), fixed)

    def _write(self, f: KernelFunction) -> None:
        row, column, distance, *sizes = self._distances.read(f, f["distances"])
        self.write(f, PackedMatrix(self.matrix, row, column, distance), sizes)


def _traits(matrix: Matrix) -> list[str]:
    """Returns what code for a matrix depends on beside its type and distances."""
    flags = {"paired": matrix.paired}
    if (words := matrix.words) is not None:
        flags |= {f"words{words.count}": True, "flipped": words.flipped, "padded": words.is_ragged}
    return [flag for flag, is_set in flags.items() if is_set]
