"""Dynamax: the Kalman smoother of a linear system."""

from __future__ import annotations

import jax
import numpy as np
from dynamax.linear_gaussian_ssm import LinearGaussianSSM
from scipy import stats


def test_likelihood_and_smoothed_states() -> None:
    """States and emissions are jointly normal: the conditional of the one distribution is the smoother's result."""
    steps = 12
    model = LinearGaussianSSM(2, 3)
    parameters, _ = model.initialize(jax.random.PRNGKey(0))
    _, emissions = model.sample(parameters, jax.random.PRNGKey(1), steps)
    smoothed = model.smoother(parameters, emissions)
    first, dynamics, seen = parameters.initial, parameters.dynamics, parameters.emissions
    step, noise = np.float64(dynamics.weights), np.float64(dynamics.cov)
    mean, covariances = [np.float64(first.mean)], [np.float64(first.cov)]
    for _ in range(steps - 1):
        mean.append(step @ mean[-1] + np.float64(dynamics.bias))
        covariances.append(step @ covariances[-1] @ step.T + noise)
    joint = np.zeros((2 * steps, 2 * steps))
    for i in range(steps):
        for j in range(i, steps):
            block = np.linalg.matrix_power(step, j - i) @ covariances[i]
            joint[2 * j : 2 * j + 2, 2 * i : 2 * i + 2] = block
            joint[2 * i : 2 * i + 2, 2 * j : 2 * j + 2] = block.T
    observe = np.kron(np.eye(steps), np.float64(seen.weights))
    expected = observe @ np.concatenate(mean) + np.tile(np.float64(seen.bias), steps)
    covariance = observe @ joint @ observe.T + np.kron(np.eye(steps), np.float64(seen.cov))
    values = np.float64(emissions).ravel()
    likelihood = stats.multivariate_normal.logpdf(values, expected, covariance)
    np.testing.assert_allclose(smoothed.marginal_loglik, likelihood, rtol=1e-4)
    states = np.concatenate(mean) + joint @ observe.T @ np.linalg.solve(covariance, values - expected)
    np.testing.assert_allclose(smoothed.smoothed_means, states.reshape(steps, 2), atol=1e-3)
