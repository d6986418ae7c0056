"""Copies of a small operand of a scatter, each of which takes the updates of a share of the index vectors.

Updates by a computation whose order is free, such as sums, are combined in as many copies as there are shares, which
start as the identity; the copies are then combined with the operand, one after another. The number of shares follows
from sizes alone, so the result does not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable

from hloom.analysis.monoids import monoid_of
from hloom.backends.cpu.elements.types import Element, constant_element
from hloom.backends.cpu.kernels.code import aligned
from hloom.backends.cpu.kernels.kernel_function import KernelFunction
from hloom.ir import Computation
from hloom.lir import IndexValue, Value
from hloom.ops.elementwise_binary import Monoid
from hloom.shape import Shape
from hloom.system.records import record
from hloom.target import L1_BYTES
from hloom.types import PrimitiveType

MAX_COPIES = 16
MIN_UPDATES_PER_ELEMENT = 8
"""Updates for each element of a copy, beside which filling and combining it costs little."""
MIN_SUM_BITS = 32
"""Bits of floats whose sums hardly depend on their order."""
Combine = Callable[[KernelFunction, Element, Element], Element]


@record(slots=True)
class Copies:
    """`count` copies of `size` elements, in a workspace, which start as the identity of the monoid."""

    count: int
    size: int
    element_type: PrimitiveType
    monoid: type[Monoid]

    @property
    def bytes(self) -> int:
        """Bytes of a copy, in whole cache lines."""
        return aligned(self.size * self.element_type.byte_width)

    @property
    def scratch_bytes(self) -> int:
        """Bytes of all copies."""
        return self.count * self.bytes

    def at(self, f: KernelFunction, workspace: Value, copy: IndexValue) -> Value:
        """Returns the address of a copy."""
        return f.at(workspace, f.multiply(copy, self.bytes), "i8")

    def fill(self, f: KernelFunction, copy: Value, lanes: int) -> None:
        """Sets all elements of a copy to the identity."""
        identity = constant_element(self.element_type, self.monoid.identity(self.element_type), lanes)
        with f.each(0, self.bytes // self.element_type.byte_width, lanes) as k:
            f.store_lanes(identity, f.element_at(copy, k, self.element_type), self.element_type)

    def add_to(self, f: KernelFunction, result: Value, workspace: Value, lanes: int, combine: Combine) -> None:
        """Combines the elements of the result with those of each copy."""
        whole = self.size // lanes * lanes
        for width, first, end in ((lanes, 0, whole), (0, whole, self.size)):
            with f.each(first, end, max(width, 1)) as k:
                address = f.element_at(result, k, self.element_type)
                total = f.load_lanes(address, self.element_type, width)
                for copy in range(self.count):
                    source = f.element_at(self.at(f, workspace, copy), k, self.element_type)
                    total = combine(f, total, f.load_lanes(source, self.element_type, width))
                f.store_lanes(total, address, self.element_type)


def choose_copies(operand: Shape, updates: Shape, computation: Computation) -> Copies | None:
    """Returns the copies of an operand, whose updates are combined in any order; None if they do not pay."""
    type, monoid = operand.element_type, monoid_of(computation)
    is_rounded = (
        type.real.is_float and type.real.bits < MIN_SUM_BITS and monoid is not None and not monoid.is_idempotent
    )
    if monoid is None or is_rounded or operand.byte_size > L1_BYTES or not operand.element_count:
        return None
    count = min(MAX_COPIES, updates.element_count // (MIN_UPDATES_PER_ELEMENT * operand.element_count))
    return Copies(count, operand.element_count, type, monoid) if count > 1 else None
