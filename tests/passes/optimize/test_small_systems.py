"""small-systems: factorisations that solve one set of systems, as JAX writes them, become one call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hloom as hl
from hloom.backends.cpu.pipeline import Topology, cpu_pipeline
from hloom.passes import run_passes
from hloom.runtime.custom_calls.lapack.factorisations import MAX_SOLVED

TOLERANCE = {np.float32: 2e-4, np.float64: 1e-11}


def systems(*sizes: int, type: Any = np.float32) -> np.ndarray:
    found = np.random.default_rng(sum(sizes)).standard_normal(sizes)
    return (found + 2 * np.eye(sizes[-1])[::-1]).astype(type)  # whose rows are swapped


def solution(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Solves a system in f64 by elimination with partial pivoting; BLAS libraries differ in which results are NaN."""
    rows = np.concatenate([a, b], axis=1).astype(np.float64)
    for k in range(len(a)):
        pivot = k + np.abs(rows[k:, k]).argmax()
        rows[[k, pivot]] = rows[[pivot, k]]
        if rows[k, k] != 0:
            rows[k + 1 :, k:] -= rows[k + 1 :, k : k + 1] / rows[k, k] * rows[k, k:]
    for k in reversed(range(len(a))):
        known = (rows[k, k + 1 : len(a), None] * rows[k + 1 :, len(a) :]).sum(axis=0)
        rows[k, len(a) :] = (rows[k, len(a) :] - known) / rows[k, k]
    return rows[:, len(a) :]


def calls(function: Callable[..., Any], *arguments: np.ndarray, batch_invariant: bool = False) -> list[str]:
    """The targets of the calls that a program has after the passes."""
    module = hl.from_jax(function, *arguments)
    run_passes(module, cpu_pipeline(Topology.SINGLE, batch_invariant))
    found = (getattr(instruction.op, "target_name", "") for instruction in module.instructions())
    return [target for target in found if target]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("type", [np.float32, np.float64])
@pytest.mark.parametrize("sizes", [(5, 2), (17, 3), (40, 4), (9, 7), (33, MAX_SOLVED), (2, 4, 5)])
@pytest.mark.parametrize("sides", [1, 3])
def test_solutions_are_calls(sizes: tuple[int, ...], sides: int, type: Any) -> None:
    a = systems(*sizes, sizes[-1], type=type)
    b = np.random.default_rng(0).standard_normal((*sizes, sides)).astype(type)
    with jax.enable_x64(type is np.float64):
        assert calls(jnp.linalg.solve, a, b) == [f"lapack_{'s' if type is np.float32 else 'd'}gesv"]
        module = hl.from_jax(jnp.linalg.solve, a, b)
    executable = hl.compile(module)
    assert executable.report() == []
    want = np.linalg.solve(a.astype(np.float64), b.astype(np.float64))
    found, reference = executable(a, b), hl.compile(module, "interpreter")(a, b)
    for x in (found, reference):
        np.testing.assert_allclose(x, want, atol=TOLERANCE[type] * np.abs(want).max())


def test_inverses_and_vectors() -> None:
    a = systems(12, 6, 6)
    assert calls(jnp.linalg.inv, a) == ["lapack_sgesv"]
    np.testing.assert_allclose(hl.compile(hl.from_jax(jnp.linalg.inv, a))(a) @ a, np.eye(6) + 0 * a, atol=1e-4)
    solve = jax.vmap(lambda a, b: jnp.linalg.solve(a, b))
    assert calls(solve, a, a[..., 0]) == ["lapack_sgesv"]


def test_other_uses_of_the_factors_keep_them() -> None:
    a = systems(12, 4, 4)

    def both(a: jax.Array) -> Any:
        factors = jax.vmap(jax.scipy.linalg.lu_factor)(a)
        return jax.vmap(lambda f, s, b: jax.scipy.linalg.lu_solve((f, s), b))(*factors, a[..., 0]), factors[0]

    def gradient(a: jax.Array) -> jax.Array:
        return jax.grad(lambda a: jnp.linalg.solve(a, a[..., :1]).sum())(a)

    for function in (both, gradient, lambda a: (jnp.linalg.solve(a, a), jnp.linalg.slogdet(a))):
        assert not any(target.endswith("gesv") for target in calls(function, a))


@pytest.mark.parametrize("sizes", [(3, 4, 4), (4, 4), (9, MAX_SOLVED + 1, MAX_SOLVED + 1)])
def test_few_and_large_systems_stay(sizes: tuple[int, ...]) -> None:
    assert not any(
        target.endswith("gesv") for target in calls(lambda a: jnp.linalg.solve(a, a[..., :1]), systems(*sizes))
    )


def test_a_batch_does_not_choose() -> None:
    """The option batch_invariant solves one system as many are solved."""
    assert calls(jnp.linalg.solve, systems(1, 4, 4), systems(1, 4, 4), batch_invariant=True) == ["lapack_sgesv"]


def test_singular_systems_are_as_the_factors_say() -> None:
    """Zero pivots, NaN and infinities, against elimination step by step."""
    a = systems(24, 5, 5)
    a[0], a[1, :, 0], a[2] = 0, 0, np.triu(a[2], 1)
    a[3, 1], a[4, :, 2], a[5, 2, 2], a[6, 0, 0] = np.nan, np.nan, np.inf, -np.inf
    a[7] *= 1e37
    b = np.random.default_rng(1).standard_normal((24, 5, 2)).astype(np.float32)
    with np.errstate(all="ignore"):
        want = np.stack([solution(*system) for system in zip(a, b, strict=True)])
    assert not np.isfinite(want[[0, 1, 2, 3, 4]]).all(axis=(1, 2)).any()
    np.testing.assert_allclose(hl.compile(hl.from_jax(jnp.linalg.solve, a, b))(a, b), want, rtol=1e-3)


def test_reciprocals_of_pivots_do_not_overflow() -> None:
    a = systems(6, 5, 5)
    scales = np.float32(2.0 ** np.array([0, -120, -126, -135, -138, 120]))[:, None, None]
    b = (a @ np.ones((5, 2), np.float32)) * scales
    x = hl.compile(hl.from_jax(jnp.linalg.solve, a, b))(a * scales, b)
    np.testing.assert_allclose(x, np.ones((6, 5, 2)), atol=0.05)
