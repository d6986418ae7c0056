"""Rewrites a region to a loop over its blocks, along one dimension or several."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from hloom.ir import Computation, Instruction, Module, post_order
from hloom.ops.broadcast import Iota
from hloom.ops.elementwise_binary import Add, Divide, Multiply, Remainder
from hloom.ops.reshape import Copy
from hloom.ops.slice import DynamicSlice, DynamicUpdateSlice, Slice
from hloom.passes.blocking.dimensions import TiledDimension, Untileable, operand_dimension
from hloom.passes.blocking.regions import SLICES, Region, is_view
from hloom.passes.blocking.tiling import Tiling, is_zero
from hloom.passes.edit import Edit
from hloom.passes.op_builder import OpBuilder, below, loop
from hloom.shape import Shape
from hloom.system.lazy import cached_property
from hloom.types import PrimitiveType

S32 = PrimitiveType.S32

ChooseTiling = Callable[[Region], Tiling | None]
"""Function that chooses the next tiling of a region; None if there is none."""


def make_loop(
    module: Module, computation: Computation, region: Region, tiling: Tiling, choose_next: ChooseTiling
) -> tuple[Computation, Region]:
    """Replaces the region's outputs by those of a loop over blocks; returns its body, and the region within it.

    If `choose_next` tiles the region in the body as well, that tiling becomes part of the same loop: an iteration
    computes a block of both. A last partial block is computed after the loop. With a partial block, or outputs that are
    summed over blocks, a dimension has a loop of its own.
    """
    edit = Edit(computation)
    build = OpBuilder.at(edit, region.members[-1])
    inputs = block_inputs(region, tiling)
    trips, rest = divmod(tiling.extent, tiling.size)
    bodies: list[_Blocks] = []

    def body(build: OpBuilder, step: Instruction, values: list[Instruction]) -> list[Instruction]:
        blocks = _Blocks(build, step)
        bodies.append(blocks)
        blocks.add(region, tiling, dict(zip(inputs, values, strict=False)))
        while not (rest or tiling.sums) and (following := choose_next(blocks.region)) is not None:
            if following.extent % following.size or following.sums:
                break
            blocks.add(blocks.region, following, {i: i for i in block_inputs(blocks.region, following)})
        return [*values[: len(inputs)], *blocks.add_to(values[len(inputs) :])]

    def condition(build: OpBuilder, step: Instruction, _: list[Instruction]) -> Instruction:
        return below(build, step, bodies[0].trip_count)

    values = loop(build, module, "blocks", [*inputs, *_initial_outputs(build, region, tiling)], body, condition)[
        len(inputs) :
    ]
    if rest:
        start = build.constant(trips * tiling.size, S32)
        values = Block(build, region, tiling, {i: i for i in inputs}, start, rest).add_to(values)
    replace_outputs(edit, build, region.outputs, values)
    return bodies[0].finish()


class _Blocks:
    """The nested blocks that one iteration of a loop computes; their indices are digits of the iteration's."""

    def __init__(self, build: OpBuilder, step: Instruction) -> None:
        self.build, self.step = build, step
        self.blocks: list[Block] = []
        self.trip_count = 1

    @property
    def region(self) -> Region:
        """The innermost block."""
        return self.blocks[-1].region

    def add(self, region: Region, tiling: Tiling, inputs: Mapping[Instruction, Instruction]) -> None:
        """Tiles a region: that of the innermost block, or at first the whole."""
        build, trips = self.build, tiling.extent // tiling.size
        digit = self.step if self.trip_count == 1 else build(Divide(), self.step, build.constant(self.trip_count, S32))
        digit = build(Remainder(), digit, build.constant(trips, S32))
        start = digit if tiling.size == 1 else build(Multiply(), digit, build.constant(tiling.size, S32))
        cheap = {*region.cheap} if self.blocks else set[Instruction]()
        self.blocks.append(Block(build, region, tiling, inputs, start, tiling.size, cheap))
        self.trip_count *= trips

    def add_to(self, totals: Sequence[Instruction]) -> list[Instruction]:
        """Merges the blocks of this iteration into the outputs of all iterations."""
        first, *others = self.blocks
        if not others:
            return first.add_to(totals)
        merged = []
        for k, (total, part) in enumerate(zip(totals, self.region.outputs, strict=True)):
            starts = first.starts_of(k)
            for block in others:
                starts = [_add_starts(self.build, a, b) for a, b in zip(starts, block.starts_of(k), strict=True)]
            merged.append(self.build(DynamicUpdateSlice(), total, part, *starts))
        return merged

    def finish(self) -> tuple[Computation, Region]:
        """Removes the intermediate blocks; returns the body and the innermost block."""
        computation = self.step.parent
        assert computation is not None
        edit = Edit(computation)
        for block in self.blocks[:-1]:
            for output in block.region.outputs:
                edit.remove_unused(output)
        edit.finish()
        return computation, self.region


def _add_starts(build: OpBuilder, a: Instruction, b: Instruction) -> Instruction:
    return a if is_zero(b) else b if is_zero(a) else build(Add(), a, b)


def replace_outputs(
    edit: Edit, build: OpBuilder, outputs: Iterable[Instruction], values: Iterable[Instruction]
) -> None:
    """Replaces the outputs by values of their sizes, and finishes the edit."""
    for old, new in zip(outputs, values, strict=True):
        result = build.convert(new, old.shape.element_type)
        edit.replace(old, result if result.shape == old.shape else build(Copy(), result, shape=old.shape))
    edit.finish()
    edit.computation.instructions = post_order(edit.computation)


def _initial_outputs(build: OpBuilder, region: Region, tiling: Tiling) -> Iterator[Instruction]:
    """The outputs before the first block: zeros."""
    for output in region.outputs:
        element_type = result_type(output, tiling)
        yield build.broadcast(build.constant(0, element_type), output.shape.with_element_type(element_type))


def result_type(member: Instruction, tiling: Tiling) -> PrimitiveType:
    """The element type of a member's block: sums over blocks have the type in which products accumulate."""
    element_type = member.shape.element_type
    return element_type.computation_type if member in tiling.sums else element_type


def block_inputs(region: Region, tiling: Tiling) -> list[Instruction]:
    """The values that blocks read: operands that are neither members nor recomputed."""
    return [*dict.fromkeys(_inputs(region, tiling))]


def _inputs(region: Region, tiling: Tiling) -> Iterator[Instruction]:
    inside = set(region.members)
    stack = [(member, k, tiling.needed(member, k)) for member in region.members for k in range(len(member.operands))]
    while stack:
        user, position, tiled = stack.pop()
        operand = user.operands[position]
        if operand in inside:
            continue
        parts = _operand_parts(operand, tiled) if operand in region.cheap else None
        if parts is None:
            yield operand
        else:
            stack += [(operand, k, part) for k, part in enumerate(parts)]


def _operand_parts(cheap: Instruction, tiled: TiledDimension | None) -> list[TiledDimension | None] | None:
    """The parts of its operands that a part of a cheap value needs; None if it cannot be tiled there."""
    if tiled is None and is_view(cheap):
        return None
    if tiled is None or isinstance(cheap.op, SLICES):
        return [None] * len(cheap.operands)
    try:
        return [operand_dimension(cheap, k, tiled) for k in range(len(cheap.operands))]
    except Untileable:
        return None


@dataclass(eq=False)
class Block:
    """A copy of a region for one block along the tiled dimension."""

    build: OpBuilder
    original: Region
    tiling: Tiling
    inputs: Mapping[Instruction, Instruction]
    """The value that replaces each input."""
    start: Instruction
    size: int
    cheap: set[Instruction] = field(default_factory=set)
    """The values of this block that nested blocks recompute."""
    copies: dict[Instruction, Instruction] = field(init=False, default_factory=dict)
    parts: dict[tuple[Instruction, TiledDimension | None], Instruction] = field(init=False, default_factory=dict)
    """Parts of operands that are not members."""

    def __post_init__(self) -> None:
        for member in self.original.members:
            operands = [self.operand(member, k) for k in range(len(member.operands))]
            self.copies[member] = self.copy(member, operands, self.tiling.dimensions.get(member))

    @cached_property
    def region(self) -> Region:
        """The copy as a region."""
        old = self.original
        members, outputs, products = (
            [self.copies[i] for i in found] for found in (old.members, old.outputs, old.products)
        )
        return Region(members, outputs, products, self.cheap)

    def add_to(self, totals: Sequence[Instruction]) -> list[Instruction]:
        """Merges this block into the outputs of all blocks: writes it at its offset, or adds it."""
        merged = []
        for output, total in zip(self.original.outputs, totals, strict=True):
            tiled, block = self.tiling.dimensions.get(output), self.copies[output]
            if tiled is None:
                merged.append(self.build(Add(), total, block))
            else:
                starts = self._block_starts(total.shape.rank, tiled)
                merged.append(self.build(DynamicUpdateSlice(), total, block, *starts))
        return merged

    def starts_of(self, output: int) -> list[Instruction]:
        """The offsets of the block of an output within the whole."""
        member = self.original.outputs[output]
        return self._block_starts(member.shape.rank, self.tiling.dimensions[member])

    def operand(self, member: Instruction, position: int) -> Instruction:
        """An operand of a member: a copy, or the part that the block needs."""
        operand = member.operands[position]
        if operand in self.copies:
            return self.copies[operand]
        return self._part(operand, self.tiling.needed(member, position))

    def _part(self, operand: Instruction, tiled: TiledDimension | None) -> Instruction:
        """A part of an operand that is not a member: recomputed if that is cheap, else sliced from an input."""
        if (operand, tiled) not in self.parts:
            parts = _operand_parts(operand, tiled) if operand in self.original.cheap else None
            if parts is None:
                part = self._slice(self.inputs[operand], tiled)
            else:
                before = [self._part(o, p) for o, p in zip(operand.operands, parts, strict=True)]
                if isinstance(operand.op, SLICES) and tiled is not None:
                    part = self._slice_of_slice(operand, before, tiled)
                else:
                    part = self.copy(operand, before, tiled)
                self.cheap.add(part)
            self.parts[operand, tiled] = part
        return self.parts[operand, tiled]

    def copy(self, old: Instruction, operands: Iterable[Instruction], tiled: TiledDimension | None) -> Instruction:
        """Emits a member, or a cheap operand, for the part of its result along `tiled`."""
        shape = Shape.array(result_type(old, self.tiling), self._sizes(old.shape, tiled))
        new = self.build(old.op, *operands, shape=shape)
        new.metadata, new.location = dict(old.metadata), old.location
        if tiled is not None and isinstance(old.op, Iota) and old.op.iota_dimension == tiled.index:
            first = self.build.broadcast(self.build.convert(self._scaled(tiled.multiple), shape.element_type), shape)
            self.cheap |= {new, first}
            return self.build(Add(), new, first)
        return new

    def _sizes(self, shape: Shape, tiled: TiledDimension | None) -> tuple[int, ...]:
        if tiled is None:
            return shape.dimensions
        size = self.size * tiled.multiple
        return tuple(size if d == tiled.index else n for d, n in enumerate(shape.dimensions))

    def _slice(self, array: Instruction, tiled: TiledDimension | None) -> Instruction:
        if tiled is None:
            return array
        sizes = self._sizes(array.shape, tiled)
        part = self.build(DynamicSlice(size_indices=sizes), array, *self._block_starts(len(sizes), tiled))
        self.cheap.add(part)
        return part

    def _slice_of_slice(self, old: Instruction, operands: Sequence[Instruction], tiled: TiledDimension) -> Instruction:
        """A part of a slice, read from the array that is sliced."""
        whole, *before = operands
        if isinstance(old.op, Slice):
            before = [self.build.constant(part.start, S32) for part in old.op.slice]
            self.cheap.update(before)
        within = self._block_starts(len(before), tiled)
        starts = [_add_starts(self.build, a, b) for a, b in zip(before, within, strict=True)]
        return self.build(DynamicSlice(size_indices=self._sizes(old.shape, tiled)), whole, *starts)

    def _block_starts(self, rank: int, tiled: TiledDimension) -> list[Instruction]:
        zero, first = self.build.constant(0, S32), self._scaled(tiled.multiple)
        self.cheap.add(zero)
        return [first if d == tiled.index else zero for d in range(rank)]

    def _scaled(self, multiple: int) -> Instruction:
        return self.start if multiple == 1 else self.build(Multiply(), self.start, self.build.constant(multiple, S32))
