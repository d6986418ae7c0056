"""Loops over padded rows: only the vectors at their edges are masked, and results are those of the interpreter."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
from backends.cpu.nests.test_printed_functions import emitted
from hlo_text import arrays_for, interpreted, module_text
from hloom.affine import IndexSpace
from hloom.backends.cpu.nests.peeling import MAX_PEELED, MIN_INNER, Span, spans
from hloom.loops.expressions import InRange

ROWS = """x = {type}[7,{n}] parameter(0)
f = {type}[] parameter(1)
a = {type}[7,{n}] pad(x, f), padding=0_0x{low}_{back}
b = {type}[7,{n}] pad(x, f), padding=0_0x{ahead}_{high}
ROOT r = {type}[7,{n}] subtract(a, b)"""
SUMS = (
    ROWS.replace("ROOT r", "d")
    + """
zero = {type}[] constant(0)
ROOT r = {type}[7] reduce(d, zero), dimensions={{1}}, to_apply=sum"""
)


def _text(form: str, n: int, low: int, high: int, type: str = "f32") -> str:
    return form.format(n=n, low=low, back=-low, ahead=-high, high=high, type=type)


@pytest.mark.parametrize("form", [ROWS, SUMS])
def test_only_edges_are_masked(form: str) -> None:
    """Two masks at the first vector of a row and two at the last one; a loop of few vectors has one copy of them."""
    for n, masks in ((512, 4), (32, 2)):
        assert emitted(_text(form, n, 1, 1)).count("icmp ult <") == masks


def _spans(low: int, high: int, last: int, count: int = 1) -> list[Span]:
    """The parts of a loop over 16 lanes with a condition that holds from `low` to `high`."""
    space = IndexSpace()
    loop, other = space.variable("i", last), space.variable("j", 3)
    condition = InRange(space.add(space.of(loop), space.of(other)), low, high + 2)
    return spans(loop, 16, last, [condition] * count)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (1, 319, [Span(0, 16), Span(16, 304, is_inner=True), Span(304, 320)]),
        (16, 320, [Span(0, 16), Span(16, 320, is_inner=True)]),
        (-2, 319, [Span(0, 304, is_inner=True), Span(304, 320)]),
        (-2, 320, [Span(0, 320, is_inner=True)]),
        # Edges of more than a vector, and few vectors between them.
        (17, 320, [Span(0, 320)]),
        (-2, 300, [Span(0, 320)]),
    ],
)
def test_parts_of_a_loop(low: int, high: int, expected: list[Span]) -> None:
    assert _spans(low, high, 320) == expected


def test_long_and_short_loops_are_not_copied() -> None:
    assert len(_spans(1, 320, 320, MAX_PEELED)) == 2
    assert len(_spans(1, 320, 320, MAX_PEELED + 1)) == 1
    assert len(_spans(1, 400, 16 * (MIN_INNER + 1))) == 2
    assert len(_spans(1, 400, 16 * MIN_INNER)) == 1


@pytest.mark.sampled(12)
@pytest.mark.parametrize(
    ("form", "type"), [(ROWS, "f32"), (ROWS, "bf16"), (ROWS, "s8"), (SUMS, "f32"), (SUMS, "f64"), (SUMS, "bf16")]
)
@pytest.mark.parametrize(("low", "high"), [(1, 1), (0, 3), (16, 2), (17, 40), (600, 1)])
@pytest.mark.parametrize("n", [5, 128, 300, 527, 1024])
def test_padded_rows(form: str, type: str, low: int, high: int, n: int) -> None:
    if max(low, high) > n:
        return  # nothing would be left
    module = hl.parse(module_text(_text(form, n, low, high, type)))
    arrays = [np.nan_to_num(a) for a in arrays_for(module)]
    (expected,) = interpreted(module, *arrays)
    found = hl.compile(module)(*arrays)
    tolerance = 0 if type == "s8" or form is ROWS else 1e-1 if type == "bf16" else 1e-4
    np.testing.assert_allclose(np.asarray(found, np.float64), np.asarray(expected, np.float64), tolerance, tolerance)
