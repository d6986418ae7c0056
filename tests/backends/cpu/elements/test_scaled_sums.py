"""Sums times powers of two have the bits of the sum, rounded, times the power."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hlo_text import compiled, module_text
from hloom.api import parse
from hloom.backends.cpu.llvm.processor import processor
from hloom.cli.pipelines import stage_text

CONSTANTS = [(1.0, 0.5), (-1.0, 2.0), (0.3, 0.25), (3e8, 2.0**-30), (2.0**-30, 2.0**30)]
OTHERS = [(1.0, -0.5), (0.0, 0.5), (1.0, 0.3), (1e30, 0.5), (1e-30, 0.5), (1.0, 2.0**-140), (np.inf, 0.5)]


def samples(a: float, dtype: Any) -> np.ndarray[Any, Any]:
    """Numbers of all magnitudes, those around -a, and special ones."""
    rng, limits = np.random.default_rng(0), np.finfo(dtype)
    exponents = rng.uniform(limits.minexp - 30, limits.maxexp, 4000)
    near = -np.asarray(a, dtype) * (1 + np.arange(-50, 50, dtype=dtype) * limits.eps)
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, limits.max, -limits.max, limits.tiny, limits.smallest_subnormal]
    with np.errstate(all="ignore"):
        return np.concatenate([rng.choice([-1.0, 1.0], 4000) * 2**exponents, near, special]).astype(dtype)


def scaled(a: float, c: float, size: int, element: str) -> str:
    constants = "\n".join(
        f"{name} = {element}[] constant({number!r})\n{name}s = {element}[{size}] broadcast({name}), dimensions={{}}"
        for name, number in (("a", a), ("c", c))
    )
    return module_text(f"""x = {element}[{size}] parameter(0)
        {constants}
        sum = {element}[{size}] add(as, x)
        ROOT r = {element}[{size}] multiply(sum, cs)""")


@pytest.mark.sampled(12)
@pytest.mark.parametrize(("dtype", "element"), [(np.float32, "f32"), (np.float64, "f64")])
@pytest.mark.parametrize(("a", "c"), CONSTANTS + OTHERS)
def test_bits_are_those_of_two_operations(a: float, c: float, dtype: Any, element: str) -> None:
    x = samples(a, dtype)
    (found,) = compiled(scaled(a, c, len(x), element), x)
    with np.errstate(all="ignore"):
        expected = (x + dtype(a)) * dtype(c)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(np.signbit(found), np.signbit(expected))


@pytest.mark.skipif(not processor().has_fma, reason="the processor has no multiply-add")
@pytest.mark.parametrize(("a", "c"), CONSTANTS)
def test_one_instruction(a: float, c: float) -> None:
    assert "fmul" not in stage_text(parse(scaled(a, c, 64, "f32")), "llvm")


@pytest.mark.parametrize(("a", "c"), OTHERS[:5])
def test_other_constants_are_multiplied(a: float, c: float) -> None:
    assert "fmul" in stage_text(parse(scaled(a, c, 64, "f32")), "llvm")
