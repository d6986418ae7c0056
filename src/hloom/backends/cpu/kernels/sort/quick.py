"""Quicksort in vector registers, of keys that determine their records, so that equal ones need no order.

Each pass partitions the keys around a pivot, vector by vector, alternating between two buffers; partitions that fit in
registers are sorted by a network. On several threads each sorts a part; the parts are merged, and each thread writes
its share of the result.

The source has the records; parts are sorted in the spare column; the target gets the result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hloom.backends.cpu.kernels.kernel_function import KernelFunction, StackVariable, shared_function
from hloom.backends.cpu.kernels.sort.context import RowContext, RowField
from hloom.backends.cpu.kernels.sort.keys import SortKey
from hloom.backends.cpu.kernels.sort.merge import ParallelFor
from hloom.backends.cpu.kernels.sort.network import (
    MAX_VECTORS,
    has_networks,
    median,
    merged,
    partition,
    population_count,
    sorted_vectors,
)
from hloom.backends.cpu.kernels.sort.records import Records, load_raw, store_raw
from hloom.lir import I64, PTR, Function, IndexValue, Value, constant, type_of
from hloom.system.records import record

MAX_AVX2_ROW = 1 << 15
"""Elements up to which vectors of 32 bytes pay; longer rows are sorted by digits in less time."""
_FIELDS = RowField.SOURCE, RowField.SPARE, RowField.TARGET
SAMPLES = 9
"""Vectors whose median is the pivot, approximately."""


@record
class _Unsorted:
    """The partition that `quick` still has to sort: keys, scratch memory, where they are to go, and their number."""

    source: StackVariable
    scratch: StackVariable
    target: StackVariable
    count: StackVariable


def supports(records: Records, size: int, vector_bytes: int) -> bool:
    """Whether there is code for the records that pays."""
    (column, *others), key = records.columns, records.key
    if others or key is None or column.bits not in (32, 64):
        return False
    if not records.are_distinct and key.ambiguous_values is None:
        return False
    return has_networks(vector_bytes) and (vector_bytes == 64 or size <= MAX_AVX2_ROW)


class QuickSort:
    """Writes the functions of a quicksort of one row."""

    passes = 1

    def __init__(self, row: RowContext, vector_bytes: int) -> None:
        self.row, self.records, self.size, self.parts = row, row.records, row.size, row.parts
        (column,) = row.records.columns
        self.type = type_of(column.element, 8 * vector_bytes // column.bits)
        vectors = 1
        while vectors < MAX_VECTORS and vectors * self.type.width < row.size:
            vectors *= 2
        self.vectors, self.leaf_size = vectors, vectors * self.type.width
        self.is_short = self.parts == 1 and row.size <= self.leaf_size
        self.counts_bytes = 8 * self.parts

    @property
    def key(self) -> SortKey | None:
        """The conversion of records to keys and back; None if they are the same."""
        return None if self.records.are_distinct else self.records.key

    def functions(self) -> list[KernelFunction]:
        """Returns the functions that `sort` calls."""
        functions = [self._part()]
        if self.parts > 1:
            functions.append(self._merge())
        if self.key is not None:
            functions += [self._finish()] if not self.is_short else []
            functions += [self._restore_order()] if self.key.ambiguous_values else []
        return functions

    def sort(self, f: KernelFunction, context: Value, sets: Sequence[list[Value]], on: ParallelFor) -> None:
        """Sorts `sets[0]` into `sets[2]`; `sets[1]` may be `sets[0]`."""
        row, (source, spare, target) = self.row, sets
        for field, columns in zip(_FIELDS, sets, strict=True):
            row.put(f, context, field, columns)
        f.run_chunks(f"{row.name}.part", context, self.parts, on)
        current, other = (spare, target) if self._levels() % 2 else (target, spare)
        for level in range(self._levels()):
            row.put(f, context, RowField.SOURCE, current)
            row.put(f, context, RowField.TARGET, other)
            row.put(f, context, RowField.STEP, [constant(I64, 1 << level)])
            f.run_chunks(f"{row.name}.merge", context, self.parts, on)
            current, other = other, current
        row.put(f, context, RowField.SOURCE, source)
        row.put(f, context, RowField.TARGET, target)
        if self.key is not None and not self.is_short:
            f.run_chunks(f"{row.name}.finish", context, self.parts, on)
        if self.key is not None and self.key.ambiguous_values:
            f.call_void(f"{row.name}.restore", context, constant(I64, 0))

    def _levels(self) -> int:
        """Levels of merges."""
        return (self.parts - 1).bit_length()

    def _columns(self, f: KernelFunction, start: IndexValue) -> list[Value]:
        """Returns the addresses of a position in source, spare and target."""
        return [f.at(self.row.get(f, f["context"], field)[0], start, self.type.element) for field in _FIELDS]

    # Vectors in memory

    def _load(self, f: KernelFunction, address: Value, left: IndexValue) -> Value:
        """Loads up to `left` keys; other lanes hold the maximum."""
        mask = f.first_lanes(left, self.type.width)
        return f.load_masked(address, self.type, self._align, mask, constant(self.type, -1))

    def _store(self, f: KernelFunction, value: Value, address: Value, left: IndexValue) -> None:
        is_whole = isinstance(left, int) and left >= self.type.width
        f.store_masked(value, address, self._align, None if is_whole else f.first_lanes(left, self.type.width))

    @property
    def _align(self) -> int:
        return self.type.bits // 8

    # A part

    def _part(self) -> KernelFunction:
        """Writes the task that sorts a part of the row."""
        f = self.row.task("part")
        first, count = f.share(self.size, 1, self.parts, f["chunk"])
        source, spare, target = self._columns(f, first)
        changes = f.variable(constant(self.type, 0))
        if self.is_short:
            self._sort_leaf(f, source, target, self.size, None if self.key is None else changes)
        else:
            if self.key is not None:
                self._make_keys(f, source, spare, count, changes)
            destination = spare if self._levels() % 2 else target
            f.call_function(self._quick(), spare, target, destination, f.index(count))
        if self.key is not None and self.key.ambiguous_values:
            bits = f.call(f"llvm.vector.reduce.or.{self.type.suffix}", self.type.scalar, changes.get())
            store_raw(f, bits, self._changes(f), f["chunk"])
        return f

    def _changes(self, f: KernelFunction) -> Value:
        """Returns the address of a word for each part, which is not zero if decoding its keys does not restore the
        records.
        """
        return self.row.get(f, f["context"], RowField.COUNTS)[0]

    def _encode(self, f: KernelFunction, records: Value, left: IndexValue, changes: StackVariable) -> Value:
        """Returns the keys of a vector, and accumulates in `changes` the bits of records that decoding does not
        restore.
        """
        keys = self.records.key_of(f, records)
        assert self.key is not None
        if self.key.ambiguous_values:
            changed = f.binary("xor", self._decode(f, keys), records)
            inside = f.first_lanes(left, self.type.width)
            changes.set(f.binary("or", changes.get(), f.select(inside, changed, constant(self.type, 0))))
        return keys

    def _decode(self, f: KernelFunction, keys: Value) -> Value:
        assert self.key is not None
        return self.key.decode(f, keys)

    def _make_keys(
        self, f: KernelFunction, source: Value, target: Value, count: IndexValue, changes: StackVariable
    ) -> None:
        with f.each(0, count, self.type.width) as start:
            left = f.left(count, start)
            records = self._load(f, f.at(source, start, self.type.element), left)
            keys = self._encode(f, records, left, changes)
            self._store(f, keys, f.at(target, start, self.type.element), left)

    def _sort_leaf(
        self, f: KernelFunction, source: Value, target: Value, count: IndexValue, changes: StackVariable | None
    ) -> None:
        """Sorts as many keys as a network holds; with `changes`, they are encoded before and decoded after that.

        They are copied to the stack, which the greatest key fills up, and from there: so a single vector has a mask.
        """
        type, width = self.type, self.type.width
        stack = f.slot(type, self.vectors)

        def on_stack(start: IndexValue) -> Value:
            return f.at(stack, start, type.element)

        def push(start: IndexValue, left: IndexValue) -> None:
            keys = self._load(f, f.at(source, start, type.element), left)
            if changes is not None:
                encoded = self._encode(f, keys, left, changes)
                keys = f.select(f.first_lanes(left, width), encoded, constant(type, -1))
            f.store(keys, on_stack(start), self._align)

        def pop(start: IndexValue, left: IndexValue) -> None:
            keys = f.load(on_stack(start), type, self._align)
            keys = keys if changes is None else self._decode(f, keys)
            self._store(f, keys, f.at(target, start, type.element), left)

        with f.each(0, self.leaf_size, width) as start:
            f.store(constant(type, -1), on_stack(start), self._align)
        self._each_vector(f, count, push)
        addresses = [on_stack(k * width) for k in range(self.vectors)]
        ordered = sorted_vectors(f, [f.load(address, type, self._align) for address in addresses])
        for address, value in zip(addresses, ordered, strict=True):
            f.store(value, address, self._align)
        self._each_vector(f, count, pop)

    def _each_vector(
        self, f: KernelFunction, count: IndexValue, visit: Callable[[IndexValue, IndexValue], None]
    ) -> None:
        """Visits the start of each vector of `count` keys, and how many of its lanes are keys: all but in the last."""
        width = self.type.width
        whole = f.multiply(f.divide(count, width), width)
        with f.each(0, whole, width) as start:
            visit(start, width)
        with f.when(f.compare("ult", f.index(whole), f.index(count))):
            visit(whole, f.subtract(count, whole))

    def _leaf(self) -> Function:
        """Returns the function `(source, target, count)`, which sorts up to `leaf_size` keys."""
        name = f"sort.leaf.{self.type.suffix}.{self.vectors}"

        def write(f: KernelFunction) -> None:
            self._sort_leaf(f, f["source"], f["target"], f["count"], None)

        return shared_function(name, write, source=PTR, target=PTR, count=I64)

    def _quick(self) -> Function:
        """Returns the function `(source, scratch, target, count)`, which sorts keys from `source` into `target`, which
        is `source` or `scratch`.
        """
        name = f"sort.quick.{self.type.suffix}.{self.vectors}"
        calls = self._partition(), self._leaf()
        return shared_function(name, self._write_quick, calls, source=PTR, scratch=PTR, target=PTR, count=I64)

    def _write_quick(self, f: KernelFunction) -> None:
        keys, lesser = _Unsorted(*(f.variable(parameter) for parameter in f.parameters)), f.slot(I64, 1)
        with f.repeat(lambda: f.compare("ugt", keys.count.get(), f.index(self.leaf_size))):
            pivot = self._pivot(f, keys.source.get(), keys.count.get())
            partition_arguments = keys.source.get(), keys.scratch.get(), keys.count.get()
            f.call_function(self._partition(), *partition_arguments, pivot, lesser)
            lesser_count = f.load(lesser, I64, 8)
            is_greatest = f.compare("eq", lesser_count, keys.count.get())
            with f.when(is_greatest):
                self._finish_equal(f, keys, pivot, lesser)
            with f.unless(is_greatest):
                self._recurse(f, keys, lesser_count)
        f.call_function(self._leaf(), keys.source.get(), keys.target.get(), keys.count.get())

    def _finish_equal(self, f: KernelFunction, keys: _Unsorted, pivot: Value, lesser: Value) -> None:
        """Splits off a pivot that is the maximum: keys that equal it are stored to the target, lesser ones remain in
        the source.
        """
        minimum = constant(pivot.type, 0)
        bound = f.binary("sub", pivot, constant(pivot.type, 1))
        partition_arguments = keys.scratch.get(), keys.source.get(), keys.count.get()
        f.call_function(self._partition(), *partition_arguments, bound, lesser)
        lesser_count = f.select(f.compare("eq", pivot, minimum), constant(I64, 0), f.load(lesser, I64, 8))
        with f.each(lesser_count, keys.count.get()) as position:
            store_raw(f, pivot, keys.target.get(), position)
        keys.count.set(lesser_count)

    def _recurse(self, f: KernelFunction, keys: _Unsorted, lesser_count: Value) -> None:
        """Sorts the smaller one of two partitions, so that calls are few levels deep; the other one remains."""
        greater_count = f.index(f.subtract(keys.count.get(), lesser_count))
        first_is_smaller = f.compare("ult", lesser_count, greater_count)
        # The partitions are in the scratch memory of the whole.
        pointers = keys.scratch, keys.source, keys.target
        begins = [pointer.get() for pointer in pointers]
        ends = [f.at(begin, lesser_count, self.type.element) for begin in begins]
        chosen = [f.select(first_is_smaller, a, b) for a, b in zip(begins, ends, strict=True)]
        others = [f.select(first_is_smaller, b, a) for a, b in zip(begins, ends, strict=True)]
        f.call_void(f.function.name, *chosen, f.index(f.minimum(lesser_count, greater_count)))
        for variable, value in zip((keys.source, keys.scratch, keys.target), others, strict=True):
            variable.set(value)
        keys.count.set(f.select(first_is_smaller, greater_count, lesser_count))

    def _pivot(self, f: KernelFunction, base: Value, count: Value) -> Value:
        """Returns the median of medians of vectors from all over, then of their lanes."""
        width = self.type.width
        step = f.divide(f.subtract(count, width), SAMPLES - 1)
        addresses = [f.at(base, f.multiply(step, k), self.type.element) for k in range(SAMPLES)]
        values = [f.load(address, self.type, self._align) for address in addresses]
        while len(values) > 1:
            values = [median(f, *values[k : k + 3]) for k in range(0, len(values), 3)]
        (value,) = values
        for distance in (width // 3, 1):
            rotations = [[(lane + k * distance) % width for lane in range(width)] for k in (1, 2)]
            value = median(f, value, *(f.shuffle(value, None, lanes) for lanes in rotations))
        return f.extract(value, 0)

    def _partition(self) -> Function:
        """Returns the function `(source, target, count, bound, lesser)`, which moves keys up to a bound to the front,
        others to the back, and counts the former.

        Keys that do not fill a vector come first. A whole vector, its lesser keys before the others, is stored both
        where the front ends and where the back begins: between them is room for as many vectors as are left.
        """
        parameters = {"source": PTR, "target": PTR, "count": I64, "bound": self.type.scalar, "lesser": PTR}
        return shared_function(f"sort.partition.{self.type.suffix}", self._write_partition, **parameters)

    def _write_partition(self, f: KernelFunction) -> None:
        type, width = self.type, self.type.width
        source, target, count = f["source"], f["target"], f["count"]
        bounds = f.splat(f["bound"], width)
        ragged = f.index(f.remainder(count, width))
        values = self._load(f, source, ragged)
        inside = f.first_lanes(ragged, width)
        is_lesser = f.binary("and", inside, f.compare("ule", values, bounds))
        front, values = f.variable(population_count(f, is_lesser)), partition(f, values, is_lesser)
        is_below = f.first_lanes(front.get(), width)
        f.store_masked(values, target, self._align, is_below)
        is_above = f.binary("and", inside, f.binary("xor", is_below, constant(is_below.type, True)))
        back = f.variable(f.index(f.subtract(count, f.subtract(ragged, front.get()))))
        f.store_masked(values, f.at(target, f.subtract(count, ragged), type.element), self._align, is_above)
        with f.each(ragged, count, width) as start:
            values = f.load(f.at(source, start, type.element), type, self._align)
            is_lesser = f.compare("ule", values, bounds)
            values, below = partition(f, values, is_lesser), population_count(f, is_lesser)
            for position in (front.get(), f.subtract(back.get(), width)):
                f.store(values, f.at(target, position, type.element), self._align)
            front.set(f.index(f.add(front.get(), below)))
            back.set(f.index(f.subtract(back.get(), f.subtract(width, below))))
        f.store(front.get(), f["lesser"], 8)

    # Merging parts

    def _merge(self) -> KernelFunction:
        """Writes the task that merges two runs of `step` parts each, from source to target: one part of the result."""
        f = self.row.task("merge").as_call_only()
        (source,), (target,), (step,) = (
            self.row.get(f, f["context"], field) for field in (RowField.SOURCE, RowField.TARGET, RowField.STEP)
        )
        sizes = f.index(self.size), f.index(self.parts)
        f.call_function(self._merging(), source, target, step, f["chunk"], *sizes)
        return f

    def _merging(self) -> Function:
        """Returns the function `(source, target, step, part, size, parts)`, which writes a part of the result."""
        words = dict.fromkeys(("step", "part", "size", "parts"), I64)
        return shared_function(f"sort.merge.{self.type.suffix}", self._write_merging, source=PTR, target=PTR, **words)

    def _write_merging(self, f: KernelFunction) -> None:
        source, target, step, part, size, parts = f.parameters
        width = self.type.width
        pair = f.add(step, step)
        run = f.multiply(f.binary("udiv", part, f.index(pair)), pair)
        ends = [f.minimum(f.add(run, distance), parts) for distance in (0, step, pair)]
        runs = [f.index(f.share(size, 1, parts, end)[0]) for end in ends]
        first, count = f.share(size, 1, parts, part)
        positions = [f.variable(position) for position in self._merge_path(f, source, runs, f.subtract(first, runs[0]))]
        carried = f.variable(self._next_vector(f, source, positions[0], runs[1]))
        with f.each(0, count, width) as start:
            heads = [self._head(f, source, position, end) for position, end in zip(positions, runs[1:], strict=True)]
            is_second = f.compare("ult", heads[1], heads[0])
            chosen = f.variable(f.select(is_second, positions[1].get(), positions[0].get()))
            next_keys = self._next_vector(f, source, chosen, f.select(is_second, runs[2], runs[1]))
            low, high = merged(f, carried.get(), next_keys)
            self._store(f, low, f.at(target, f.add(first, start), self.type.element), f.subtract(count, start))
            carried.set(high)
            positions[0].set(f.select(is_second, positions[0].get(), chosen.get()))
            positions[1].set(f.select(is_second, chosen.get(), positions[1].get()))

    def _next_vector(self, f: KernelFunction, source: Value, position: StackVariable, end: Value) -> Value:
        """Loads the next vector of a run."""
        start = position.get()
        position.set(f.index(f.add(start, self.type.width)))
        return self._load(f, f.at(source, start, self.type.element), f.left(end, start))

    def _head(self, f: KernelFunction, source: Value, position: StackVariable, end: Value) -> Value:
        """Returns the first remaining key of a run; the maximum after its end."""
        inside = f.compare("ult", position.get(), end)
        key = load_raw(f, source, f.select(inside, position.get(), constant(I64, 0)), self.type.scalar)
        return f.select(inside, key, constant(self.type.scalar, -1))

    def _merge_path(
        self, f: KernelFunction, source: Value, runs: list[Value], count: IndexValue
    ) -> tuple[Value, Value]:
        """Returns the positions in two runs, delimited by `runs`, where the first `count` keys of both together end."""
        start, middle, end = runs
        low = f.variable(f.index(f.left(count, f.subtract(end, middle))))
        high = f.variable(f.index(f.minimum(count, f.subtract(middle, start))))
        with f.repeat(lambda: f.compare("ult", low.get(), high.get())):
            tried = f.index(f.divide(f.add(low.get(), high.get()), 2))
            other = f.subtract(f.subtract(count, 1), tried)
            a = load_raw(f, source, f.add(start, tried), self.type.scalar)
            b = load_raw(f, source, f.add(middle, other), self.type.scalar)
            is_less = f.compare("ult", a, b)
            low.set(f.select(is_less, f.index(f.add(tried, 1)), low.get()))
            high.set(f.select(is_less, high.get(), tried))
        return f.index(f.add(start, low.get())), f.index(f.add(middle, f.subtract(count, low.get())))

    # From keys back to records

    def _finish(self) -> KernelFunction:
        """Writes the task that decodes the keys of a part to records."""
        f = self.row.task("finish")
        first, count = f.share(self.size, 1, self.parts, f["chunk"])
        *_, target = self._columns(f, first)
        with f.each(0, count, self.type.width) as start:
            address, left = f.at(target, start, self.type.element), f.left(count, start)
            self._store(f, self._decode(f, self._load(f, address, left)), address, left)
        return f

    def _restore_order(self) -> KernelFunction:
        """Writes the function that stores records with the same key in their original order."""
        f = self.row.task("restore")
        assert self.key is not None and self.key.ambiguous_values
        source, _, target = self._columns(f, 0)
        changes = f.variable(constant(self.type.scalar, 0))
        with f.each(0, self.parts) as part:
            changes.set(f.binary("or", changes.get(), load_raw(f, self._changes(f), part, self.type.scalar)))
        with f.when(f.compare("ne", changes.get(), constant(self.type.scalar, 0))):
            for value in self.key.ambiguous_values:
                self._rewrite_records(f, source, target, self.key.encode_constant(f, value))
        return f

    def _rewrite_records(self, f: KernelFunction, source: Value, target: Value, key: Value) -> None:
        """Stores the records of a key, in their original order, after all lesser ones."""
        target_position = f.variable(constant(I64, 0))
        for predicate in ("ult", "eq"):
            with f.each(0, self.size) as position:
                record = load_raw(f, source, position, self.type.scalar)
                with f.when(f.compare(predicate, self.records.key_of(f, record), key)):
                    if predicate == "eq":
                        store_raw(f, record, target, target_position.get())
                    target_position.set(f.index(f.add(target_position.get(), 1)))
