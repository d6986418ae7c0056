"""Operands, computations and declared results of drawn operations, where valid ones are rare among random shapes."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from hloom.instances.palette import Palette
from hloom.ir import Computation, Instruction
from hloom.ops import kinds
from hloom.ops.attributes import ComparisonDirection
from hloom.ops.broadcast import Broadcast, Iota
from hloom.ops.compare import Compare
from hloom.ops.convert import BitcastConvert, Convert
from hloom.ops.convolution import Convolution
from hloom.ops.elementwise_binary import Add, And, Maximum, Minimum, Multiply, Or, Subtract, Xor
from hloom.ops.elementwise_unary import Negate
from hloom.ops.gather import Gather
from hloom.ops.operation import Operation
from hloom.ops.pad import Pad
from hloom.ops.reduce import Map, Reduce
from hloom.ops.reduce_window import ReduceWindow
from hloom.ops.reshape import Reshape
from hloom.ops.scatter import Scatter
from hloom.ops.select import Clamp, Select
from hloom.ops.slice import DynamicSlice, DynamicUpdateSlice
from hloom.ops.sort import Sort
from hloom.ops.structure import GetTupleElement, Tuple
from hloom.passes.op_builder import OpBuilder
from hloom.shape import Shape, scalar
from hloom.types import PrimitiveType

# Operands

NextOperand = Callable[[Palette, Sequence[Shape], Shape], Shape | None]
"""(palette, shapes of the operands so far, wanted result) -> a shape of the next operand; None at the end."""


def next_operand(
    declaration: type[Operation], palette: Palette, operands: Sequence[Shape], wanted: Shape
) -> Shape | None:
    """Draws the shape of the next operand of an operation that is to have the wanted shape; None if it has all."""
    known = next((NEXT[cls] for cls in declaration.__mro__ if cls in NEXT), None)
    if known is not None:
        return known(palette, operands, wanted)
    names = declaration.operands
    is_open = any(name.startswith("*") for name in names)
    if len(operands) >= len(names) and not (is_open and palette.happens(0.6)):
        return None
    return _alike(palette, operands, wanted if declaration.elementwise else palette.shape())


def _alike(palette: Palette, operands: Sequence[Shape], first: Shape) -> Shape:
    """Draws a shape like that of the operands before, more often than not; a scalar, or with another size, else."""
    if not operands:
        return first if palette.happens(0.8) else palette.shape()
    last = operands[palette.chance.choice([0, -1])]
    form = palette.chance.random()
    if form < 0.8 or not last.is_array:
        return last
    return scalar(last.element_type) if form < 0.9 else Shape.array(last.element_type, palette.other_sizes())


def _select(palette: Palette, operands: Sequence[Shape], wanted: Shape) -> Shape | None:
    if not operands:
        whole = palette.happens(0.8)
        return Shape.array(PrimitiveType.PRED, wanted.dimensions if whole else ())
    return (wanted if len(operands) == 1 else operands[1]) if len(operands) < 3 else None


def _clamp(palette: Palette, operands: Sequence[Shape], wanted: Shape) -> Shape | None:
    is_bound = len(operands) != 1
    return None if len(operands) == 3 else scalar(wanted.element_type) if is_bound and palette.happens(0.2) else wanted


def _dynamic_slice(palette: Palette, operands: Sequence[Shape], wanted: Shape) -> Shape | None:
    if not operands:
        return palette.shape()
    starts = operands[1:]
    return None if len(starts) == operands[0].rank else starts[-1] if starts else scalar(palette.index_type())


def _dynamic_update_slice(palette: Palette, operands: Sequence[Shape], wanted: Shape) -> Shape | None:
    if not operands:
        return wanted
    if len(operands) == 1:
        sizes = [n if palette.happens(0.3) else palette.chance.randint(0, n) for n in operands[0].dimensions]
        return Shape.array(operands[0].element_type, sizes)
    starts = operands[2:]
    return None if len(starts) == operands[0].rank else starts[-1] if starts else scalar(palette.index_type())


def _indices(palette: Palette) -> Shape:
    rank = palette.chance.randint(0, 2)
    return Shape.array(palette.index_type(), [palette.chance.choice([1, 1, 2, 0]) for _ in range(rank)])


def _gather(palette: Palette, operands: Sequence[Shape], wanted: Shape) -> Shape | None:
    return palette.shape() if not operands else _indices(palette) if len(operands) == 1 else None


def _scatter(palette: Palette, operands: Sequence[Shape], wanted: Shape) -> Shape | None:
    if not operands:
        return wanted
    if len(operands) == 1:
        return _indices(palette)
    if len(operands) > 2:
        return None
    target, indices = operands
    sizes = [palette.chance.choice([1, *range(n + 1)]) for n in target.dimensions]
    window = palette.chance.sample(sizes, palette.chance.randint(0, len(sizes)))
    batch = list(indices.dimensions)
    if batch and palette.happens(0.7):
        batch.pop(palette.chance.randrange(len(batch)))
    return Shape.array(target.element_type, [*batch, *window])


def _reduce(palette: Palette, operands: Sequence[Shape], wanted: Shape) -> Shape | None:
    """Draws one array and its initial value, or two of each."""
    if not operands:
        return palette.shape()
    arrays = [shape for shape in operands if not shape.is_scalar]
    values = [shape for shape in operands if shape.is_scalar]
    if len(operands) == len(arrays) == 1 and palette.happens(0.15):
        return Shape.array(palette.element_type(), arrays[0].dimensions)
    return scalar(arrays[len(values)].element_type) if len(values) < len(arrays) else None


def _sort(palette: Palette, operands: Sequence[Shape], wanted: Shape) -> Shape | None:
    if not operands:
        return wanted
    more = len(operands) < 3 and palette.happens(0.3)
    return Shape.array(palette.element_type(), operands[0].dimensions) if more else None


def _convolution(palette: Palette, operands: Sequence[Shape], wanted: Shape) -> Shape | None:
    rank = operands[0].rank if operands else palette.chance.randint(3, 4)
    return Shape.array(palette.main_type, [palette.chance.choice([1, 1, 2, 3]) for _ in range(rank)])


def _pad(palette: Palette, operands: Sequence[Shape], wanted: Shape) -> Shape | None:
    return palette.shape() if not operands else scalar(operands[0].element_type) if len(operands) == 1 else None


def _element_of(palette: Palette, operands: Sequence[Shape], wanted: Shape) -> Shape | None:
    return None if operands else Shape.tuple_of([wanted] * palette.chance.randint(1, 2))


def _any(palette: Palette, operands: Sequence[Shape], wanted: Shape) -> Shape | None:
    return palette.shape() if len(operands) < 3 and palette.happens(0.7) else None


NEXT: dict[type, NextOperand] = {
    Select: _select,
    Clamp: _clamp,
    DynamicSlice: _dynamic_slice,
    DynamicUpdateSlice: _dynamic_update_slice,
    Gather: _gather,
    Scatter: _scatter,
    Reduce: _reduce,
    ReduceWindow: _reduce,
    Sort: _sort,
    Convolution: _convolution,
    Pad: _pad,
    GetTupleElement: _element_of,
    Tuple: _any,
}
"""Operands of operations whose valid operands are rare among shapes that are alike."""

# Computations


def computations(
    declaration: type[Operation], chance: random.Random, operands: Sequence[Shape]
) -> dict[str, Computation]:
    """Draws the computations of an operation: a comparator, a function of an element of each operand, or a combiner."""
    types = [shape.element_type for shape in operands]
    made: dict[str, Computation] = {}
    for field in declaration.calling_fields:
        if field.kind is kinds.COMPUTATION:
            if declaration is Sort:
                made[field.name] = _comparator(chance, types)
            elif declaration is Map:
                made[field.name] = _function(chance, types)
            else:
                made[field.name] = _combiner(chance, types[: max(1, len(types) // 2)])
    return made


def _comparator(chance: random.Random, types: Sequence[PrimitiveType]) -> Computation:
    computation = Computation("less")
    build = OpBuilder.of(computation)
    parameters = [build.parameter(k, scalar(types[k // 2])) for k in range(2 * len(types))]
    key = 2 * chance.randrange(len(types))
    sides = [build(Negate(), p) if chance.random() < 0.2 else p for p in parameters[key : key + 2]]
    direction = chance.choice([ComparisonDirection.LT, ComparisonDirection.GT])
    build(Compare(direction=direction), *sides)
    return computation


COMBINERS = (Add, Multiply, Maximum, Minimum, And, Or, Xor, Subtract)


def _combiner(chance: random.Random, types: Sequence[PrimitiveType]) -> Computation:
    """Returns a combiner: an operation of both sides, or one of the sides."""
    computation = Computation("combine")
    build = OpBuilder.of(computation)
    count = len(types)
    sides = [build.parameter(k, scalar(types[k % count])) for k in range(2 * count)]
    results = []
    for k in range(count):
        pair = sides[k], sides[k + count]
        results.append(chance.choice(pair) if chance.random() < 0.3 else build(chance.choice(COMBINERS)(), *pair))
    computation.root = results[0] if count == 1 else build.tuple(*results)
    return computation


def _function(chance: random.Random, types: Sequence[PrimitiveType]) -> Computation:
    computation = Computation("function")
    build = OpBuilder.of(computation)
    value: Instruction | None = None
    for k, type in enumerate(types):
        parameter = build.parameter(k, scalar(type))
        same = value is not None and value.shape == parameter.shape
        value = build(chance.choice(COMBINERS)(), value, parameter) if same and value is not None else parameter
    return computation


# Results that are declared

Values = dict[str, Any]


def declared_result(
    declaration: type[Operation], palette: Palette, values: Values, operands: Sequence[Shape], wanted: Shape
) -> tuple[Values, Shape | None]:
    """Draws the result shape of an operation that declares it, with attributes that fit; None if it is inferred."""
    if declaration is Broadcast:
        return _broadcast(palette, operands[0], wanted)
    if declaration is Reshape:
        return {}, _reshaped(palette, operands[0], wanted)
    if declaration.infer is not Operation.infer:
        return values, None
    if declaration is Iota:
        return values, wanted
    type = palette.chance.choice([wanted.element_type, palette.element_type(), PrimitiveType.F32, PrimitiveType.S32])
    if declaration is BitcastConvert and operands[0].is_array:
        return values, _with_bits_of(operands[0], type)
    if declaration is Convert and operands[0].is_array:
        return values, operands[0].with_element_type(type)
    return values, wanted if palette.happens(0.5) or not operands else operands[0]


def _with_bits_of(operand: Shape, type: PrimitiveType) -> Shape:
    """Returns the shape of a bitcast-convert, with a last dimension more or less (BITCASTCONVERT-2)."""
    old, new = operand.element_type.bits, type.bits
    sizes = (
        operand.dimensions
        if old == new
        else operand.dimensions[:-1]
        if old < new
        else (*operand.dimensions, old // new)
    )
    return Shape.array(type, sizes)


def _broadcast(palette: Palette, operand: Shape, wanted: Shape) -> tuple[Values, Shape]:
    """Draws a broadcast to the wanted sizes if dimensions have these sizes, or to others."""
    chance = palette.chance
    targets: list[int] = []
    for size in operand.dimensions:
        free = [d for d, n in enumerate(wanted.dimensions) if n == size and d not in targets]
        targets += [chance.choice(free)] if free else []
    if len(targets) == operand.rank and chance.random() < 0.7:
        return {"broadcast_dimensions": targets}, wanted.with_element_type(operand.element_type)
    rank = chance.randint(operand.rank, max(3, operand.rank))
    targets = chance.sample(range(rank), operand.rank)
    if chance.random() < 0.7:
        targets.sort()
    sizes = [chance.randint(0, 3) for _ in range(rank)]
    for size, target in zip(operand.dimensions, targets, strict=True):
        sizes[target] = size
    return {"broadcast_dimensions": targets}, Shape.array(operand.element_type, sizes)


def _reshaped(palette: Palette, operand: Shape, wanted: Shape) -> Shape:
    """Draws dimensions of as many elements: the wanted ones, with some joined or split, or with ones in between."""
    chance, sizes = palette.chance, list(operand.dimensions)
    if wanted.element_count == operand.element_count and chance.random() < 0.5:
        return wanted.with_element_type(operand.element_type)
    for _ in range(chance.randint(0, 3)):
        form = chance.randrange(3)
        if form == 0 and len(sizes) < 4:
            sizes.insert(chance.randint(0, len(sizes)), 1)
        elif form == 1 and 1 in sizes:
            sizes.remove(1)
        elif len(sizes) > 1:
            d = chance.randrange(len(sizes) - 1)
            sizes[d : d + 2] = [sizes[d] * sizes[d + 1]]
    return Shape.array(operand.element_type, sizes)
