"""bits: bitcasts, bitcast-converts of narrow types and stochastic-converts as shifts, reshapes and transposes."""

from __future__ import annotations

import math
from typing import ClassVar

from hloom.ir import Instruction, Module
from hloom.layout import Layout, Tile
from hloom.ops.attributes import ComparisonDirection
from hloom.ops.broadcast import Iota
from hloom.ops.compare import Compare
from hloom.ops.convert import BitcastConvert, StochasticConvert
from hloom.ops.elementwise_binary import Add, And, Multiply, Or, ShiftLeft, ShiftRightLogical, Subtract
from hloom.ops.elementwise_unary import Abs, Floor, IsFinite, Negate
from hloom.ops.reshape import Bitcast, Reshape
from hloom.ops.select import Select
from hloom.passes.op_builder import Expanders, OpBuilder, expand_all, reduced
from hloom.shape import Shape
from hloom.system.records import record
from hloom.types import PrimitiveType


@record
class BitsExpander:
    """Before: bitcast between layouts; bitcast-convert of types narrower than a byte; stochastic-convert. After:
    transposes and reshapes; shifts, masks and ors; comparisons with, or additions of, the random bits.

    A bitcast becomes a transpose to the order in memory, a reshape, and a transpose from the order of its own layout;
    tiles are further dimensions. Layouts whose tiles pad or combine dimensions are left alone.
    """

    name: ClassVar[str] = "bits"
    operations: ClassVar[tuple[type, ...]] = (Bitcast, BitcastConvert, StochasticConvert)

    def run(self, module: Module) -> int:
        """Expands the instructions; returns their number."""
        return expand_all(module, _EXPANDERS)


_EXPANDERS = Expanders()


# Layouts


@record
class _Move:
    """A reshape to `sizes`, followed by a transpose by the permutation `order`."""

    sizes: tuple[int, ...]
    order: tuple[int, ...]

    @property
    def moved(self) -> tuple[int, ...]:
        """The sizes after the transpose."""
        return tuple(self.sizes[d] for d in self.order)


@_EXPANDERS.rule(Bitcast)
def _bitcast(op: Bitcast, build: OpBuilder, old: Instruction, module: Module) -> Instruction | None:
    (operand,), shape = old.operands, old.shape
    if not shape.is_array or shape.element_type.bits < 8 or operand.shape.element_type.bits < 8:
        return None
    from_, to = _moves(operand.shape), _moves(shape)
    if operand.shape.byte_size != shape.byte_size:
        # The tiles pad the two differently: only the elements in the order of dimensions correspond.
        from_, to = _moves(_untiled(operand.shape)), _moves(_untiled(shape))
    if from_ is None or to is None:
        return None
    value = operand
    for move in from_:
        value = build.transpose(build.reshape(value, move.sizes), move.order)
    value = _retyped(build, value, shape.element_type)
    for move in reversed(to):
        inverse = tuple(move.order.index(d) for d in range(len(move.order)))
        value = build.transpose(build.reshape(value, move.moved), inverse)
    return build(Reshape(), value, shape=shape)


def _untiled(shape: Shape) -> Shape:
    assert shape.layout is not None
    return shape.with_layout(Layout(shape.layout.minor_to_major))


def _moves(shape: Shape) -> list[_Move] | None:
    """Returns the moves that bring the elements into their order in memory; None if the layout has padding."""
    layout = shape.layout
    assert layout is not None
    if layout.padded_dimensions or (layout.element_size_in_bits or shape.element_type.bits) != shape.element_type.bits:
        return None
    moves = [_Move(shape.dimensions, tuple(reversed(layout.minor_to_major)))]
    for tile in layout.tiles:
        sizes, parts = moves[-1].moved, tile.dimensions
        first = len(sizes) - len(parts)
        if first < 0 or Tile.COMBINE in parts or any(n % t for n, t in zip(sizes[first:], parts, strict=True)):
            return None
        split = [m for n, t in zip(sizes[first:], parts, strict=True) for m in (n // t, t)]
        split_dimensions = range(first, first + len(split))
        moves.append(_Move((*sizes[:first], *split), (*range(first), *split_dimensions[::2], *split_dimensions[1::2])))
    return moves


def _retyped(build: OpBuilder, value: Instruction, element_type: PrimitiveType) -> Instruction:
    """Reinterprets the bits of the elements, in row-major order, as elements of another type."""
    old, new, count = value.shape.element_type, element_type, value.shape.element_count
    if old is new:
        return value
    ratio = max(new.bits // old.bits, 1)
    if ratio > 1:
        value = build.reshape(value, (count // ratio, ratio))
    sizes = value.shape.dimensions[:-1] if ratio > 1 else value.shape.dimensions
    more = (old.bits // new.bits,) if old.bits > new.bits else ()
    return build(BitcastConvert(), value, shape=Shape.array(new, (*sizes, *more)))


# Types narrower than a byte


@_EXPANDERS.rule(BitcastConvert)
def _convert(op: BitcastConvert, build: OpBuilder, old: Instruction, module: Module) -> Instruction | None:
    (operand,) = old.operands
    from_, to = operand.shape.element_type, old.shape.element_type
    if from_.bits == to.bits or min(from_.bits, to.bits) >= 8:
        return None
    word = max(from_, to, PrimitiveType.U8, key=lambda type: type.bits).unsigned
    bits = build.convert(_as_unsigned(build, operand), word)
    if from_.bits > to.bits:
        wide = Shape.array(word, old.shape.dimensions)
        repeated = build.broadcast(bits, wide, tuple(range(bits.shape.rank)))
        shifted = build(ShiftRightLogical(), repeated, _shift_amounts(build, wide, to))
        mask = build.broadcast(build.constant((1 << to.bits) - 1, word), wide)
        parts = build.convert(build(And(), shifted, mask), to.unsigned)
    else:
        shifted = build(ShiftLeft(), bits, _shift_amounts(build, bits.shape, from_))
        gathered = reduced(build, module, Or(), shifted, 0, (bits.shape.rank - 1,))
        parts = build.convert(gathered, to.unsigned)
    return parts if to is to.unsigned else build(BitcastConvert(), parts, shape=old.shape)


def _as_unsigned(build: OpBuilder, value: Instruction) -> Instruction:
    unsigned = value.shape.element_type.unsigned
    if value.shape.element_type is unsigned:
        return value
    return build(BitcastConvert(), value, shape=value.shape.with_element_type(unsigned).without_layout())


def _shift_amounts(build: OpBuilder, shape: Shape, part: PrimitiveType) -> Instruction:
    """Returns the shift amounts of the parts of a word along the last dimension: multiples of the part's bits."""
    positions = build(Iota(iota_dimension=shape.rank - 1), shape=shape.without_layout())
    factor = build.broadcast(build.constant(int(math.log2(part.bits)), shape.element_type), shape)
    return build(ShiftLeft(), positions, factor)


# Stochastic rounding


@_EXPANDERS.rule(StochasticConvert)
def _stochastic(op: StochasticConvert, build: OpBuilder, old: Instruction, module: Module) -> Instruction | None:
    operand, random = old.operands
    to = old.shape.element_type
    return _to_integers(build, operand, random, to) if to.is_integer else _to_floats(build, operand, random, to)


def _to_integers(build: OpBuilder, operand: Instruction, random: Instruction, to: PrimitiveType) -> Instruction:
    """Truncates, and rounds away from zero if the random bits, scaled to [0, 1), are less than the fraction."""
    f64, bits = PrimitiveType.F64, random.shape.element_type.bits
    size = build(Abs(), build.convert(operand, f64))
    whole = build(Floor(), size)
    fraction = build.convert(build(Subtract(), size, whole), f64)
    scaled = _times(build, fraction, 2.0**bits)
    up = build(Compare(direction=ComparisonDirection.LT), build.convert(random, f64), scaled)
    more = build(Add(), whole, build.broadcast(build.constant(1, f64), whole.shape))
    rounded = build(Select(), up, more, whole)
    zero = build.broadcast(build.constant(0, operand.shape.element_type), operand.shape)
    is_negative = build(Compare(direction=ComparisonDirection.LT), operand, zero)
    return build.convert(build(Select(), is_negative, build(Negate(), rounded), rounded), to)


def _times(build: OpBuilder, value: Instruction, factor: float) -> Instruction:
    return build(Multiply(), value, build.broadcast(build.constant(factor, value.shape.element_type), value.shape))


def _to_floats(build: OpBuilder, operand: Instruction, random: Instruction, to: PrimitiveType) -> Instruction:
    """Adds random bits to the bits that will be dropped, and clears them."""
    from_ = operand.shape.element_type
    drop = from_.mantissa_bits - to.mantissa_bits
    if drop <= 0:
        return build.convert(operand, to)
    word = from_.unsigned

    def splat(number: int) -> Instruction:
        return build.broadcast(build.constant(number, word), operand.shape)

    noise = build(ShiftRightLogical(), build.convert(random, word), splat(from_.bits - drop))
    mask = splat(((1 << from_.bits) - 1) ^ ((1 << drop) - 1))
    kept = build(And(), build(Add(), _as_unsigned(build, operand), noise), mask)
    rounded = build(BitcastConvert(), kept, shape=operand.shape)
    return build.convert(build(Select(), build(IsFinite(), operand), rounded, operand), to)
