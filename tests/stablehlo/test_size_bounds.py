"""Bounds of sizes that are computed from dynamic ones: interval arithmetic."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import hloom as hl
from hlo_text import module_text
from hloom.stablehlo.importer.size_bounds import SizeBounds

BEGIN = """x = f32[<=7,<=3] parameter(0)
p = s32[] parameter(1)
m = s32[] get-dimension-size(x), dimensions={0}
n = s32[] get-dimension-size(x), dimensions={1}
c = s32[] constant(5)
d = s32[] constant(-2)
z = s32[] constant(0)
"""


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        ("ROOT r = s32[] add(m, n)", 0, 10),
        ("ROOT r = s32[] subtract(m, n)", -3, 7),
        ("s = s32[] subtract(n, c)\nROOT r = s32[] multiply(m, s)", -35, 0),
        ("ROOT r = s32[] divide(m, c)", 0, 1),
        ("ROOT r = s32[] remainder(m, c)", 0, 4),
        ("ROOT r = s32[] clamp(z, p, c)", 0, 5),
        ("ROOT r = s32[] minimum(m, c)", 0, 5),
        ("ROOT r = s32[] negate(m)", -7, 0),
        ("g = pred[] compare(n, c), direction=LT\nROOT r = s32[] select(g, n, m)", 0, 3),
        ("g = pred[] compare(m, c), direction=EQ\nROOT r = s32[] select(g, d, m)", -2, 7),
        ("ROOT r = pred[] compare(n, c), direction=NE", True, True),
        ("w = s64[] convert(m)\ny = s64[1] reshape(w)\nROOT r = s64[2] concatenate(y, y), dimensions={0}", 0, 7),
    ],
)
def test_bounds(text: str, low: int, high: int) -> None:
    """GETDIMENSIONSIZE-1: a size is from 0 to its bound; these bounds are attained, or nearly."""
    root = hl.parse(module_text(BEGIN + text)).entry.root
    bounds = SizeBounds().of(root)
    assert bounds is not None and (np.all(bounds.low == low), np.all(bounds.high == high)) == (True, True)


@pytest.mark.parametrize(
    "text", ["ROOT r = s32[] add(m, p)", "ROOT r = s32[] divide(c, m)", "ROOT r = s32[] remainder(d, c)"]
)
def test_values_of_parameters_and_divisions_by_zero_have_no_bounds(text: str) -> None:
    bounds = SizeBounds().of(hl.parse(module_text(BEGIN + text)).entry.root)
    assert bounds is None or bounds.is_known


def test_a_product_that_overflows_has_no_bounds() -> None:
    text = "k = s32[] constant(1000000000)\nROOT r = s32[] multiply(m, k)"
    assert SizeBounds().of(hl.parse(module_text(BEGIN + text)).entry.root) is None


def test_values_lie_within_bounds() -> None:
    text = (
        "a = s32[] multiply(m, n)\nb = s32[] add(a, c)\ne = s32[] divide(b, c)\nf = s32[] subtract(e, n)\n"
        "h = s32[] maximum(f, z)\ni = s32[] remainder(h, c)\n"
        "ROOT r = (s32[], s32[], s32[], s32[], s32[], s32[]) tuple(a, b, e, f, h, i)"
    )
    module = hl.parse(module_text(BEGIN + text))
    bounds = [SizeBounds().of(value) for value in module.entry.root.operands]
    run = hl.compile(module, "interpreter")
    for m, n in itertools.product(range(8), range(4)):
        for value, each in zip(run(np.zeros((m, n), np.float32), np.int32(0)), bounds, strict=True):
            assert each is not None and each.low <= value <= each.high


def test_a_scalar_takes_the_sizes_of_a_dynamic_array() -> None:
    """BROADCAST-1, SETDIMENSIONSIZE-3: the builder broadcasts it to them."""
    b = hl.XlaBuilder("m")
    x = b.parameter(0, hl.Shape.array(hl.PrimitiveType.F32, (4, 2), (True, False)))
    computation = b.build(b.add(x, b.constant(np.float32(1))))
    for backend in ("interpreter", "cpu"):
        assert hl.compile(computation, backend)(np.ones((3, 2), np.float32)).tolist() == [[2, 2]] * 3
