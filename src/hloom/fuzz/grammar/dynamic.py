"""Proposals for dynamic dimensions: an array gets one, some operations are applied, and it may become static again."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np

from hloom.errors import HloomError
from hloom.fuzz.grammar.applied import combiner
from hloom.fuzz.grammar.attributes import draw_attributes
from hloom.fuzz.grammar.body import Body
from hloom.fuzz.grammar.proposals import kinds_of, proposal
from hloom.ir import Instruction
from hloom.literal import Literal
from hloom.ops.attributes import ComparisonDirection
from hloom.ops.broadcast import Broadcast
from hloom.ops.compare import Compare
from hloom.ops.convert import Convert
from hloom.ops.dot import Dot
from hloom.ops.dynamic_size import GetDimensionSize, SetDimensionSize
from hloom.ops.elementwise_binary import Binary, Multiply
from hloom.ops.elementwise_unary import Unary
from hloom.ops.operation import OPERATIONS, Operation
from hloom.ops.pad import Concatenate, Pad
from hloom.ops.reduce import Reduce
from hloom.ops.reshape import DynamicReshape
from hloom.ops.select import Select
from hloom.ops.slice import Slice
from hloom.ops.transpose import Reverse, Transpose
from hloom.shape import Shape, scalar
from hloom.types import NUMERIC, PrimitiveType

ELEMENTWISE: tuple[type[Operation], ...] = tuple(
    op for _, op in sorted(OPERATIONS.items()) if issubclass(op, (Unary, Binary))
)


@proposal(SetDimensionSize, DynamicReshape)
def _dynamic(body: Body, declaration: type[Operation]) -> Instruction:
    draw, value = body.draw, body.array("set-dimension-size", low=1)
    for d in draw.shuffled(range(value.shape.rank))[: draw.weighted({1: 3, 2: 1})]:
        bound = value.shape.dimensions[d]
        value = _resized(
            body, value, d, draw.pick((draw.between(0, bound), draw.between(0, bound), bound)), dynamic=True
        )
    if declaration is DynamicReshape:
        value = _reshaped(body, value)
    for _ in range(draw.below(4)):
        try:
            value = draw.pick(STEPS)(body, value)
        except HloomError:
            continue  # an operation that takes no such operand
    if value.shape.is_dynamic and draw.chance(0.5):
        for d in [d for d, dynamic in enumerate(value.shape.dynamic_dimensions) if dynamic]:
            value = _resized(body, value, d, value.shape.dimensions[d], dynamic=False)
    return value


def _resized(body: Body, value: Instruction, dimension: int, size: int, *, dynamic: bool) -> Instruction:
    """Sets a dimension's size, which the program knows or not; the bound makes it static (SETDIMENSIONSIZE-5)."""
    flags = list(value.shape.dynamic_dimensions)
    flags[dimension] = dynamic
    scalar_size = Literal.from_value(size).value
    known = body.depth or not dynamic or body.draw.chance(0.3)
    operand = body.constant(scalar_size) if known else body.parameter(np.asarray(scalar_size, np.int32))
    shape = Shape.array(value.shape.element_type, value.shape.dimensions, flags)
    return body.add(SetDimensionSize(dimension=dimension), value, operand, shape=shape)


def _elementwise(body: Body, x: Instruction) -> Instruction:
    fitting = [op for op in ELEMENTWISE if x.shape.element_type.kind in kinds_of(op)]
    declaration = body.draw.pick(fitting)
    return body.add(declaration(), *[x] * len(declaration.operands))


def _converted(body: Body, x: Instruction) -> Instruction:
    return body.add(Convert(), x, shape=x.shape.with_element_type(body.draw.element_type("convert to")))


def _reduced(body: Body, x: Instruction) -> Instruction:
    combined = combiner(body, [x.shape.element_type])
    dimensions = body.draw.some(range(x.shape.rank))
    op = Reduce(dimensions=dimensions, computation=combined.computation)
    return body.add(op, x, body.constant(combined.identities[0]))


def _selected(body: Body, x: Instruction) -> Instruction:
    return body.add(Select(), body.add(Compare(direction=ComparisonDirection.EQ), x, x), x, x)


def _padded(body: Body, x: Instruction) -> Instruction:
    op = Pad(**draw_attributes(body.draw, Pad, x.shape))
    return body.add(op, x, body.want(scalar(x.shape.element_type)))


def _doubled(body: Body, x: Instruction) -> Instruction:
    return body.add(Concatenate(dimension=body.draw.below(max(1, x.shape.rank))), x, x)


def _repeated(body: Body, x: Instruction) -> Instruction:
    """A broadcast along a new static dimension, the first or the last."""
    first = body.draw.below(2)
    dimensions = tuple(d + first for d in range(x.shape.rank))
    shape = x.shape.insert_dimension(0 if first else x.shape.rank, body.draw.between(1, 3))
    return body.add(Broadcast(broadcast_dimensions=dimensions), x, shape=shape.without_layout())


def _multiplied(body: Body, x: Instruction) -> Instruction:
    """Products of x with itself, over a dimension that may be dynamic."""
    if x.shape.element_type.kind not in NUMERIC:
        return x
    dimensions = body.draw.some(range(x.shape.rank))
    return body.add(Dot(lhs_contracting_dims=dimensions, rhs_contracting_dims=dimensions), x, x)


def _size(body: Body, x: Instruction) -> Instruction:
    size = body.add(GetDimensionSize(dimension=body.draw.below(max(1, x.shape.rank))), x)
    return body.add(Convert(), size, shape=scalar(PrimitiveType.S64))


def _reshaped(body: Body, x: Instruction) -> Instruction:
    """The actual elements in an array whose dimensions are those of x in another order, or several in one."""
    sizes = [body.add(GetDimensionSize(dimension=d), x) for d in range(x.shape.rank)]
    parts = [[d] for d in body.draw.shuffled(range(x.shape.rank))]
    while len(parts) > 1 and body.draw.chance(0.4):
        parts[:2] = [parts[0] + parts[1]]
    dims = [functools.reduce(lambda a, b: body.add(Multiply(), a, b), (sizes[d] for d in part)) for part in parts]
    bounds = [math.prod(x.shape.dimensions[d] for d in part) for part in parts]
    flags = [any(x.shape.dynamic_dimensions[d] for d in part) for part in parts]
    return body.add(DynamicReshape(), x, *dims, shape=Shape.array(x.shape.element_type, bounds, flags))


def _declared(declaration: type[Operation]) -> Callable[[Body, Instruction], Instruction]:
    def step(body: Body, x: Instruction) -> Instruction:
        return body.add(declaration(**draw_attributes(body.draw, declaration, x.shape)), x)

    return step


STEPS: tuple[Callable[[Body, Instruction], Instruction], ...] = (
    _elementwise, _elementwise, _converted, _reduced, _selected, _padded, _doubled, _repeated, _multiplied, _size,
    _reshaped, *map(_declared, (Transpose, Reverse, Slice)),
)  # fmt: skip
