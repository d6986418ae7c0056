"""cholesky-calls: factorisations as JAX and HLO write them become one call, which has their zeros and NaN."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hloom as hl
from hlo_text import module_text
from hloom.backends.cpu.pipeline import Topology, cpu_pipeline
from hloom.passes import run_passes

TOLERANCE = {np.float32: 1e-5, np.float64: 1e-13}


def targets(module: hl.Module) -> list[str]:
    """The calls that a program has after the passes."""
    run_passes(module, cpu_pipeline(Topology.SINGLE))
    found = (getattr(instruction.op, "target_name", "") for instruction in module.instructions())
    return [target for target in found if target]


def positive(*sizes: int, type: Any = np.float32) -> np.ndarray:
    """Matrices whose triangles differ; of several, one is indefinite and one has a NaN."""
    x = np.random.default_rng(sum(sizes)).standard_normal((*sizes, sizes[-1]))
    a = x @ x.swapaxes(-1, -2) / sizes[-1] + 0.5 * np.eye(sizes[-1]) + 0.01 * np.triu(np.ones(sizes[-1]), 1)
    if len(sizes) > 1:
        a[1], a[2, -1, -1] = -a[1], np.nan
    return a.astype(type)


def lower_hlo(a: np.ndarray) -> hl.Module:
    shape = f"{'f32' if a.dtype == np.float32 else 'f64'}[{','.join(map(str, a.shape))}]"
    return hl.parse(module_text(f"a = {shape} parameter(0)\nROOT r = {shape} cholesky(a), lower=true"))


def of_jax(function: Callable[..., Any]) -> Callable[[np.ndarray], hl.Module]:
    return lambda a: hl.from_jax(function, a)


PROGRAMS = {
    "symmetric": of_jax(jnp.linalg.cholesky),
    "one triangle": of_jax(lambda a: jax.lax.linalg.cholesky(a, symmetrize_input=False)),
    "HLO": lower_hlo,
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("type", [np.float32, np.float64])
@pytest.mark.parametrize("sizes", [(5, 2), (21, 4), (18, 7), (9, 16), (170,), (3, 165)])
@pytest.mark.parametrize("program", PROGRAMS)
def test_factorisations_are_calls(program: str, sizes: tuple[int, ...], type: Any) -> None:
    a = positive(*sizes, type=type)
    with jax.enable_x64(type is np.float64):
        module = PROGRAMS[program](a)
        expected = np.array(hl.compile(module, "interpreter")(a))
        found = hl.compile(module)(a)
        assert targets(module) == [f"lapack_{'s' if type is np.float32 else 'd'}cholesky"]
    if len(sizes) > 1:
        np.testing.assert_array_equal(np.isnan(found[2]), np.isnan(found[1]))  # as LAPACK does, unlike OpenBLAS
        expected[2] = found[2]
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
    given = (a + a.swapaxes(-1, -2)) / 2 if program == "symmetric" else np.tril(a) + np.tril(a, -1).swapaxes(-1, -2)
    is_factor = np.isfinite(found)
    product = np.nan_to_num(found) @ np.nan_to_num(found).swapaxes(-1, -2)
    whole = is_factor.all(axis=(-1, -2))
    np.testing.assert_allclose(product[whole], given[whole], atol=5 * TOLERANCE[type])
    assert (np.triu(found, 1)[is_factor] == 0).all()


@pytest.mark.parametrize("sizes", [(3, 4), (4, 33)])
def test_other_sizes_are_lapacks(sizes: tuple[int, ...]) -> None:
    assert targets(of_jax(jnp.linalg.cholesky)(positive(*sizes))) == ["lapack_spotrf_ffi"]


@pytest.mark.parametrize(
    "function",
    [
        lambda a: (jnp.linalg.cholesky(a), jax.lax.linalg.cholesky(a)),  # the same factor
        lambda a: jnp.triu(jax.lax.linalg.cholesky(a, symmetrize_input=False)),
        lambda a: jnp.tril(jax.lax.linalg.cholesky(a, symmetrize_input=False), -1),
    ],
)
def test_results_are_those_of_the_steps(function: Callable[..., Any]) -> None:
    """Whatever of the factorisation is read."""
    a = positive(6, 4)[3:]
    a = np.concatenate([a, a])
    module = hl.from_jax(function, a)
    found, expected = (jax.tree.leaves(hl.compile(module, backend)(a)) for backend in ("cpu", "interpreter"))
    for got, want in zip(found, expected, strict=True):
        np.testing.assert_allclose(got, want, atol=1e-5)
