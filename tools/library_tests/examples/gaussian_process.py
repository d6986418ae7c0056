"""tinygp: the likelihood of a Gaussian process, its gradient and its prediction."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from tinygp import GaussianProcess, kernels

TIMES = np.sort(np.random.default_rng(0).uniform(0, 10, 80))
VALUES = np.sin(TIMES)


def log_likelihood(scale: float, length: float) -> float:
    """The formula of the textbook, in double precision."""
    distance = np.sqrt(3) * np.abs(TIMES[:, None] - TIMES) / length
    covariance = scale * (1 + distance) * np.exp(-distance) + 0.1 * np.eye(len(TIMES))
    logarithm = np.linalg.slogdet(2 * np.pi * covariance)[1]
    return float(-0.5 * (VALUES @ np.linalg.solve(covariance, VALUES) + logarithm))


def test_likelihood_by_dense_and_by_structured_matrices() -> None:
    for matern in (kernels.Matern32, kernels.quasisep.Matern32):

        def likelihood(p: jax.Array, matern: type = matern) -> jax.Array:
            kernel = p[0] * matern(p[1])
            return GaussianProcess(kernel, jnp.asarray(TIMES), diag=0.1).log_probability(jnp.asarray(VALUES))

        value, gradient = jax.jit(jax.value_and_grad(likelihood))(jnp.array([1.5, 0.7]))
        np.testing.assert_allclose(value, log_likelihood(1.5, 0.7), rtol=1e-4)
        by_scale = (log_likelihood(1.5 + 1e-5, 0.7) - log_likelihood(1.5 - 1e-5, 0.7)) / 2e-5
        np.testing.assert_allclose(gradient[0], by_scale, rtol=1e-2)
