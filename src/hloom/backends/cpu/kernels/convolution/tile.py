"""The inner loops of a convolution: the sums of one tile in registers, and their store.

A function that convolutions share, `(image, weights, table, entries, sums, distances)`, accumulates a tile in memory at
`sums`, row by row. Another one, `(sums, result, position, features, counts, distances)`, stores it: `position` is its
first one in the row of positions, `result` the address of the row, `features` the number of columns (or rows) left,
`counts` the outputs of the class on each axis.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from hloom.backends.cpu.kernels.convolution.geometry import Mode
from hloom.backends.cpu.kernels.convolution.plan import ConvolutionPlan
from hloom.backends.cpu.kernels.distances import Distances, addresses_of_rows
from hloom.backends.cpu.kernels.kernel_function import KernelFunction, shared_function, size_of
from hloom.backends.cpu.kernels.products.matrix import element_offset
from hloom.backends.cpu.kernels.products.sums import addition, group_length, move_sums
from hloom.lir import I64, PTR, Function, IndexValue, Type, Value, constant
from hloom.system.records import record
from hloom.target import CACHE_LINE

SHORT_RUN = 16  # elements: whose number is a constant of the code


class SumTile:
    """Writes the shared function that accumulates a tile."""

    def __init__(self, plan: ConvolutionPlan) -> None:
        self.plan, self.tile, self.type, self.mode = plan, plan.tile, plan.tile.type, plan.geometry.mode
        run = plan.geometry.run.length
        steps = plan.summed_steps(run * plan.block)
        self.is_one_block, self.sums_entries = steps == run * plan.block, run <= steps
        block = steps // run if self.sums_entries else plan.summed_steps(run)
        group = block * max(1, group_length(run) // block)
        self.has_groups = not self.sums_entries and group < run
        self.has_sums = plan.has_partial_sums or not self.is_one_block
        self.stores_zeros = not plan.has_partial_sums and (self.has_sums or any(c.entries == 0 for c in plan.classes))
        stride = plan.geometry.run_stride if run > 1 else 1
        row = 1 if self.mode is Mode.COLUMNS else plan.geometry.row_stride
        self.shifts = self._shifts(run, stride)
        self.distances = Distances(
            (run, stride, row, 0 if self.is_one_block else block, group if self.has_groups else 0),
            (
                run <= SHORT_RUN or bool(self.shifts),
                stride == 1 or bool(self.shifts),
                row in (0, 1),
                self.is_one_block,
                not self.has_groups,
            ),
        )

    def function(self) -> Function:
        """Returns the function."""
        kind = "block" if self.is_one_block else "entries" if self.sums_entries else "runs"
        flags = "has_sums", "stores_zeros"
        words = [kind, *(flag for flag in flags if getattr(self, flag))]
        tile = f"{self.tile.rows}x{self.tile.columns}.{self.type.element}"
        name = ".".join(["convolution", self.mode.value, tile, self.distances.kinds, *words])
        parameters = {"image": PTR, "weights": PTR, "table": PTR, "entries": I64, "sums": PTR, "distances": PTR}
        return shared_function(name, self._write, **parameters)

    def _write(self, f: KernelFunction) -> None:
        zeros = [constant(self.type, 0)] * (self.tile.rows * self.tile.vectors)
        distances = self.distances.read(f, f["distances"])
        if self.stores_zeros:
            self._store(f, zeros, f["sums"])
        with f.when(f.compare("ne", f["entries"], f.index(0))):
            if self.is_one_block:
                sums = self._accumulate(f, distances, (0, f["entries"]), (0, distances[0]), zeros)
                self._store(f, self._add_to_stored(f, sums, f["sums"]) if self.has_sums else sums, f["sums"])
            elif self.sums_entries:
                self._blocks_of_entries(f, distances, zeros)
            else:
                self._blocks_of_runs(f, distances, zeros)

    def _blocks_of_entries(self, f: KernelFunction, distances: list[IndexValue], zeros: list[Value]) -> None:
        """Adds up entries, a block of them at a time from zero."""
        run, *_, block, _ = distances
        with f.loop(f["entries"], block) as entry:
            end = f.minimum(f.add(entry.index, block), f["entries"])
            sums = self._accumulate(f, distances, (entry.index, end), (0, run), zeros)
            self._store(f, self._add_to_stored(f, sums, f["sums"]), f["sums"])

    def _blocks_of_runs(self, f: KernelFunction, distances: list[IndexValue], zeros: list[Value]) -> None:
        """Adds up runs, each in blocks from zero; very many blocks are added in groups."""
        run, *_, block, group = distances
        partial = f.slot(self.type, len(zeros)) if self.has_groups else f["sums"]
        if self.has_groups:
            self._store(f, zeros, partial)
        with f.loop(f["entries"]) as entry, f.loop(run, group if self.has_groups else run) as part:
            end = f.minimum(f.add(part.index, group), run) if self.has_groups else run
            with f.loop(end, block, first=part.index) as step:
                steps = step.index, f.minimum(f.add(step.index, block), end)
                sums = self._accumulate(f, distances, (entry.index, f.add(entry.index, 1)), steps, zeros)
                self._store(f, self._add_to_stored(f, sums, partial), partial)
            if self.has_groups:
                move_sums(f, self.type, partial, f["sums"], self.tile.size)

    def _add_to_stored(self, f: KernelFunction, sums: list[Value], stored: Value) -> list[Value]:
        """Adds the sums to those in memory."""
        type, add = self.type, addition(self.type)
        addresses = [f.at(stored, i * type.width, type.element) for i in range(len(sums))]
        before = [f.load(address, type, type.width * size_of(type.element)) for address in addresses]
        return [f.binary(add, a, b) for a, b in zip(before, sums, strict=True)]

    def _store(self, f: KernelFunction, values: list[Value], target: Value) -> None:
        type = self.type
        for i, value in enumerate(values):
            f.store(value, f.at(target, i * type.width, type.element), type.width * size_of(type.element))

    def _accumulate(
        self,
        f: KernelFunction,
        distances: list[IndexValue],
        entries: tuple[IndexValue, IndexValue],
        steps: tuple[IndexValue, IndexValue],
        sums: list[Value],
    ) -> list[Value]:
        """Adds the products of a range of entries, and of a range of steps of their runs, to the sums."""
        element, width = self.type.element, self.plan.tile_features
        run, run_stride, row, *_ = distances
        with f.loop(entries[1], carried=sums, first=entries[0]) as entry:
            distance = f.load(f.at(f["table"], entry.index, "i64"), I64, 8)
            line = f.at(f["image"], distance, element)
            panel = f.at(f["weights"], f.multiply(entry.index, f.multiply(run, width)), element)
            if self.shifts and steps == (0, run):
                entry.carried = self._shifted_steps(f, line, panel, entry.carried)
            else:
                entry.carried = self._steps(f, line, panel, (run_stride, row), steps, entry.carried)
        return entry.carried

    def _steps(
        self,
        f: KernelFunction,
        line: Value,
        panel: Value,
        strides: tuple[IndexValue, IndexValue],
        steps: tuple[IndexValue, IndexValue],
        sums: list[Value],
    ) -> list[Value]:
        """Adds the products of a range of steps of a run; `strides` are those of the run, and of rows."""
        element, is_by_columns = self.type.element, self.mode is Mode.COLUMNS
        rows = addresses_of_rows(f, panel if is_by_columns else line, strides[1], self.tile.rows, element)
        with f.loop(steps[1], carried=sums, first=steps[0]) as step:
            image, weights = f.multiply(step.index, strides[0]), f.multiply(step.index, self.plan.tile_features)
            if is_by_columns:
                step.carried = self._step(f, rows(weights), f.at(line, image, element), step.carried)
            else:
                step.carried = self._step(f, rows(image), f.at(panel, weights, element), step.carried)
        return step.carried

    def _shifts(self, run: int, stride: int) -> list[int]:
        """Returns the distances of the elements of a run if vectors at these are parts of two adjacent ones, else none.

        Joining parts takes a cycle, and so does a load, but one that straddles two lines of the cache takes two.
        """
        last, is_line = (run - 1) * stride, self.type.width * size_of(self.type.element) == CACHE_LINE
        is_shifted = self.mode is Mode.COLUMNS and is_line and 0 < last <= self.type.width
        return [step * stride for step in range(run)] if is_shifted else []

    def _shifted_steps(self, f: KernelFunction, line: Value, panel: Value, sums: list[Value]) -> list[Value]:
        """Adds the products of a run, whose vectors are joined from parts of those that are loaded."""
        type, width, tile_features = self.type, self.type.width, self.plan.tile_features
        loaded = [_load(f, f.at(line, j * width, type.element), type) for j in range(self.tile.vectors + 1)]
        for step, distance in enumerate(self.shifts):
            lanes = range(distance, distance + width)
            vectors = [f.shuffle(a, b, lanes) for a, b in itertools.pairwise(loaded)]
            weights = f.at(panel, step * tile_features, type.element)
            factors = [
                f.splat(_load(f, f.at(weights, i, type.element), type.scalar), width) for i in range(self.tile.rows)
            ]
            pairs = itertools.product(factors, vectors)
            sums = [f.multiply_add(a, b, c) for (a, b), c in zip(pairs, sums, strict=True)]
        return sums

    def _step(self, f: KernelFunction, rows: list[Value], vectors: Value, sums: list[Value]) -> list[Value]:
        """Adds the products of one step of K."""
        tile, type = self.tile, self.type
        shared = [_load(f, f.at(vectors, j * type.width, type.element), type) for j in range(tile.vectors)]
        result = []
        for i, line in enumerate(rows):
            if self.mode is Mode.LANES:
                factors = [_load(f, f.at(line, j * type.width, type.element), type) for j in range(tile.vectors)]
            else:
                factors = [f.splat(_load(f, line, type.scalar), type.width)] * tile.vectors
            old = sums[i * tile.vectors : (i + 1) * tile.vectors]
            result += [f.multiply_add(a, b, c) for a, b, c in zip(factors, shared, old, strict=True)]
        return result


def _load(f: KernelFunction, address: Value, type: Type) -> Value:
    return f.load(address, type, size_of(type.element))


class StoreTile:
    """Writes the shared function `(sums, result, position, features, counts, distances)` that stores a tile."""

    def __init__(self, plan: ConvolutionPlan) -> None:
        self.type, self.result, g, axes = plan.tile.type, plan.geometry.result, plan.geometry, plan.form.axes
        self.flat, self.rank, self.mode = g.flat, len(axes), g.mode
        lines = [above // below for above, below in itertools.pairwise(g.pitches[:-1])]
        strides = [axis.output_stride * axis.period for axis in axes[self.rank - self.flat : -1]]
        fixed = self.result.row == 1, self.result.column == 1 and not self.result.paired
        sizes = plan.tile_positions, plan.tile_features, plan.tile.columns, plan.form.batch
        pitch = g.pitches[-2] if self.flat > 1 else 0
        values = self.result.row, self.result.column, *sizes, pitch, *lines, *strides
        self.distances = Distances(values, fixed + (False,) * (len(values) - 2))

    def function(self) -> Function:
        """Returns the function."""
        layout = [self.mode.value, f"{self.flat}of{self.rank}", *(["paired"] if self.result.paired else [])]
        types = [self.result.type.name.lower(), self.type.suffix]
        name = ".".join(["convolution.store", *layout, *types, self.distances.kinds[:3]])
        parameters = {"sums": PTR, "result": PTR, "position": I64, "features": I64, "counts": PTR, "distances": PTR}
        return shared_function(name, self._write, **parameters)

    def _write(self, f: KernelFunction) -> None:
        row, column, positions, features, columns, batch, pitch, *others = self.distances.read(f, f["distances"])
        tile = _StoredTile(self, f, (row, column), f.index(positions), f.index(features), f.index(columns))
        if self.flat < 2:
            tile.store_line(f["result"], f.index(0), self._count(f, self.rank - 1) if self.flat else f.index(batch))
            return
        lines, strides = others[: self.flat - 2], others[self.flat - 2 :]
        first = f.divide(f["position"], pitch)
        end = f.add(f.divide(f.add(f["position"], f.subtract(positions, 1)), pitch), 1)
        with f.each(first, end) as line:
            offset, is_inside = self._line(f, line, lines, strides)
            with f.when(is_inside):
                start = f.index(f.multiply(line, pitch))
                tile.store_line(f.at(f["result"], offset, self.result.element), start, self._count(f, self.rank - 1))

    def _count(self, f: KernelFunction, d: int) -> Value:
        """Outputs of the class along an axis."""
        return f.load(f.at(f["counts"], d, "i64"), I64, 8)

    def _line(
        self, f: KernelFunction, line: Value, lines: Sequence[IndexValue], strides: Sequence[IndexValue]
    ) -> tuple[IndexValue, Value]:
        """Returns the offset of a line of the last axis in the result, and whether the result has this line."""
        offset: IndexValue = 0
        is_inside: Value | None = None
        for k, index in enumerate(f.digits(line, lines)):
            fits = f.compare("ult", f.index(index), self._count(f, self.rank - self.flat + k))
            is_inside = fits if is_inside is None else f.binary("and", is_inside, fits)
            offset = f.add(offset, f.multiply(index, strides[k]))
        assert is_inside is not None
        return offset, is_inside


@record
class _StoredTile:
    """A tile in memory: distances of the rows and columns of the result, and sizes of the tile."""

    store: StoreTile
    f: KernelFunction
    distances: tuple[IndexValue, IndexValue]
    positions: Value
    features: Value
    columns: Value

    def store_line(self, result: Value, start: Value, count: Value) -> None:
        """Stores the positions of the tile from `start` on, `count` at most, to a line of the result."""
        f, position, to = self.f, self.f["position"], self.store.result
        begin = f.intrinsic("umax", position, start)
        end = f.minimum(f.add(position, self.positions), f.add(start, count))
        with f.when(f.compare("ult", begin, f.index(end))):
            number = f.index(f.subtract(end, begin))
            features = f.index(f.minimum(f["features"], self.features))
            skipped, offset = f.subtract(begin, position), f.subtract(begin, start)
            if self.store.mode is Mode.COLUMNS:
                first, along, counts = skipped, f.multiply(offset, self.distances[1]), (features, number)
            else:
                first, along = f.multiply(skipped, self.columns), f.multiply(offset, self.distances[0])
                counts = number, features
            self._rectangle(f.at(f["sums"], first, self.store.type.element), f.at(result, along, to.element), counts)

    def _rectangle(self, sums: Value, corner: Value, counts: tuple[Value, Value]) -> None:
        """Stores the first rows and columns."""
        f, result, type = self.f, self.store.result, self.store.type
        with f.loop(counts[0]) as row:
            line = f.at(sums, f.multiply(row.index, self.columns), type.element)
            target = f.at(corner, f.multiply(row.index, self.distances[0]), result.element)
            with f.loop(counts[1], type.width if result.has_contiguous_rows else 1) as column:
                source = f.at(line, column.index, type.element)
                if result.has_contiguous_rows:
                    left = f.subtract(counts[1], column.index)
                    value = f.load_masked(source, type, size_of(type.element), f.first_lanes(left, type.width))
                    f.store_first(value, f.at(target, column.index, result.element), result.type, left)
                else:
                    offset = element_offset(f, (0, column.index), self.distances, result.paired)
                    value = _load(f, source, type.scalar)
                    f.store_as(value, f.at(target, offset, result.element), result.type)
