"""A region as a loop over its blocks, which cut one dimension or several."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from hloom.ir import Computation, Instruction, Module, post_order
from hloom.ops.broadcast import Iota
from hloom.ops.elementwise_binary import Add, Divide, Multiply, Remainder
from hloom.ops.reshape import Copy
from hloom.ops.slice import DynamicSlice, DynamicUpdateSlice, Slice
from hloom.passes.blocking.cuts import Cut, is_zero
from hloom.passes.blocking.dimensions import Place, Uncuttable, operand_place
from hloom.passes.blocking.regions import SLICES, Region, is_view
from hloom.passes.edit import Edit
from hloom.passes.op_builder import OpBuilder, below, loop
from hloom.shape import Shape
from hloom.types import PrimitiveType

S32 = PrimitiveType.S32

ChooseCut = Callable[[Region], Cut | None]


def make_loop(
    module: Module, computation: Computation, region: Region, cut: Cut, choose_next: ChooseCut
) -> tuple[Computation, Region]:
    """Replaces the region's outputs by those of a loop over blocks; gives its body, and the region as it is there.

    What `choose_next` cuts of the region in the body becomes part of the same loop: a round is a block of both. Steps
    that fill no block are computed once more, after the loop; where there are some, or sums over blocks, a dimension
    has a loop of its own.
    """
    edit = Edit(computation)
    build = OpBuilder.at(edit, region.members[-1])
    inputs = block_inputs(region, cut)
    trips, rest = divmod(cut.extent, cut.size)
    made: list[_Blocks] = []

    def body(build: OpBuilder, step: Instruction, values: list[Instruction]) -> list[Instruction]:
        blocks = _Blocks(build, step)
        made.append(blocks)
        blocks.add(region, cut, dict(zip(inputs, values, strict=False)))
        while not (rest or cut.sums) and (following := choose_next(blocks.region)) is not None:
            if following.extent % following.size or following.sums:
                break
            blocks.add(blocks.region, following, {i: i for i in block_inputs(blocks.region, following)})
        return [*values[: len(inputs)], *blocks.added_to(values[len(inputs) :])]

    def goes_on(build: OpBuilder, step: Instruction, _: list[Instruction]) -> Instruction:
        return below(build, step, made[0].rounds)

    values = loop(build, module, "blocks", [*inputs, *_empty(build, region, cut)], body, goes_on)[len(inputs) :]
    if rest:
        start = build.constant(trips * cut.size, S32)
        values = Block(build, region, cut, {i: i for i in inputs}, start, rest).added_to(values)
    replace_outputs(edit, build, region.outputs, values)
    return made[0].finished()


class _Blocks:
    """Blocks of blocks: what a round of a loop computes, by the digits of its number."""

    def __init__(self, build: OpBuilder, step: Instruction) -> None:
        self.build, self.step = build, step
        self.blocks: list[Block] = []
        self.rounds = 1

    @property
    def region(self) -> Region:
        """The last block."""
        return self.blocks[-1].region

    def add(self, region: Region, cut: Cut, inputs: Mapping[Instruction, Instruction]) -> None:
        """Cuts a region, which is the last block, or the first of all."""
        build, trips = self.build, cut.extent // cut.size
        digit = self.step if self.rounds == 1 else build(Divide(), self.step, build.constant(self.rounds, S32))
        digit = build(Remainder(), digit, build.constant(trips, S32))
        start = digit if cut.size == 1 else build(Multiply(), digit, build.constant(cut.size, S32))
        cheap = {*region.cheap} if self.blocks else set[Instruction]()
        self.blocks.append(Block(build, region, cut, inputs, start, cut.size, cheap))
        self.rounds *= trips

    def added_to(self, totals: Sequence[Instruction]) -> list[Instruction]:
        """The outputs of all rounds with those of this one."""
        first, *others = self.blocks
        if not others:
            return first.added_to(totals)
        merged = []
        for k, (total, part) in enumerate(zip(totals, self.region.outputs, strict=True)):
            starts = first.starts_of(k)
            for block in others:
                starts = [_added(self.build, a, b) for a, b in zip(starts, block.starts_of(k), strict=True)]
            merged.append(self.build(DynamicUpdateSlice(), total, part, *starts))
        return merged

    def finished(self) -> tuple[Computation, Region]:
        """The body, without the blocks that only served to be cut further, and the last one."""
        computation = self.step.parent
        assert computation is not None
        edit = Edit(computation)
        for block in self.blocks[:-1]:
            for output in block.region.outputs:
                edit.remove_unused(output)
        edit.finish()
        return computation, self.region


def _added(build: OpBuilder, a: Instruction, b: Instruction) -> Instruction:
    return a if is_zero(b) else b if is_zero(a) else build(Add(), a, b)


def replace_outputs(
    edit: Edit, build: OpBuilder, outputs: Iterable[Instruction], values: Iterable[Instruction]
) -> None:
    """Puts values of the outputs' sizes in their place, and ends the edit."""
    for old, new in zip(outputs, values, strict=True):
        result = build.convert(new, old.shape.element_type)
        edit.replace(old, result if result.shape == old.shape else build(Copy(), result, shape=old.shape))
    edit.finish()
    edit.computation.instructions = post_order(edit.computation)


def _empty(build: OpBuilder, region: Region, cut: Cut) -> Iterator[Instruction]:
    """What the outputs are before the first block."""
    for output in region.outputs:
        element_type = result_type(output, cut)
        yield build.broadcast(build.constant(0, element_type), output.shape.with_element_type(element_type))


def result_type(member: Instruction, cut: Cut) -> PrimitiveType:
    """Sums over blocks have the width in which a product adds up its terms."""
    element_type = member.shape.element_type
    return element_type.computation_type if member in cut.sums else element_type


def block_inputs(region: Region, cut: Cut) -> list[Instruction]:
    """What a block reads: all that is no member, and not cheap."""
    return [*dict.fromkeys(_inputs(region, cut))]


def _inputs(region: Region, cut: Cut) -> Iterator[Instruction]:
    inside = set(region.members)
    stack = [(member, k, cut.needed(member, k)) for member in region.members for k in range(len(member.operands))]
    while stack:
        user, position, place = stack.pop()
        operand = user.operands[position]
        if operand in inside:
            continue
        parts = _parts(operand, place) if operand in region.cheap else None
        if parts is None:
            yield operand
        else:
            stack += [(operand, k, part) for k, part in enumerate(parts)]


def _parts(cheap: Instruction, place: Place | None) -> list[Place | None] | None:
    """The parts of its operands that a part of something cheap needs; None where it cannot be cut there."""
    if place is None and is_view(cheap):
        return None
    if place is None or cheap.opcode in SLICES:
        return [None] * len(cheap.operands)
    try:
        return [operand_place(cheap, k, place) for k in range(len(cheap.operands))]
    except Uncuttable:
        return None


@dataclass(eq=False)
class Block:
    """A copy of a region for one block of the dimension that is cut."""

    build: OpBuilder
    of: Region
    cut: Cut
    inputs: Mapping[Instruction, Instruction]
    """What stands for each input."""
    start: Instruction
    size: int
    cheap: set[Instruction] = field(default_factory=set)
    """What the next block computes anew, here."""
    copies: dict[Instruction, Instruction] = field(init=False, default_factory=dict)
    read: dict[tuple[Instruction, Place | None], Instruction] = field(init=False, default_factory=dict)
    """Parts of what is no member."""

    def __post_init__(self) -> None:
        for member in self.of.members:
            operands = [self.operand(member, k) for k in range(len(member.operands))]
            self.copies[member] = self.copy(member, operands, self.cut.places.get(member))

    @functools.cached_property
    def region(self) -> Region:
        """The copy, as a region."""
        old = self.of
        members, outputs, products = (
            [self.copies[i] for i in found] for found in (old.members, old.outputs, old.products)
        )
        return Region(members, outputs, products, self.cheap)

    def added_to(self, totals: Sequence[Instruction]) -> list[Instruction]:
        """The outputs of all blocks with those of this one: written into their places, or added."""
        merged = []
        for output, total in zip(self.of.outputs, totals, strict=True):
            place, block = self.cut.places.get(output), self.copies[output]
            if place is None:
                merged.append(self.build(Add(), total, block))
            else:
                starts = self._starts(total.shape.rank, place)
                merged.append(self.build(DynamicUpdateSlice(), total, block, *starts))
        return merged

    def starts_of(self, output: int) -> list[Instruction]:
        """Where the block of an output that has its place lies in the whole."""
        member = self.of.outputs[output]
        return self._starts(member.shape.rank, self.cut.places[member])

    def operand(self, member: Instruction, position: int) -> Instruction:
        operand = member.operands[position]
        if operand in self.copies:
            return self.copies[operand]
        return self._part(operand, self.cut.needed(member, position))

    def _part(self, operand: Instruction, place: Place | None) -> Instruction:
        """A part of what is no member: computed if that is cheap, else read from an input."""
        if (operand, place) not in self.read:
            parts = _parts(operand, place) if operand in self.of.cheap else None
            if parts is None:
                part = self._slice(self.inputs[operand], place)
            else:
                before = [self._part(o, p) for o, p in zip(operand.operands, parts, strict=True)]
                if operand.opcode in SLICES and place is not None:
                    part = self._slice_of_slice(operand, before, place)
                else:
                    part = self.copy(operand, before, place)
                self.cheap.add(part)
            self.read[operand, place] = part
        return self.read[operand, place]

    def copy(self, old: Instruction, operands: Iterable[Instruction], place: Place | None) -> Instruction:
        shape = Shape.array(result_type(old, self.cut), self._sizes(old.shape, place))
        new = self.build(old.op, *operands, shape=shape)
        new.metadata, new.location = dict(old.metadata), old.location
        if place is not None and isinstance(old.op, Iota) and old.op.iota_dimension == place.dimension:
            first = self.build.broadcast(self.build.convert(self._scaled(place.multiple), shape.element_type), shape)
            self.cheap |= {new, first}
            return self.build(Add(), new, first)
        return new

    def _sizes(self, shape: Shape, place: Place | None) -> tuple[int, ...]:
        if place is None:
            return shape.dimensions
        size = self.size * place.multiple
        return tuple(size if d == place.dimension else n for d, n in enumerate(shape.dimensions))

    def _slice(self, array: Instruction, place: Place | None) -> Instruction:
        if place is None:
            return array
        sizes = self._sizes(array.shape, place)
        part = self.build(DynamicSlice(size_indices=sizes), array, *self._starts(len(sizes), place))
        self.cheap.add(part)
        return part

    def _slice_of_slice(self, old: Instruction, operands: Sequence[Instruction], place: Place) -> Instruction:
        """A part of a slice, of the whole that the slice is of."""
        whole, *before = operands
        if isinstance(old.op, Slice):
            before = [self.build.constant(part.start, S32) for part in old.op.slice]
            self.cheap.update(before)
        within = self._starts(len(before), place)
        starts = [_added(self.build, a, b) for a, b in zip(before, within, strict=True)]
        return self.build(DynamicSlice(size_indices=self._sizes(old.shape, place)), whole, *starts)

    def _starts(self, rank: int, place: Place) -> list[Instruction]:
        zero, first = self.build.constant(0, S32), self._scaled(place.multiple)
        self.cheap.add(zero)
        return [first if d == place.dimension else zero for d in range(rank)]

    def _scaled(self, multiple: int) -> Instruction:
        return self.start if multiple == 1 else self.build(Multiply(), self.start, self.build.constant(multiple, S32))
