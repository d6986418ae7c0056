"""Measurement of a function for a type on each side: the largest error, where it is, the mean, and special values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np

from accuracy import exact, sides
from accuracy.functions import Function

Array = np.ndarray[Any, np.dtype[Any]]
Long = np.longdouble


@dataclass(frozen=True)
class Measured:
    """Errors in units in the last place; of complex numbers, in units of the modulus of the result."""

    key: str
    """The function, the type and the side."""
    points: int
    largest: float
    """The largest error where operands and result are normal numbers."""
    worst: list[str]
    """The operands of the largest error."""
    mean: float
    of_subnormals: float
    """The largest error where an operand or the result is subnormal."""
    wrong: int
    """The number of special values and signs of zeros that differ from those of C's functions."""
    wrong_at: list[str]
    """The operands of some of them."""
    by_exponent: list[list[float]]
    """The largest error for each exponent of the first operand, if it is real."""
    of_parts: float = 0.0
    """The largest error of a part of a complex result, in its own units."""


def key(function: Function, dtype: Any, side: str) -> str:
    """The key of a measurement."""
    return " ".join([function.name, np.dtype(dtype).name, "JAX" if function.of_jax else "HLO", side])


def measure(function: Function, dtype: Any, count: int, seed: int = 1) -> Iterator[Measured]:
    """Measures a function on each side that has it."""
    operands = function.arguments(dtype, count, seed)
    if np.dtype(dtype).kind == "c":
        yield from _complex(function, operands)
        return
    values = exact_values(function, operands)
    for side, got in _on_each_side(function, operands):
        error = exact.errors(got, values, zeros_have_signs=function.of_jax is None)
        undefined = (np.isnan(values) & (function.of_jax is not None)) | _is_endless(function, side, operands[0])
        measured = _summary(key(function, dtype, side), operands, values, np.where(undefined, 0, error))
        yield replace(measured, largest=_by_mpmath(function, operands, got, measured))


def _by_mpmath(function: Function, operands: tuple[Array, ...], got: Array, measured: Measured) -> float:
    """The error at the worst argument against mpmath, where that has a value."""
    worst = next(k for k in range(got.size) if _literals(operands, k) == measured.worst)
    value = exact.by_mpmath(function.name, *(x[worst].astype(np.float64) for x in operands))
    if value is None or got.dtype.itemsize < 4:
        return measured.largest
    return float(exact.errors(got[worst : worst + 1], np.array([exact.to_long(value)]))[0])


def _is_endless(function: Function, side: str, x: Array) -> Array:
    """Whether the program of a side does not end for an argument."""
    return (np.abs(x) < function.least_for_xla) & (side == sides.XLA)


def _on_each_side(function: Function, operands: tuple[Array, ...]) -> Iterator[tuple[str, Array]]:
    for side in sides.SIDES:
        first = np.where(_is_endless(function, side, operands[0]), operands[0].dtype.type(1), operands[0])
        try:
            got = sides.values(function, side, (first, *operands[1:]))
        except Exception as error:
            print(f"{key(function, operands[0].dtype, side)}: {str(error)[:80]}")
            continue
        yield side, got


def exact_values(function: Function, operands: tuple[Array, ...]) -> Array:
    """The values in long double, of a function of JAX by mpmath: NaN where it is infinite or not defined."""
    is_narrow = operands[0].dtype.itemsize < 8
    if function.of_jax is None or (is_narrow and function.name in exact.IN_LONG_DOUBLE):
        with np.errstate(all="ignore"):
            return exact.IN_LONG_DOUBLE[function.name](*(x.astype(Long) for x in operands))
    if is_narrow and function.name in exact.IN_DOUBLE:
        return exact.in_double(function.name, *operands)
    points = zip(*(x.astype(np.float64) for x in operands))
    return np.array([exact.to_long(exact.by_mpmath(function.name, *point, precision=300)) for point in points])


def _summary(name: str, operands: tuple[Array, ...], values: Array, error: Array, parts: float = 0.0) -> Measured:
    """Sums the errors up; infinite ones count as wrong."""
    wrong = np.isinf(error)
    finite = np.where(wrong, 0, error)
    normal = np.logical_and.reduce([_is_normal(x) for x in (*operands, values.astype(operands[0].dtype))])
    at_normal = np.where(normal, finite, 0)
    worst = int(np.argmax(at_normal))
    return Measured(
        name,
        error.size,
        float(at_normal[worst]),
        _literals(operands, worst),
        float(at_normal.mean()),
        float(np.where(normal, 0, finite).max()),
        int(wrong.sum()),
        [" ".join(_literals(operands, int(k))) for k in np.flatnonzero(wrong)[:8]],
        _by_exponent(operands[0], at_normal),
        parts,
    )


def _is_normal(x: Array) -> Array:
    """Whether numbers are neither subnormal nor, as parts of complex ones, close to it."""
    if np.iscomplexobj(x):
        return _is_normal(x.real) & _is_normal(x.imag)
    size = np.abs(x.astype(np.float64))
    return (size == 0) | (size >= float(ml_dtypes.finfo(x.dtype).tiny)) | np.isnan(size)


def _by_exponent(x: Array, error: Array) -> list[list[float]]:
    if x.dtype not in (np.float32, np.float64):
        return []
    exponent = np.frexp(np.where(np.isfinite(x), x, 0))[1]
    return [[int(e), round(float(error[exponent == e].max()), 3)] for e in np.unique(exponent)]


def _literals(operands: tuple[Array, ...], at: int) -> list[str]:
    return [repr(x[at].item() if x.dtype.kind in "fc" else float(x[at])) for x in operands]


def _complex(function: Function, operands: tuple[Array, ...]) -> Iterator[Measured]:
    exacts = [exact.by_mpmath(function.name, *point) for point in zip(*operands)]
    values = np.array([np.nan if value is None else complex(value) for value in exacts])
    for side, got in _on_each_side(function, operands):
        parts, moduli = complex_errors(got, exacts)
        largest = float(np.where(np.isinf(parts), 0, parts).max())
        yield _summary(key(function, operands[0].dtype, side), operands, values, moduli, largest)


def complex_errors(got: Array, values: list[Any]) -> tuple[Array, Array]:
    """The larger error of the parts in their units, and the distance in units of the modulus; 0 without a value."""
    undefined = np.array([value is None for value in values])
    exacts = [
        np.array([exact.to_long(None if value is None else getattr(exact.mp, part)(value)) for value in values])
        for part in ("re", "im")
    ]
    gots = [got.real, got.imag] if np.iscomplexobj(got) else [got, np.zeros_like(got)]
    by_part = [exact.errors(g, e) for g, e in zip(gots, exacts)]
    # A zero has either sign: that of an exact zero is not known from the value, others underflow before they are added.
    by_part = [np.where((g == 0) & (e.astype(g.dtype) == 0), 0, error) for g, e, error in zip(gots, exacts, by_part)]
    parts = np.where(undefined, 0, np.maximum(*by_part))
    distance = np.hypot(*(g.astype(Long) - e for g, e in zip(gots, exacts)))
    modulus = distance / exact.units(np.hypot(*exacts), gots[0].dtype)
    # Where a part overflows, the other one counts.
    modulus = np.where(np.isfinite(distance), modulus, parts)
    return parts, np.where(undefined, 0, np.where(np.isinf(parts), np.inf, modulus))
