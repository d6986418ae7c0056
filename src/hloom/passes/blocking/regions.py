"""Regions: large products, the values computed from them, and the small results.

The scores of attention are a product that contracts a small dimension: its result is far larger than its operands; a
softmax computes weights from them, and another product reduces these to a small result. The large values have no other
uses. A gradient reads the scores again, once the result of the first region is known: it is a second region, of a later
level, which recomputes them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from hloom.ir import Computation, Instruction
from hloom.ops.broadcast import Broadcast, Iota
from hloom.ops.dot import Dot
from hloom.ops.reduce import Reduce
from hloom.ops.reshape import Reshape
from hloom.ops.slice import DynamicSlice, Slice
from hloom.ops.structure import Constant
from hloom.passes.blocking.dimensions import can_be_tiled
from hloom.passes.edit import has_control_edges

CHEAP_COST = 4
"""The maximum work per element, in additions, that is repeated in each block rather than stored whole."""

SLICES = (Slice, DynamicSlice)
"""Operations whose result is a contiguous part of the operand, or a strided one."""


def is_view(instruction: Instruction) -> bool:
    """Whether an instruction is a slice, perhaps reshaped: a part of it is a part of the sliced array."""
    if isinstance(instruction.op, Reshape):
        return is_view(instruction.operands[0])
    return isinstance(instruction.op, SLICES)


@dataclass(eq=False)
class Region:
    """Instructions of one computation that are computed block by block, in topological order."""

    members: list[Instruction]
    outputs: list[Instruction]
    """The members that are used outside of the region."""
    products: list[Instruction]
    """The members that are large products."""
    cheap: set[Instruction]
    """Operands of members that are recomputed for each block, in any part."""


MIN_GROWTH = 2.0
"""Elements of a large product, at least, for each of its operands'."""


def is_large_product(instruction: Instruction, min_bytes: int, min_growth: float) -> bool:
    """Whether an instruction is a dot whose result has `min_bytes` or more, and `min_growth` times the elements of its
    operands.
    """
    if not isinstance(instruction.op, Dot) or not _is_plain(instruction) or instruction.shape.byte_size < min_bytes:
        return False
    return instruction.shape.element_count >= min_growth * sum(
        shape.element_count for shape in instruction.operand_shapes
    )


def find_regions(
    computation: Computation, min_bytes: int, min_repeated_bytes: int, min_growth: float = MIN_GROWTH
) -> list[Region]:
    """The regions of a computation, in the order of their dependences.

    A product has at least `min_bytes`; one that several regions compute has matrices of at least `min_repeated_bytes`.
    """
    products = {i for i in computation.instructions if is_large_product(i, min_bytes, min_growth)}
    if not products:
        return []
    return _Finder(computation, products).regions(min_repeated_bytes)


def _matrix_bytes(product: Instruction) -> int:
    assert isinstance(product.op, Dot)
    return product.shape.byte_size // math.prod(product.shape.dimensions[: len(product.op.lhs_batch_dims)])


def _is_plain(instruction: Instruction) -> bool:
    shape = instruction.shape
    return (
        shape.layout is not None
        and not (shape.layout.tiles or shape.layout.element_size_in_bits or shape.is_dynamic)
        and not has_control_edges(instruction)
        and instruction.sharding is None
    )


def _can_be_member(instruction: Instruction) -> bool:
    op = instruction.op
    return _is_plain(instruction) and not op.has_side_effect and can_be_tiled(op)


class _Finder:
    """Finds the regions around some large products."""

    def __init__(self, computation: Computation, products: set[Instruction]) -> None:
        self.computation, self.products = computation, products
        self.min_count = min(product.shape.element_count for product in products)
        self.kept = self._needed_for_large(self._derived_from_products())
        self.outputs = self._find_outputs()
        self.component = self._components()

    def _is_large(self, instruction: Instruction) -> bool:
        return instruction.shape.element_count >= self.min_count

    def _derived_from_products(self) -> dict[Instruction, None]:
        """The products, and the values computed from them without another product."""
        found: dict[Instruction, None] = {}
        for instruction in self.computation.instructions:
            is_derived = any(operand in found for operand in instruction.operands)
            if instruction in self.products or (
                is_derived and not isinstance(instruction.op, Dot) and _can_be_member(instruction)
            ):
                found[instruction] = None
        return found

    def _needed_for_large(self, derived: dict[Instruction, None]) -> set[Instruction]:
        """Keeps the large derived values, and the small ones from which large ones are computed, such as row sums."""
        kept: set[Instruction] = set()
        for instruction in reversed(derived):
            if self._is_large(instruction) or any(user in kept for user in instruction.users):
                kept.add(instruction)
        return kept

    def _find_outputs(self) -> set[Instruction]:
        """The small values that are computed from large ones and used elsewhere."""
        sums = {user for i in self.kept for user in i.users if user not in self.kept and self._is_sum(user)}
        return sums | {i for i in self.kept if not self._is_large(i) and self._is_read(i, sums)}

    def _is_read(self, instruction: Instruction, sums: set[Instruction]) -> bool:
        """Whether a value is used outside of the regions."""
        is_root = instruction is self.computation.root
        return is_root or any(user not in self.kept and user not in sums for user in instruction.users)

    def _is_sum(self, instruction: Instruction) -> bool:
        """Whether an instruction is a small product or reduction of large values."""
        return (
            isinstance(instruction.op, (Dot, Reduce))
            and _can_be_member(instruction)
            and not self._is_large(instruction)
        )

    def _components(self) -> dict[Instruction, Instruction]:
        """Maps each kept value and output to a representative of its connected component."""
        parent: dict[Instruction, Instruction] = {}

        def find(instruction: Instruction) -> Instruction:
            parent.setdefault(instruction, instruction)
            while parent[instruction] is not instruction:
                parent[instruction] = instruction = parent[parent[instruction]]
            return instruction

        for instruction in [*self.kept, *self.outputs]:
            for operand in instruction.operands:
                if operand in self.kept:
                    parent[find(instruction)] = find(operand)
        return {instruction: find(instruction) for instruction in [*self.kept, *self.outputs]}

    def regions(self, min_repeated_bytes: int) -> list[Region]:
        """Groups the outputs by connected component and level, and returns the region of each group."""
        escaping = {self.component[i] for i in self.kept if self._escapes(i)}
        small = {self.component[i] for i in self.products if _matrix_bytes(i) < min_repeated_bytes}
        groups: dict[tuple[Instruction, int], list[Instruction]] = {}
        for output, level in self._levels().items():
            if self.component[output] not in escaping:
                groups.setdefault((self.component[output], level), []).append(output)
        levels = Counter(component for component, _ in groups)
        chosen = {key: outputs for key, outputs in groups.items() if levels[key[0]] == 1 or key[0] not in small}
        return [self._region(chosen[key]) for key in sorted(chosen, key=lambda key: key[1])]

    def _escapes(self, instruction: Instruction) -> bool:
        """Whether a large value is used outside of the regions."""
        return self._is_large(instruction) and self._is_read(instruction, self.outputs)

    def _levels(self) -> dict[Instruction, int]:
        """The number of earlier regions on which each output depends, in program order."""
        after: dict[Instruction, int] = {}
        within: dict[Instruction, int] = {}
        for i in self.computation.instructions:
            level = max((after[before] for before in i.control_predecessors), default=0)
            for operand in i.operands:
                is_inside = operand in self.kept and (i in self.kept or i in self.outputs)
                level = max(level, within[operand] if is_inside else after[operand])
            within[i] = level
            after[i] = level + 1 if i in self.outputs else level
        return {i: within[i] for i in self.computation.instructions if i in self.outputs}

    def _region(self, outputs: Iterable[Instruction]) -> Region:
        wanted = set(outputs)
        inside, cheap, stack = {*wanted}, set[Instruction](), [*wanted]
        while stack:
            for operand in stack.pop().operands:
                if operand in inside or operand in cheap:
                    continue
                if operand in self.kept:
                    inside.add(operand)
                elif self._is_cheap(operand):
                    cheap.add(operand)
                else:
                    continue
                stack.append(operand)
        members = [i for i in self.computation.instructions if i in inside]
        outputs, products = ([i for i in members if i in found] for found in (wanted, self.products))
        return Region(members, outputs, products, cheap)

    def _is_cheap(self, instruction: Instruction) -> bool:
        """Whether an operand is recomputed in each block: constants, masks made of positions, repeated rows."""
        op = instruction.op
        if isinstance(op, Constant):
            return instruction.shape.is_scalar
        if is_view(instruction):
            return _is_plain(instruction) and self._is_view_of_stored(instruction)
        if isinstance(op, (Dot, Reduce)) or not _can_be_member(instruction):
            return False
        return isinstance(op, (Broadcast, Iota)) or (self._is_wide(instruction) and op.cost <= CHEAP_COST)

    def _is_view_of_stored(self, view: Instruction) -> bool:
        """Whether a view is, perhaps through other views, a contiguous slice of an array that is stored whole."""
        source = view.operands[0]
        if is_view(source):
            return self._is_cheap(source)
        is_plain = isinstance(view.op, Slice) and all(part.stride == 1 for part in view.op.slice)
        return is_plain and source not in self.kept and source not in self.outputs and not self._is_cheap(source)

    def _is_wide(self, instruction: Instruction) -> bool:
        """Whether a value is too large to be stored whole: at least as large as one of the matrices."""
        return any(
            instruction.shape.element_count >= product.shape.dimensions[-1] * product.shape.dimensions[-2]
            for product in self.products
        )
