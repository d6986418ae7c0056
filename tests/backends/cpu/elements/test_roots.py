"""Comparisons of roots and moduli with constants are those of the rounded roots, for every number near the limit."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hlo_text import compiled, module_text
from hloom.api import parse
from hloom.cli.pipelines import stage_text

DIRECTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "LT": operator.lt, "LE": operator.le, "GT": operator.gt, "GE": operator.ge, "EQ": operator.eq, "NE": operator.ne
}  # fmt: skip
ELEMENTS = {"f": "f32", "d": "f64", "F": "c64", "D": "c128"}
BOUNDS = [2.0, 1.0, 0.1, 1.7, 3e-7, 1e12, 0.0, -1.0, 1e30, 1e-30, np.inf, np.nan]
SPECIAL = [0.0, -0.0, -1.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 1e-38, 3e38, -3e38, 1e19, 1e-20]


def check(x: np.ndarray[Any, Any], roots: np.ndarray[Any, Any], opcode: str, bound: float) -> None:
    """All directions of comparisons of the roots, as results of one program."""
    size, element, real = len(x), ELEMENTS[x.dtype.char], ELEMENTS[roots.dtype.char]
    compares = "\n".join(f"{name} = pred[{size}] compare(root, limits), direction={name}" for name in DIRECTIONS)
    results = ", ".join([f"pred[{size}]"] * len(DIRECTIONS))
    found = compiled(
        module_text(f"""x = {element}[{size}] parameter(0)
        limit = {real}[] constant({bound})
        limits = {real}[{size}] broadcast(limit), dimensions={{}}
        root = {real}[{size}] {opcode}(x)
        {compares}
        ROOT all = ({results}) tuple({", ".join(DIRECTIONS)})"""),
        x,
    )
    for got, compare in zip(found, DIRECTIONS.values(), strict=True):
        np.testing.assert_array_equal(got, compare(roots, roots.dtype.type(bound)))


def near(bound: float, dtype: Any) -> np.ndarray[Any, Any]:
    """The numbers around the square of a bound, and special ones."""
    with np.errstate(all="ignore"):
        middle = np.asarray(bound, dtype) ** 2
        found = [middle]
        for direction in (np.inf, -np.inf):
            each = middle
            for _ in range(20):
                each = np.nextafter(each, dtype(direction))
                found.append(each)
        return np.array([*found, *SPECIAL], dtype)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("bound", BOUNDS)
def test_roots(bound: float, dtype: Any) -> None:
    x = near(bound, dtype)
    with np.errstate(all="ignore"):
        check(x, np.sqrt(x), "sqrt", bound)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
@pytest.mark.parametrize("bound", BOUNDS)
def test_moduli(bound: float, dtype: Any) -> None:
    """Moduli are those that another program computes, which equal the exact ones but for rounding."""
    parts = np.concatenate([np.sqrt(np.abs(near(bound, dtype(0).real.dtype.type))) * s for s in (0.6, 0.8, 1.0, -1.0)])
    special = np.array(SPECIAL, parts.dtype)
    pairs = [(a, b) for a in special for b in special]
    pairs += [(a, b) for a in parts[::3] for b in [*parts[::7], 0.0]]
    z = np.array([complex(a, b) for a, b in pairs], dtype)
    element, real = ELEMENTS[z.dtype.char], ELEMENTS[parts.dtype.char]
    (moduli,) = compiled(module_text(f"z = {element}[{len(z)}] parameter(0)\nROOT r = {real}[{len(z)}] abs(z)"), z)
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(moduli, np.abs(z.astype(np.complex128)).astype(parts.dtype), rtol=1e-6, atol=3e-45)
    check(z, moduli, "abs", bound)


@pytest.mark.parametrize(("opcode", "element"), [("sqrt", "f32"), ("abs", "c64")])
def test_no_root_is_taken(opcode: str, element: str) -> None:
    text = module_text(f"""x = {element}[64] parameter(0)
        limit = f32[] constant(2)
        limits = f32[64] broadcast(limit), dimensions={{}}
        root = f32[64] {opcode}(x)
        ROOT found = pred[64] compare(root, limits), direction=LT""")
    assert "sqrt" in assembly_of(text.replace("direction=LT", "direction=EQ"))
    assert "sqrt" not in assembly_of(text)


def assembly_of(text: str) -> str:
    return stage_text(parse(text), "asm")
