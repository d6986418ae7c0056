"""Random functions of a row, and their results for batches of rows: `jax.vmap` along any axis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import hloom as hl

SIZES = (33, 8, 7, 3, 2, 1)
Function = Callable[[Any], Any]


class Draws:
    """Draws a function of an array, and the shape and type of the array."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.dtype = self.pick([np.float32, np.float32, np.float32, jnp.bfloat16, np.float16])

    def pick(self, options: Any) -> Any:
        return options[self.rng.integers(len(options))]

    def size(self, most: int) -> int:
        """A size, of which small ones, whole vectors and their neighbours are as likely as others."""
        return int(min(most, self.pick([1, 2, 5, 8, 9, 16, 31, 64, 65, 128, 200, int(self.rng.integers(1, most + 1))])))

    def array(self, *sizes: int) -> Any:
        return jnp.asarray(self.rng.standard_normal(sizes), self.dtype)

    def function(self) -> tuple[str, Function, tuple[int, ...]]:
        """A function, its name, and the shape of its argument."""
        name = self.pick(sorted(n for n in dir(self) if n.startswith("draw_")))
        function, sizes = getattr(self, name)()
        return name, function, sizes

    def draw_dense(self) -> tuple[Function, tuple[int, ...]]:
        k, n = self.size(700), self.size(300)
        w, v = self.array(k, n), self.array(n, self.size(20))
        if self.rng.random() < 0.5:
            w = self.array(n, k).T
        if self.rng.random() < 0.5:
            return lambda x: x @ w, (k,)
        return lambda x: jax.nn.gelu(x @ w) @ v, (k,)

    def draw_matrices(self) -> tuple[Function, tuple[int, ...]]:
        m, k = self.size(40), self.size(300)
        w = self.array(k, self.size(40))
        shared = self.rng.random() < 0.5
        return lambda x: x @ (w if shared else x.T), (m, k)

    def draw_complex(self) -> tuple[Function, tuple[int, ...]]:
        self.dtype = np.float32
        k, n = self.size(100), self.size(40)
        w = self.array(k, n) + 1j * self.array(k, n)
        return lambda x: _parts((x + 1j * x[::-1]) @ w), (k,)

    def draw_reduction(self) -> tuple[Function, tuple[int, ...]]:
        sizes = tuple(self.size(m) for m in self.pick([(3000,), (200, 60), (40, 30, 20)]))
        axes = tuple(int(d) for d in range(len(sizes)) if self.rng.random() < 0.6)
        function = self.pick([jnp.sum, jnp.mean, jnp.var, jax.nn.logsumexp, lambda x, a: jnp.prod(1 + x / 64, a)])
        return lambda x: function(x, axes), sizes

    def draw_normalisation(self) -> tuple[Function, tuple[int, ...]]:
        sizes, axis = (self.size(50), self.size(900)), self.pick([-1, 0])
        scale = self.array(*sizes)

        def layer_norm(x: Any) -> Any:
            return (x - x.mean(axis, keepdims=True)) * jax.lax.rsqrt(x.var(axis, keepdims=True) + 1e-5) * scale

        return self.pick([lambda x: jax.nn.softmax(x, axis), layer_norm, lambda x: jax.nn.log_softmax(x, axis)]), sizes

    def draw_attention(self) -> tuple[Function, tuple[int, ...]]:
        length, heads, width = self.size(70), self.size(4), self.size(32)

        def attention(x: Any) -> Any:
            scores = jnp.einsum("qhd,khd->hqk", x, x) / width**0.5
            scores = jnp.where(jnp.tri(length, dtype=bool), scores, -1e9)
            return jnp.einsum("hqk,khd->qhd", jax.nn.softmax(scores), x)

        gradient = jax.grad(lambda x: attention(x).astype(jnp.float32).sum())
        return gradient if self.rng.random() < 0.3 else attention, (length, heads, width)

    def draw_convolution(self) -> tuple[Function, tuple[int, ...]]:
        groups = self.pick([1, 1, 1, 2, 8])
        channels, features = groups * self.pick([1, 3, 8, 40]), groups * self.pick([1, 2, 16, 40])
        side, window = self.size(16), self.pick([1, 3, 3, 5])
        kernel = self.array(window, window, channels // groups, features)
        stride, layout = self.pick([1, 1, 2]), self.pick(["NHWC", "NCHW"])
        sizes = (side, side, channels) if layout == "NHWC" else (channels, side, side)

        def convolution(x: Any) -> Any:
            dimensions = (layout, "HWIO", layout)
            result = jax.lax.conv_general_dilated(
                x[None], kernel, (stride, stride), "SAME", dimension_numbers=dimensions, feature_group_count=groups
            )
            return result[0]

        return convolution, sizes

    def draw_running(self) -> tuple[Function, tuple[int, ...]]:
        sizes = (self.size(2000),) if self.rng.random() < 0.5 else (self.size(60), self.size(60))
        axis = int(self.rng.integers(len(sizes)))
        function = self.pick([jnp.cumsum, jnp.cumprod, jax.lax.cumlogsumexp])
        return lambda x: function(x, axis), sizes

    def draw_fourier(self) -> tuple[Function, tuple[int, ...]]:
        self.dtype = np.float32
        function = self.pick([jnp.fft.fft, jnp.fft.rfft])
        return lambda x: _parts(function(x)), (self.size(3000),)

    def draw_factorisation(self) -> tuple[Function, tuple[int, ...]]:
        self.dtype, n = np.float32, self.size(24)

        def factor(x: Any) -> Any:
            return jnp.linalg.cholesky(x @ x.T + n * jnp.eye(n, dtype=x.dtype))

        def solve(x: Any) -> Any:
            lower = jnp.tril(x) + n * jnp.eye(n, dtype=x.dtype)
            return jax.scipy.linalg.solve_triangular(lower, x[:, :2], lower=True)

        return self.pick([factor, solve]), (n, n)

    def draw_recurrence(self) -> tuple[Function, tuple[int, ...]]:
        steps, width = self.size(12), self.size(70)
        w = self.array(width, width) / width**0.5
        return lambda x: jax.lax.scan(lambda h, row: (jnp.tanh(h @ w + row), h), x[0], x)[0], (steps, width)


def _parts(x: Any) -> Any:
    return jnp.stack([x.real, x.imag], -1)


def differing(seed: int, sizes: tuple[int, ...] = SIZES, batch_invariant: bool = True) -> str:
    """Names the sizes of a batch in which a row of a random function's result is other bits than in the largest."""
    draws = Draws(seed)
    name, function, row = draws.function()
    axis = int(draws.rng.integers(len(row) + 1)) if draws.rng.random() < 0.3 else 0
    rows = draws.array(max(sizes), *row)
    batched = jax.jit(jax.vmap(function, in_axes=axis))
    expected, wrong = None, []
    for size in sizes:
        argument = np.moveaxis(np.asarray(rows[:size]), 0, axis)
        run = hl.compile(hl.from_jax(batched, argument), batch_invariant=batch_invariant)
        results = np.asarray(run(np.ascontiguousarray(argument)))
        expected = results if expected is None else expected
        if results.tobytes() != expected[:size].tobytes():
            wrong.append(size)
    return f"seed {seed}, {name}{row} {np.dtype(draws.dtype).name} along {axis}: {wrong}" if wrong else ""
