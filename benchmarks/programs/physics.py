"""Simulations: a stencil, spectral Navier-Stokes, molecular dynamics, chains of links, differential equations."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental.ode import odeint

from benchmarks.program import add


def diffuse(field: Any) -> Any:
    """Fifty steps of heat on a square with fixed edges."""

    def step(_: int, u: Any) -> Any:
        inner = u[1:-1, 1:-1] + 0.2 * (u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4 * u[1:-1, 1:-1])
        return u.at[1:-1, 1:-1].set(inner)

    return jax.lax.fori_loop(0, 50, step, field)


def flow(vorticity: Any) -> Any:
    """Twenty steps of a two-dimensional flow, derivatives by Fourier transforms."""
    n = vorticity.shape[0]
    x, y = jnp.meshgrid(jnp.fft.fftfreq(n, 1 / n), jnp.fft.rfftfreq(n, 1 / n), indexing="ij")
    square = x**2 + y**2
    inverse = jnp.where(square > 0, 1 / jnp.maximum(square, 1), 0)
    kept = (jnp.abs(x) < n / 3) & (jnp.abs(y) < n / 3)

    def rate(w: Any) -> Any:
        stream = w * inverse
        spectra = 1j * y * stream, -1j * x * stream, 1j * x * w, 1j * y * w
        u, v, along, across = map(jnp.fft.irfft2, spectra)
        return -1e-3 * square * w - kept * jnp.fft.rfft2(u * along + v * across)

    def step(_: int, w: Any) -> Any:
        half = w + 0.005 * rate(w)
        return w + 0.01 * rate(half)

    return jnp.fft.irfft2(jax.lax.fori_loop(0, 20, step, jnp.fft.rfft2(vorticity)))


def particles(key: Any) -> Any:
    grid = jnp.stack(jnp.meshgrid(*[jnp.arange(10.0)] * 3), -1).reshape(-1, 3) * 1.2
    return grid, 0.1 * jax.random.normal(key, grid.shape)


def molecules(positions: Any, speeds: Any, box: float = 12.0) -> Any:
    """Ten steps of Lennard-Jones particles, all pairs."""

    def forces(x: Any) -> Any:
        apart = x[:, None] - x[None]
        apart = apart - box * jnp.round(apart / box)
        square = (apart**2).sum(-1) + jnp.eye(len(x))
        near = (square < 9.0) & ~jnp.eye(len(x), dtype=bool)
        sixth = (1 / square) ** 3
        size = jnp.where(near, 24 * (2 * sixth**2 - sixth) / square, 0.0)
        return (size[..., None] * apart).sum(1)

    def step(state: Any, _: Any) -> Any:
        x, v, f = state
        v = v + 0.0025 * f
        x = x + 0.005 * v
        f = forces(x)
        return (x, v + 0.0025 * f, f), (v**2).sum()

    (x, v, _), energies = jax.lax.scan(step, (positions, speeds, forces(positions)), None, 10)
    return x, v, energies


LINKS = 8


def positions(angles: Any) -> Any:
    along = jnp.cumsum(angles)
    return jnp.cumsum(jnp.stack([jnp.sin(along), -jnp.cos(along)], -1), 0)


def swing(angles: Any, speeds: Any) -> Any:
    """Chains of links under gravity: the mass matrix by derivatives, solved at each of ten steps."""

    def rate(q: Any, v: Any) -> Any:
        jacobian = jax.jacfwd(positions)(q)
        mass = jnp.einsum("lci,lcj->ij", jacobian, jacobian) + 1e-3 * jnp.eye(LINKS)
        bias = jax.jvp(lambda q: jnp.einsum("lci,i->lc", jax.jacfwd(positions)(q), v), (q,), (v,))[1]
        force = -jnp.einsum("lci,lc->i", jacobian, bias + jnp.asarray([0.0, 9.8])) - 0.1 * v
        return jnp.linalg.solve(mass, force)

    def step(state: Any, _: Any) -> Any:
        q, v = state
        v = v + 0.002 * rate(q, v)
        return (q + 0.002 * v, v), None

    return jax.vmap(lambda q, v: jax.lax.scan(step, (q, v), None, 10)[0])(angles, speeds)


def predators(start: Any, rates: Any) -> Any:
    """An adaptive solver's solution and its gradient by the adjoint equation."""
    times = jnp.linspace(0.0, 10.0, 20)

    def rate(y: Any, t: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
        return jnp.stack([a * y[0] - b * y[0] * y[1], -c * y[1] + d * y[0] * y[1]])

    def loss(rates: Any) -> Any:
        return jnp.square(odeint(rate, start, times, *rates)).mean()

    return jax.value_and_grad(loss)(rates)


def tracked(key: Any) -> Any:
    return (jnp.cumsum(jax.random.normal(key, (64, 500, 2)), 1),)


def kalman(measured: Any) -> Any:
    """A filter for position and speed along 64 paths of 500 points."""
    move = jnp.eye(4).at[0, 2].set(1.0).at[1, 3].set(1.0)
    see = jnp.eye(2, 4)

    def step(state: Any, z: Any) -> Any:
        mean, spread = state
        mean, spread = move @ mean, move @ spread @ move.T + 0.01 * jnp.eye(4)
        innovation = see @ spread @ see.T + jnp.eye(2)
        gain = jnp.linalg.solve(innovation, see @ spread).T
        mean = mean + gain @ (z - see @ mean)
        return (mean, spread - gain @ see @ spread), mean

    return jax.vmap(lambda path: jax.lax.scan(step, (jnp.zeros(4), jnp.eye(4)), path)[1])(measured)


add("stencil", lambda key: (jax.random.uniform(key, (1024, 1024)),), diffuse)
add("spectral Navier-Stokes", lambda key: (jax.random.normal(key, (256, 256)),), flow)
add("Lennard-Jones molecular dynamics, all pairs", particles, molecules, tolerance=2e-2)
add(
    "chains of links x 64",
    lambda key: tuple(0.3 * jax.random.normal(k, (64, LINKS)) for k in jax.random.split(key)),
    swing,
    tolerance=2e-2,
)
add(
    "differential equation, solved with its gradient",
    lambda key: (jnp.asarray([10.0, 5.0]), jnp.asarray([1.1, 0.4, 0.4, 0.1])),
    predators,
    tolerance=2e-2,
)
add("Kalman filters", tracked, kalman)
