"""Arguments of functions: every exponent, and what lies close to zeros, poles, thresholds and branch changes."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
Long = np.longdouble

PI = Long("3.14159265358979323846264338327950288")
EDGES = (0.25, 0.4, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0, 8.0, 20.0, 22.0, 80.0, 1e10)
"""Numbers at which implementations change formulas, or functions have zeros, poles and extremes."""
NEAR_MULTIPLES_OF_HALF_PI = {4: 16367173 * 2.0**72, 8: 6381956970095103 * 2.0**797}
"""The arguments by size of the type that are closest to a multiple of pi / 2 (Kahan; Muller, Elementary Functions)."""


def special_values(dtype: Any) -> list[float]:
    """Zeros, infinities, NaN, the limits of the type, and small integers, of both signs."""
    limits = ml_dtypes.finfo(dtype)
    positive = [0.0, np.inf, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 2.0**31, 2.0**100]
    positive += [limits.tiny, limits.max, limits.smallest_subnormal, 1 + limits.eps, 1 - limits.epsneg]
    return [np.nan, *map(float, positive), *(-float(x) for x in positive)]


def every(dtype: Any) -> Array:
    """All values of a type of at most 16 bits."""
    width = np.dtype(dtype).itemsize
    return np.arange(1 << 8 * width).astype(f"u{width}").view(dtype)


def exponents(dtype: Any, mantissas: int, seed: int = 0) -> Array:
    """Numbers of every exponent, subnormal ones included, with random mantissas and the extreme ones; both signs."""
    bits, width = np.finfo(dtype).nmant, np.dtype(dtype).itemsize
    unsigned = np.dtype(f"u{width}")
    codes = np.arange((1 << 8 * width - 1 - bits) - 1, dtype=unsigned) << unsigned.type(bits)
    random = np.random.default_rng(seed).integers(0, 1 << bits, (mantissas, codes.size), unsigned)
    random[0], random[1:2] = 0, (1 << bits) - 1
    positive = (codes | random).ravel().view(dtype)
    return np.concatenate([positive, -positive])


def around(points: Any, dtype: Any, steps: int = 3) -> Array:
    """The numbers of the type up to some steps away from each point."""
    middle = np.asarray(points).astype(dtype)
    below, above, found = middle, middle, [middle]
    for _ in range(steps):
        below, above = np.nextafter(below, dtype(-np.inf)), np.nextafter(above, dtype(np.inf))
        found += [below, above]
    return np.concatenate([x.ravel() for x in found])


def thresholds(dtype: Any) -> Array:
    """Numbers around formula changes, multiples of pi / 2, and the results' overflow and underflow; both signs."""
    limits = np.finfo(dtype)
    largest, smallest = Long(limits.max), Long(limits.smallest_subnormal)
    logs = [np.log(v) for v in (largest, 2 * largest, Long(limits.tiny), smallest, smallest / 2, Long(limits.eps))]
    near_pi = NEAR_MULTIPLES_OF_HALF_PI[np.dtype(dtype).itemsize]
    moderate = PI / 2 * np.concatenate([np.arange(1, 65), 2.0 ** np.arange(7, limits.maxexp - 2, 5)])
    points = np.concatenate([moderate, np.array([*EDGES, *logs, near_pi, 0], Long)])
    spread = np.concatenate([[x * (1 + Long(limits.eps) * 2**k) for k in range(0, limits.nmant, 2)] for x in EDGES])
    return around(np.concatenate([points, -points, spread, -spread]), dtype)


def dense(dtype: Any, count: int, seed: int) -> Array:
    """Random numbers: bit patterns, evenly spread over several ranges, close to 0 and 1, subnormal, special values."""
    random = np.random.default_rng(seed)
    width = np.dtype(dtype).itemsize
    bits = random.integers(0, np.iinfo(f"u{width}").max, count, f"u{width}", endpoint=True)
    wide = random.normal(size=count) * np.exp(random.uniform(-15, 15, count))
    near = np.exp(random.uniform(-40, 0, count)) * random.choice([-1, 1], count)
    spreads = [random.uniform(-size, size, count) for size in (1, 4, 20, 110, 750)]
    subnormal = random.integers(-1000, 1000, count) * np.finfo(dtype).smallest_subnormal
    parts = [bits.view(dtype), wide, near, 1 + near, -1 - near, *spreads, subnormal, special_values(dtype)]
    return np.concatenate([np.asarray(part, dtype) for part in parts])


def real_values(dtype: Any, count: int, seed: int = 0) -> Array:
    """All arguments of functions of one operand; every value of a narrow type."""
    if np.dtype(dtype).itemsize < 4:
        return every(dtype)
    found = [exponents(dtype, max(3, count // 200), seed), thresholds(dtype), dense(dtype, count, seed)]
    return np.unique(np.concatenate(found))


def pairs(name: str, dtype: Any, count: int, seed: int = 1) -> tuple[Array, Array]:
    """Samples beside samples, all pairs of special values, and pairs whose results are neither 0, 1 nor infinite."""
    x, y = dense(dtype, count, seed), dense(dtype, count, seed + 1)
    random = np.random.default_rng(seed + 2)
    random.shuffle(y)
    special = np.meshgrid(special_values(dtype), special_values(dtype))
    moderate = _powers(dtype, count, random) if name == "power" else (x, x * (1 + random.normal(size=x.size) / 2))
    columns = [np.concatenate([a, b.ravel(), c]).astype(dtype) for a, b, c in zip((x, y), special, moderate)]
    return columns[0], columns[1]


def _powers(dtype: Any, count: int, random: np.random.Generator) -> tuple[Array, Array]:
    """Bases and exponents of powers that hardly overflow."""
    logarithm = random.normal(size=4 * count) * np.exp(random.uniform(-18, 5, 4 * count))
    base = np.exp(np.clip(logarithm, -85, 85)).astype(dtype)
    limit = np.log(float(np.finfo(dtype).max)) * 1.2
    exponent = random.uniform(-limit, limit, 4 * count) / np.log(base.astype(np.float64))
    whole = random.uniform(-30, 30, 4 * count), np.rint(random.uniform(-25, 25, 4 * count))
    return np.concatenate([base, whole[0]]), np.concatenate([exponent, whole[1]])


def complex_values(dtype: Any, count: int, seed: int = 0) -> Array:
    """Points whose parts have exponents of all sizes, of moderate size, near 1, -1, i and -i, and on the axes."""
    real: Any = np.float32 if dtype == np.complex64 else np.float64
    limits = np.finfo(real)
    random = np.random.default_rng(seed)

    def part(low: float, high: float) -> Array:
        return random.choice([-1, 1], count) * np.exp2(random.uniform(low, high, count))

    shapes = [(limits.minexp - limits.nmant, limits.maxexp), (-12, 6), (-3, 2), (-40, 40)]
    points = [part(*shape) + 1j * part(*shape) for shape in shapes]
    points += [centre + part(-30, -1) + 1j * part(-30, -1) for centre in (1, -1, 1j, -1j)]
    points += [part(-40, 10) + 0j, 1j * part(-40, 10), np.exp(1j * random.uniform(-4, 4, count))]
    return np.concatenate(points).astype(dtype)


def complex_special_values(dtype: Any) -> Array:
    """All pairs of zeros, infinities, NaN and finite numbers."""
    parts = [0.0, -0.0, 1.0, -1.5, np.inf, -np.inf, np.nan]
    grid = np.array([complex(x, y) for x in parts for y in parts], np.complex128)
    return grid.astype(dtype)
