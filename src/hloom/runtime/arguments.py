"""Arguments of executables: arrays of any library, numbers and lists of Python, as values of the parameters' shapes."""

from __future__ import annotations

from typing import Any

import numpy as np

from hloom.errors import ArgumentError
from hloom.literal import Literal, plain_array
from hloom.shape import UNBOUNDED, Shape
from hloom.types import BY_DTYPE
from hloom.values import TOKEN_VALUE, Value


def check_argument(value: Any, shape: Shape, what: str) -> Value:
    """Converts an array, number, list or tuple to a value of `shape`; ArgumentError if it does not fit."""
    if shape.is_tuple:
        if not isinstance(value, (tuple, list)) or len(value) != len(shape.elements):
            raise ArgumentError(f"{what} takes a tuple for {shape}, got {_describe(value)}")
        return tuple(
            check_argument(element, element_shape, f"{what}[{i}]")
            for i, (element, element_shape) in enumerate(zip(value, shape.elements, strict=True))
        )
    if not shape.is_array:
        return TOKEN_VALUE
    dtype = shape.element_type.dtype
    try:
        if isinstance(value, np.ndarray) and value.dtype == dtype:
            array = value if type(value) is np.ndarray else plain_array(value)
        elif isinstance(value, (bool, int, float, complex, list)):
            array = _from_python(value, dtype)
        else:
            array = Literal.from_value(value).value
    except ArgumentError as error:
        raise ArgumentError(f"{what} has shape {shape}, got {_describe(value)}: {error.message}") from None
    if not isinstance(array, np.ndarray) or array.dtype != dtype:
        raise ArgumentError(f"{what} has element type {shape.element_type}, got {_describe(array)}")
    fits = len(array.shape) == shape.rank and all(
        size == bound or bound == UNBOUNDED or (dynamic and size < bound)
        for size, bound, dynamic in zip(array.shape, shape.dimensions, shape.dynamic_dimensions, strict=True)
    )
    if not fits:
        raise ArgumentError(f"{what} has shape {shape}, got {_describe(array)}")
    return array


def _from_python(value: Any, dtype: np.dtype[Any]) -> np.ndarray[Any, np.dtype[Any]]:
    """Converts Python numbers to the parameter's element type; ArgumentError if it cannot hold them."""
    try:
        array, given = np.array(value, dtype), np.array(value)
        element_type = BY_DTYPE[dtype]
        is_exact = element_type.is_integer or element_type.is_pred
        fits = np.array_equal(array, given) if is_exact else _is_numeric(given)
    except (TypeError, ValueError, OverflowError) as error:
        raise ArgumentError(str(error)) from None
    if not fits:
        raise ArgumentError(f"{dtype} cannot hold every value")
    return array


def _is_numeric(array: np.ndarray[Any, np.dtype[Any]]) -> bool:
    """Whether the elements are numbers, and not strings, dates or other objects, which NumPy may convert to floats."""
    if array.dtype.kind == "O":
        return all(isinstance(x, (int, float, complex)) for x in array.flat)
    return array.dtype.kind not in "SUMm"


def _describe(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{list(value.shape)}"
    if isinstance(value, (tuple, list)):
        return f"a {type(value).__name__} of {len(value)}"
    is_short = isinstance(value, (bool, int, float, complex)) and not abs(value) > 2**64
    return repr(value) if is_short else type(value).__name__
