"""Haiku: an LSTM, and the gradient of a convolution with batch normalisation."""

from __future__ import annotations

import haiku
import jax
import jax.numpy as jnp
import numpy as np


def test_lstm_follows_its_equations() -> None:
    inputs = jax.random.normal(jax.random.key(0), (7, 3, 5))

    def unroll(x: jax.Array) -> jax.Array:
        core = haiku.LSTM(4)
        return haiku.dynamic_unroll(core, x, core.initial_state(3))[0]

    network = haiku.without_apply_rng(haiku.transform(unroll))
    parameters = network.init(jax.random.PRNGKey(1), inputs)
    weights = next(iter(parameters.values()))
    hidden = cell = np.zeros((3, 4))
    sigmoid = lambda x: 1 / (1 + np.exp(-x))  # noqa: E731
    for at, found in enumerate(jax.jit(network.apply)(parameters, inputs)):
        gates = np.concatenate([np.float64(inputs[at]), hidden], 1) @ np.float64(weights["w"]) + np.float64(
            weights["b"]
        )
        i, g, f, o = np.split(gates, 4, axis=1)
        cell = sigmoid(f + 1) * cell + sigmoid(i) * np.tanh(g)
        hidden = sigmoid(o) * np.tanh(cell)
        np.testing.assert_allclose(found, hidden, atol=1e-5)


def test_gradient_of_a_network() -> None:
    """The derivative in one direction is the difference quotient in it."""

    def network(x: jax.Array) -> jax.Array:
        x = haiku.BatchNorm(True, True, 0.9)(haiku.Conv2D(4, 3, stride=2)(x), True)
        return (jnp.tanh(haiku.Conv2DTranspose(3, 3, stride=2)(x)) ** 2).mean()

    inputs = jax.random.normal(jax.random.key(0), (3, 8, 8, 3))
    made = haiku.transform_with_state(network)
    parameters, state = made.init(jax.random.PRNGKey(1), inputs)
    loss = jax.jit(lambda p: made.apply(p, state, None, inputs)[0])
    direction = jax.tree.map(jnp.cos, parameters)
    moved = [loss(jax.tree.map(lambda p, d, s=s: p + s * d, parameters, direction)) for s in (0.01, -0.01)]
    products = jax.tree.map(lambda g, d: jnp.vdot(g, d), jax.grad(loss)(parameters), direction)
    np.testing.assert_allclose(sum(jax.tree.leaves(products)), (moved[0] - moved[1]) / 0.02, rtol=2e-2)
