"""Proposals for operations on arrays whose operands differ in shape, or whose result is declared."""

from __future__ import annotations

from typing import Any

from hloom.fuzz.grammar.attributes import draw_attributes
from hloom.fuzz.grammar.body import Body, split_product
from hloom.fuzz.grammar.proposals import proposal
from hloom.ir import Instruction
from hloom.ops.attributes import RandomAlgorithm
from hloom.ops.broadcast import Broadcast, Iota
from hloom.ops.convert import BitcastConvert, Convert, ReducePrecision, StochasticConvert
from hloom.ops.pad import Concatenate, Pad
from hloom.ops.reshape import Bitcast, Reshape
from hloom.ops.rng import RngBitGenerator
from hloom.ops.select import Clamp, Select
from hloom.ops.slice import DynamicSlice, DynamicUpdateSlice
from hloom.ops.sort import TopK
from hloom.shape import Ints, Shape, scalar
from hloom.types import FLOATS, INTEGERS, NUMERIC, REALS, PrimitiveType

INDEX_TYPES = [PrimitiveType.S32, PrimitiveType.S32, PrimitiveType.S64, PrimitiveType.U32, PrimitiveType.S8]
STATES = {RandomAlgorithm.RNG_DEFAULT: (2, 3), RandomAlgorithm.RNG_THREE_FRY: (2,), RandomAlgorithm.RNG_PHILOX: (2, 3)}
"""Algorithms of rng-bit-generator with the numbers of u64 words of their states."""


@proposal(Select)
def _select(body: Body, declaration: type[Select]) -> Instruction:
    value = body.array("select")
    sizes = () if body.draw.chance(0.3) else value.shape.dimensions
    return body.add(Select(), body.want(Shape.array(PrimitiveType.PRED, sizes)), value, body.want(value.shape))


@proposal(Clamp)
def _clamp(body: Body, declaration: type[Clamp]) -> Instruction:
    value = body.array("clamp", REALS)
    bounds = [value.shape if body.draw.chance(0.5) else scalar(value.shape.element_type) for _ in range(2)]
    return body.add(Clamp(), body.want(bounds[0]), value, body.want(bounds[1]))


@proposal(Convert)
def _convert(body: Body, declaration: type[Convert]) -> Instruction:
    value = body.array("convert")
    target = body.draw.element_type("convert to")
    return body.add(Convert(), value, shape=value.shape.with_element_type(target))


@proposal(StochasticConvert)
def _stochastic(body: Body, declaration: type[StochasticConvert]) -> Instruction:
    value = body.array("stochastic-convert", FLOATS, fits=lambda s: s.element_type.bits >= 8)
    word = value.shape.element_type.unsigned
    target = body.draw.element_type("stochastic-convert to", REALS)
    random = body.want(value.shape.with_element_type(word))
    return body.add(StochasticConvert(), value, random, shape=value.shape.with_element_type(target))


@proposal(ReducePrecision)
def _reduce_precision(body: Body, declaration: type[ReducePrecision]) -> Instruction:
    bits = {"exponent_bits": body.draw.between(1, 11), "mantissa_bits": body.draw.between(0, 24)}
    return body.add(ReducePrecision(**bits), body.array("reduce-precision", FLOATS))


@proposal(BitcastConvert)
def _bitcast_convert(body: Body, declaration: type[BitcastConvert]) -> Instruction:
    value = body.array("bitcast-convert", NUMERIC)
    target, old = body.draw.element_type("bitcast-convert to", NUMERIC), value.shape.element_type.bits
    sizes = value.shape.dimensions
    if target.bits < old:
        sizes = (*sizes, old // target.bits)
    elif target.bits > old:
        sizes = (*sizes, target.bits // old)
        value, sizes = body.want(Shape.array(value.shape.element_type, sizes)), sizes[:-1]
    return body.add(BitcastConvert(), value, shape=Shape.array(target, sizes))


@proposal(Reshape)
def _reshape(body: Body, declaration: type[Reshape]) -> Instruction:
    value = body.array("reshape")
    sizes = split_product(body.draw, value.shape.element_count)
    return body.add(Reshape(), value, shape=Shape.array(value.shape.element_type, sizes))


@proposal(Bitcast)
def _bitcast(body: Body, declaration: type[Bitcast]) -> Instruction:
    """A bitcast, most often to the row-major layout, as a reshape of a row-major operand."""
    value = body.array("bitcast")
    sizes = split_product(body.draw, value.shape.element_count)
    order = body.draw.shuffled(range(len(sizes))) if body.draw.chance(0.3) else None
    return body.add(Bitcast(), value, shape=Shape.array(value.shape.element_type, sizes).with_layout(order))


@proposal(Broadcast)
def _broadcast(body: Body, declaration: type[Broadcast]) -> Instruction:
    draw, value = body.draw, body.array("broadcast", fits=lambda s: s.element_count < 1000)
    sizes = list(value.shape.dimensions)
    order = draw.shuffled(range(len(sizes))) if draw.chance(0.3) else [*range(len(sizes))]
    result = [sizes[d] for d in order]
    for _ in range(draw.between(0 if sizes else 1, 2)):
        result.insert(draw.between(0, len(result)), -draw.between(1, 5))
    kept = [d for d, size in enumerate(result) if size >= 0]
    positions = [kept[order.index(d)] for d in range(len(sizes))]
    shape = Shape.array(value.shape.element_type, map(abs, result))
    return body.add(Broadcast(broadcast_dimensions=tuple(positions)), value, shape=shape)


@proposal(Iota)
def _iota(body: Body, declaration: type[Iota]) -> Instruction:
    sizes = body.draw.sizes(1)
    shape = Shape.array(body.draw.element_type("iota", NUMERIC), sizes)
    return body.add(Iota(iota_dimension=body.draw.below(len(sizes))), shape=shape)


@proposal(Pad)
def _pad(body: Body, declaration: type[Pad]) -> Instruction:
    value = body.array("pad")
    attributes: dict[str, Any] = draw_attributes(body.draw, Pad, value.shape)
    return body.add(Pad(**attributes), value, body.want(scalar(value.shape.element_type)))


@proposal(Concatenate)
def _concatenate(body: Body, declaration: type[Concatenate]) -> Instruction:
    draw, first = body.draw, body.array("concatenate", low=1)
    dimension, parts = draw.below(first.shape.rank), [first]
    for _ in range(draw.below(4)):
        sizes = list(first.shape.dimensions)
        sizes[dimension] = draw.pick((sizes[dimension], draw.between(0, 5)))
        parts.append(body.want(Shape.array(first.shape.element_type, sizes)))
    return body.add(Concatenate(dimension=dimension), *draw.shuffled(parts))


@proposal(DynamicSlice)
def _dynamic_slice(body: Body, declaration: type[DynamicSlice]) -> Instruction:
    value = body.array("dynamic-slice")
    sizes = _part(body, value.shape)
    return body.add(DynamicSlice(size_indices=sizes), value, *_starts(body, value.shape))


@proposal(DynamicUpdateSlice)
def _dynamic_update_slice(body: Body, declaration: type[DynamicUpdateSlice]) -> Instruction:
    value = body.array("dynamic-update-slice")
    update = body.want(Shape.array(value.shape.element_type, _part(body, value.shape)))
    return body.add(DynamicUpdateSlice(), value, update, *_starts(body, value.shape))


def _part(body: Body, whole: Shape) -> Ints:
    return tuple(body.draw.pick((size, body.draw.between(0, size))) for size in whole.dimensions)


def _starts(body: Body, whole: Shape) -> list[Instruction]:
    """Start indices: a scalar for each dimension."""
    index_type = body.draw.pick(INDEX_TYPES)
    return [body.indices(index_type, (), size) for size in whole.dimensions]


@proposal(TopK)
def _top_k(body: Body, declaration: type[TopK]) -> Instruction:
    value = body.array("topk", REALS, low=1)
    k = body.draw.between(0, value.shape.dimensions[-1])
    return body.add(TopK(k=k, largest=body.draw.chance(0.7)), value)


@proposal(RngBitGenerator)
def _rng_bits(body: Body, declaration: type[RngBitGenerator]) -> Instruction:
    algorithm = body.draw.pick([*STATES])
    state = body.want(Shape.array(PrimitiveType.U64, (body.draw.pick(STATES[algorithm]),)))
    sizes = body.draw.sizes()
    data = Shape.array(body.draw.element_type("rng-bit-generator", INTEGERS), sizes)
    made = body.add(RngBitGenerator(algorithm=algorithm), state, shape=Shape.tuple_of([state.shape, data]))
    body.opened(made)
    return made
