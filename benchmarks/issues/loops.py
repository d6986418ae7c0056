"""Loops of many small operations, which cost XLA's CPU backend a dispatch each since its runtime of thunks."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.issues.issue import JAX, Issue, add

STEP = 0.025


def _gates(v: Any) -> Any:
    """Steady states and time constants of the three gates of a membrane at a voltage."""
    opening = jnp.stack([0.1 * (v + 40) / -jnp.expm1(-(v + 40) / 10), 0.07 * jnp.exp(-(v + 65) / 20),
                         0.01 * (v + 55) / -jnp.expm1(-(v + 55) / 10)])  # fmt: skip
    closing = jnp.stack(
        [4 * jnp.exp(-(v + 65) / 18), 1 / (1 + jnp.exp(-(v + 35) / 10)), 0.125 * jnp.exp(-(v + 65) / 80)]
    )
    return opening / (opening + closing), 1 / (opening + closing)


def neuron(conductances: Any, input: Any) -> Any:
    """The mean voltage of a cable of 16 compartments, and its gradient by conductances."""

    def step(state: Any, current: Any) -> Any:
        v, gates, (sodium, potassium) = *state, conductances
        steady, time = _gates(v)
        gates = steady + (gates - steady) * jnp.exp(-STEP / time)
        m, h, n = gates
        ends = jnp.concatenate([v[:1], v, v[-1:]])
        along = ends[2:] - 2 * v + ends[:-2]
        out = sodium * m**3 * h * (v - 50) + potassium * n**4 * (v + 77) + 0.3 * (v + 54.4)
        v = v + STEP * (along - out).at[0].add(current)
        return (v, gates), v[-1]

    def loss(_: Any) -> Any:
        start = jnp.full(16, -65.0)
        return jnp.square(jax.lax.scan(step, (start, _gates(start)[0]), input)[1]).mean()

    return jax.value_and_grad(loss)(conductances)


def quasiseparable(diagonal: Any, left: Any, right: Any, move: Any) -> Any:
    """The Cholesky factor of a matrix that a recurrence of order 3 describes."""

    def step(f: Any, row: Any) -> Any:
        d, p, q = row
        fp = f @ p
        c = jnp.sqrt(d - p @ fp)
        w = (q - move @ fp) / c
        return move @ f @ move.T + jnp.outer(w, w), (c, w)

    return jax.lax.scan(step, jnp.zeros((3, 3)), (diagonal, left, right))[1]


def quasiseparable_state(key: Any) -> Any:
    rows = 0.1 * jax.random.normal(key, (2, 2000, 3))
    return 2 + jax.random.uniform(key, (2000,)), *rows, 0.5 * jnp.eye(3) + 0.1


def network(states: Any, rates: Any, input: Any) -> Any:
    """The gradient through a scan that carries 60 numbers, each a leaf of its own."""
    names = list(states)

    def step(state: Any, u: Any) -> Any:
        new = {}
        for name, above in zip(names, [*names[1:], names[0]], strict=True):
            error = jnp.tanh(state[above]) - state[name]
            new[name] = state[name] + rates[name] * error / (1 + error * error) + 0.01 * u
        return new, new[names[0]]

    def loss(rates: Any) -> Any:
        return jnp.square(jax.lax.scan(step, states, input)[1]).sum()

    return jax.value_and_grad(loss)(rates)


def network_state(key: Any) -> Any:
    rows = jax.random.uniform(key, (2, 60))
    leaves = [{f"node{i}": row[i] for i in range(60)} for row in rows]
    return *leaves, jax.random.normal(key, (600,))


def first_past(values: Any, limit: Any) -> Any:
    """Follows a million numbers until the running maximum reaches a limit."""

    def proceed(state: Any) -> Any:
        return state[0] < limit

    def step(state: Any) -> Any:
        return jnp.maximum(state[0], values[state[1]]), state[1] + 1

    return jax.lax.while_loop(proceed, step, (values[0], 0))


def rows_of_a_scan(first: Any) -> Any:
    """The gradient through a scan that sets a row of its carried array from the row before."""
    count = 1000

    def step(rows: Any, i: Any) -> Any:
        return rows.at[i].set(jnp.sin(rows[i - 1])), None

    def loss(first: Any) -> Any:
        rows = jnp.zeros((count, 10, 10)).at[0].set(first)
        return jax.lax.scan(step, rows, jnp.arange(1, count))[0][-1].sum()

    return jax.grad(loss)(first)


add(
    Issue(
        JAX,
        26145,
        "a simulator of neurons, f64, runs 5 to 10 times slower since 0.4.32",
        "a cable of 16 compartments, 1,000 steps, with its gradient, f64",
    ),
    lambda key: (jnp.asarray([120.0, 36.0]), 10 + jax.random.normal(key, (1000,))),
    neuron,
    x64=True,
)
add(
    Issue(
        JAX,
        36799,
        "a scan that carries a 3 x 3 f64 matrix is 10 times slower since 0.4.33",
        "a quasiseparable Cholesky factorisation of 2,000 rows, f64",
    ),
    quasiseparable_state,
    quasiseparable,
    x64=True,
)
add(
    Issue(
        JAX,
        40150,
        "the gradient of a scan that carries many scalars is 60 times slower since 0.4.32",
        "the gradient through 600 steps of 60 coupled scalars",
    ),
    network_state,
    network,
)
add(
    Issue(
        JAX,
        25190,
        "a `while_loop` over an array is 20 times slower since 0.4.33",
        "a running maximum of a million numbers until it reaches a limit",
    ),
    lambda key: (jnp.arange(1 << 20) + jax.random.randint(key, (1 << 20,), 0, 9), jnp.int32((1 << 20) - 20)),
    first_past,
)
add(
    Issue(
        JAX,
        10197,
        "a scan that updates rows in place takes quadratic time in its gradient",
        "the gradient through 999 updates of one of 1,000 rows",
    ),
    lambda key: (jax.random.normal(key, (10, 10)),),
    rows_of_a_scan,
)
