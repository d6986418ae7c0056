"""Reports to libraries built on JAX, where JAX's or XLA's CPU backend was the cause."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.issues.issue import Issue, add

normal = jax.random.normal


def reactions(start: Any, rates: Any) -> Any:
    """An adaptive Runge-Kutta solution of a cycle of 12 reactions, with an embedded error estimate."""

    def rate(y: Any) -> Any:
        flow = rates * y / (1 + y)
        return jnp.roll(flow, 1) - flow + 0.1 * jnp.sin(y[::-1])

    def proceed(state: Any) -> Any:
        return state[1] < 20.0

    def step(state: Any) -> Any:
        y, t, dt = state
        k1 = rate(y)
        k2 = rate(y + dt / 2 * k1)
        k3 = rate(y + 3 * dt / 4 * k2)
        new = y + dt / 9 * (2 * k1 + 3 * k2 + 4 * k3)
        rough = y + dt * (7 / 24 * k1 + k2 / 4 + k3 / 3 + rate(new) / 8)
        error = jnp.abs((new - rough) / (1e-9 + 1e-9 * jnp.abs(new))).max()
        accepted = error < 1
        factor = jnp.clip(0.9 * error ** (-1 / 3), 0.2, 5.0)
        return jnp.where(accepted, new, y), jnp.where(accepted, t + dt, t), dt * factor

    return jax.lax.while_loop(proceed, step, (start, 0.0, 1e-3))[0]


def planets(positions: Any, speeds: Any, masses: Any) -> Any:
    """The last positions of three planets after 500 steps, f64, and the gradient of their sum by the masses."""

    def pull(x: Any, masses: Any) -> Any:
        apart = x[None] - x[:, None]
        square = (apart**2).sum(-1) + jnp.eye(len(x))
        return (masses[None, :, None] * apart / square[..., None] ** 1.5).sum(1)

    def step(state: Any, masses: Any) -> Any:
        x, v = state
        v = v + 0.005 * pull(x, masses)
        x = x + 0.01 * v
        return (x, v + 0.005 * pull(x, masses)), x

    def last(masses: Any) -> Any:
        x = jax.lax.scan(lambda state, _: step(state, masses), (positions, speeds), None, 500)[1]
        return jnp.square(x[-1]).sum(), x

    return jax.value_and_grad(last, has_aux=True)(masses)


def planet_state(key: Any) -> Any:
    bodies = jnp.asarray([[1.0, 0.0, 0.0], [0.0, 2.0, 0.1], [-3.0, 0.0, 0.2], [0.0, 0.0, 0.0]])
    speeds = jnp.asarray([[0.0, 1.0, 0.0], [-0.7, 0.0, 0.0], [0.0, -0.57, 0.0], [0.0, 0.0, 0.0]])
    return (
        bodies + 0.01 * normal(key, (4, 3)),
        speeds,
        jnp.asarray([1e-3, 2e-3, 1e-3, 1.0]),
    )


def posterior(weights: Any, x: Any, y: Any) -> Any:
    """The negative log density of a network of one hidden layer of 10, with normal weights."""
    hidden = jnp.tanh(x * weights[:10] + weights[10:20])
    out = hidden @ weights[20:30] + weights[30]
    return 0.5 * jnp.square(weights).sum() + 50 * jnp.square(out - y).mean()


def hamiltonian_chain(weights: Any, x: Any, y: Any, key: Any) -> Any:
    """Fifty samples, each by a random number of leapfrog steps in a `while_loop`."""
    slope = jax.grad(posterior)

    def leap(state: Any) -> Any:
        q, p, left = state
        p = p - 0.005 * slope(q, x, y)
        q = q + 0.01 * p
        return q, p - 0.005 * slope(q, x, y), left - 1

    def energy(q: Any, p: Any) -> Any:
        return posterior(q, x, y) + 0.5 * jnp.square(p).sum()

    def sample(q: Any, key: Any) -> Any:
        momentum, count, coin = jax.random.split(key, 3)
        p = normal(momentum, q.shape)
        moved = jax.lax.while_loop(lambda s: s[2] > 0, leap, (q, p, jax.random.randint(count, (), 5, 64)))
        accepted = jnp.log(jax.random.uniform(coin)) < energy(q, p) - energy(moved[0], moved[1])
        q = jnp.where(accepted, moved[0], q)
        return q, q

    return jax.lax.scan(sample, weights, jax.random.split(key, 50))[1]


def chain_state(key: Any) -> Any:
    x = jnp.linspace(-1, 1, 100)[:, None]
    return 0.3 * normal(key, (31,)), x, 3 * x[:, 0] + 0.1 * normal(key, (100,)), key


def epidemic(susceptible: Any, infected: Any, key: Any) -> Any:
    """Particles of an epidemic: gamma noise, two binomial draws and a Poisson draw for each of 20 steps."""

    def step(state: Any, key: Any) -> Any:
        s, i = state
        noise, new, healed, arrived = jax.random.split(key, 4)
        force = 0.5 * jax.random.gamma(noise, 20.0, s.shape) / 20 * i / (s + i + 1)
        caught = jax.random.binomial(new, s, 1 - jnp.exp(-force))
        well = jax.random.binomial(healed, i, 0.2)
        return (
            s - caught,
            i + caught - well + jax.random.poisson(arrived, 2.0, s.shape),
        ), i.mean()

    return jax.lax.scan(step, (susceptible, infected), jax.random.split(key, 20))[1]


def chains(weights: Any, x: Any, y: Any) -> Any:
    """A hundred leapfrog steps of eight chains for a logistic regression."""

    def density(w: Any) -> Any:
        return jax.nn.softplus(-y * (x @ w)).sum() + 0.5 * jnp.square(w).sum()

    def leap(state: Any, _: Any) -> Any:
        q, p = state
        p = p - 0.01 * jax.grad(density)(q)
        return (q + 0.02 * p, p), density(q)

    return jax.vmap(lambda q: jax.lax.scan(leap, (q, q), None, 100))(weights)


def legendre(values: Any) -> Any:
    """Spherical harmonic coefficients: FFTs along circles, then a recurrence over degrees for all orders, f64."""
    degrees, rings = 64, values.shape[0]
    angles = (jnp.arange(rings) + 0.5) * jnp.pi / rings
    cosine, sine = jnp.cos(angles), jnp.sin(angles)
    spectra = jnp.fft.fft(values, axis=1)[:, :degrees] * (sine * jnp.pi / rings)[:, None]
    orders = jnp.arange(degrees)
    factors = jnp.concatenate([jnp.ones(1), jnp.cumprod(-jnp.sqrt((2 * orders[1:] + 1) / (2 * orders[1:])))])
    diagonal = factors * sine[:, None] ** orders

    def step(state: Any, degree: Any) -> Any:
        before, last = state
        square = jnp.maximum(degree**2 - orders**2, 1)
        a = jnp.sqrt((4 * degree**2 - 1) / square)
        b = jnp.sqrt(jnp.maximum((degree - 1) ** 2 - orders**2, 0) / jnp.maximum(4 * (degree - 1) ** 2 - 1, 1))
        new = a * (cosine[:, None] * last - b * before)
        new = jnp.where(orders < degree, new, jnp.where(orders == degree, diagonal, 0.0))
        return (last, new), (new * spectra).sum(0)

    first = jnp.where(orders == 0, diagonal, 0.0)
    return jax.lax.scan(step, (jnp.zeros_like(first), first), jnp.arange(1.0, degrees))[1]


add(
    Issue(
        "patrick-kidger/diffrax",
        615,
        "a model of reactions takes 700 s instead of 36 with newer versions",
        "an adaptive solution of a cycle of 12 reactions, f64",
    ),
    lambda key: (jax.random.uniform(key, (12,)), 1 + jax.random.uniform(key, (12,))),
    reactions,
    x64=True,
)
add(
    Issue(
        "kemasuda/jnkepler",
        30,
        "the gradient of an integration of orbits takes 5 times as long with the runtime of thunks",
        "500 steps of three planets with a gradient, f64",
    ),
    planet_state,
    planets,
    x64=True,
)
add(
    Issue(
        "pyro-ppl/numpyro",
        1867,
        "sampling of a small Bayesian network takes 3 times as long with 0.4.33",
        "50 samples of a network of 31 weights by Hamiltonian dynamics",
    ),
    chain_state,
    hamiltonian_chain,
    tolerance=5e-2,
)
add(
    Issue(
        "pypomp/pypomp",
        52,
        "random draws take 90 % of the time of epidemic models",
        "1,000 particles of an epidemic, 20 steps of gamma, binomial and Poisson draws",
    ),
    lambda key: (jnp.full(1000, 5000.0), jnp.full(1000, 50.0), key),
    epidemic,
    tolerance=5e-2,
)
add(
    Issue(
        "blackjax-devs/blackjax",
        746,
        "samplers take twice as long since 0.4.34",
        "100 leapfrog steps of eight chains, a regression of 1,000 x 10",
    ),
    lambda key: (
        0.1 * normal(key, (8, 10)),
        normal(key, (1000, 10)),
        jnp.sign(normal(key, (1000,))),
    ),
    chains,
    tolerance=1e-2,
)
add(
    Issue(
        "astro-informatics/s2fft",
        192,
        "spherical harmonics take ten times as long as with healpy",
        "coefficients of 64 degrees from 128 x 256 points, by recurrence, f64",
    ),
    lambda key: (normal(key, (128, 256)),),
    legendre,
    x64=True,
)
