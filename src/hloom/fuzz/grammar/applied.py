"""Proposals for operations that apply computations to elements: map, reduce, windows, sort, scan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hloom.fuzz.grammar.body import Body
from hloom.fuzz.grammar.draw import ARRAYS, Draw
from hloom.fuzz.grammar.proposals import grow, proposal
from hloom.ir import Computation, Instruction
from hloom.literal import extreme
from hloom.numerics import convert
from hloom.ops.attributes import ComparisonDirection, ComparisonType, WindowDimension
from hloom.ops.broadcast import Iota
from hloom.ops.compare import Compare
from hloom.ops.convert import Convert
from hloom.ops.elementwise_binary import Add, And, Maximum, Minimum, Multiply, Or, Xor
from hloom.ops.elementwise_unary import Not
from hloom.ops.operation import Operation
from hloom.ops.reduce import Map, Reduce
from hloom.ops.reduce_window import ReduceWindow, SelectAndScatter
from hloom.ops.scan import Scan
from hloom.ops.select import Select
from hloom.ops.sort import Sort
from hloom.ops.structure import Tuple
from hloom.shape import Shape, scalar
from hloom.types import REALS, PrimitiveType
from hloom.values import Array

ARG_TYPES = (PrimitiveType.S32, PrimitiveType.U8)
COMBINERS: tuple[type[Operation], ...] = (Add, Add, Maximum, Minimum, Multiply, And, Or, Xor)
WIDER = {
    PrimitiveType.F16: PrimitiveType.F32,
    PrimitiveType.BF16: PrimitiveType.F32,
    PrimitiveType.S8: PrimitiveType.S32,
}
"""Types in which elements of others are combined: the sums of JAX's 16-bit floats."""


@dataclass
class Combiner:
    """A computation that combines elements, and the values that it leaves unchanged, one for each element type."""

    computation: Computation
    identities: list[Array]


def combiner(body: Body, types: Sequence[PrimitiveType], ordered: bool = False) -> Combiner:
    """Returns a combiner of elements of some types: a monoid for each.

    With `ordered`, for operations that combine in a given order, it may be any computation.
    """
    inner = body.child("combine", [scalar(t) for t in types] * 2, scalar=True)
    parameters, count = inner.computation.parameters, len(types)
    results, identities = [], []
    for k, element_type in enumerate(types):
        declaration = body.draw.pick([op for op in COMBINERS if element_type.kind in op.kinds])  # type: ignore[attr-defined]
        pair = [parameters[k], parameters[count + k]]
        if ordered and body.draw.chance(0.3):
            results.append(inner.computed(scalar(element_type)))
        else:
            results.append(_combined(inner, declaration, pair if body.draw.chance(0.8) else pair[::-1]))
        identities.append(_identity(declaration, element_type))
    inner.end(results)
    return Combiner(inner.computation, identities)


def _combined(inner: Body, declaration: type[Operation], pair: Sequence[Instruction]) -> Instruction:
    """Combines a pair, seldom in a wider type."""
    shape = pair[0].shape
    if shape.element_type not in WIDER or inner.draw.chance(0.7):
        return inner.add(declaration(), *pair)
    wide = scalar(WIDER[shape.element_type])
    return inner.add(
        Convert(), inner.add(declaration(), *(inner.add(Convert(), x, shape=wide) for x in pair)), shape=shape
    )


def starts(body: Body, combined: Combiner) -> list[Instruction]:
    """Returns initial values: identities, or any values, which enter once (REDUCE-3)."""
    if body.draw.chance(0.7):
        return [body.constant(identity) for identity in combined.identities]
    return [
        body.want(scalar(p.shape.element_type)) for p in combined.computation.parameters[: len(combined.identities)]
    ]


def monoid(body: Body, declaration: type[Operation], element_type: PrimitiveType) -> Combiner:
    """Returns the combiner of elements of a type that is a single operation."""
    inner = body.child("combine", [scalar(element_type)] * 2, scalar=True)
    inner.end([inner.add(declaration(), *inner.computation.parameters)])
    return Combiner(inner.computation, [_identity(declaration, element_type)])


def _identity(declaration: type[Operation], element_type: PrimitiveType) -> Array:
    if declaration in (Maximum, Minimum):
        return extreme(element_type, highest=declaration is Minimum)
    ones = declaration in (Multiply, And)
    if element_type.is_pred or declaration is not And:
        return convert(np.asarray(ones), element_type.dtype)
    return convert(np.asarray(-1 if element_type.is_signed else (1 << element_type.bits) - 1), element_type.dtype)


@proposal(Map)
def _map(body: Body, declaration: type[Map]) -> Instruction:
    draw, first = body.draw, body.array("map")
    operands = [first]
    for _ in range(draw.below(3)):
        operands.append(body.want(first.shape.with_element_type(draw.element_type("map"))))
    inner = body.child("mapped", [scalar(o.shape.element_type) for o in operands], scalar=True)
    grow(inner, draw.between(1, 6))
    inner.end([inner.computed(scalar(draw.element_type("map")))])
    op = Map(dimensions=tuple(range(first.shape.rank)), computation=inner.computation)
    return body.add(op, *operands)


@proposal(Reduce)
def _reduce(body: Body, declaration: type[Reduce]) -> Instruction:
    draw, first = body.draw, body.array("reduce")
    if draw.chance(0.12) and first.shape.element_type.kind in REALS:
        return _arg_reduce(body, first)
    operands = [first]
    if draw.chance(0.25):
        operands.append(body.want(first.shape.with_element_type(draw.element_type("reduce"))))
    combined = combiner(body, [o.shape.element_type for o in operands])
    dimensions = draw.some(range(first.shape.rank), 0.6)
    op = Reduce(dimensions=dimensions, computation=combined.computation)
    return _opened(body, op, *operands, *starts(body, combined))


def _arg_reduce(body: Body, operand: Instruction) -> Instruction:
    """The largest or smallest element with an index, the smaller index of equal ones: jnp.argmax.

    Elements at random indices are in total order, so that equal ones are the same; with an iota NaNs come first.
    """
    draw, element_type, index_type = body.draw, operand.shape.element_type, body.draw.pick(ARG_TYPES)
    inner = body.child("arg", [scalar(element_type), scalar(index_type)] * 2, scalar=True)
    a, i, b, j = inner.computation.parameters
    largest, along_one = draw.chance(0.5), bool(operand.shape.rank) and draw.chance(0.5)
    better, equal = _comparisons(inner, a, b, largest, not along_one)
    first = inner.add(And(), equal, inner.add(Compare(direction=ComparisonDirection.LT), i, j))
    keep = inner.add(Or(), better, first)
    inner.end([inner.add(Select(), keep, a, b), inner.add(Select(), keep, i, j)])
    extremes = [
        body.constant(extreme(element_type, highest=not largest)),
        body.constant(extreme(index_type, highest=True)),
    ]
    dimensions, index_shape = draw.some(range(operand.shape.rank), 0.6), operand.shape.with_element_type(index_type)
    if along_one:
        dimensions = (draw.below(operand.shape.rank),)
    indices = body.add(Iota(iota_dimension=dimensions[0]), shape=index_shape) if along_one else body.want(index_shape)
    return _opened(body, Reduce(dimensions=dimensions, computation=inner.computation), operand, indices, *extremes)


def _comparisons(
    inner: Body, a: Instruction, b: Instruction, largest: bool, total: bool
) -> tuple[Instruction, Instruction]:
    """Returns whether a is better than b, and whether they are equal; without a total order NaN is best."""
    order = ComparisonType.TOTALORDER if total and a.shape.element_type.is_float else None
    strict = ComparisonDirection.GT if largest else ComparisonDirection.LT
    better = inner.add(Compare(direction=strict, type=order), a, b)
    equal = inner.add(Compare(direction=ComparisonDirection.EQ, type=order), a, b)
    if order is not None or not a.shape.element_type.is_float:
        return better, equal
    nan_a, nan_b = (inner.add(Compare(direction=ComparisonDirection.NE), x, x) for x in (a, b))
    better = inner.add(Or(), better, inner.add(And(), nan_a, inner.add(Not(), nan_b)))
    return better, inner.add(Or(), equal, inner.add(And(), nan_a, nan_b))


def _opened(body: Body, op: Operation, *operands: Instruction) -> Instruction:
    made = body.add(op, *operands)
    body.opened(made)
    return made


def window(draw: Draw, sizes: Sequence[int], dilated: bool = True) -> tuple[WindowDimension, ...]:
    """Returns a window over dimensions of some sizes, some of its dimensions of size 1."""
    return tuple(_window_dimension(draw, size, dilated) for size in sizes)


def _window_dimension(draw: Draw, size: int, dilated: bool) -> WindowDimension:
    if draw.chance(0.3):
        return WindowDimension()
    width = draw.pick((1, 2, 3, 4, max(1, size)))
    return WindowDimension(
        size=width,
        stride=draw.pick((1, 1, 2, 3)),
        padding_low=draw.pick((0, width - 1, draw.between(-1 if dilated else 0, width - 1))),
        padding_high=draw.pick((0, draw.between(-1 if dilated else 0, width - 1))),
        window_dilation=draw.pick((1, 1, 1, 2)) if dilated else 1,
        base_dilation=draw.pick((1, 1, 1, 2)) if dilated else 1,
    )


def running_window(sizes: Sequence[int], dimension: int, reverse: bool) -> tuple[WindowDimension, ...]:
    """Returns the window that reaches, from each element, to the first one along a dimension, or to the last one."""
    windows, before = [WindowDimension()] * len(sizes), max(0, sizes[dimension] - 1)
    low, high = (0, before) if reverse else (before, 0)
    windows[dimension] = WindowDimension(size=before + 1, padding_low=low, padding_high=high)
    return tuple(windows)


@proposal(ReduceWindow)
def _reduce_window(body: Body, declaration: type[ReduceWindow]) -> Instruction:
    draw, first = body.draw, body.array("reduce-window", fits=lambda s: s.element_count < 3000)
    operands = [first]
    if draw.chance(0.2):
        operands.append(body.want(first.shape.with_element_type(draw.element_type("reduce-window"))))
    combined = combiner(body, [o.shape.element_type for o in operands])
    op = ReduceWindow(window=window(draw, first.shape.dimensions), computation=combined.computation)
    return _opened(body, op, *operands, *starts(body, combined))


@proposal(SelectAndScatter)
def _select_and_scatter(body: Body, declaration: type[SelectAndScatter]) -> Instruction:
    draw = body.draw
    operand = body.array("select-and-scatter", REALS, fits=lambda s: s.element_count < 3000)
    element = scalar(operand.shape.element_type)
    windows = window(draw, operand.shape.dimensions, dilated=False)
    counts = [w.count(size) for w, size in zip(windows, operand.shape.dimensions, strict=True)]
    source = body.want(Shape.array(operand.shape.element_type, counts))
    chosen = body.child("chosen", [element] * 2, scalar=True)
    direction = draw.pick((ComparisonDirection.GE, ComparisonDirection.LE, ComparisonDirection.GT))
    chosen.end([chosen.add(Compare(direction=direction), *chosen.computation.parameters)])
    combined = combiner(body, [operand.shape.element_type])
    op = SelectAndScatter(window=windows, select=chosen.computation, scatter=combined.computation)
    return body.add(op, operand, source, *starts(body, combined))


@proposal(Sort)
def _sort(body: Body, declaration: type[Sort]) -> Instruction:
    """A stable sort by the first operand, or by the second one where the first is equal."""
    draw, first = body.draw, body.array("sort", REALS, low=1)
    operands = [first]
    for _ in range(draw.below(3)):
        operands.append(body.want(first.shape.with_element_type(draw.element_type("sort"))))
    return sort(body, operands, draw.below(first.shape.rank))


def sort(body: Body, operands: Sequence[Instruction], dimension: int) -> Instruction:
    """Sorts operands by the first one, or by the second one, too."""
    inner = body.child("less", [scalar(o.shape.element_type) for o in operands for _ in range(2)], scalar=True)
    keys = [k for k, o in enumerate(operands[:2]) if o.shape.element_type.kind in REALS]
    inner.end([_comparison(inner, keys[: body.draw.between(1, len(keys))])])
    op = Sort(dimension=dimension, is_stable=True, comparator=inner.computation)
    return _opened(body, op, *operands)


def _comparison(inner: Body, keys: list[int]) -> Instruction:
    """Compares two elements by keys, the first key first, in the total order of floats."""
    draw, parameters = inner.draw, inner.computation.parameters
    a, b = parameters[2 * keys[0] : 2 * keys[0] + 2]
    direction = draw.pick((ComparisonDirection.LT, ComparisonDirection.GT))
    order = ComparisonType.TOTALORDER if a.shape.element_type.is_float else None
    less = inner.add(Compare(direction=direction, type=order), a, b)
    if len(keys) == 1:
        return less
    equal = inner.add(Compare(direction=ComparisonDirection.EQ, type=order), a, b)
    return inner.add(Or(), less, inner.add(And(), equal, _comparison(inner, keys[1:])))


@proposal(Scan)
def _scan(body: Body, declaration: type[Scan]) -> Instruction:
    draw, first = body.draw, body.array("scan", ARRAYS, low=1)
    dimension = draw.below(first.shape.rank)
    part = first.shape.delete_dimensions([dimension])
    carry = body.want(Shape.array(draw.element_type("scan"), part.dimensions))
    inner = body.child("step", [part, carry.shape], uniform=False)
    grow(inner, draw.between(1, 3))
    output, end = inner.computed(part), inner.computed(carry.shape)
    inner.computation.root = inner.add(Tuple(), output, end)
    op = Scan(scan_dimension=dimension, is_reverse=draw.chance(0.3), num_carries=1, computation=inner.computation)
    return _opened(body, op, first, carry)
