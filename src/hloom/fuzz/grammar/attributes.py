"""Values of attributes by their kind: what an operation without a proposal of its own is given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hloom.fuzz.grammar.draw import Draw
from hloom.ops.attributes import PaddingDimension, ResultAccuracy, SliceDimension
from hloom.ops.kinds import (
    BOOL,
    DIMENSION,
    FLOAT,
    INT,
    INTS,
    PADDING,
    PRECISIONS,
    RESULT_ACCURACY,
    SLICES,
    AttributeKind,
    EnumKind,
)
from hloom.ops.operation import Field, Operation
from hloom.shape import Shape


def draw_attributes(draw: Draw, declaration: type[Operation], operand: Shape) -> dict[str, Any]:
    """Returns values of the attributes for an operation whose first operand has a shape; some keep their default."""
    return {
        field.name: value_of(draw, field, operand)
        for field in declaration.fields
        if (field.required or draw.chance(0.5)) and (field.kind in BY_KIND or isinstance(field.kind, EnumKind))
    }


def value_of(draw: Draw, field: Field, operand: Shape) -> Any:
    """Returns a value of an attribute's kind that suits the operand's shape, valid more often than not."""
    if isinstance(field.kind, EnumKind):
        return draw.pick([*field.kind.enumeration])
    return BY_KIND[field.kind](draw, operand)


def _dimension(draw: Draw, operand: Shape) -> int:
    return draw.below(max(1, operand.rank))


def _dimensions(draw: Draw, operand: Shape) -> list[int]:
    dimensions = draw.shuffled(range(operand.rank))
    return dimensions if draw.chance(0.6) else dimensions[: draw.between(0, operand.rank)]


def _accuracy(draw: Draw, _: Shape) -> ResultAccuracy:
    return draw.pick((ResultAccuracy(), ResultAccuracy("highest"), ResultAccuracy(rtol=1e-4, ulps=4)))


def _slices(draw: Draw, operand: Shape) -> list[SliceDimension]:
    return [_slice(draw, size) for size in operand.dimensions]


def _slice(draw: Draw, size: int) -> SliceDimension:
    start = draw.pick((0, draw.between(0, size)))
    return SliceDimension(start, draw.pick((size, draw.between(start, size))), draw.pick((1, 1, 2, 3)))


def _padding(draw: Draw, operand: Shape) -> list[PaddingDimension]:
    return [_pad(draw, size) for size in operand.dimensions]


def _pad(draw: Draw, size: int) -> PaddingDimension:
    inside = draw.pick((0, 0, 1, 2))
    width = (size - 1) * (inside + 1) + 1 if size else 0
    low = draw.between(-min(3, width), 3)
    return PaddingDimension(low, draw.between(-min(3, max(0, width + low)), 3), inside)


BY_KIND: dict[AttributeKind, Callable[[Draw, Shape], Any]] = {
    BOOL: lambda draw, _: draw.chance(0.5),
    INT: _dimension,
    DIMENSION: _dimension,
    INTS: _dimensions,
    FLOAT: lambda draw, _: draw.pick((1e-5, 0.0, 0.1)),
    RESULT_ACCURACY: _accuracy,
    SLICES: _slices,
    PADDING: _padding,
    PRECISIONS: lambda draw, _: draw.pick(((), ("highest", "highest"), ("high", "default"))),
}
"""Values by the kind of the attribute, for the shape of the first operand."""
