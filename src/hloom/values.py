"""What instructions compute: arrays, tokens, and tuples of values."""

from __future__ import annotations

from typing import Any

import numpy as np

from hloom.shape import Shape

Array = np.ndarray[Any, np.dtype[Any]]


class Token:
    """The value of a token at run time: there is one, `TOKEN_VALUE`; it orders effects and holds nothing."""

    def __repr__(self) -> str:
        return "token"


TOKEN_VALUE = Token()

# An array at its *actual* size (a dynamic dimension has its run-time size), a token, or a tuple of values.
Value = Any


def zeros(shape: Shape) -> Value:
    """Zeros of a shape: what contexts and buffers hold before anything is written to them."""
    if shape.is_tuple:
        return tuple(map(zeros, shape.elements))
    return np.zeros(shape.dimensions, shape.element_type.dtype) if shape.is_array else TOKEN_VALUE
