"""The inner loops of a matrix product: the tile in registers, its store, and the packing of A.

The kernel accumulates a tile of `rows x columns` sums in registers. Each step of K loads one row of B as vectors and
multiplies it by one broadcast element of A for each row of the tile. Its code depends on the tile, the types and the
kinds of distances (`MicroKernel`), so products of all sizes share it.

Packed A has panels of `tile.rows` rows. If K is contiguous in memory, rows stay rows (copied to be close together); if
columns are contiguous, the elements of each step are. Packed B has panels of `tile.columns` columns, one row of the
panel for each step of K, and zeros past the last column.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from hloom.backends.cpu.kernels.distances import Distances, addresses_of_rows
from hloom.backends.cpu.kernels.kernel_function import KernelFunction, size_of
from hloom.backends.cpu.kernels.products.matrix import Matrix
from hloom.backends.cpu.kernels.products.packing.packing import UNITS_OF_A, PackedMatrix, Packing
from hloom.backends.cpu.kernels.products.sums import addition
from hloom.backends.cpu.kernels.products.tiles.tile import Tile, TileStore, tile_function
from hloom.lir import Function, IndexValue, Type, Value, constant
from hloom.system.records import record


@record
class PanelStrides:
    """Distances in one operand, in elements: from panel to panel, from step to step of K, and from row to row within a
    step (A only; rows of B are contiguous). `masked`: the last panel of B may have fewer columns than the tile.
    `streamed`: B is read in place from memory, so the kernel prefetches the same row of the next panel.
    """

    panel: int
    step: IndexValue
    row: IndexValue = 1
    masked: bool = False
    streamed: bool = False


@record
class MicroKernel:
    """The shared function `(a, b, c, partial, steps, rows, columns, first, last, distances)`.

    It multiplies a panel of A by a panel of B over `steps` of K, and stores the sums to the first `rows` and `columns`
    of `c`. With `has_partial_sums` it adds those in `partial`, and stores all there unless `last`; with `adds` it adds
    those in `c` unless `first`. With `has_blocks`, each `summed_steps` are summed from zero (sums.py), and `partial`
    holds zeros even without partial sums. With `corrected`, a panel of B has one more row, which is added to the sums.
    `rule` names `multiply_add`.

    Distances and `summed_steps` are read from `distances`, unless they follow from the tile.
    """

    tile: Tile
    a: PanelStrides
    b: PanelStrides
    c: Matrix
    summed_steps: IndexValue
    has_blocks: bool
    has_partial_sums: bool
    adds: bool
    has_ragged_rows: bool
    has_ragged_columns: bool
    corrected: bool
    multiply_add: Callable[[KernelFunction, Value, Value, Value], Value]
    rule: str
    distances_of_c: tuple[IndexValue, IndexValue] = (0, 0)

    def function(self) -> Function:
        """Returns the function."""
        return tile_function(self._name, self._write)

    @property
    def distances(self) -> Distances:
        """The distances of this product, and the steps that it sums from zero."""
        a, b, c = self.a, self.b, self.c
        steps = self.summed_steps if self.has_blocks else 0
        fixed = a.row in (0, 1), a.step == 1, b.step == self.tile.columns, False, c.column == 1, not self.has_blocks
        return Distances((a.row, a.step, b.step, c.row, c.column, steps), fixed)

    @property
    def _name(self) -> str:
        flags = "has_blocks", "has_partial_sums", "adds", "has_ragged_rows", "has_ragged_columns", "corrected"
        words = [flag.removeprefix("has_") for flag in flags if getattr(self, flag)]
        words += [word for word in ("masked", "streamed") if getattr(self.b, word)]
        words += ["paired"] if self.c.paired else []
        tile = f"{self.tile.rows}x{self.tile.columns}.{self.tile.type.element}"
        return ".".join(["product", tile, self.rule or "plain", self.c.type.name.lower(), self.distances.kinds, *words])

    def _write(self, f: KernelFunction) -> None:
        row_of_a, step_of_a, step_of_b, row_of_c, column_of_c, summed_steps = self.distances.read(f, f["distances"])
        a, b = replace(self.a, row=row_of_a, step=step_of_a), replace(self.b, step=step_of_b)
        of_c = row_of_c, column_of_c
        replace(self, a=a, b=b, summed_steps=summed_steps, distances_of_c=of_c)._write_tile(f)

    @property
    def _store(self) -> TileStore:
        ragged = self.has_ragged_rows, self.has_ragged_columns
        return TileStore(self.tile, self.c, self.distances_of_c, *ragged, adds=self.adds)

    def _write_tile(self, f: KernelFunction) -> None:
        sums, spilled = self._sum_blocks(f)
        if not self.c.has_contiguous_rows:
            self._store_through_stack(f, sums, spilled)
            return
        is_whole = self._store.is_whole(f, f["last"] if self.has_partial_sums else None)
        with f.when(is_whole):
            if self.adds:
                with f.unless(f["first"]):
                    self._store_sums(f, self._added_to_result(f, sums))
            with f.when(f["first"] if self.adds else None):
                self._store_sums(f, sums)
        if is_whole is not None:
            with f.unless(is_whole):
                self._store_through_stack(f, sums, spilled)

    def _store_sums(self, f: KernelFunction, sums: list[Value]) -> None:
        """Stores sums from registers to the result."""
        for value, address in zip(sums, self._addresses(f), strict=True):
            f.store_as(value, address, self.c.type)

    def _added_to_result(self, f: KernelFunction, sums: list[Value]) -> list[Value]:
        """Returns the sums added to those of the preceding blocks, in the result."""
        type, pairs = self.tile.type, zip(sums, self._addresses(f), strict=True)
        return [f.binary(addition(type), f.load_as(address, self.c.type, type), value) for value, address in pairs]

    def _addresses(self, f: KernelFunction) -> list[Value]:
        """Returns the addresses in the result of the vectors of the tile."""
        row, width = self.distances_of_c[0], self.tile.type.width
        indices = [divmod(i, self.tile.vectors) for i in range(self.tile.rows * self.tile.vectors)]
        return [f.at(f["c"], f.add(f.multiply(i, row), j * width), self.c.element) for i, j in indices]

    def _store_through_stack(self, f: KernelFunction, sums: list[Value], spilled: Value | None) -> None:
        """Spills the sums to memory and, if they are finished, copies those inside of the result."""
        stack = spilled or f.slot(self.tile.type, len(sums))
        self._spill(f, sums, stack)
        with f.when(f["last"] if self.has_partial_sums else None):
            self._store.copy(f, stack)

    def _sum_blocks(self, f: KernelFunction) -> tuple[list[Value], Value | None]:
        """Returns the sums, one for each vector of the tile, row by row, and the address where sums of several blocks
        are spilled.
        """
        partial, steps, type = f["partial"], f["steps"], self.tile.type
        zeros = [constant(type, 0)] * (self.tile.rows * self.tile.vectors)
        spilled = partial if self.has_partial_sums else None
        if not self.has_blocks:
            sums = self._products(f, 0, steps, zeros)
            return self._add_spilled(f, self._corrected(f, sums) if self.corrected else sums, spilled), spilled
        if spilled is None:
            spilled = f.slot(type, len(zeros))
        with f.loop(steps, self.summed_steps) as block:
            end = f.add(block.index, self.summed_steps)
            is_first = f.compare("eq", f.index(block.index), f.index(0))
            sums = self._products(f, block.index, f.minimum(end, steps), zeros)
            sums = self._add_spilled(f, sums, f.select(is_first, partial, spilled))
            with f.when(f.compare("ult", f.index(end), steps)):
                self._spill(f, sums, spilled)
        return sums, spilled

    def _add_spilled(self, f: KernelFunction, sums: list[Value], spilled: Value | None) -> list[Value]:
        """Returns the sums added to those of the preceding blocks."""
        if spilled is None:
            return sums
        type = self.tile.type
        before = [f.load(f.at(spilled, i * type.width, type.element), type, 64) for i in range(len(sums))]
        return [f.binary(addition(type), a, b) for a, b in zip(before, sums, strict=True)]

    def _spill(self, f: KernelFunction, sums: list[Value], spilled: Value) -> None:
        for i, value in enumerate(sums):
            f.store(value, f.at(spilled, i * self.tile.type.width, self.tile.type.element), 64)

    def _products(self, f: KernelFunction, first: IndexValue, end: IndexValue, sums: list[Value]) -> list[Value]:
        """Writes the loop over steps of K, which adds products to the sums."""
        tile, type = self.tile, self.tile.type
        a, b, columns = f["a"], f["b"], f["columns"]
        masks: list[Value | None] = [None] * tile.vectors
        if self.b.masked:
            masks = [f.first_lanes(f.left(columns, j * type.width), type.width) for j in range(tile.vectors)]
        rows_of_a = addresses_of_rows(f, a, self.a.row, tile.rows, type.element)
        with f.loop(end, carried=sums, first=first) as loop:
            row_of_b = f.at(b, f.multiply(loop.index, self.b.step), type.element)
            column_of_a = rows_of_a(f.multiply(loop.index, self.a.step))
            vectors = [
                _load_real(f, f.at(row_of_b, j * type.width, type.element), type, mask) for j, mask in enumerate(masks)
            ]
            if self.b.streamed:
                for j in range(tile.vectors):
                    f.prefetch(f.at(row_of_b, tile.columns + j * type.width, type.element))
            for i in range(tile.rows):
                scalar = _load_real(f, column_of_a[i], type.scalar)
                factor = f.splat(scalar, type.width)
                for j, vector in enumerate(vectors):
                    index = i * tile.vectors + j
                    loop.carried[index] = self.multiply_add(f, factor, vector, loop.carried[index])
        return loop.carried

    def _corrected(self, f: KernelFunction, sums: list[Value]) -> list[Value]:
        """Returns the sums with, after the last step, the last row of B's panel added."""
        b, steps, last = f["b"], f["steps"], f["last"]
        type, row = self.tile.type, f.at(b, f.multiply(steps, self.b.step), self.tile.type.element)
        added = [_load_real(f, f.at(row, j * type.width, type.element), type) for j in range(self.tile.vectors)]
        if self.has_partial_sums or self.adds:
            added = [f.select(last, value, constant(type, 0)) for value in added]
        return [f.binary("add", value, added[i % self.tile.vectors]) for i, value in enumerate(sums)]


def _align(type: Type) -> int:
    return size_of(type.element)


def _load_real(f: KernelFunction, pointer: Value, type: Type, mask: Value | None = None) -> Value:
    """Loads an element or vector of the accumulator's own type."""
    return f.load_masked(pointer, type, _align(type), mask)


def pack_rows_of_a(source: Matrix, tile: Tile, pitch: IndexValue) -> Packing:
    """Returns the packing of A in rows that are `pitch` steps apart.

    Rows past the last one repeat it. It stores whole vectors, so `pitch` is a multiple of their width.
    """
    type = tile.type if source.has_contiguous_k(source.column) else tile.type.scalar

    def write(f: KernelFunction, matrix: PackedMatrix, sizes: Sequence[IndexValue]) -> None:
        (pitch,), rows, elements = sizes, f["rows"], f["elements"]
        with f.loop(f.multiply(f.ceil_divide(rows, tile.rows), tile.rows)) as row:
            row_in_source = f.minimum(row.index, f.subtract(rows, 1))
            line = f.at(f["target"], f.multiply(row.index, pitch), type.element)
            with f.loop(f.ceil_divide(elements, source.per_step), max(type.width, 1)) as step:
                pointer = f.at(f["source"], matrix.offset(f, row_in_source, step.index), source.element)
                left = f.subtract(elements, f.multiply(step.index, source.per_step))
                load = source.load_steps if type.width else matrix.load_step
                f.store(load(f, pointer, type, left), f.at(line, step.index, type.element), _align(type))

    return Packing(["rows_of_a", f"{tile.rows}.{type.suffix}"], source, UNITS_OF_A, (pitch,), write)


def pack_steps_of_a(source: Matrix, tile: Tile, panel: IndexValue) -> Packing:
    """Returns the packing of A in panels `panel` elements apart, each step contiguous.

    It is for an A whose columns are contiguous (`source.row == 1`). A store may write up to a vector past a step's end,
    which the next step overwrites; `panel` has room for that of the last step.
    """
    type = tile.type

    def write(f: KernelFunction, matrix: PackedMatrix, sizes: Sequence[IndexValue]) -> None:
        (panel,), rows, elements = sizes, f["rows"], f["elements"]
        panels = f.ceil_divide(rows, tile.rows)
        with f.loop(f.ceil_divide(elements, source.per_step)) as step, f.loop(panels) as panel_index:
            first = f.multiply(panel_index.index, tile.rows)
            line = f.at(f["source"], f.add(first, f.multiply(step.index, matrix.column)), source.element)
            left = f.subtract(elements, f.multiply(step.index, source.per_step))
            offset = f.add(f.multiply(panel_index.index, panel), f.multiply(step.index, tile.rows))
            target = f.at(f["target"], offset, type.element)
            for start in range(0, tile.rows, type.width):
                mask = f.first_lanes(f.left(rows, f.add(first, start)), type.width)
                value = matrix.load_step(f, f.at(line, start, source.element), type, left, mask)
                f.store(value, f.at(target, start, type.element), _align(type))

    return Packing(["steps_of_a", f"{tile.rows}.{type.suffix}"], source, UNITS_OF_A, (panel,), write)
