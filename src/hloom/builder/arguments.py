"""Validation of the arguments of builder methods. `what` is the name of the argument in error messages."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import numpy as np

from hloom.builder.xla_op import XlaOp
from hloom.errors import ArgumentError, RuleError
from hloom.ops.kinds import INT, INTS
from hloom.ops.operation import OPERATIONS
from hloom.shape import Shape
from hloom.types import BY_NAME, PrimitiveType

Method = TypeVar("Method", bound=Callable[..., XlaOp | None])


def makes(opcode: str, **docs: str) -> Callable[[Method], Method]:
    """Documents the arguments of a method that makes an operation: by `docs`, else as the operation declares them."""

    def documented(method: Method) -> Method:
        code = method.__code__
        names = code.co_varnames[
            1 : code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & inspect.CO_VARARGS)
        ]
        method.__doc__ = with_arguments(method.__doc__, names, OPERATIONS[opcode].argument_docs() | docs)
        return method

    return documented


def with_arguments(doc: str | None, names: Iterable[str], docs: dict[str, str]) -> str:
    """Returns a docstring with what the arguments `names` are."""
    lines = [f"    {name}: {docs[name]}" for name in names if name in docs]
    return "\n".join([inspect.cleandoc(doc or ""), *(["", "Arguments:"] if lines else []), *lines])


def ints(opcode: str, what: str, values: Any) -> list[int]:
    """Returns a sequence of integers as a list. Raises RuleError[GEN-3] for other values."""
    try:
        return list(INTS.convert(values))
    except (TypeError, ValueError, OverflowError):
        raise RuleError(opcode, "GEN-3", f"{what} is a list of integers, got {values!r}") from None


def integer(opcode: str, what: str, value: Any) -> int:
    """Returns an integer argument as an int. Raises RuleError[GEN-3] for other values, bools included."""
    try:
        return int(INT.convert(value))
    except (TypeError, ValueError, OverflowError):
        raise RuleError(opcode, "GEN-3", f"{what} is an integer, got {value!r}") from None


def dimensions_or_none(opcode: str, values: Any) -> list[int] | None:
    """Returns `broadcast_dimensions` as a list, or None if not given. Raises RuleError[GEN-3]."""
    return None if values is None else ints(opcode, "broadcast_dimensions", values)


def sequence(opcode: str, what: str, values: Any) -> list[Any]:
    """Returns a list or tuple as a list. Raises RuleError[GEN-3] for other values."""
    if not isinstance(values, (list, tuple)):
        raise RuleError(opcode, "GEN-3", f"{what} is a list, got {values!r}")
    return list(values)


def element_type(value: PrimitiveType | str) -> PrimitiveType:
    """Returns an element type given as such or by name. Raises ArgumentError for types that arrays cannot have."""
    found = BY_NAME.get(value) if isinstance(value, str) else value
    if not isinstance(found, PrimitiveType) or not found.is_array:
        raise ArgumentError(f"an element type is like hl.f32 or 'f32', got {value!r}")
    return found


def element_type_of(*values: Any) -> PrimitiveType | None:
    """Returns the element type of the first XlaOp among some values; None if there is none."""
    return next((value.shape.element_type for value in values if isinstance(value, XlaOp)), None)


def array_type(shape: Shape, opcode: str, clause: str) -> PrimitiveType:
    """Returns the element type of an array. Raises RuleError with `clause` for other shapes."""
    if not shape.is_array:
        raise RuleError(opcode, clause, f"takes arrays, got {shape}")
    return shape.element_type


def shape_of(value: Shape | str) -> Shape:
    """Returns a shape given as such or as text. Raises ArgumentError or ParseError."""
    if isinstance(value, str):
        from hloom.text import parse_shape

        return parse_shape(value)
    if not isinstance(value, Shape):
        raise ArgumentError(f"a shape is like hl.f32[2, 3] or 'f32[2,3]', got {value!r}")
    return value


def typed_number(value: Any, element_type: PrimitiveType) -> Any:
    """Converts a Python number to a NumPy scalar of an element type.

    Raises RuleError[GEN-5] for an overflow, for a float as an integer, and for a complex number as a real.
    """
    if isinstance(value, float) and not (element_type.is_float or element_type.is_complex):
        raise RuleError("constant", "GEN-5", f"{value} does not become {element_type}: there is no implicit conversion")
    if isinstance(value, complex) and not element_type.is_complex:
        raise RuleError("constant", "GEN-5", f"{value} does not become {element_type}: there is no implicit conversion")
    try:
        return (
            np.asarray(value).astype(element_type.dtype)
            if element_type.bits < 8
            else np.array(value, element_type.dtype)
        )
    except OverflowError:
        raise RuleError("constant", "GEN-5", f"{value} does not fit {element_type}") from None


def caller() -> str:
    """Returns the source location of the user's call, `file:line`: the nearest frame outside hloom."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").startswith("hloom."):
        if frame.f_back is None:
            break
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"
