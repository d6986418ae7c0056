"""Optimistix and Lineax: roots, minima and linear systems."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import lineax
import numpy as np
import optimistix


def residuals(point: jax.Array, _: None) -> jax.Array:
    """Rosenbrock's function is the sum of their squares, with its minimum at (1, 1)."""
    return jnp.array([1 - point[0], 10 * (point[1] - point[0] ** 2)])


def test_least_squares() -> None:
    for method in (optimistix.LevenbergMarquardt(1e-6, 1e-6), optimistix.Dogleg(1e-6, 1e-6)):
        found = optimistix.least_squares(residuals, method, jnp.array([-1.0, 1.0])).value
        np.testing.assert_allclose(found, [1, 1], atol=1e-3)


def test_a_root() -> None:
    found = optimistix.root_find(lambda x, _: jnp.cos(x) - x, optimistix.Newton(1e-6, 1e-6), jnp.ones(4)).value
    np.testing.assert_allclose(found, np.full(4, 0.7390851332151607), rtol=1e-5)


def test_linear_systems() -> None:
    draw = np.random.default_rng(0)
    matrix, vector = np.float32(draw.normal(size=(30, 30)) + 8 * np.eye(30)), np.float32(draw.normal(size=30))
    expected = np.linalg.solve(np.float64(matrix), vector)
    for method in (lineax.LU(), lineax.QR(), lineax.SVD(), lineax.GMRES(1e-5, 1e-5)):
        found = lineax.linear_solve(lineax.MatrixLinearOperator(jnp.asarray(matrix)), jnp.asarray(vector), method).value
        np.testing.assert_allclose(found, expected, atol=1e-4)
