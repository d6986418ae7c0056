"""Learning: recurrent and graph networks, an autoencoder, simulated worlds, Gaussian processes, sampling, clusters."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.program import add


def lstm_state(key: Any) -> Any:
    return jax.random.normal(key, (128 + 256, 4 * 256)) * 0.05, jax.random.normal(key, (100, 32, 128))


def lstm_gradient(weights: Any, x: Any) -> Any:
    def loss(weights: Any) -> Any:
        def cell(state: Any, x: Any) -> Any:
            h, c = state
            i, f, g, o = jnp.split(jnp.concatenate([x, h], -1) @ weights, 4, -1)
            c = jax.nn.sigmoid(f + 1) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        zeros = jnp.zeros((32, 256))
        return jnp.square(jax.lax.scan(cell, (zeros, zeros), x)[1]).mean()

    return jax.value_and_grad(loss)(weights)


NODES, EDGES = 10_000, 60_000


def graph_state(key: Any) -> Any:
    weights = [jax.random.normal(k, (2 * 64, 64)) * 0.1 for k in jax.random.split(key, 3)]
    ends = jax.random.randint(key, (2, EDGES), 0, NODES)
    return weights, jax.random.normal(key, (NODES, 64)), ends


def graph_gradient(weights: Any, nodes: Any, ends: Any) -> Any:
    def loss(weights: Any) -> Any:
        x = nodes
        for w in weights:
            messages = jax.nn.relu(jnp.concatenate([x[ends[0]], x[ends[1]]], -1) @ w)
            x = x + jax.ops.segment_sum(messages, ends[1], NODES) / 6
        return jnp.square(x).mean()

    return jax.value_and_grad(loss)(weights)


def autoencoder_state(key: Any) -> Any:
    sizes = ((784, 512), (512, 64), (32, 512), (512, 784))
    keys = jax.random.split(key, len(sizes))
    weights = [jax.random.normal(k, s) * s[0] ** -0.5 for k, s in zip(keys, sizes, strict=True)]
    return weights, jax.random.uniform(key, (256, 784)), key


def autoencoder_step(weights: Any, images: Any, key: Any) -> Any:
    def loss(weights: Any) -> Any:
        a, b, c, d = weights
        mean, deviation = jnp.split(jax.nn.relu(images @ a) @ b, 2, -1)
        code = mean + jnp.exp(deviation) * jax.random.normal(key, mean.shape)
        scores = jax.nn.relu(code @ c) @ d
        likelihood = images * jax.nn.log_sigmoid(scores) + (1 - images) * jax.nn.log_sigmoid(-scores)
        divergence = 0.5 * (jnp.exp(2 * deviation) + mean**2 - 1 - 2 * deviation)
        return divergence.sum(-1).mean() - likelihood.sum(-1).mean()

    value, gradient = jax.value_and_grad(loss)(weights)
    return value, [w - 1e-4 * g for w, g in zip(weights, gradient, strict=True)]


def rollout_state(key: Any) -> Any:
    a, b = jax.random.split(key)
    weights = jax.random.normal(a, (4, 32)), jax.random.normal(b, (32, 1)) * 0.2
    return weights, jax.random.uniform(key, (2048, 4), minval=-0.05, maxval=0.05)


def rollouts(weights: Any, starts: Any) -> Any:
    """Simulated cart-poles, for 200 steps under a policy."""

    def step(state: Any, _: Any) -> Any:
        x, v, angle, angular_speed = state
        force = 10 * jnp.tanh(jnp.tanh(state @ weights[0]) @ weights[1])[0]
        sine, cosine = jnp.sin(angle), jnp.cos(angle)
        push = (force + 0.05 * angular_speed**2 * sine) / 1.1
        swing = (9.8 * sine - cosine * push) / (0.5 * (4 / 3 - 0.1 * cosine**2 / 1.1))
        pull = push - 0.05 * swing * cosine / 1.1
        new = jnp.stack([x + 0.02 * v, v + 0.02 * pull, angle + 0.02 * angular_speed, angular_speed + 0.02 * swing])
        return new, jnp.abs(angle) < 0.2

    return jax.vmap(lambda start: jax.lax.scan(step, start, None, 200)[1].sum())(starts)


def process_state(key: Any) -> Any:
    x = jax.random.uniform(key, (800, 3))
    return jnp.zeros(3), x, jnp.sin(6 * x.sum(-1))


def process_gradient(logs: Any, x: Any, y: Any) -> Any:
    """The likelihood of a Gaussian process, and its gradient along scales and noise."""

    def loss(logs: Any) -> Any:
        scale, height, noise = jnp.exp(logs)
        distances = jnp.square(x[:, None] - x[None]).sum(-1)
        matrix = height * jnp.exp(-distances / (0.1 * scale)) + (0.1 * noise) * jnp.eye(len(x))
        factor = jnp.linalg.cholesky(matrix)
        solved = jax.scipy.linalg.cho_solve((factor, True), y)
        return 0.5 * y @ solved + jnp.log(jnp.diagonal(factor)).sum()

    return jax.value_and_grad(loss)(logs)


def regression_state(key: Any) -> Any:
    x = jax.random.normal(key, (1000, 20))
    return jnp.zeros(20), x, (x.sum(-1) > 0).astype(jnp.float32), key


def hamiltonian(start: Any, x: Any, y: Any, key: Any) -> Any:
    """Twenty samples of a logistic regression by Hamiltonian Monte Carlo, 16 leaps each."""

    def energy(w: Any) -> Any:
        scores = x @ w
        return 0.5 * w @ w + (jax.nn.softplus(scores) - y * scores).sum()

    def sample(w: Any, key: Any) -> Any:
        first, second = jax.random.split(key)
        momentum = jax.random.normal(first, w.shape)

        def leap(state: Any, _: Any) -> Any:
            w, p = state
            p = p - 0.01 * jax.grad(energy)(w)
            w = w + 0.02 * p
            return (w, p - 0.01 * jax.grad(energy)(w)), None

        (proposed, end), _ = jax.lax.scan(leap, (w, momentum), None, 16)
        change = energy(w) + 0.5 * momentum @ momentum - energy(proposed) - 0.5 * end @ end
        w = jnp.where(jnp.log(jax.random.uniform(second)) < change, proposed, w)
        return w, w

    return jax.lax.scan(sample, start, jax.random.split(key, 20))[1]


def cluster(centres: Any, points: Any) -> Any:
    """Ten iterations of k-means."""

    def iterate(centres: Any, _: Any) -> Any:
        nearest = jnp.square(points[:, None] - centres[None]).sum(-1).argmin(-1)
        sums = jax.ops.segment_sum(points, nearest, len(centres))
        counts = jax.ops.segment_sum(jnp.ones(len(points)), nearest, len(centres))
        return sums / jnp.maximum(counts, 1)[:, None], None

    return jax.lax.scan(iterate, centres, None, 10)[0]


add("LSTM gradient", lstm_state, lstm_gradient)
add("GNN gradient", graph_state, graph_gradient)
add("variational autoencoder, training step", autoencoder_state, autoencoder_step)
add("rollouts", rollout_state, rollouts, tolerance=5e-2)
add("Gaussian process", process_state, process_gradient, tolerance=2e-2)
add("Hamiltonian Monte Carlo x 20", regression_state, hamiltonian, tolerance=5e-2)
add(
    "k-means",
    lambda key: (jax.random.normal(key, (16, 3)), jax.random.normal(jax.random.fold_in(key, 1), (100_000, 3))),
    cluster,
)
