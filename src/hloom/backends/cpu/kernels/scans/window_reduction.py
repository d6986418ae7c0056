"""`reduce-window` with large windows: reduced along one dimension after the other, each vectorised.

The combiner must be associative and commutative, as reduce-window requires. Base dilation, and windows of padding
alone, are not handled.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from hloom.backends.cpu.kernels.code import KernelCode, aligned, code_of, entry_function
from hloom.backends.cpu.kernels.kernel_function import KernelFunction, task_function
from hloom.backends.cpu.kernels.scalar_computation import ScalarComputation
from hloom.backends.cpu.kernels.scans.scan import Elements, Scan, ScanState
from hloom.ir import Instruction
from hloom.lir import I64, PTR, IndexValue, Value, constant
from hloom.ops.attributes import Window, WindowDimension
from hloom.system.records import record
from hloom.target import Target

ELEMENTS_PER_TASK = 1 << 12
MAX_CHAIN_LENGTH = 64
"""Elements up to which a window is reduced in one chain; longer ones are reduced in blocks."""


@record(slots=True)
class WindowAxis:
    """Windows along one dimension: arrays [outer, size, inner] are reduced to [outer, count, inner]."""

    window: WindowDimension
    outer: int
    size: int
    count: int
    inner: int

    def bounds(self, position: int) -> tuple[int, int]:
        """Returns the first window element that is not padding, and the one after the last."""
        w = self.window
        start = w.padding_low - position * w.stride
        return max(0, -(-start // w.window_dilation)), min(w.size, -(-(start + self.size) // w.window_dilation))

    @property
    def whole(self) -> tuple[int, int]:
        """The first position whose window has no padding, and the one after the last."""
        w = self.window
        first = -(-max(0, w.padding_low) // w.stride)
        last = (self.size + w.padding_low - w.dilated_size) // w.stride + 1
        return min(first, self.count), max(min(first, self.count), min(last, self.count))


def axes_of(window: Window, sizes: tuple[int, ...]) -> list[WindowAxis] | None:
    """Returns the dimensions to reduce along; None if a window is not handled."""
    axes = []
    shape = list(sizes)
    for d, w in enumerate(window):
        if w == WindowDimension():
            continue
        axis = WindowAxis(w, math.prod(shape[:d]), shape[d], w.count(shape[d]), math.prod(shape[d + 1 :]))
        ends = (axis.bounds(position) for position in range(axis.count))
        if w.base_dilation > 1 or not axis.count or any(first >= last for first, last in ends):
            return None
        axes.append(axis)
        shape[d] = axis.count
    return axes


class WindowReduction:
    """Writes the functions of a reduce-window, one task for each axis."""

    def __init__(
        self, name: str, instruction: Instruction, computation: ScalarComputation, axes: list[WindowAxis],
        target: Target,
    ) -> None:  # fmt: skip
        self.name, self.instruction, self.axes, self.threads = name, instruction, axes, target.threads
        self.scan = Scan(instruction, computation, 1, 1, 1, backward=False)
        self.types = self.scan.types
        self.lanes = target.vector_bytes * 8 // max(32, *(register.bits for register in self.scan.registers(0)))

    def code(self) -> KernelCode:
        """Returns the code of the reduce-window."""
        f = entry_function(self.name, self.instruction)
        count = len(self.types)
        source = [f[f"operand{k}"] for k in range(count)]
        initial = [f[f"operand{k}"] for k in range(count, 2 * count)]
        functions, offset = [f], 0
        for index, axis in enumerate(self.axes):
            is_last = index == len(self.axes) - 1
            target = [f[f"result{k}"] for k in range(count)]
            if not is_last:
                elements = axis.outer * axis.count * axis.inner
                sizes = [aligned(elements * type.byte_width) for type in self.types]
                target = [f.at(f["scratch"], offset + sum(sizes[:k]), "i8") for k in range(count)]
                offset += sum(sizes)
            step = max(1, ELEMENTS_PER_TASK // axis.inner)
            blocks = -(-axis.count // step)
            on = f.threads_if(self.threads > 1)
            task = f"{self.name}.axis{index}"
            f.run_chunks(task, f.pack(*source, *target, *initial), axis.outer * blocks, on)
            functions.append(_AxisTask(self, task, axis, step, blocks, is_last).function())
            source = target
        return code_of(self.name, functions, offset)


class _AxisTask:
    """Writes the task that reduces the windows at some positions along an axis."""

    def __init__(
        self, kernel: WindowReduction, name: str, axis: WindowAxis, step: int, blocks: int, is_last: bool
    ) -> None:
        self.scan, self.types, self.axis = kernel.scan, kernel.types, axis
        self.lanes, self.step, self.blocks, self.is_last = kernel.lanes, step, blocks, is_last
        self.f = task_function(name)

    def function(self) -> KernelFunction:
        f, axis, count = self.f, self.axis, len(self.types)
        pointers = f.unpack(f["context"], *[PTR] * (3 * count))
        self.initial = pointers[2 * count :]
        outer, block = f.divide(f["chunk"], self.blocks), f.remainder(f["chunk"], self.blocks)
        offsets = f.multiply(outer, axis.size * axis.inner), f.multiply(outer, axis.count * axis.inner)
        self.source, self.target = (
            self.scan.addresses(f, group, offset)
            for group, offset in zip((pointers[:count], pointers[count : 2 * count]), offsets, strict=True)
        )
        first = f.multiply(block, self.step)
        last = f.minimum(f.add(first, self.step), axis.count)
        if axis.inner == 1 and axis.window.stride == 1:
            self._along(f.index(first), f.index(last))
        else:
            with f.each(first, last) as position:
                self._across(position)
        return f

    def _along(self, first: Value, last: Value) -> None:
        """Reduces vectors of positions where windows are whole, and single positions at the ends."""
        f = self.f
        start, end = (f.index(bound) for bound in self.axis.whole)
        start = f.intrinsic("umin", f.intrinsic("umax", first, start), last)
        end = f.intrinsic("umax", f.intrinsic("umin", last, end), start)
        vectors = f.binary("and", f.binary("sub", end, start), constant(I64, -self.lanes))
        scalar_start = f.index(f.add(start, vectors))
        with f.each(first, start) as position:
            self._across(position)
        with f.each(start, scalar_start, self.lanes) as position:
            self._reduction(position, 0, self.axis.window.size, 0, self.lanes, None)
        with f.each(scalar_start, last) as position:
            self._across(position)

    def _across(self, position: Value) -> None:
        """Reduces the windows at one position, for all inner elements."""
        f, inner = self.f, self.axis.inner
        low, high = self._bounds(position)
        lanes = min(self.lanes, 1 << (inner - 1).bit_length()) if inner > 1 else 0
        whole = inner // lanes * lanes if lanes else inner
        with f.each(0, whole, lanes or 1) as column:
            self._reduction(position, low, high, column, lanes, None)
        if whole < inner:
            self._reduction(position, low, high, whole, lanes, f.first_lanes(inner - whole, lanes))

    def _bounds(self, position: Value) -> tuple[IndexValue, IndexValue]:
        """Returns `WindowAxis.bounds` of a position that is known at run time."""
        f, w = self.f, self.axis.window
        moved = f.binary("mul", position, constant(I64, w.stride))
        start = f.binary("sub", constant(I64, w.padding_low), moved)
        dilation, zero = constant(I64, w.window_dilation), constant(I64, 0)

        def ceil_divided(value: Value) -> Value:
            above = f.intrinsic("smax", value, zero)
            return f.binary("udiv", f.binary("add", above, constant(I64, w.window_dilation - 1)), dilation)

        end = ceil_divided(f.binary("add", start, constant(I64, self.axis.size)))
        return ceil_divided(start), f.minimum(end, w.size)

    def _reduction(
        self, position: Value, low: IndexValue, high: IndexValue, column: IndexValue, lanes: int, mask: Value | None
    ) -> None:
        """Reduces window elements low .. high - 1 at a position, and stores the result."""
        f, axis, w = self.f, self.axis, self.axis.window
        start = f.binary("sub", f.index(f.multiply(position, w.stride)), constant(I64, w.padding_low))

        def element(step: IndexValue) -> Elements:
            at = f.binary("add", start, f.index(f.multiply(step, w.window_dilation)))
            return self.scan.load(f, self.source, f.add(f.multiply(at, axis.inner), column), lanes, mask)

        def reduced(first: IndexValue, end: IndexValue) -> Elements:
            state = ScanState(f, self.scan, element(first))
            with f.each(f.add(first, 1), end) as step:
                state.set(self.scan.combine(f, state.get(), element(step)))
            return state.get()

        result = reduced(low, high) if w.size <= MAX_CHAIN_LENGTH else self._reduce_in_blocks(reduced, low, high)
        if self.is_last:
            initial = self.scan.load_initial(f, self.initial, lanes)
            result = self.scan.combine(f, initial, result)
        offset = f.add(f.multiply(position, axis.inner), column)
        self.scan.store(f, result, self.target, offset, mask)

    def _reduce_in_blocks(
        self, reduced: Callable[[IndexValue, IndexValue], Elements], low: IndexValue, high: IndexValue
    ) -> Elements:
        """Reduces about as many blocks as each has elements, so that no chain of additions is long (GEN-13)."""
        f, block = self.f, math.isqrt(self.axis.window.size)
        end = f.minimum(f.add(low, block), high)
        state = ScanState(f, self.scan, reduced(low, end))
        with f.each(end, high, block) as first:
            part = reduced(first, f.minimum(f.add(first, block), high))
            state.set(self.scan.combine(f, state.get(), part))
        return state.get()
