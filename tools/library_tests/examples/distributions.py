"""Distrax: densities of distributions, and of a normalising flow."""

from __future__ import annotations

import distrax
import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats


def test_density_of_a_mixture_is_that_of_scipy() -> None:
    points = np.linspace(-2, 5, 40, dtype=np.float32)
    weights, means = np.float32([0.2, 0.3, 0.5]), np.float32([-1, 0.5, 3])
    mixture = distrax.MixtureSameFamily(distrax.Categorical(probs=weights), distrax.Normal(means, jnp.ones(3)))
    expected = np.log(stats.norm.pdf(points[:, None], means) @ weights)
    np.testing.assert_allclose(jax.jit(mixture.log_prob)(points), expected, atol=1e-5)


def test_density_of_a_flow_integrates_to_one() -> None:
    spline = distrax.RationalQuadraticSpline(jax.random.normal(jax.random.key(2), (25,)), -3.0, 3.0)
    flow = distrax.Transformed(distrax.Normal(0.0, 1.0), distrax.Chain([distrax.ScalarAffine(1.0, 2.0), spline]))
    points = np.linspace(-20, 20, 40001, dtype=np.float32)
    density = np.exp(np.float64(jax.jit(jax.vmap(flow.log_prob))(points)))
    np.testing.assert_allclose(np.trapezoid(density, np.float64(points)), 1, atol=1e-3)


def test_most_likely_states_of_a_hidden_markov_model() -> None:
    """The path found is the best of all paths."""
    transition, means = np.float32([[0.8, 0.2], [0.3, 0.7]]), np.float32([0, 2])
    model = distrax.HMM(
        distrax.Categorical(probs=jnp.ones(2) / 2),
        distrax.Categorical(probs=transition),
        distrax.Normal(means, jnp.ones(2)),
    )
    seen = np.float32([0.1, 1.7, 0.9, 2.2, -0.4, 1.2, 1.1])
    paths = np.array(list(np.ndindex(*[2] * len(seen))))
    steps = np.log(transition)[paths[:, :-1], paths[:, 1:]].sum(1)
    best = paths[np.argmax(steps + stats.norm.logpdf(seen, means[paths]).sum(1))]
    np.testing.assert_array_equal(model.viterbi(jnp.asarray(seen)), best)
