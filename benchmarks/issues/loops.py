"""Loops of many small operations, which cost XLA's CPU backend a dispatch each since its runtime of thunks."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.issues.issue import JAX, XLA, Issue, add

STEP = 0.025


def _gates(v: Any) -> Any:
    """Steady states and time constants of the three gates of a membrane at a voltage."""
    opening = jnp.stack([0.1 * (v + 40) / -jnp.expm1(-(v + 40) / 10), 0.07 * jnp.exp(-(v + 65) / 20),
                         0.01 * (v + 55) / -jnp.expm1(-(v + 55) / 10)])  # fmt: skip
    closing = jnp.stack(
        [
            4 * jnp.exp(-(v + 65) / 18),
            1 / (1 + jnp.exp(-(v + 35) / 10)),
            0.125 * jnp.exp(-(v + 65) / 80),
        ]
    )
    return opening / (opening + closing), 1 / (opening + closing)


def neuron(conductances: Any, input: Any) -> Any:
    """The mean voltage of a cable of 16 compartments, and its gradient by conductances."""

    def step(state: Any, current: Any) -> Any:
        (v, gates), (sodium, potassium) = state, conductances
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


JOINTS = 20


def mass_matrix(angles: Any, masses: Any) -> Any:
    """The mass matrix of a chain of 20 joints, f64: positions by products of 4 x 4 matrices, Jacobians by vectors."""

    def rotation(angle: Any) -> Any:
        c, s = jnp.cos(angle), jnp.sin(angle)
        return jnp.asarray(
            [
                [c, -s, 0.0, 0.3],
                [s, c, 0.0, 0.0],
                [0.0, 0.0, 1.0, 0.1],
                [0.0, 0.0, 0.0, 1.0],
            ]
        )

    frames = [rotation(angles[0])]
    for i in range(1, JOINTS):
        twist = jnp.asarray([[1.0, 0, 0, 0], [0, 0, -1, 0], [0, 1, 0, 0], [0, 0, 0, 1]]) if i % 2 else jnp.eye(4)
        frames.append(frames[-1] @ twist @ rotation(angles[i]))
    origins, axes = (jnp.stack([frame[:3, column] for frame in frames]) for column in (3, 2))
    total = jnp.zeros((JOINTS, JOINTS))
    for i in range(JOINTS):
        before = (jnp.arange(JOINTS) <= i)[:, None]
        jacobian = jnp.where(before, jnp.cross(axes, origins[i] - origins), 0.0)
        total = total + masses[i] * (jacobian @ jacobian.T + 0.1 * jnp.where(before, axes, 0.0) @ axes.T)
    return total


def elements_of_a_loop(x: Any) -> Any:
    """Sets one of 10,000 elements in each of as many iterations."""
    return jax.lax.fori_loop(1, len(x), lambda i, x: x.at[i].set(0.5 * x[i - 1] + x[i]), x)


def rows_of_a_loop(table: Any, rows: Any) -> Any:
    """Writes a short row into a table of 100,000 rows in each of 1,000 iterations."""

    def step(i: Any, table: Any) -> Any:
        return jax.lax.dynamic_update_slice(table, rows[i][None] + table[0], (7 * i + 1, 0))

    return jax.lax.fori_loop(0, len(rows), step, table)


def seldom_updated(weights: Any, inputs: Any) -> Any:
    """Updates four matrices in one of eight steps, and returns them unchanged in the others."""

    def step(weights: Any, indexed: Any) -> Any:
        i, x = indexed

        def update(weights: Any) -> Any:
            return [w + 0.01 * jnp.outer(x, x) for w in weights]

        weights = jax.lax.cond(i % 8 == 0, update, lambda weights: weights, weights)
        return weights, weights[0][0] @ x

    return jax.lax.scan(step, weights, (jnp.arange(len(inputs)), inputs))


def tridiagonal(lower: Any, diagonal: Any, upper: Any, right: Any) -> Any:
    """Solves 10,000 tridiagonal systems of 100 equations by a scan down and a scan up."""

    def down(state: Any, row: Any) -> Any:
        (c, d), (low, middle, up, r) = state, row
        scale = 1 / (middle - low * c)
        state = up * scale, (r - low * d) * scale
        return state, state

    def up(x: Any, row: Any) -> Any:
        x = row[1] - row[0] * x
        return x, x

    zeros = jnp.zeros_like(right[0])
    rows = jax.lax.scan(down, (zeros, zeros), (lower, diagonal, upper, right))[1]
    return jax.lax.scan(up, zeros, rows, reverse=True)[1]


def diagonals(key: Any) -> Any:
    lower, upper, right, diagonal = jax.random.uniform(key, (4, 100, 10_000))
    return lower, 2 + diagonal, upper, right


def popped(queue: Any, starts: Any) -> Any:
    """Takes 2,000 elements out of a queue, each time moving the 100 that follow forward by one."""

    def step(queue: Any, start: Any) -> Any:
        moved = jax.lax.dynamic_slice(queue, (start + 1,), (100,))
        return jax.lax.dynamic_update_slice(queue, moved, (start,)), queue[start]

    return jax.lax.scan(step, queue, starts)


def restarts(start: Any) -> Any:
    """A thousand draws, each followed by a short `while_loop` from the drawn number to a limit."""

    def step(i: Any, state: Any) -> Any:
        t, key = state
        key, drawn = jax.random.split(key)
        y = jax.random.uniform(drawn)
        return jax.lax.while_loop(lambda s: s[1] < 2, lambda s: (s[0] + 0.1, s[1] + 0.1), (t, y))[0], key

    return jax.lax.fori_loop(0, 1000, step, (0.0, start))[0]


def small_products(x: Any) -> Any:
    """Gradients of 50 unrolled products of vectors of two elements, for two rows."""

    def total(row: Any) -> Any:
        return sum((row @ jnp.asarray([i, i + 1.0])) * row[0] for i in range(50))

    return jax.vmap(jax.grad(total))(x)


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
    lambda key: (
        jnp.arange(1 << 20) + jax.random.randint(key, (1 << 20,), 0, 9),
        jnp.int32((1 << 20) - 20),
    ),
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
add(
    Issue(
        JAX,
        26021,
        "the mass matrix of a robot, f64, takes 2 to 3 times as long since 0.4.32",
        "the mass matrix of a chain of 20 joints, unrolled, f64",
    ),
    lambda key: tuple(jax.random.uniform(key, (2, JOINTS))),
    mass_matrix,
    x64=True,
)
add(
    Issue(
        JAX,
        1034,
        "a loop that updates one element takes time in proportion to the array",
        "one of 10,000 elements set in each iteration of a `fori_loop`",
    ),
    lambda key: (jax.random.normal(key, (10_000,)),),
    elements_of_a_loop,
)
add(
    Issue(
        JAX,
        40101,
        "a short row written in a loop rewrites the whole buffer with 0.11.1",
        "1,000 rows of 56 numbers written into a table of 100,000 rows",
    ),
    lambda key: (
        jax.random.normal(key, (100_000, 56)),
        jax.random.normal(key, (1000, 56)),
    ),
    rows_of_a_loop,
)
add(
    Issue(
        JAX,
        38145,
        "a scan copies everything it carries if a `cond` may return it unchanged",
        "800 steps that update four matrices of 128 x 128 in one of eight",
    ),
    lambda key: (
        list(jax.random.normal(key, (4, 128, 128))),
        jax.random.normal(key, (800, 128)),
    ),
    seldom_updated,
)
add(
    Issue(
        JAX,
        17845,
        "a scan that moves a slice of its carried array copies the array",
        "2,000 elements taken out of a queue of 100,000",
    ),
    lambda key: (
        jax.random.normal(key, (100_000,)),
        jax.random.randint(key, (2000,), 0, 99_000),
    ),
    popped,
)
add(
    Issue(
        JAX,
        2491,
        "scans that solve tridiagonal systems are slower than expected",
        "10,000 tridiagonal systems of 100 equations, by two scans",
    ),
    diagonals,
    tridiagonal,
)
add(
    Issue(
        JAX,
        26616,
        "nested `while` loops with random draws are slower with the runtime of thunks",
        "1,000 draws, each followed by a short `while_loop`",
    ),
    lambda key: (key,),
    restarts,
)
add(
    Issue(
        XLA,
        5875,
        "gradients of unrolled small products take 38 times as long since products go to a library",
        "gradients of 50 products of vectors of two elements",
    ),
    lambda key: (jax.random.normal(key, (2, 2)),),
    small_products,
)
