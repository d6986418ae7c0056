"""Elements of f16 and c64 that are only moved, chosen or, f16, negated: expressions of their bits.

Registers hold f16 as f32, and the conversion changes signalling NaNs. What is only moved keeps its bits (GEN-7), and so
does what a program sees as bits: an operand of bitcast-convert, or of a comparison in the total order. Registers hold
c64 as two vectors, of real and of imaginary parts; as one number, it is moved by fewer instructions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

import numpy as np

from hloom.affine import Expression
from hloom.loops.expression_space import ExpressionSpace
from hloom.loops.expressions import Apply, Constant, Load, Where
from hloom.loops.nest import BufferType, Nest, Store
from hloom.ops.compare import Compare
from hloom.ops.convert import BitcastConvert
from hloom.ops.elementwise_binary import And, ShiftRightArithmetic, ShiftRightLogical, Xor
from hloom.ops.elementwise_unary import Abs, Negate
from hloom.ops.select import Select
from hloom.types import PrimitiveType

BITS, BITS_OF_COMPLEX = PrimitiveType.U16, PrimitiveType.U64
KEY = PrimitiveType.S16


def with_bits_moved(space: ExpressionSpace, buffers: list[BufferType], nests: Sequence[Nest]) -> list[Nest]:
    """Returns nests that move f16 and c64 as bits: as u16 and u64. Changes the types of such results in `buffers`."""
    nests = _with_complex_moved(space, buffers, nests)
    if not any(buffer.type is PrimitiveType.F16 for buffer in buffers):
        return [*nests]
    moved = {s.buffer for nest in nests for s in nest.stores if s.value.type is PrimitiveType.F16 and _is_move(s.value)}
    for k in moved:
        buffers[k] = replace(buffers[k], type=BITS)
    return [replace(nest, stores=tuple(_stores(space, nest, moved))) for nest in nests]


def _with_complex_moved(space: ExpressionSpace, buffers: list[BufferType], nests: Sequence[Nest]) -> Sequence[Nest]:
    """Returns nests that move c64 as u64 into the buffers to which nothing else is stored."""
    stores = [store for nest in nests for store in nest.stores if store.value.type is PrimitiveType.C64]
    computed = {store.buffer for store in stores if not _is_only_moved(store.value)}
    moved = {store.buffer for store in stores} - computed
    if not moved:
        return nests
    for k in moved:
        buffers[k] = replace(buffers[k], type=BITS_OF_COMPLEX)

    def bits(store: Store) -> Store:
        return replace(store, value=bits_of(space, store.value)) if store.buffer in moved else store

    return [replace(nest, stores=tuple(map(bits, nest.stores))) for nest in nests]


def _is_only_moved(e: Expression) -> bool:
    match e:
        case Load() | Constant():
            return True
        case Where():
            return _is_only_moved(e.then) and _is_only_moved(e.otherwise)
        case Apply(op=Select()):
            return all(map(_is_only_moved, e.operands[1:]))
    return False


def _stores(space: ExpressionSpace, nest: Nest, moved: Collection[int]) -> Iterator[Store]:
    seen = {id(e): new for e in nest.expressions if isinstance(e, Apply) and (new := _of_bits(space, e)) is not None}
    values = space.replace(nest.values, seen) if seen else nest.values
    for store, value in zip(nest.stores, values, strict=True):
        yield replace(store, value=bits_of(space, value) if store.buffer in moved else value)


def _is_move(e: Expression) -> bool:
    return isinstance(e, (Load, Where)) or (isinstance(e, Apply) and isinstance(e.op, (Select, Negate, Abs)))


def _of_bits(space: ExpressionSpace, e: Apply) -> Expression | None:
    """Returns an expression of the bits of its operands in f16; None for operations on numbers."""
    if not e.operands or e.operands[0].type is not PrimitiveType.F16:
        return None
    if isinstance(e.op, BitcastConvert):
        bits = bits_of(space, e.operands[0])
        return bits if e.type is BITS else space.apply(e.op, e.type, bits)
    if isinstance(e.op, Compare) and e.op.is_total_order:
        keys = [_total_order_key(space, bits_of(space, operand)) for operand in e.operands]
        return space.apply(Compare(direction=e.op.direction), e.type, *keys)
    return None


def _total_order_key(space: ExpressionSpace, bits: Expression) -> Expression:
    """Returns a signed integer in the order of TOTALORDER-1."""
    key = space.apply(BitcastConvert(), KEY, bits)
    fifteen, one = (space.constant(KEY, np.asarray(n, np.int16)) for n in (15, 1))
    sign = space.apply(ShiftRightArithmetic(), KEY, key, fifteen)
    return space.apply(Xor(), KEY, key, space.apply(ShiftRightLogical(), KEY, sign, one))


def bits_of(space: ExpressionSpace, e: Expression) -> Expression:
    """Returns the bits of an expression of type f16, or of one of type c64 that only moves elements."""
    type = BITS_OF_COMPLEX if e.type is PrimitiveType.C64 else BITS
    match e:
        case Load():
            return space.load(type, e.buffer, e.index)
        case Constant():
            return space.constant(type, np.asarray(e.value).view(np.uint64 if type is BITS_OF_COMPLEX else np.uint16))
        case Where():
            return space.where(e.condition, bits_of(space, e.then), bits_of(space, e.otherwise))
        case Apply(op=Select()):
            return space.apply(e.op, type, e.operands[0], *(bits_of(space, operand) for operand in e.operands[1:]))
        case Apply(op=Negate()):
            return space.apply(Xor(), BITS, bits_of(space, e.operands[0]), _mask(space, 0x8000))
        case Apply(op=Abs()):
            return space.apply(And(), BITS, bits_of(space, e.operands[0]), _mask(space, 0x7FFF))
    return space.apply(BitcastConvert(), BITS, e)


def _mask(space: ExpressionSpace, bits: int) -> Expression:
    return space.constant(BITS, np.asarray(bits, np.uint16))
