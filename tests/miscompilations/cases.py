"""All known miscompilations."""

from __future__ import annotations

from miscompilations import (
    arithmetic,
    found_by_fuzzing,
    integers,
    inverses,
    loops,
    nans,
    products,
    quotients,
    reductions,
    slices,
    windows,
)
from miscompilations.case import Case

CASES: list[Case] = [
    *arithmetic.CASES,
    *inverses.CASES,
    *loops.CASES,
    *nans.CASES,
    *integers.CASES,
    *products.CASES,
    *quotients.CASES,
    *reductions.CASES,
    *slices.CASES,
    *windows.CASES,
    *found_by_fuzzing.CASES,
]
