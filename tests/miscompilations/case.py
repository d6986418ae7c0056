"""Cases: modules that some compiler computes wrongly, with arguments and the right results by the specification.

A case without a public report was found by fuzzing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

import hloom as hl
from hloom.files.arrays import describe_type, flat, from_raw_bits
from hloom.numerics import bits_of
from hloom.types import BY_DTYPE
from hloom.values import Array, Value


@dataclass(frozen=True)
class Case:
    """A small module, arguments, and the results that the clauses demand."""

    name: str
    reports: tuple[str, ...]
    """Public reports as `owner/repository#number`, of any compiler."""
    clause: str
    why: str
    """The derivation of the right result from the clause, and what goes wrong."""
    text: str
    arguments: tuple[Value, ...]
    expected: Value
    varies: bool = False
    """Whether XLA's wrong result varies from run to run, or from processor to processor."""
    ulps: int = 0
    """Units in the last place by which floats may differ (UNARY-2)."""


def module(name: str, entry: str, computations: str = "") -> str:
    """Returns the text of a module; the entry and each computation are lines, separated by `;` or line ends."""
    return f"HloModule {name}\n{_indented(computations)}\nENTRY main {{\n{_indented(entry)}\n}}\n"


def _indented(lines: str) -> str:
    stripped = [line.strip() for line in lines.replace("; ", "\n").splitlines()]
    return "\n".join(line if line.endswith("{") or line == "}" else f"  {line}" for line in stripped if line)


def results(case: Case, backend: str) -> list[Array]:
    """Runs a case on a backend of hloom."""
    return flat(hl.compile(case.text, backend, seed=0)(*case.arguments))


def fault(case: Case, found: Sequence[Array]) -> str:
    """Describes how results differ from the right ones; "" if they are right."""
    wanted = flat(case.expected)
    assert len(wanted) == len(found)
    differences = [_fault(got, want, case.ulps) for got, want in zip(found, wanted, strict=True)]
    return next(filter(None, differences), "")


def _fault(got: Array, want: Array, ulps: int) -> str:
    got = from_raw_bits(got, want.dtype)
    if got.shape != want.shape or got.dtype != want.dtype:
        return f"{describe_type(got)} for {describe_type(want)}"
    wrong = bits_of(np.atleast_1d(got)) != bits_of(np.atleast_1d(want))
    element_type = BY_DTYPE[want.dtype]
    if element_type.is_float or element_type.is_complex:
        wrong = _float_differs(np.atleast_1d(got), np.atleast_1d(want), ulps)
    if not wrong.any():
        return ""
    at = tuple(int(i) for i in np.argwhere(wrong)[0])
    return f"{np.atleast_1d(got)[at]} for {np.atleast_1d(want)[at]}" + (f" at {list(at)}" if want.size > 1 else "")


def _float_differs(got: Array, want: Array, ulps: int) -> Array:
    """Whether floats differ: NaNs are equal, zeros of both signs are not."""
    if want.dtype.kind == "c":
        parts: tuple[Callable[[Array], Array], ...] = (np.real, np.imag)
        return np.logical_or(*(_float_differs(part(got), part(want), ulps) for part in parts))
    g, w = got.astype(np.float64), want.astype(np.float64)
    with np.errstate(all="ignore"):
        unit = np.abs(np.nextafter(want, want.dtype.type(np.inf)).astype(np.float64) - w)
        near = np.isfinite(w) & (np.abs(g - w) <= ulps * unit)
    same = np.isnan(g) & np.isnan(w) | (near | (g == w)) & (np.signbit(g) == np.signbit(w))
    return ~same
