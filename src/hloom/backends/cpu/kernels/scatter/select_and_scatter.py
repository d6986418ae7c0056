"""`select-and-scatter`: for each window, finds the selected element and combines a source element into the result
there.
"""

from __future__ import annotations

import math

from hloom.affine import row_major_strides
from hloom.backends.cpu.elements.types import element_of, parts
from hloom.backends.cpu.kernels.code import KernelCode, code_of, entry_function, has_native_arrays
from hloom.backends.cpu.kernels.kernel_function import KernelFunction, StackVariable, task_function
from hloom.backends.cpu.kernels.scalar_computation import ScalarComputation
from hloom.ir import Instruction
from hloom.lir import I1, I64, PTR, IndexValue, Value, constant
from hloom.ops.attributes import Window, WindowDimension
from hloom.ops.reduce_window import SelectAndScatter
from hloom.target import Target


def emit(op: SelectAndScatter, name: str, instruction: Instruction, target: Target) -> KernelCode | None:
    """Returns the code of a select-and-scatter; None if a computation cannot be emitted."""
    select, scatter = ScalarComputation.of(op.select), ScalarComputation.of(op.scatter)
    if select is None or scatter is None or not has_native_arrays(instruction):
        return None
    return _SelectAndScatter(name, instruction, op.window, select, scatter, target).code()


class _SelectAndScatter:
    """Writes the loops. Leading dimensions with windows of one element are slabs, which threads divide."""

    def __init__(
        self, name: str, instruction: Instruction, window: Window, select: ScalarComputation,
        scatter: ScalarComputation, target: Target,
    ) -> None:  # fmt: skip
        self.name, self.instruction, self.select, self.scatter = name, instruction, select, scatter
        sizes, counts = (instruction.operands[k].shape.dimensions for k in (0, 1))
        self.type = instruction.shape.element_type
        leading = 0
        while leading < len(sizes) and window[leading] == WindowDimension():
            leading += 1
        self.slabs = math.prod(sizes[:leading])
        self.window, self.sizes, self.counts = window[leading:], sizes[leading:], counts[leading:]
        self.strides, self.source_strides = row_major_strides(self.sizes), row_major_strides(self.counts)
        self.shares = max(1, target.tasks(self.slabs))

    def code(self) -> KernelCode:
        f = entry_function(self.name, self.instruction)
        f.run_chunks(f"{self.name}.slabs", f.pack(*f.parameters), self.shares, f.threads)
        return code_of(self.name, [self._slabs(), f])

    def _slabs(self) -> KernelFunction:
        f = task_function(f"{self.name}.slabs")
        operand, source, initial, result = f.unpack(f["context"], *[PTR] * 4)
        self.initial = f.load_lanes(initial, self.type)
        self.found, self.chosen = f.variable(constant(I1, False)), f.variable(constant(I64, 0))
        self.best: list[StackVariable] = [f.variable(part) for part in parts(self.initial)]
        first, count = f.share(self.slabs, 1, self.shares, f["chunk"])
        size = math.prod(self.sizes)
        with f.each(first, f.add(first, count)) as slab:
            self.operand = f.element_at(operand, f.multiply(slab, size), self.type)
            self.result = f.element_at(result, f.multiply(slab, size), self.type)
            self.source = f.element_at(source, f.multiply(slab, math.prod(self.counts)), self.type)
            with f.each(0, size) as index:
                f.store_lanes(self.initial, f.element_at(self.result, index, self.type), self.type)
            self._windows(f, 0, [], 0)
        return f

    def _windows(self, f: KernelFunction, depth: int, position: list[IndexValue], source: IndexValue) -> None:
        """Writes the loops over window positions, in row-major order."""
        if depth < len(self.counts):
            with f.each(0, self.counts[depth]) as step:
                address = f.add(source, f.multiply(step, self.source_strides[depth]))
                self._windows(f, depth + 1, [*position, step], address)
            return
        self.found.set(constant(I1, False))
        self._elements(f, 0, position, 0, None)
        with f.when(self.found.get()):
            address = f.element_at(self.result, self.chosen.get(), self.type)
            value = f.load_lanes(f.element_at(self.source, source, self.type), self.type)
            (combined,) = self.scatter.emit(f, [f.load_lanes(address, self.type), value])
            f.store_lanes(combined, address, self.type)

    def _elements(
        self, f: KernelFunction, depth: int, position: list[IndexValue], linear: IndexValue, is_inside: Value | None
    ) -> None:
        """Writes the loops over the elements of one window; `is_inside`: whether the indices so far are inside the
        operand.
        """
        if depth == len(self.window):
            with f.when(is_inside):
                self._compete(f, f.index(linear))
            return
        w, stride = self.window[depth], self.strides[depth]
        if w == WindowDimension():
            self._elements(f, depth + 1, position, f.add(linear, f.multiply(position[depth], stride)), is_inside)
            return
        start = f.binary("sub", f.index(f.multiply(position[depth], w.stride)), constant(I64, w.padding_low))
        with f.each(0, w.size) as step:
            index = f.binary("add", start, f.index(f.multiply(step, w.window_dilation)))
            limit = (self.sizes[depth] - 1) * w.base_dilation + 1 if self.sizes[depth] else 0
            fits = f.compare("ult", index, constant(I64, limit))
            if w.base_dilation > 1:
                dilation = constant(I64, w.base_dilation)
                is_element = f.compare("eq", f.binary("urem", index, dilation), constant(I64, 0))
                fits, index = f.binary("and", fits, is_element), f.binary("udiv", index, dilation)
            fits = fits if is_inside is None else f.binary("and", is_inside, fits)
            offset = f.binary("add", f.index(linear), f.binary("mul", index, constant(I64, stride)))
            self._elements(f, depth + 1, position, offset, fits)

    def _compete(self, f: KernelFunction, linear: Value) -> None:
        """Selects an element unless `select` keeps the best one so far."""
        element = f.load_lanes(f.element_at(self.operand, linear, self.type), self.type)
        values = [variable.get() for variable in self.best]
        (keeps,) = self.select.emit(f, [element_of(values), element])
        assert isinstance(keeps, Value)
        keeps = f.binary("and", self.found.get(), keeps)
        for variable, old, new in zip(self.best, values, parts(element), strict=True):
            variable.set(f.select(keeps, old, new))
        self.chosen.set(f.select(keeps, self.chosen.get(), linear))
        self.found.set(constant(I1, True))
