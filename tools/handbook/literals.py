"""Literals of worked examples as arrays."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hloom.types import BY_NAME


def to_array(literal: dict[str, Any]) -> Any:
    """Returns the array, or tuple of arrays, of a literal as examples.json writes it."""
    if "tuple" in literal:
        return tuple(map(to_array, literal["tuple"]))
    element_type = BY_NAME[literal["type"]]

    def number(value: Any) -> Any:
        if isinstance(value, list):
            return [number(v) for v in value]
        if isinstance(value, str):
            if element_type.is_complex:
                return complex(value)
            return -math.nan if value == "-nan" else float(value)
        return value

    values = number(literal["value"])
    if element_type.is_float:
        array = np.array(values, np.float64)
        negative_nan = np.array(
            [v == "-nan" for v in np.ravel(np.array(literal["value"], dtype=object))], bool
        ).reshape(array.shape)
        array = np.where(negative_nan, np.copysign(np.nan, -1.0), array)
        array = np.where(np.isnan(array) & ~negative_nan, np.nan, array)
        return array.astype(element_type.dtype).reshape(literal["shape"])
    if element_type.bits < 8:
        return np.array(values, np.int64).astype(element_type.dtype).reshape(literal["shape"])
    return np.array(values, element_type.dtype).reshape(literal["shape"])
