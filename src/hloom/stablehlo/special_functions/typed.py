"""Expressions of XlaOps that are computed in the operands' own type, f32 or f64."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from hloom.errors import ArgumentError
from hloom.types import PrimitiveType

XlaOp: TypeAlias = Any
"""An XlaOp; its arithmetic operators are not visible to type checkers."""
Coefficients: TypeAlias = Mapping[PrimitiveType, Sequence[float]]
"""Coefficients of a polynomial for F32 and F64, from the highest power."""

F32, F64 = PrimitiveType.F32, PrimitiveType.F64


def scalar_like(like: XlaOp, value: float) -> XlaOp:
    """A scalar constant of the element type of another value, or of the real part's type if that is complex."""
    scalar = np.asarray(value).astype(like.shape.element_type.real.dtype)
    return like.builder.constant(scalar)


def of_floats(function: Callable[..., XlaOp]) -> Callable[..., XlaOp]:
    """Extends a function on f32 and f64 to all real floating-point types; narrower ones are rounded once.

    The result raises ArgumentError for other types.
    """

    @functools.wraps(function)
    def apply(*operands: XlaOp) -> XlaOp:
        b, kind = operands[0].builder, operands[0].shape.element_type
        if not kind.is_float:
            raise ArgumentError(f"takes real floating-point numbers, got {operands[0].shape}")
        if kind in (F32, F64):
            return function(*operands)
        wide = [b.convert_element_type(operand, F32) for operand in operands]
        return b.convert_element_type(function(*wide), kind)

    return apply


def pick(x: XlaOp, single: float, double: float) -> float:
    """The number for the type of x: `single` for f32, `double` for f64."""
    return single if x.shape.element_type is F32 else double


def like(x: XlaOp, value: float) -> XlaOp:
    """A number, broadcast to the shape of x."""
    return x.builder.broadcast(scalar_like(x, value), x.shape.dimensions)


def select(condition: XlaOp, on_true: Any, on_false: Any) -> XlaOp:
    """Selects between values, of which one may be a Python number."""
    typed = on_false if isinstance(on_true, (int, float)) else on_true
    choices = [like(typed, value) if isinstance(value, (int, float)) else value for value in (on_true, on_false)]
    return condition.builder.select(condition, *choices)


def polynomial(x: XlaOp, coefficients: Coefficients) -> XlaOp:
    """Evaluates a polynomial by Horner's rule."""
    first, second, *rest = coefficients[x.shape.element_type]
    value = x * first + second
    for coefficient in rest:
        value = value * x + coefficient
    return value
