"""Functions of all pairs of points are computed where they are reduced, rather than stored."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
from hlo_text import compiled, module_text
from hloom.loops.lower import can_lower
from hloom.passes.fusion.fusion import FusionPass

N = 900


def pairs(entry: str, n: int = N, coordinates: int = 3) -> str:
    """A program on the distances r of all pairs of two sets of n points."""
    return module_text(
        f"""x = f32[{n},{coordinates}] parameter(0)
        y = f32[{n},{coordinates}] parameter(1)
        zero = f32[] constant(0)
        low = f32[] constant(-inf)
        xs = f32[{n},{n},{coordinates}] broadcast(x), dimensions={{0,2}}
        ys = f32[{n},{n},{coordinates}] broadcast(y), dimensions={{1,2}}
        d = f32[{n},{n},{coordinates}] subtract(xs, ys)
        dd = f32[{n},{n},{coordinates}] multiply(d, d)
        square = f32[{n},{n}] reduce(dd, zero), dimensions={{2}}, to_apply=sum
        r = f32[{n},{n}] sqrt(square)
        {entry.replace("N", str(n)).replace("C", str(coordinates))}"""
    )


BOTH = """
    rows = f32[N] reduce(r, zero), dimensions={1}, to_apply=sum
    t = f32[N,N] tanh(r)
    columns = f32[N] reduce(t, zero), dimensions={0}, to_apply=sum
    ROOT result = (f32[N], f32[N]) tuple(rows, columns)"""
THROUGH_ROWS = """
    rows = f32[N] reduce(r, zero), dimensions={1}, to_apply=sum
    scale = f32[N,N] broadcast(rows), dimensions={0}
    weight = f32[N,N] divide(scale, r)
    weights = f32[N,N,C] broadcast(weight), dimensions={0,1}
    force = f32[N,N,C] multiply(d, weights)
    a = f32[N,C] reduce(force, zero), dimensions={1}, to_apply=sum
    b = f32[N,C] reduce(force, zero), dimensions={0}, to_apply=sum
    ROOT result = (f32[N,C], f32[N,C]) tuple(a, b)"""
NUMBER_OF_LARGEST = """
    top = f32[] reduce(r, low), dimensions={0,1}, to_apply=largest
    tops = f32[N,N] broadcast(top), dimensions={}
    is_top = pred[N,N] compare(r, tops), direction=EQ
    ones = f32[N,N] convert(is_top)
    ROOT number = f32[N] reduce(ones, zero), dimensions={1}, to_apply=sum"""

CROSS = """
    u = f32[N,N,1] slice(d), slice={[0:N], [0:N], [0:1]}
    v = f32[N,N,1] slice(d), slice={[0:N], [0:N], [1:2]}
    w = f32[N,N,1] slice(d), slice={[0:N], [0:N], [2:3]}
    cross = f32[N,N,3] concatenate(v, w, u), dimensions={2}
    products = f32[N,N,3] multiply(cross, d)
    total = f32[N,N] reduce(products, zero), dimensions={2}, to_apply=sum
    a = f32[N,3] reduce(cross, zero), dimensions={1}, to_apply=sum
    b = f32[N] reduce(total, zero), dimensions={0}, to_apply=sum
    ROOT result = (f32[N,3], f32[N]) tuple(a, b)"""


def largest_array(text: str) -> int:
    """The number of elements of the largest array that the kernels store after fusion."""
    module = hl.parse(text)
    FusionPass(can_fuse=lambda i: can_lower(i, lambda *_: True)).run(module)
    stored = [i for i in module.entry.instructions if i.opcode != "parameter"]
    return max(leaf.element_count for i in stored for leaf in i.shape.leaves())


@pytest.mark.parametrize("entry", [BOTH, THROUGH_ROWS, NUMBER_OF_LARGEST, CROSS])
def test_values_of_pairs_are_not_stored(entry: str) -> None:
    assert largest_array(pairs(entry)) <= 3 * N


@pytest.mark.parametrize(("type", "is_stored"), [("f32", False), ("f64", True)])
def test_costly_values_of_pairs(type: str, is_stored: bool) -> None:
    """Divisions and roots of f64 take longer, so that fewer operations pay instead of memory."""
    text = pairs(BOTH.replace("tanh(r)", "tanh(p)").replace("reduce(r", "reduce(p"))
    costly = f"e = f32[{N},{N}] exponential(r)\n p = f32[{N},{N}] sine(e)\n rows ="
    text = text.replace("rows =", costly, 1).replace("f32", type)
    assert (largest_array(text) >= N * N) == is_stored


@pytest.mark.parametrize(("n", "coordinates"), [(64, 3), (N, 4)], ids=["arrays in the cache", "sums of other orders"])
def test_values_of_pairs_that_are_stored(n: int, coordinates: int) -> None:
    """Small arrays are read in less time; sums of four elements have other bits where they are added up otherwise."""
    assert largest_array(pairs(BOTH, n, coordinates).replace("sqrt", "exponential")) >= n * n


def test_values_of_large_operands_are_stored() -> None:
    operand = f"f32[{N},{N}] sine(f32[{N},{N}] parameter(2))"
    assert largest_array(pairs(BOTH).replace(f"f32[{N},{N}] sqrt(square)", operand)) == N * N


def points(n: int, coordinates: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(n)
    return rng.standard_normal((n, coordinates), np.float32), rng.standard_normal((n, coordinates), np.float32)


@pytest.mark.parametrize("n", [N, 901])
def test_sums_along_both_axes(n: int) -> None:
    x, y = points(n, 3)
    d = x[:, None].astype(np.float64) - y
    r = np.sqrt((d * d).sum(-1))
    found = compiled(pairs(BOTH, n), x, y)
    np.testing.assert_allclose(found[0], r.sum(1), rtol=1e-5)
    np.testing.assert_allclose(found[1], np.tanh(r).sum(0), rtol=1e-5)
    force = d * (r.sum(1)[:, None] / r)[..., None]
    for result, axis in zip(compiled(pairs(THROUGH_ROWS, n), x, y), (1, 0), strict=True):
        np.testing.assert_allclose(result, force.sum(axis), rtol=1e-4, atol=1e-2 * np.abs(force.sum(axis)).max())


def test_the_largest_distance_is_equal_to_itself_in_another_kernel() -> None:
    (number,) = compiled(pairs(NUMBER_OF_LARGEST), *points(N, 3))
    assert number.sum() == 1


def test_concatenated_coordinates_of_pairs() -> None:
    x, y = points(N, 3)
    d = x[:, None].astype(np.float64) - y
    rolled = d[..., [1, 2, 0]]
    found = compiled(pairs(CROSS), x, y)
    np.testing.assert_allclose(found[0], rolled.sum(1), atol=1e-2)
    np.testing.assert_allclose(found[1], (rolled * d).sum((0, 2)), rtol=1e-4, atol=0.1)
