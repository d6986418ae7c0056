"""The rule by which two results of a module are the same.

Elements within the tolerance are: a given one, or that of the module (`tolerance_of`). In a module whose steps amplify
errors, correct results exceed it. Where they do, the module runs in double precision: an element of a result is wrong
if its error is many times the largest error of the other result, and many times the change that roundings of the
arguments cause. A program that is as sensitive to its arguments as to roundings (a chaotic loop, a comparison of nearly
equal numbers) thus accuses nobody.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hloom.comparison.double import exact_results
from hloom.comparison.tolerance import Tolerance, tolerance_of
from hloom.files.arrays import describe_mismatches, flat, from_raw_bits, mismatches, type_mismatch
from hloom.ir import Module
from hloom.system.lazy import cached_property
from hloom.system.records import record
from hloom.types import BY_DTYPE
from hloom.values import Array, Value

MARGIN = 8.0
"""The ratio of errors from which the larger one is a fault."""


@record
class Exact:
    """An array of the result in double precision, and the one that perturbed arguments give."""

    value: Array
    perturbed: Array

    def accused(self, one: Array, other: Array) -> Array:
        """Returns where an element of one of two results is farther from the exact one than the other explains.

        Floats are explained by the largest error of an element, integers and predicates by that of the same one.
        """
        errors = [_distance(array, self.value) for array in (one, other)]
        change = _distance(self.perturbed, self.value)
        if self.value.dtype.kind in "fc":
            errors_of_all = [np.max(error, initial=0.0) for error in errors]
            limits = [np.maximum(error, np.max(change, initial=0.0)) for error in reversed(errors_of_all)]
        else:
            limits = [np.maximum(error, change) for error in reversed(errors)]
        return np.logical_or.reduce([error > MARGIN * limit for error, limit in zip(errors, limits, strict=True)])


class Comparison:
    """Compares results of a module for some arguments, a list for each device."""

    def __init__(self, module: Module, lists: Sequence[Sequence[Value]], tolerance: Tolerance | None = None) -> None:
        self.module, self.lists = module, lists
        self.tolerance = tolerance or tolerance_of(module)
        self.can_excuse = tolerance is None and self.tolerance.relative > 0
        """Whether a run in double precision may excuse differences: if the module computes with floats."""

    def difference(self, got: Value, want: Value) -> str | None:
        """Describes the first difference between the results of one device; None if they are the same."""
        ours, theirs = flat(got), flat(want)
        if len(ours) != len(theirs):
            return f"has {len(ours)} arrays, expected {len(theirs)}"
        for index, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            if message := self.array_difference(index, one, other):
                return message if len(ours) == 1 else f"element {index} {message}"
        return None

    def array_difference(self, index: int, got: Array, want: Array) -> str | None:
        """Describes how array `index` of all results, device by device, differs from the expected one."""
        want = from_raw_bits(want, got.dtype)
        if message := type_mismatch(got, want):
            return message
        limits = self.tolerance
        wrong = mismatches(got, want, limits.relative, limits.absolute, limits.of_largest)
        if wrong.any() and self.can_excuse and self._exact is not None:
            wrong &= self._exact[index].accused(got, want)
        return describe_mismatches(got, want, wrong)

    @cached_property
    def _exact(self) -> list[Exact] | None:
        found = exact_results(self.module, self.lists)
        return None if found is None else [Exact(*pair) for pair in found]


def _distance(array: Array, exact: Array) -> Array:
    """The distances of the elements, infinite where one of two is NaN, or infinite and not the other."""
    a, b = _doubled(array), _doubled(exact)
    with np.errstate(all="ignore"):
        distance = np.abs(a - b)
        same = (a == b) | (np.isnan(a) & np.isnan(b))
    return np.where(same, 0.0, np.where(np.isfinite(distance), distance, np.inf))


def _doubled(array: Array) -> Array:
    return array.astype(np.complex128 if BY_DTYPE[array.dtype].is_complex else np.float64)
