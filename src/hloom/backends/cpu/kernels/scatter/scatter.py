"""`scatter`: windows combined into a copy of the operand, or in place, in the row-major order of the index vectors.

Threads divide the operand: each visits all index vectors and applies the updates in its own part, so their order, and
the result, are those of one thread.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from hloom.backends.cpu.elements.types import Element, resized
from hloom.backends.cpu.kernels.code import KernelCode, code_of, entry_function, has_native_arrays
from hloom.backends.cpu.kernels.kernel_function import KernelFunction, task_function
from hloom.backends.cpu.kernels.scalar_computation import ScalarComputation
from hloom.backends.cpu.kernels.scatter.bins import BinSort
from hloom.backends.cpu.kernels.scatter.plan import ScatterPlan, WindowStart, plan_scatter
from hloom.ir import Instruction
from hloom.lir import I64, PTR, IndexValue, Value, constant
from hloom.ops.scatter import Scatter
from hloom.target import CACHE_LINE, Target

PREFETCH_DISTANCE = 12
"""Windows between the prefetch of a target and its use."""
MAX_PREFETCHED_LINES = 8
"""Cache lines of a window that are prefetched."""
MIN_UPDATES_PER_ELEMENT = 256
"""Updates of an element from which hardly any changes its extremum, so that branches are predictable."""
TASK_COPY_BYTES = 1 << 18
"""Bytes of a large operand that a task copies."""


def emit(op: Scatter, name: str, instruction: Instruction, target: Target) -> KernelCode | None:
    """Returns the code of a scatter; None if the update computation cannot be emitted. Results may be the operands."""
    computation = ScalarComputation.of(op.update_computation)
    if computation is None or not has_native_arrays(instruction):
        return None
    return ScatterEmitter(op, name, instruction, computation, target).code()


class ScatterEmitter:
    """Writes the functions of a scatter."""

    def __init__(
        self, op: Scatter, name: str, instruction: Instruction, computation: ScalarComputation, target: Target,
    ) -> None:  # fmt: skip
        self.name, self.instruction, self.computation, self.target = name, instruction, computation, target
        self.plan: ScatterPlan = plan_scatter(op, instruction, target)
        self.count = (len(instruction.operands) - 1) // 2
        self.types = [operand.shape.element_type for operand in instruction.operands[: self.count]]
        self.index_type = instruction.operands[self.count].shape.element_type
        self.lanes = 0 if computation.calls_functions else self._lanes()
        self.predicate = None if self.lanes else self._predicate()

    def _predicate(self) -> str | None:
        """Returns the comparison that an update passes to change an extremum, if few do; None to combine all."""
        operand, update = self.instruction.operands[0].shape, self.instruction.operands[-1].shape
        root, type = self.computation.computation.root, self.types[0]
        comparison = {"maximum": "gt", "minimum": "lt"}.get(root.opcode)
        is_of_both = [i.opcode for i in {*root.operands}] == ["parameter"] * 2
        if (
            comparison is None
            or not is_of_both
            or update.element_count < MIN_UPDATES_PER_ELEMENT * operand.element_count
        ):
            return None
        if type.is_float:
            # Zeros of different signs compare equal, and NaN is unordered: both have to be combined.
            return {"gt": "uge", "lt": "ule"}[comparison]
        return f"{'s' if type.is_signed else 'u'}{comparison}"

    def _lanes(self) -> int:
        """Returns the width of vectors along the last dimension of windows; 0 if it is not contiguous."""
        loops = self.plan.window
        if not loops or loops[-1].strides != (1, 1) or loops[-1].size < 2:
            return 0
        return min(self._widest, 1 << (loops[-1].size - 1).bit_length())

    @property
    def _widest(self) -> int:
        """The width of vectors of elements."""
        return self.target.vector_bytes // max(4, *(type.real.byte_width for type in self.types))

    def code(self) -> KernelCode:
        """Returns the code of the scatter."""
        f = self._entry()
        on = f.threads_if(self.target.threads > 1)
        functions = [f]
        if (bins := self.plan.bins) is not None:
            sort = BinSort(self.name, bins, self._unpack, self._row)
            context = f.pack(*f.parameters)
            functions += sort.run(f, context, on)
            f.run_chunks(f"{self.name}.update", context, bins.count, on)
            return code_of(self.name, [*functions, self._update_bin(sort)], bins.scratch_bytes)
        for k in range(self.count):
            functions += self._copy(f, k, on)
        if not self.plan.is_empty:
            f.run_chunks(f"{self.name}.update", f.pack(*f.parameters), self.plan.shares,
                         on if self.plan.shares > 1 else None)  # fmt: skip
            functions.append(self._update())
        if self.plan.copies is None or self.plan.is_empty:
            return code_of(self.name, functions)
        self.plan.copies.add_to(f, f["result0"], f["scratch"], self._widest, self._combined)
        return code_of(self.name, functions, self.plan.copies.scratch_bytes)

    def _entry(self) -> KernelFunction:
        return entry_function(self.name, self.instruction)

    def _copy(self, f: KernelFunction, k: int, on: tuple[Value, Value] | None) -> list[KernelFunction]:
        """Copies an operand to its result, unless they share a buffer."""
        operand, result = f[f"operand{k}"], f[f"result{k}"]
        size = self.instruction.operands[k].shape.byte_size
        with f.when(f.compare("ne", operand, result)):
            if on is None or size < 2 * TASK_COPY_BYTES:
                f.copy(result, operand, size)
                return []
            f.run_chunks(f"{self.name}.copy{k}", f.pack(operand, result), -(-size // TASK_COPY_BYTES), on)
        task = task_function(f"{self.name}.copy{k}")
        source, target = task.unpack(task["context"], PTR, PTR)
        start = task.multiply(task["chunk"], TASK_COPY_BYTES)
        length = task.minimum(TASK_COPY_BYTES, task.subtract(size, start))
        task.copy(task.at(target, start, "i8"), task.at(source, start, "i8"), length)
        return [task]

    def _update(self) -> KernelFunction:
        """Writes the task that applies the updates of one part of the operand."""
        f, copies = task_function(f"{self.name}.update"), self.plan.copies
        workspace = self._unpack(f)
        if copies is not None:
            self.results = [copies.at(f, workspace, f["chunk"])]
            copies.fill(f, self.results[0], self._widest)
        self.part = self._part(f)
        self._batch(f, 0, 0, 0, 0)
        return f

    def _unpack(self, f: KernelFunction) -> Value:
        """Makes the arrays known to the functions that write a task; returns the address of the workspace."""
        n, words = self.count, f.unpack(f["context"], *[PTR] * (3 * self.count + 2))
        self.operands, self.indices, self.updates = words[:n], words[n], words[n + 1 : 2 * n + 1]
        self.results = words[2 * n + 1 : -1]
        return words[-1]

    def _update_bin(self, sort: BinSort) -> KernelFunction:
        """Writes the task that copies the part of a bin, and applies its updates in their order."""
        f, bins = task_function(f"{self.name}.update"), sort.bins
        workspace = self._unpack(f)
        size = self.instruction.operands[0].shape.element_count // bins.rows
        self._copy_bin(f, size << bins.shift)
        first, last = sort.bin(f, workspace)
        with f.each(first, last) as k:
            later = f.minimum(f.add(k, PREFETCH_DISTANCE), bins.indices - 1)
            self._prefetch_update(f, sort.entry(f, workspace, later)[1], size)
            row, index = sort.entry(f, workspace, k)
            update = f.multiply(index, self.plan.batches[0].strides[1])
            with self._at_window(f, update):
                self._elements(f, 0, update, f.multiply(row, size))
        return f

    def _at_window(self, f: KernelFunction, update: IndexValue) -> AbstractContextManager[None]:
        """Returns the scope of the code for the window of updates that starts at an offset."""
        return nullcontext()

    def _copy_bin(self, f: KernelFunction, elements: int) -> None:
        """Copies the task's part of the operands, of `elements` elements or what is left."""
        for k, type in enumerate(self.types):
            bytes = self.instruction.operands[k].shape.byte_size
            start = f.multiply(f["chunk"], elements * type.byte_width)
            length = f.minimum(elements * type.byte_width, f.subtract(bytes, start))
            with f.when(f.compare("ne", self.operands[k], self.results[k])):
                f.copy(f.at(self.results[k], start, "i8"), f.at(self.operands[k], start, "i8"), length)

    def _prefetch_update(self, f: KernelFunction, index: Value, size: int) -> None:
        update = f.element_at(self.updates[0], f.multiply(index, self.plan.batches[0].strides[1]), self.types[0])
        for line in range(min(MAX_PREFETCHED_LINES, -(-size * self.types[0].byte_width // CACHE_LINE))):
            f.prefetch(f.at(update, CACHE_LINE * line, "i8"))

    def _row(self, f: KernelFunction, step: IndexValue) -> tuple[Value, Value]:
        """Returns the row of the window of an index vector, and whether all of it is inside the operand."""
        target, is_inside = self._target(f, f.multiply(step, self.plan.batches[0].strides[0]), 0)
        size = self.instruction.operands[0].shape.element_count // (self.plan.bins.rows if self.plan.bins else 1)
        assert is_inside is not None
        return f.binary("udiv", f.index(target), f.index(size)), is_inside

    def _part(self, f: KernelFunction) -> tuple[IndexValue, IndexValue]:
        """Returns the first index of the task's part of the range that tasks divide, and its size."""
        partitioned = self.plan.partitioned
        if partitioned is None:
            return 0, 0
        size = partitioned.limit + 1 if isinstance(partitioned, WindowStart) else partitioned.size
        unit = max(self.lanes, 1) if self.plan.window and partitioned is self.plan.window[-1] else 1
        return f.share(size, unit, self.plan.shares, f["chunk"])

    def _batch(self, f: KernelFunction, depth: int, index: IndexValue, update: IndexValue, target: IndexValue) -> None:
        """Writes the loops over index vectors; the offsets are those in indices, updates and operand."""
        if depth == len(self.plan.batches):
            self._window(f, index, update, target)
            return
        loop = self.plan.batches[depth]
        first, size = self.part if loop is self.plan.partitioned else (0, loop.size)
        with f.each(first, f.add(first, size)) as step:
            if depth == 0 and self.plan.prefetches:
                self._prefetch(f, f.minimum(f.add(step, PREFETCH_DISTANCE), loop.size - 1))
            offsets = [f.multiply(step, stride) for stride in loop.strides]
            self._batch(f, depth + 1, f.add(index, offsets[0]), f.add(update, offsets[1]), f.add(target, offsets[2]))

    def _window(self, f: KernelFunction, index: IndexValue, update: IndexValue, target: IndexValue) -> None:
        """Applies one window if the whole of it is inside the operand, and in this task's part."""
        target, is_inside = self._target(f, index, target)
        with f.when(is_inside), self._at_window(f, update):
            self._elements(f, 0, update, target)

    def _target(self, f: KernelFunction, index: IndexValue, target: IndexValue) -> tuple[IndexValue, Value | None]:
        """Returns the offset of a window in the operand, and whether it is inside, and in this task's part."""
        is_inside: Value | None = None
        for start in self.plan.starts:
            value = self._start(f, f.add(index, start.offset))
            if start is self.plan.partitioned:
                fits = f.compare("ult", f.binary("sub", value, f.index(self.part[0])), f.index(self.part[1]))
            else:
                fits = f.compare("ule", value, constant(I64, start.limit))
            is_inside = fits if is_inside is None else f.binary("and", is_inside, fits)
            offset = value if start.stride == 1 else f.binary("mul", value, constant(I64, start.stride))
            target = offset if target == 0 else f.binary("add", offset, f.index(target))
        return target, is_inside

    def _prefetch(self, f: KernelFunction, step: IndexValue) -> None:
        """Prefetches the first lines of the window at iteration `step` of the only loop over index vectors, even if it
        is invalid.
        """
        index = f.multiply(step, self.plan.batches[0].strides[0])
        target: IndexValue = 0
        for start in self.plan.starts:
            value = self._start(f, f.add(index, start.offset))
            offset = f.binary("mul", value, constant(I64, start.stride))
            target = offset if target == 0 else f.binary("add", offset, f.index(target))
        size = self.plan.window[-1].size
        if self.plan.partitioned is self.plan.window[-1]:
            target, size = f.add(target, self.part[0]), size // self.plan.shares
        address = f.element_at(self.results[0], target, self.types[0])
        for line in range(min(MAX_PREFETCHED_LINES, -(-size * self.types[0].byte_width // CACHE_LINE))):
            f.prefetch(f.at(address, CACHE_LINE * line, "i8"), writes=True)

    def _start(self, f: KernelFunction, index: IndexValue) -> Value:
        """Loads a component of an index vector; as an unsigned number a negative one is too large."""
        value = f.load_lanes(f.element_at(self.indices, index, self.index_type), self.index_type)
        assert isinstance(value, Value)
        return resized(f, value, "i64", self.index_type.is_signed)

    def _elements(self, f: KernelFunction, depth: int, update: IndexValue, target: IndexValue) -> None:
        """Writes the loops over a window, the last one in vectors."""
        loops = self.plan.window
        if depth == len(loops):
            self._apply(f, update, target, 0, None)
            return
        loop = loops[depth]
        if depth < len(loops) - 1 or not self.lanes:
            with f.each(0, loop.size) as step:
                offsets = (f.add(o, f.multiply(step, s)) for o, s in zip((update, target), loop.strides, strict=True))
                self._elements(f, depth + 1, *offsets)
            return
        whole = loop.size // self.lanes * self.lanes
        first, size = self.part if loop is self.plan.partitioned else (0, whole)
        if whole:
            with f.each(first, f.add(first, size), self.lanes) as at:
                self._apply(f, f.add(update, at), f.add(target, at), self.lanes, None)
        if whole < loop.size:
            mask = f.first_lanes(loop.size - whole, self.lanes)
            self._apply(f, f.add(update, whole), f.add(target, whole), self.lanes, mask)

    def _apply(self, f: KernelFunction, update: IndexValue, target: IndexValue, lanes: int, mask: Value | None) -> None:
        """Combines one element, or a vector of them, with those of the results."""
        targets = [f.element_at(p, target, type) for p, type in zip(self.results, self.types, strict=True)]
        old = [f.load_lanes(p, type, lanes, mask) for p, type in zip(targets, self.types, strict=True)]
        arguments = [*old, *self._updates(f, update, lanes, mask)]
        with f.when(self._changes(f, arguments)):
            values = self.computation.emit(f, arguments)
            for value, address, type in zip(values, targets, self.types, strict=True):
                f.store_lanes(value, address, type, mask)

    def _combined(self, f: KernelFunction, old: Element, new: Element) -> Element:
        """Returns two elements combined, or vectors of them."""
        (value,) = self.computation.emit(f, [old, new])
        return value

    def _updates(self, f: KernelFunction, update: IndexValue, lanes: int, mask: Value | None) -> list[Element]:
        """Returns an element of the updates at an offset, or a vector of them."""
        pairs = zip(self.updates, self.types, strict=True)
        return [f.load_lanes(f.element_at(p, update, type), type, lanes, mask) for p, type in pairs]

    def _changes(self, f: KernelFunction, arguments: list[Element]) -> Value | None:
        """Whether an update may change an extremum, if few do: loads then wait for no stores."""
        if self.predicate is None:
            return None
        old, new = arguments
        assert isinstance(old, Value) and isinstance(new, Value)
        return f.compare(self.predicate, new, old)
