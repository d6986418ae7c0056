"""The inner loops of a convolution: the sums of one tile in registers, and their store.

A function that convolutions share, `(image, weights, table, entries, sums, distances)`, accumulates a tile in memory at
`sums`, row by row. `name.store(sums, result, position, features, counts)` stores it: `position` is its first one in the
row of positions, `result` the address of the row, `features` the number of columns (or rows) left, `counts` the outputs
of the class on each axis.
"""

from __future__ import annotations

import itertools

from hloom.backends.cpu.kernels.convolution.geometry import Mode
from hloom.backends.cpu.kernels.convolution.plan import ConvolutionPlan
from hloom.backends.cpu.kernels.distances import Distances, addresses_of_rows
from hloom.backends.cpu.kernels.kernel_function import KernelFunction, shared_function, size_of
from hloom.backends.cpu.kernels.products.sums import addition, group_length, move_sums
from hloom.lir import I64, PTR, Function, IndexValue, Type, Value, constant
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
    """Writes `name.store`."""

    def __init__(self, plan: ConvolutionPlan) -> None:
        self.plan, self.tile, self.type = plan, plan.tile, plan.tile.type
        self.result = plan.geometry.result

    def function(self, name: str) -> KernelFunction:
        """Returns the function `name`, which stores a tile."""
        f = KernelFunction(name, sums=PTR, result=PTR, position=I64, features=I64, counts=PTR)
        axes = self.plan.geometry.flat_axes
        if len(axes) < 2:
            count: IndexValue = self._count(f, len(self.plan.form.axes) - 1) if axes else self.plan.form.batch
            self._store_line(f, f["position"], f["result"], 0, count)
            return f
        pitch = self.plan.geometry.pitches[-2]
        first = f.divide(f["position"], pitch)
        end = f.add(f.divide(f.add(f["position"], self.plan.tile_positions - 1), pitch), 1)
        with f.each(first, end) as line:
            self._store_part_of_line(f, line, pitch)
        return f

    def _count(self, f: KernelFunction, d: int) -> IndexValue:
        """Outputs of the class along an axis."""
        axis = self.plan.form.axes[d]
        return axis.max_outputs if axis.period == 1 else f.load(f.at(f["counts"], d, "i64"), I64, 8)

    def _store_part_of_line(self, f: KernelFunction, line: Value, pitch: int) -> None:
        """Stores the part of the tile that is in a line of the last axis, if the result has this line."""
        g, axes = self.plan.geometry, self.plan.form.axes
        start = f.multiply(line, pitch)
        remaining: IndexValue = line
        offset: IndexValue = 0
        is_inside: Value | None = None
        for d in range(len(axes) - 2, len(axes) - 1 - g.flat, -1):
            index, outermost = remaining, d == len(axes) - g.flat
            if not outermost:
                lines = g.pitches[d - 1 - len(axes)] // g.pitches[d - len(axes)]
                index, remaining = f.remainder(remaining, lines), f.divide(remaining, lines)
            fits = f.compare("ult", f.index(index), f.index(self._count(f, d)))
            is_inside = fits if is_inside is None else f.binary("and", is_inside, fits)
            offset = f.add(offset, f.multiply(index, axes[d].output_stride * axes[d].period))
        assert is_inside is not None
        with f.when(is_inside):
            self._store_line(
                f, f["position"], f.at(f["result"], offset, self.result.element), start, self._count(f, len(axes) - 1)
            )

    def _store_line(
        self, f: KernelFunction, position: Value, result: Value, start: IndexValue, count: IndexValue
    ) -> None:
        """Stores the positions of the tile from `start` on, `count` at most, to a line of the result."""
        begin = f.intrinsic("umax", position, f.index(start))
        end = f.minimum(f.add(position, self.plan.tile_positions), f.add(start, count))
        with f.when(f.compare("ult", begin, f.index(end))):
            positions = f.index(f.subtract(end, begin))
            skipped, offset = f.subtract(begin, position), f.subtract(begin, start)
            if self.plan.geometry.mode is Mode.COLUMNS:
                sums = f.at(f["sums"], skipped, self.type.element)
                target = f.at(result, f.multiply(offset, self.result.column), self.result.element)
                rows, columns = f.index(f.minimum(f["features"], self.plan.tile_features)), positions
            else:
                sums = f.at(f["sums"], f.multiply(skipped, self.tile.columns), self.type.element)
                target = f.at(result, f.multiply(offset, self.result.row), self.result.element)
                rows, columns = positions, f.index(f.minimum(f["features"], self.plan.tile_features))
            self._store_rectangle(f, sums, target, rows, columns)

    def _store_rectangle(self, f: KernelFunction, sums: Value, corner: Value, rows: Value, columns: Value) -> None:
        result, type = self.result, self.type
        with f.loop(rows) as row:
            line = f.at(sums, f.multiply(row.index, self.tile.columns), type.element)
            target = f.at(corner, f.multiply(row.index, result.row), result.element)
            if result.has_contiguous_rows:
                with f.loop(columns, type.width) as column:
                    left = f.subtract(columns, column.index)
                    source = f.at(line, column.index, type.element)
                    value = f.load_masked(source, type, size_of(type.element), f.first_lanes(left, type.width))
                    f.store_first(value, f.at(target, column.index, result.element), result.type, left)
            else:
                with f.loop(columns) as column:
                    value = _load(f, f.at(line, column.index, type.element), type.scalar)
                    offset = result.offset(f, 0, column.index)
                    f.store_as(value, f.at(target, offset, result.element), result.type)
