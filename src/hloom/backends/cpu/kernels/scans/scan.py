"""A running reduction along a dimension: the parts that scans along and across rows share.

Elements are reduced block by block; the results of a block combine the reduction of the preceding blocks with the
block's own running reduction. Blocks start at fixed positions, so the result does not depend on the number of threads,
and a long sum of floats is as accurate as a sum of sums.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hloom.analysis.monoids import monoid_of
from hloom.backends.cpu.elements.ops import float_instruction
from hloom.backends.cpu.elements.types import Element, parts, register_type, rounded, select_element
from hloom.backends.cpu.kernels.kernel_function import KernelFunction, StackVariable
from hloom.backends.cpu.kernels.scalar_computation import ScalarComputation
from hloom.ir import Instruction
from hloom.lir import Builder, IndexValue, Type, Value
from hloom.target import Target
from hloom.types import PrimitiveType

BLOCK = 128
"""Steps of a block."""
ELEMENT_COST = 5
"""Cost of an element, in additions: a prefix waits for the one before it."""

Elements = list[Element]


class Scan:
    """A running reduction of `size` elements by `computation`, from the first on or, if `backward`, from the last.

    The array is [outer, size, inner].
    """

    def __init__(
        self, instruction: Instruction, computation: ScalarComputation, outer: int, size: int, inner: int,
        backward: bool,
    ) -> None:  # fmt: skip
        self.instruction, self.computation, self.backward = instruction, computation, backward
        self.outer, self.size, self.inner = outer, size, inner
        self.types: list[PrimitiveType] = [shape.element_type for shape in instruction.shape.leaves()]
        self.monoid = monoid_of(computation.computation)
        self.starts_with_initial = not backward or self.monoid is not None
        """Whether the initial value may be combined first; otherwise it is the left operand of each result."""
        is_narrow = len(self.types) == 1 and self.types[0].is_float and self.types[0].bits < 32
        self.wide_opcode = float_instruction(self.monoid) if is_narrow else None
        """LLVM's opcode for reductions of narrow floats, which are done in f32 and rounded once; None for others."""

    def is_parallel(self, target: Target) -> bool:
        """Whether the scan is large enough for several threads."""
        return target.is_worth_threads(self.outer * self.size * self.inner * ELEMENT_COST)

    def combine(self, b: Builder, earlier: Elements, later: Elements) -> Elements:
        """Reduces two adjacent parts, of which the scan meets `earlier` first."""
        left, right = (later, earlier) if self.backward else (earlier, later)
        if self.wide_opcode is not None:
            (x,), (y,) = flat(left), flat(right)
            return [b.binary(self.wide_opcode, x, y)]
        return self.computation.emit(b, [*left, *right])

    def extended(self, f: KernelFunction, before: Elements, running: Elements, block: IndexValue) -> Elements:
        """Combines the reduction before a block with one inside of it; before block 0 there may be none."""
        both = self.combine(f, before, running)
        if self.starts_with_initial:
            return both
        if isinstance(block, int):
            return both if block else running
        is_first = f.compare("eq", block, f.index(0))
        return select(f, is_first, running, both)

    def result(
        self, f: KernelFunction, initial: Elements, before: Elements, running: Elements, block: IndexValue
    ) -> Elements:
        """Returns the results for the reductions before a block and inside of it."""
        value = self.extended(f, before, running, block)
        if not self.starts_with_initial:
            return self.computation.emit(f, [*initial, *value])
        return value if self.wide_opcode is None else [rounded(f, part, self.types[0]) for part in flat(value)]

    def registers(self, lanes: int) -> list[Type]:
        """Returns the types of the registers of one element of each operand."""
        return [register_type(type, lanes) for type in self.types for _ in range(2 if type.is_complex else 1)]

    def grouped(self, values: Sequence[Value]) -> Elements:
        """Groups registers to elements of the operands."""
        remaining: Iterator[Value] = iter(values)
        return [(next(remaining), next(remaining)) if type.is_complex else next(remaining) for type in self.types]

    def addresses(self, f: KernelFunction, arrays: Sequence[Value], offset: IndexValue) -> list[Value]:
        """Returns the addresses of the elements at an offset of an array for each operand."""
        return [f.element_at(array, offset, type) for array, type in zip(arrays, self.types, strict=True)]

    def load(
        self, f: KernelFunction, arrays: Sequence[Value], offset: IndexValue, lanes: int, mask: Value | None
    ) -> Elements:
        """Loads the elements, or vectors, at an offset of an array for each operand."""
        pairs = zip(arrays, self.types, strict=True)
        return [f.load_lanes(f.element_at(array, offset, type), type, lanes, mask) for array, type in pairs]

    def store(
        self, f: KernelFunction, values: Elements, arrays: Sequence[Value], offset: IndexValue, mask: Value | None
    ) -> None:
        """Stores elements, or vectors, at an offset of an array for each result."""
        for value, array, type in zip(values, arrays, self.types, strict=True):
            f.store_lanes(value, f.element_at(array, offset, type), type, mask)

    def load_initial(self, f: KernelFunction, pointers: Sequence[Value], lanes: int) -> Elements:
        """Loads the initial values, in all lanes."""
        values = [f.load_lanes(p, type) for p, type in zip(pointers, self.types, strict=True)]
        return self.grouped([f.splat(part, lanes) for part in flat(values)])


def flat(elements: Sequence[Element]) -> list[Value]:
    """Returns the registers of elements."""
    return [part for element in elements for part in parts(element)]


def select(f: KernelFunction, condition: Value, x: Elements, y: Elements) -> Elements:
    """Returns x if the condition holds, else y."""
    return [select_element(f, condition, a, b) for a, b in zip(x, y, strict=True)]


class ScanState:
    """Elements that a loop carries."""

    def __init__(self, f: KernelFunction, scan: Scan, initial: Elements) -> None:
        self.scan = scan
        self.variables: list[StackVariable] = [f.variable(part) for part in flat(initial)]

    def get(self) -> Elements:
        """Loads the elements."""
        return self.scan.grouped([variable.get() for variable in self.variables])

    def set(self, elements: Elements) -> None:
        """Stores the elements."""
        for variable, part in zip(self.variables, flat(elements), strict=True):
            variable.set(part)
