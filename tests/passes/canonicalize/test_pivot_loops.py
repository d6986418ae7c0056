"""pivot-loops: JAX's loops over pivots become one call, for every rank and shape, and no other loops do."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import hloom as hl
from hloom.passes import clone_module, run_passes, simplification_pipeline
from hloom.passes.canonicalize.pivot_loops import PivotLoops


def factored(*sizes: int, type: Any = np.float32) -> hl.Module:
    """The permutation of an LU factorisation, after the simplifications that precede the pass."""
    module = hl.from_jax(lambda a: jax.lax.linalg.lu(a)[2], np.ones(sizes, type))
    run_passes(module, simplification_pipeline())
    return module


def loops(module: hl.Module) -> int:
    return sum(instruction.opcode == "while" for instruction in module.instructions())


@pytest.mark.sampled(4)
@pytest.mark.parametrize("sizes", [(5, 5), (7, 3), (3, 7), (2, 1), (6, 4, 4), (1, 9, 9), (2, 3, 5, 4)])
def test_permutations_are_calls(sizes: tuple[int, ...]) -> None:
    module = factored(*sizes)
    given = clone_module(module)
    if min(sizes[-2:]) > 1:  # else there is no loop
        assert loops(module) == 1 and PivotLoops().run(module) == 1
        run_passes(module, simplification_pipeline())
    assert loops(module) == 0
    a = np.random.default_rng(0).standard_normal(sizes).astype(np.float32)
    a[..., :2] = np.round(a[..., :2])
    want = hl.compile(given, "interpreter")(a)
    np.testing.assert_array_equal(hl.compile(module, "interpreter")(a), want)
    np.testing.assert_array_equal(hl.compile(given)(a), want)


def test_loops_over_other_pivots_stay() -> None:
    """Numbers that are not those of a factorisation may be out of bounds, where gathers and scatters have rules."""
    pivots = np.int32([3, -1, 2])
    module = hl.from_jax(lambda p: jax.lax.linalg.lu_pivots_to_permutation(p, 4), pivots)
    run_passes(module, simplification_pipeline())
    assert PivotLoops().run(module) == 0


@pytest.mark.parametrize("number", [np.float32(np.nan), np.float32(0.5), np.complex64(1j)], ids=str)
def test_loops_that_add_up_other_values_stay(number: Any) -> None:
    module = hl.from_jax(lambda: jax.lax.fori_loop(0, 5, lambda _, total: total + number, number))
    run_passes(module, simplification_pipeline())
    assert loops(module) == 1 and PivotLoops().run(module) == 0


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (
            "get-tuple-element.2, constant), direction=LT",
            "get-tuple-element.2, constant), direction=LE",
        ),  # one iteration more
        ("subtract(", "add("),  # other pivots
        ("iota_dimension=1", "iota_dimension=0"),  # not the numbers of the rows
        ("ROOT scatter.2 = s32[] parameter(1)", "s = s32[] parameter(1)\n  ROOT r = s32[] maximum(scatter, s)"),
    ],
)
def test_other_loops_stay(old: str, new: str) -> None:
    text = factored(6, 6, 6).to_text()
    assert old in text
    assert PivotLoops().run(hl.parse(text)) == 1
    assert PivotLoops().run(hl.parse(text.replace(old, new))) == 0
