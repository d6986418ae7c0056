"""Random values of arrays: special numbers, random bits, small numbers, and indices near the bounds."""

from __future__ import annotations

from typing import Any

import numpy as np

from hloom.fuzz.grammar.draw import Draw
from hloom.numerics import convert
from hloom.types import PrimitiveType
from hloom.values import Array

SPECIALS = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, 2.5, -1.5, 1e-40, 1e30, -1e30, 100.0, 3e38, 1e-7]
"""Values with clauses of their own, or at an end of a type's range."""


def draw_array(draw: Draw, element_type: PrimitiveType, sizes: tuple[int, ...]) -> Array:
    """Returns an array in one of several styles, which are drawn for each array."""
    if element_type.is_pred:
        return np.asarray(draw.rng.random(sizes) < draw.pick((0.5, 0.5, 0.1, 0.9)))
    if element_type.is_integer:
        return _integers(draw, element_type, sizes)
    if element_type.is_complex:
        parts = [_floats(draw, element_type.real, sizes) for _ in range(2)]
        made = np.empty(sizes, element_type.dtype)
        made.real, made.imag = parts
        return made
    return _floats(draw, element_type, sizes)


def _integers(draw: Draw, element_type: PrimitiveType, sizes: tuple[int, ...]) -> Array:
    low, high = element_type.limits
    style = draw.pick(("small", "small", "small", "wide", "ends"))
    if style == "small":
        low, high = max(low, -9), min(high, 9)
    if style == "ends":
        options = np.array([low, low + 1, 0, 1, high - 1, high], object)
        return np.asarray(options[draw.rng.integers(len(options), size=sizes)]).astype(element_type.dtype)
    wide = draw.rng.integers(low, high, sizes, np.int64 if low else np.uint64, endpoint=True)
    return np.asarray(wide).astype(element_type.dtype)


def _floats(draw: Draw, element_type: PrimitiveType, sizes: tuple[int, ...]) -> Array:
    style = draw.pick(("normal", "normal", "normal", "whole", "special", "bits"))
    if style == "bits":
        return _random_bits(draw, element_type, sizes)
    values: Any = draw.rng.standard_normal(sizes) * draw.pick((0.3, 1.0, 1.0, 5.0, 1000.0))
    if style == "whole":
        values = np.rint(values)
    if style == "special":
        specials = np.array(SPECIALS)[draw.rng.integers(len(SPECIALS), size=sizes)]
        values = np.where(draw.rng.random(sizes) < 0.4, specials, values)
    return convert(np.asarray(values, np.float64), element_type.dtype)


def _random_bits(draw: Draw, element_type: PrimitiveType, sizes: tuple[int, ...]) -> Array:
    word = np.dtype(f"u{element_type.dtype.itemsize}")
    bits = draw.rng.integers(0, (1 << element_type.bits) - 1, sizes, np.uint64, endpoint=True)
    return np.asarray(bits).astype(word).view(element_type.dtype)


def draw_indices(draw: Draw, element_type: PrimitiveType, sizes: tuple[int, ...], bound: int) -> Array:
    """Returns indices from some below 0 to some beyond `bound`, as far as the type has them."""
    least, most = element_type.limits
    if draw.chance(0.05):
        return _integers(draw, element_type, sizes)
    low, high = max(least, draw.pick((-2, 0, 0))), min(most, bound + draw.pick((2, 0, -1)))
    return np.asarray(draw.rng.integers(low, max(low, high), sizes, np.int64, endpoint=True)).astype(element_type.dtype)
