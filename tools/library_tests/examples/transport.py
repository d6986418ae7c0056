"""OTT: optimal transport between clouds of points, and sorting by it."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from ott.geometry import pointcloud
from ott.solvers import linear
from ott.tools import soft_sort
from scipy.optimize import linear_sum_assignment


def test_cost_of_transport() -> None:
    """The cost with little entropy is that of the best assignment."""
    left, right = jax.random.normal(jax.random.key(0), (40, 2)), jax.random.normal(jax.random.key(1), (40, 2)) + 1
    distances = ((np.float64(left)[:, None] - np.float64(right)) ** 2).sum(-1)
    expected = distances[linear_sum_assignment(distances)].mean()
    found = jax.jit(lambda x, y: linear.solve(pointcloud.PointCloud(x, y, epsilon=1e-3), max_iterations=20000))
    np.testing.assert_allclose(found(left, right).primal_cost, expected, rtol=2e-2)


def test_gradient_of_the_cost() -> None:
    """Moving all points of one cloud by d changes the cost by 2 d . (difference of the means)."""
    left, right = jax.random.normal(jax.random.key(0), (30, 2)), jax.random.normal(jax.random.key(1), (30, 2)) + 1
    gradient = jax.grad(lambda x: linear.solve(pointcloud.PointCloud(x, right, epsilon=0.1)).reg_ot_cost)(left)
    expected = 2 * (np.mean(left, 0) - np.mean(right, 0))
    np.testing.assert_allclose(gradient.sum(0), expected, atol=1e-2)


def test_soft_sort() -> None:
    values = jnp.asarray(np.random.default_rng(0).permutation(20) / 20)
    np.testing.assert_allclose(soft_sort.sort(values, epsilon=1e-4), np.arange(20) / 20, atol=1e-2)
