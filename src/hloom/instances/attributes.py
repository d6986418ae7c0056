"""Random values of attributes, drawn by their kind and the operands' shapes: valid ones are likely, not certain.

A new operation needs nothing here as long as its attributes are independent of each other. Dimension numbers that
belong together, as those of dot, gather and scatter, have a rule.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from hloom.literal import Literal, extreme
from hloom.numerics import convert
from hloom.ops import kinds
from hloom.ops.attributes import ConvolutionDimensionNumbers, PaddingDimension, SliceDimension, WindowDimension
from hloom.ops.convolution import Convolution
from hloom.ops.dot import Dot
from hloom.ops.gather import Gather
from hloom.ops.operation import Field, Operation
from hloom.ops.scatter import Scatter
from hloom.ops.structure import Constant
from hloom.shape import Shape
from hloom.types import PrimitiveType
from hloom.values import Array

Draw = Callable[[random.Random, Sequence[Shape]], Any]


def drawn_attributes(declaration: type[Operation], chance: random.Random, operands: Sequence[Shape]) -> dict[str, Any]:
    """Returns values of the attributes of an operation, but for computations; optional ones are often left out."""
    values: dict[str, Any] = {}
    for field in declaration.fields:
        if not isinstance(field.kind, kinds.ComputationKind) and (field.required or chance.random() < 0.4):
            value = _drawn(field, chance, operands)
            if value is not None:
                values[field.name] = value
    together = TOGETHER.get(declaration)
    return {**values, **together(chance, operands)} if together is not None else values


def _drawn(field: Field, chance: random.Random, operands: Sequence[Shape]) -> Any:
    if isinstance(field.kind, kinds.EnumKind):
        return chance.choice(list(field.kind.enumeration))
    draw = BY_KIND.get(field.kind)
    return draw(chance, operands) if draw is not None else None


# Kinds


def _rank(operands: Sequence[Shape]) -> int:
    return operands[0].rank if operands and operands[0].is_array else 2


def _sizes(operands: Sequence[Shape]) -> Sequence[int]:
    return operands[0].dimensions if operands and operands[0].is_array else ()


def _dimension(chance: random.Random, operands: Sequence[Shape]) -> int:
    if operands and operands[0].is_tuple:
        return chance.randrange(max(1, len(operands[0].elements)))
    return chance.randrange(max(1, _rank(operands)))


def some(chance: random.Random, rank: int) -> list[int]:
    """Returns some of the dimensions, in order more often than not."""
    found = chance.sample(range(rank), chance.randint(0, rank))
    return sorted(found) if chance.random() < 0.6 else found


def _ints(chance: random.Random, operands: Sequence[Shape]) -> list[int]:
    """Returns dimensions, a permutation, or sizes of a part of the operand."""
    rank = _rank(operands)
    form = chance.randrange(3)
    if form == 0:
        return some(chance, rank)
    return chance.sample(range(rank), rank) if form == 1 else [chance.randint(0, size) for size in _sizes(operands)]


def _slice(chance: random.Random, size: int) -> SliceDimension:
    if chance.random() < 0.3:
        return SliceDimension(0, size)
    start = chance.randint(0, size)
    return SliceDimension(start, chance.randint(start, size), chance.choice([1, 1, 2, 3]))


def _padding(chance: random.Random, size: int) -> PaddingDimension:
    if chance.random() < 0.3:
        return PaddingDimension(0, 0, 0)
    low, high = (chance.choice([-2, -1, -1, 0, 0, 1, 2]) for _ in range(2))
    return PaddingDimension(low, high, chance.choice([0, 0, 1, 2]))


def _window(chance: random.Random, size: int) -> WindowDimension:
    return WindowDimension(
        size=chance.randint(1, 3),
        stride=chance.choice([1, 1, 2]),
        padding_low=chance.choice([0, 0, 1, 2, -1]),
        padding_high=chance.choice([0, 0, 1, 2, -1]),
        window_dilation=chance.choice([1, 1, 2]),
        base_dilation=chance.choice([1, 1, 2]),
        window_reversal=chance.random() < 0.3,
    )


def _each(draw: Callable[[random.Random, int], Any]) -> Draw:
    return lambda chance, operands: [draw(chance, size) for size in _sizes(operands)]


def _dimension_numbers(chance: random.Random, operands: Sequence[Shape]) -> ConvolutionDimensionNumbers:
    rank = max(2, _rank(operands))
    image, kernel, result = (chance.sample(range(rank), rank) for _ in range(3))
    return ConvolutionDimensionNumbers(
        image[0], image[1], tuple(image[2:]), kernel[0], kernel[1], tuple(kernel[2:]),
        result[0], result[1], tuple(result[2:]),
    )  # fmt: skip


BY_KIND: dict[Any, Draw] = {
    kinds.BOOL: lambda chance, _: chance.random() < 0.5,
    kinds.INT: _dimension,
    kinds.FLOAT: lambda chance, _: chance.choice([0.0, 1e-3, 1.0]),
    kinds.INTS: _ints,
    kinds.DIMENSION: _dimension,
    kinds.SLICES: _each(_slice),
    kinds.PADDING: _each(_padding),
    kinds.WINDOW: _each(_window),
    kinds.DIM_LABELS: _dimension_numbers,
}
"""Values of a kind; other kinds keep their defaults."""

# Values


def special_value(type: PrimitiveType, chance: random.Random) -> Array:
    """Returns a value of an element type as an array of rank 0: an identity, an extreme, NaN, a power of two .."""
    if type.is_pred:
        return np.asarray(chance.random() < 0.5)
    if type.is_complex:
        parts = [float(special_value(type.real, chance)) for _ in range(2)]
        return np.asarray(complex(parts[0], chance.choice([0.0, parts[1]])), type.dtype)
    values: list[Any] = [0, 1, -1, 2, 3, 8, extreme(type, highest=True), extreme(type, highest=False)]
    if type.is_float:
        tiny = ml_dtypes.finfo(type.dtype).smallest_subnormal
        values += [0.0, -0.0, -0.0, 0.5, -4, np.nan, tiny, 2.0 ** chance.randint(-140, 127)]
    else:
        values += [0, 1, 5, 1 << chance.randrange(type.bits)]
    return convert(np.asarray(chance.choice(values)), type.dtype)


def _literal(chance: random.Random, operands: Sequence[Shape]) -> dict[str, Any]:
    """Returns the value of a constant of the shape of `operands[0]`, whose elements are equal half of the time."""
    (shape,) = operands
    first = special_value(shape.element_type, chance)
    equal = chance.random() < 0.5
    values = [first if equal else special_value(shape.element_type, chance) for _ in range(shape.element_count)]
    array = np.array(values, shape.element_type.dtype).reshape(shape.dimensions)
    return {"literal": Literal.from_numpy(array)}


# Attributes that belong together


def _matching(chance: random.Random, left: Shape, right: Shape, taken: tuple[set[int], set[int]]) -> list[list[int]]:
    """Returns some pairs of dimensions of equal size, as two lists, and adds them to those taken."""
    pairs = [
        (a, b)
        for a, size in enumerate(left.dimensions)
        for b, other in enumerate(right.dimensions)
        if size == other and a not in taken[0] and b not in taken[1]
    ]
    chance.shuffle(pairs)
    chosen: list[list[int]] = [[], []]
    for a, b in pairs:
        if a not in taken[0] and b not in taken[1] and chance.random() < 0.6:
            for side, dimension in enumerate((a, b)):
                taken[side].add(dimension)
                chosen[side].append(dimension)
    return chosen


def _dot(chance: random.Random, operands: Sequence[Shape]) -> dict[str, Any]:
    lhs, rhs = operands
    taken: tuple[set[int], set[int]] = (set(), set())
    contracting = _matching(chance, lhs, rhs, taken)
    batch = _matching(chance, lhs, rhs, taken) if chance.random() < 0.4 else [[], []]
    return {
        "lhs_contracting_dims": contracting[0], "rhs_contracting_dims": contracting[1],
        "lhs_batch_dims": batch[0], "rhs_batch_dims": batch[1], "operand_precision": (), "algorithm": None,
    }  # fmt: skip


def _gather(chance: random.Random, operands: Sequence[Shape]) -> dict[str, Any]:
    operand, indices = operands
    vector_dim, index_map = _index_vectors(chance, operand, indices)
    collapsed = [d for d in range(operand.rank) if chance.random() < 0.5 and operand.dimensions[d]]
    batch = indices.rank - (vector_dim < indices.rank)
    offsets = operand.rank - len(collapsed)
    return {
        "offset_dims": sorted(chance.sample(range(batch + offsets), offsets)),
        "collapsed_slice_dims": collapsed,
        "start_index_map": index_map,
        "operand_batching_dims": (), "start_indices_batching_dims": (),
        "index_vector_dim": vector_dim,
        "slice_sizes": [1 if d in collapsed else chance.randint(0, n) for d, n in enumerate(operand.dimensions)],
    }  # fmt: skip


def _index_vectors(chance: random.Random, operand: Shape, indices: Shape) -> tuple[int, list[int]]:
    vector_dim = chance.randint(0, indices.rank)
    length = indices.dimensions[vector_dim] if vector_dim < indices.rank else 1
    return vector_dim, chance.sample(range(operand.rank), min(length, operand.rank))


def _scatter(chance: random.Random, operands: Sequence[Shape]) -> dict[str, Any]:
    operand, indices, updates = operands[0], operands[len(operands) // 2], operands[-1]
    vector_dim, index_map = _index_vectors(chance, operand, indices)
    windows = max(0, updates.rank - indices.rank + (vector_dim < indices.rank))
    inserted = max(0, operand.rank - windows)
    return {
        "update_window_dims": sorted(chance.sample(range(updates.rank), windows)),
        "inserted_window_dims": sorted(chance.sample(range(operand.rank), inserted)),
        "scatter_dims_to_operand_dims": index_map,
        "input_batching_dims": (), "scatter_indices_batching_dims": (),
        "index_vector_dim": vector_dim,
    }  # fmt: skip


def _convolution(chance: random.Random, operands: Sequence[Shape]) -> dict[str, Any]:
    """Returns dimension numbers whose feature dimensions agree if sizes do, and a window for the spatial dimensions."""
    image, kernel = operands
    named = _dimension_numbers(chance, operands)
    pairs = _matching(chance, image, kernel, (set(), set()))
    if pairs[0]:
        feature, inputs = pairs[0][0], pairs[1][0]
        batch, *spatial = chance.sample([d for d in range(image.rank) if d != feature], image.rank - 1)
        outputs, *taps = chance.sample([d for d in range(image.rank) if d != inputs], image.rank - 1)
        named = dataclasses.replace(
            named, input_feature_dimension=feature, input_batch_dimension=batch,
            input_spatial_dimensions=tuple(spatial), kernel_input_feature_dimension=inputs,
            kernel_output_feature_dimension=outputs, kernel_spatial_dimensions=tuple(taps),
        )  # fmt: skip
    sizes = [kernel.dimensions[d] for d in named.kernel_spatial_dimensions]
    window = [dataclasses.replace(_window(chance, size), size=size) for size in sizes]
    return {
        "dimension_numbers": named, "window": window, "feature_group_count": 1, "batch_group_count": 1,
        "operand_precision": (),
    }  # fmt: skip


TOGETHER: dict[type[Operation], Callable[[random.Random, Sequence[Shape]], dict[str, Any]]] = {
    Constant: _literal,
    Convolution: _convolution,
    Dot: _dot,
    Gather: _gather,
    Scatter: _scatter,
}
"""Attributes whose values depend on each other."""
