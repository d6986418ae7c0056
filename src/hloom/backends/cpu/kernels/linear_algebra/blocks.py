"""The inner loops of blocked factorisations: updates by products of blocks, and solutions of triangular blocks.

A matrix is copied to slabs of a few columns, whose rows are contiguous: a page has those of many steps. The number of
columns is a multiple of all blocks; elements past the original ones are those of an identity. In all functions a
block's factors are read from a matrix in which step s is row s: element (i, s) of the left operand is that of row s and
column i.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from hloom.backends.cpu.elements.transpose import transpose
from hloom.backends.cpu.kernels.kernel_function import KernelFunction, size_of
from hloom.lir import I32, I64, PTR, IndexValue, Type, Value, constant, type_of
from hloom.system.records import record
from hloom.target import CACHE_LINE, align_up

SIDE = 64
"""Rows that the padded order is a multiple of."""
FEW = 8
"""Rows, or columns of a panel, that are factored before those after them are changed: rows of the widest tile."""
VECTORS = 2
"""Vectors in a row of a tile of sums."""
TILE_ROWS = {64: 8, 32: 4, 16: 4, 8: 4}
"""Rows of a tile, by the bytes of a vector."""


Address = Callable[[KernelFunction, Value, IndexValue, IndexValue], Value]
"""Returns the address of the element of a row and a column of a matrix."""


@record(slots=True)
class Square:
    """The copy of a matrix of `order` columns, its elements in vectors of `type`, and the blocks of its factorisation.

    It has as many rows, or `height`.
    """

    order: int
    type: Type
    block: int
    height: int | None = None

    @property
    def bytes(self) -> int:
        """Bytes of an element."""
        return size_of(self.type.element)

    @property
    def padded(self) -> int:
        """Columns of the copy."""
        side = max(SIDE, self.block)
        return align_up(self.order, side)

    @property
    def rows(self) -> int:
        """Rows of the copy."""
        return self.padded if self.height is None else self.height

    @property
    def pitch(self) -> int:
        """Columns of a slab in memory, which are the distance of its rows: a cache line or more."""
        return max(self.slab, self.line)

    @property
    def elements(self) -> int:
        """Elements of the copy."""
        return self.rows * align_up(self.padded, self.pitch)

    @property
    def matrix_bytes(self) -> int:
        """Bytes of the copy."""
        return self.elements * self.bytes

    @property
    def slab(self) -> int:
        """Columns of a tile, and of the slabs that tasks compute."""
        return VECTORS * self.type.width

    @property
    def tile_rows(self) -> int:
        """Rows of a tile."""
        return TILE_ROWS[self.type.width * self.bytes]

    @property
    def line(self) -> int:
        """Elements of a cache line: rows and columns of the squares that are transposed in registers."""
        return CACHE_LINE // self.bytes

    def at(self, f: KernelFunction, matrix: Value, row: IndexValue, column: IndexValue) -> Value:
        """Returns the address of an element of the copy, or of a part that begins with a slab."""
        inside = f.remainder(column, self.pitch)
        before = f.multiply(f.subtract(column, inside), self.rows)
        return f.at(matrix, f.add(before, f.add(f.multiply(row, self.pitch), inside)), self.type.element)

    def parts(self, f: KernelFunction, first: int, stop: int) -> Iterator[tuple[IndexValue, int]]:
        """Yields in loops the first column and the number of columns of the parts of slabs from `first` to `stop`."""
        start, end = min(align_up(first, self.pitch), stop), stop // self.pitch * self.pitch
        if first < start:
            yield first, start - first
        if start < end:
            with f.each(start, end, self.pitch) as column:
                yield column, self.pitch
        if max(start, end) < stop:
            yield max(start, end), stop - max(start, end)

    def clear(self, f: KernelFunction, matrix: Value, row: IndexValue, rows: int) -> None:
        """Fills whole rows with zeros."""
        with f.each(0, self.padded, self.pitch) as column:
            f.fill(self.at(f, matrix, row, column), 0, rows * self.pitch * self.bytes)

    def read_row(self, f: KernelFunction, source: Value, matrix: Value, row: IndexValue, columns: int) -> None:
        """Copies contiguous elements to a row."""
        for column, count in self.parts(f, 0, columns):
            f.copy(self.at(f, matrix, row, column), f.at(source, column, self.type.element), count * self.bytes)

    def tiles(self, f: KernelFunction, rows: Value) -> Iterator[tuple[IndexValue, IndexValue]]:
        """Yields in loops the first row and column of each of the squares of a block of columns."""
        with f.loop(rows, self.line) as row, f.loop(self.block, self.line) as column:
            yield row.index, column.index

    def write_rows(self, f: KernelFunction, target: Value, matrix: Value, rows: int) -> None:
        """Copies the chunk's rows, those of a square, from the copy to a matrix of `rows` contiguous ones."""
        first = f.multiply(f["chunk"], self.line)
        with f.each(first, f.minimum(f.add(first, self.line), rows)) as row:
            line = f.multiply(row, self.order)
            for column, count in self.parts(f, 0, self.order):
                own = f.at(target, f.add(line, column), self.type.element)
                f.copy(own, self.at(f, matrix, row, column), count * self.bytes)


def store_number(f: KernelFunction, address: Value, row: IndexValue) -> None:
    """Stores the number of a row as LAPACK counts them, from 1 on, in 32 bits."""
    f.store(f.convert("trunc", f.index(f.add(row, 1)), "i32"), address, 4)


def record_failure(f: KernelFunction, info: Value, failed: Value, row: IndexValue) -> None:
    """Stores the number of a row that failed in `info`, unless an earlier row has failed."""
    is_first = f.compare("eq", f.load(info, I32, 4), constant(I32, 0))
    with f.when(f.binary("and", failed, is_first)):
        store_number(f, info, row)


class Inner:
    """Writes the inner loops for one matrix, whose factors lie at the addresses of another."""

    def __init__(self, square: Square, factors: Address) -> None:
        self.square, self.factors = square, factors

    def update(self, name: str) -> KernelFunction:
        """Returns `name(a, b, c)`, which subtracts the product of a block of A and a block of rows B from a tile."""
        f, square = KernelFunction(name, a=PTR, b=PTR, c=PTR), self.square
        for i in range(square.tile_rows):
            for column in range(0, square.slab, square.line):
                f.prefetch(square.at(f, f["c"], i, column), writes=True)
        sums = self._sums(f, square.block, rows_ahead=square.pitch)
        for i in range(square.tile_rows):
            target = square.at(f, f["c"], i, 0)
            row = zip(self._row(f, target), sums[VECTORS * i : VECTORS * (i + 1)], strict=True)
            self._store(f, [f.binary("fsub", c, s) for c, s in row], target)
        return f

    def product(self, name: str) -> KernelFunction:
        """Returns `name(a, b, c, steps)`, which stores the product of A and of rows B, as many as steps, in a tile."""
        f, square = KernelFunction(name, a=PTR, b=PTR, c=PTR, steps=I64), self.square
        sums = self._sums(f, f["steps"])
        for i in range(square.tile_rows):
            self._store(f, sums[VECTORS * i : VECTORS * (i + 1)], square.at(f, f["c"], i, 0))
        return f

    def _sums(self, f: KernelFunction, steps: IndexValue, rows_ahead: int = 0) -> list[Value]:
        """Returns the sums of the products of a tile.

        Factors of a later tile are prefetched: another core may have computed them, and each is in a line of its own.
        """
        square = self.square
        with f.loop(steps, carried=[constant(square.type, 0)] * (square.tile_rows * VECTORS)) as loop:
            if rows_ahead:
                f.prefetch(self.factors(f, f["a"], loop.index, rows_ahead))
            row = self._row(f, square.at(f, f["b"], loop.index, 0))
            for i in range(square.tile_rows):
                factor = self._factor(f, f["a"], loop.index, i)
                for v in range(VECTORS):
                    k = VECTORS * i + v
                    loop.carried[k] = f.fmuladd(factor, row[v], loop.carried[k])
        return loop.carried

    def substitution(self, name: str, is_unit: bool) -> KernelFunction:
        """Returns `name(a, scales, x)`, which replaces a slab of rows X by the solution of L X' = X.

        L is the block of A, a triangle, whose diagonal has the reciprocals `scales`, or is 1.
        """
        f, square = KernelFunction(name, a=PTR, scales=PTR, x=PTR), self.square
        scales = None if is_unit else f["scales"]
        self._solve_rows(f, 0, self._rows(f, 0), scales)
        if square.block > square.tile_rows:
            with f.loop(square.block, square.tile_rows, first=square.tile_rows) as first:
                with f.loop(first.index, carried=self._rows(f, first.index)) as loop:
                    row = self._row(f, square.at(f, f["x"], loop.index, 0))
                    for i in range(square.tile_rows):
                        factor = f.fneg(self._factor(f, f["a"], loop.index, f.add(first.index, i)))
                        for v in range(VECTORS):
                            k = VECTORS * i + v
                            loop.carried[k] = f.fmuladd(factor, row[v], loop.carried[k])
                self._solve_rows(f, first.index, loop.carried, scales)
        return f

    def _solve_rows(self, f: KernelFunction, first: IndexValue, rows: list[Value], scales: Value | None) -> None:
        """Solves for the rows of a tile, from which those before them are subtracted, and stores them."""
        square = self.square
        for i in range(square.tile_rows):
            for s in range(i):
                factor = f.fneg(self._factor(f, f["a"], f.add(first, s), f.add(first, i)))
                for v in range(VECTORS):
                    k = VECTORS * i + v
                    rows[k] = f.fmuladd(factor, rows[VECTORS * s + v], rows[k])
            own = slice(VECTORS * i, VECTORS * (i + 1))
            if scales is not None:
                scale = self._splat(f, f.at(scales, f.add(first, i), square.type.element))
                rows[own] = [f.binary("fmul", row, scale) for row in rows[own]]
            self._store(f, rows[own], square.at(f, f["x"], f.add(first, i), 0))

    def _rows(self, f: KernelFunction, first: IndexValue) -> list[Value]:
        rows = (self._row(f, self.square.at(f, f["x"], f.add(first, i), 0)) for i in range(self.square.tile_rows))
        return [vector for row in rows for vector in row]

    def _row(self, f: KernelFunction, address: Value) -> list[Value]:
        type = self.square.type
        addresses = (f.at(address, v * type.width, type.element) for v in range(VECTORS))
        return [f.load(address, type, self.square.bytes) for address in addresses]

    def _store(self, f: KernelFunction, row: list[Value], address: Value) -> None:
        type = self.square.type
        for v, value in enumerate(row):
            f.store(value, f.at(address, v * type.width, type.element), self.square.bytes)

    def _factor(self, f: KernelFunction, a: Value, step: IndexValue, row: IndexValue) -> Value:
        return self._splat(f, self.factors(f, a, step, row))

    def _splat(self, f: KernelFunction, address: Value) -> Value:
        type = self.square.type
        return f.splat(f.load(address, type.scalar, self.square.bytes), type.width)


def tile_copy(
    name: str, square: Square, pitches: tuple[int, int], is_transposed: bool, is_mean: bool = False
) -> KernelFunction:
    """Returns `name(source, target, rows, columns)`, which copies or transposes a source of at most one line each way.

    `pitches` are the distances of rows of source and target, in elements. With `is_mean`, `mirrored` follows the
    source: the tile that lies where its transpose does; the mean of both is stored.
    """
    mirrored = {"mirrored": PTR} if is_mean else {}
    f = KernelFunction(name, source=PTR, **mirrored, target=PTR, rows=I64, columns=I64)
    element, side = square.type.element, square.line
    vector = type_of(element, min(side, square.type.width))
    is_whole = f.compare("eq", f.binary("and", f["rows"], f["columns"]), f.index(side))

    def averaged(value: Value, other: Value) -> Value:
        total = f.binary("fadd", value, f.load(other, value.type, square.bytes))
        return f.binary("fmul", total, constant(value.type, 0.5))

    def part(name: str, pitch: int, row: IndexValue, column: IndexValue) -> list[Value]:
        """Returns the addresses of a column in the rows of a part."""
        first = f.at(f[name], f.add(f.multiply(row, pitch), column), element)
        return [f.at(first, k * pitch, element) for k in range(vector.width)]

    # Lines of a part are vectors of one register: LLVM would take longer ones apart, and run out of registers.
    with f.when(is_whole), f.loop(side, vector.width) as down, f.loop(side, vector.width) as along:
        corner = down.index, along.index
        lines = [f.load(address, vector, square.bytes) for address in part("source", pitches[0], *corner)]
        if is_transposed:
            lines, corner = transpose(f, lines), corner[::-1]
        if is_mean:
            lines = [*map(averaged, lines, part("mirrored", pitches[0], *corner))]
        for line, address in zip(lines, part("target", pitches[1], *corner), strict=True):
            f.store(line, address, square.bytes)
    with f.unless(is_whole), f.each(0, f["rows"]) as i, f.each(0, f["columns"]) as j:
        row, column = (j, i) if is_transposed else (i, j)
        value = f.load(f.at(f["source"], f.add(f.multiply(i, pitches[0]), j), element), vector.scalar, square.bytes)
        if is_mean:
            value = averaged(value, f.at(f["mirrored"], f.add(f.multiply(row, pitches[0]), column), element))
        f.store(value, f.at(f["target"], f.add(f.multiply(row, pitches[1]), column), element), square.bytes)
    return f
