"""Values of instructions: arrays, tokens, and tuples of values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from hloom.shape import Shape

Array = np.ndarray[Any, np.dtype[Any]]


class Token:
    """The value of a token at run time, of which `TOKEN_VALUE` is the only instance; it orders effects and holds
    nothing.
    """

    def __repr__(self) -> str:
        return "token"


TOKEN_VALUE = Token()

Value = Any
"""An array at its actual size (dynamic dimensions have their run-time size), a token, or a tuple of values."""


def zeros(shape: Shape) -> Value:
    """Returns zeros of a shape, the initial content of contexts and buffers; tokens for tokens."""
    if shape.is_tuple:
        return tuple(map(zeros, shape.elements))
    return np.zeros(shape.dimensions, shape.element_type.dtype) if shape.is_array else TOKEN_VALUE


def leaves(value: Value) -> Iterator[Any]:
    """Yields what nested tuples hold, in order; anything else is its own leaf."""
    if isinstance(value, tuple):
        for element in value:
            yield from leaves(element)
    else:
        yield value


def map_leaves(function: Callable[[Any], Any], value: Value) -> Value:
    """Applies a function to each leaf; returns tuples nested as before."""
    return tuple(map_leaves(function, v) for v in value) if isinstance(value, tuple) else function(value)
