"""The reference of a case: the interpreter's result, and how far others may be from it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hloom.errors import RunError
from hloom.faults.case import Case
from hloom.files.arrays import describe_type, flat
from hloom.fuzz.noise import Noise, NoisyRuns, noise_of
from hloom.numerics import widen
from hloom.types import BY_DTYPE
from hloom.values import Array, Value

RUNS, MORE_RUNS = 4, 40
"""Runs with errors before a difference is seen, and in all before it counts."""
MARGIN = 3.0
"""The distance from all runs that is allowed, in spreads between them."""


@dataclass
class Range:
    """The lowest and highest values of a result in some runs, and where no two runs need agree."""

    low: Array
    high: Array
    free: Array

    def include(self, other: Array) -> None:
        """Widens the range to a further run."""
        with np.errstate(all="ignore"):
            same = (self.low == other) & (self.high == other) | np.isnan(self.low) & np.isnan(other)
            finite = np.isfinite(self.low) & np.isfinite(self.high) & np.isfinite(other)
            self.free |= ~same & ~finite
            self.low = np.where(finite, np.minimum(self.low, other), self.low)
            self.high = np.where(finite, np.maximum(self.high, other), self.high)

    def outside(self, got: Array) -> Array:
        """Returns where a result is farther from the runs than they are from one another, `MARGIN` times."""
        with np.errstate(all="ignore"):
            spread = np.where(np.isfinite(self.high - self.low), self.high - self.low, 0) * MARGIN
            inside = (got >= self.low - spread) & (got <= self.high + spread)
            same = (got == self.low) | np.isnan(got) & np.isnan(self.low)
        return ~(inside | same | self.free)


@dataclass
class Reference:
    """The result of a case, and ranges of the results of runs with errors, real and imaginary parts apart."""

    case: Case
    noise: Noise = noise_of
    results: list[Array] = field(init=False)
    ranges: list[Range] = field(init=False, default_factory=list)
    runs: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        exact = NoisyRuns(self.case, noise=lambda op, shapes: None)
        self.results = [np.array(leaf) for leaf in flat(exact())]
        self.noisy = NoisyRuns(self.case, noise=self.noise)

    @property
    def is_exact(self) -> bool:
        """Whether the specification allows a single result."""
        return self.noisy.is_exact

    def difference(self, value: Value) -> str | None:
        """Describes how a result differs from what is allowed; None if it does not."""
        found = flat(value)
        if len(found) != len(self.results):
            return f"has {len(found)} arrays, expected {len(self.results)}"
        wrong = self._first_wrong(found)
        if wrong is None or self.is_exact or wrong[1] is None:
            return wrong and wrong[0]
        for runs in (RUNS, MORE_RUNS):
            self._run(runs)
            wrong = self._first_wrong(found)
            if wrong is None or wrong[1] is None:
                break
        return wrong and wrong[0]

    def _run(self, runs: int) -> None:
        if not self.ranges:
            self.ranges = [Range(p.copy(), p.copy(), np.zeros(p.shape, bool)) for p in _parts(self.results)]
        while self.runs < runs:
            self.runs += 1
            for known, part in zip(self.ranges, _parts(flat(self.noisy())), strict=True):
                known.include(part)

    def _first_wrong(self, found: list[Array]) -> tuple[str, Array | None] | None:
        """Describes the first result that is wrong, and where; None if there is none."""
        for k, (got, want) in enumerate(zip(found, self.results, strict=True)):
            if got.shape != want.shape or got.dtype != want.dtype:
                return f"result {k} is {describe_type(got)}, expected {describe_type(want)}", None
            wrong = self._wrong(k, got, want)
            if wrong.any():
                at = tuple(int(i) for i in np.argwhere(wrong)[0])
                where = f"{int(wrong.sum())} of {got.size} elements, first at {list(at)}"
                return f"result {k} differs in {where}: {got[at]}, expected {want[at]}", wrong
        return None

    def _wrong(self, k: int, got: Array, want: Array) -> Array:
        wrong = _unlike(got, want)
        if self.is_exact or not wrong.any():
            return wrong
        if not self.ranges:
            return wrong
        before = sum(len(_parts([result])) for result in self.results[:k])
        parts = _parts([got])
        outside = [self.ranges[before + p].outside(part) for p, part in enumerate(parts)]
        return wrong & np.logical_or.reduce(outside)


def reference_of(case: Case) -> Reference | None:
    """Returns the reference of a case; None if a custom call refuses the values of its arrays (CUSTOMCALL-7)."""
    try:
        return Reference(case)
    except RunError:
        return None


def _unlike(got: Array, want: Array) -> Array:
    """Returns where two arrays differ; zeros of another sign do, NaNs do not."""
    if got.dtype.kind == "c":
        return _unlike(got.real, want.real) | _unlike(got.imag, want.imag)
    if not BY_DTYPE[got.dtype].is_float:
        return np.asarray(got != want)
    a, b = widen(got), widen(want)
    with np.errstate(all="ignore"):
        same = (a == b) & (np.signbit(a) == np.signbit(b)) | np.isnan(a) & np.isnan(b)
    return np.asarray(~same)


def _parts(arrays: list[Array]) -> list[Array]:
    """The real and imaginary parts of arrays as wide numbers."""
    return [np.asarray(part).astype(np.longdouble) for array in arrays for part in _real_parts(array)]


def _real_parts(array: Any) -> list[Array]:
    return [array.real, array.imag] if array.dtype.kind == "c" else [widen(array)]
