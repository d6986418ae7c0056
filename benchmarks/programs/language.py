"""Transformers: GPT-2 small forward and one token at a time, the training of a smaller one, long attention, experts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.program import add


@dataclass(frozen=True)
class Config:
    layers: int
    heads: int
    width: int
    vocabulary: int
    length: int


SMALL = Config(12, 12, 768, 50257, 512)
TINY = Config(4, 4, 256, 1024, 128)


def parameters(key: Any, c: Config, dtype: Any = jnp.float32) -> dict[str, Any]:
    keys = iter(jax.random.split(key, 4 * c.layers + 2))

    def matrix(*sizes: int) -> Any:
        return (jax.random.normal(next(keys), sizes) * 0.02).astype(dtype)

    def norm() -> dict[str, Any]:
        return {"scale": jnp.ones(c.width, dtype), "shift": jnp.zeros(c.width, dtype)}

    layers = [
        {
            "before attention": norm(),
            "qkv": matrix(c.width, 3 * c.width),
            "out": matrix(c.width, c.width),
            "before mlp": norm(),
            "up": matrix(c.width, 4 * c.width),
            "down": matrix(4 * c.width, c.width),
        }
        for _ in range(c.layers)
    ]
    return {
        "tokens": matrix(c.vocabulary, c.width),
        "positions": matrix(1024, c.width),
        "layers": layers,
        "last": norm(),
    }


def normed(p: dict[str, Any], x: Any) -> Any:
    wide = x.astype(jnp.float32)
    wide = (wide - wide.mean(-1, keepdims=True)) * jax.lax.rsqrt(wide.var(-1, keepdims=True) + 1e-5)
    return (wide * p["scale"] + p["shift"]).astype(x.dtype)


def split_heads(x: Any, heads: int) -> Any:
    return x.reshape(*x.shape[:-1], heads, x.shape[-1] // heads).swapaxes(-2, -3)


def attend(qkv: tuple[Any, ...], mask: Any) -> Any:
    q, k, v = qkv
    scores = jnp.einsum("...qd,...kd->...qk", q, k) / q.shape[-1] ** 0.5
    weights = jax.nn.softmax(jnp.where(mask, scores, -1e9).astype(jnp.float32)).astype(q.dtype)
    out = jnp.einsum("...qk,...kd->...qd", weights, v).swapaxes(-2, -3)
    return out.reshape(*out.shape[:-2], -1)


def forward(p: dict[str, Any], tokens: Any, heads: int) -> Any:
    length = tokens.shape[-1]
    x = p["tokens"][tokens] + p["positions"][:length]
    mask = jnp.tril(jnp.ones((length, length), bool))
    for layer in p["layers"]:
        parts = jnp.split(normed(layer["before attention"], x) @ layer["qkv"], 3, -1)
        x += attend(tuple(split_heads(part, heads) for part in parts), mask) @ layer["out"]
        x += jax.nn.gelu(normed(layer["before mlp"], x) @ layer["up"]) @ layer["down"]
    return normed(p["last"], x) @ p["tokens"].T


def one_token(p: dict[str, Any], caches: Any, token: Any, position: Any, heads: int) -> Any:
    """The scores of the next token, and the updated caches of keys and values."""
    x = p["tokens"][token] + p["positions"][position]
    mask = jnp.arange(caches.shape[-2]) <= position
    made = []
    for layer, cache in zip(p["layers"], caches, strict=True):
        q, k, v = jnp.split(normed(layer["before attention"], x) @ layer["qkv"], 3)
        kv = jnp.stack([split_heads(k[None], heads), split_heads(v[None], heads)])
        cache = jax.lax.dynamic_update_slice(cache, kv, (0, 0, position, 0))
        made.append(cache)
        x += attend((split_heads(q[None], heads), cache[0], cache[1]), mask)[0] @ layer["out"]
        x += jax.nn.gelu(normed(layer["before mlp"], x) @ layer["up"]) @ layer["down"]
    return normed(p["last"], x) @ p["tokens"].T, jnp.stack(made)


def train(p: dict[str, Any], moments: Any, tokens: Any) -> Any:
    """A step of Adam."""

    def loss_of(p: dict[str, Any]) -> Any:
        scores = jax.nn.log_softmax(forward(p, tokens[:, :-1], TINY.heads))
        return -jnp.take_along_axis(scores, tokens[:, 1:, None], -1).mean()

    loss, gradient = jax.value_and_grad(loss_of)(p)
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, moments[0], gradient)
    second = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, moments[1], gradient)
    p = jax.tree.map(lambda w, m, v: w - 1e-3 * m / (jnp.sqrt(v) + 1e-8), p, first, second)
    return loss, p, (first, second)


def training_state(key: Any) -> Any:
    p = parameters(key, TINY)
    zeros = jax.tree.map(jnp.zeros_like, p)
    return p, (zeros, zeros), jax.random.randint(key, (8, TINY.length + 1), 0, TINY.vocabulary)


def expert_parameters(key: Any) -> Any:
    router, up, down, x = jax.random.split(key, 4)
    return (
        jax.random.normal(router, (512, 8)),
        jax.random.normal(up, (8, 512, 1024)) * 0.04,
        jax.random.normal(down, (8, 1024, 512)) * 0.03,
        jax.random.normal(x, (1024, 512)),
    )


def experts(router: Any, up: Any, down: Any, x: Any, capacity: int = 256) -> Any:
    """A mixture of experts: each token is routed to its two best experts, within their capacity."""
    weights, chosen = jax.lax.top_k(jax.nn.softmax(x @ router), 2)
    flat = chosen.reshape(-1)
    position = jnp.take_along_axis(jnp.cumsum(jax.nn.one_hot(flat, 8, dtype=jnp.int32), 0), flat[:, None], 1)[:, 0] - 1
    slots = jnp.where(position < capacity, flat * capacity + position, 8 * capacity)
    given = jnp.zeros((8 * capacity + 1, 512)).at[slots].set(jnp.repeat(x, 2, 0))[:-1].reshape(8, capacity, 512)
    made = jnp.einsum("ech,ehd->ecd", jax.nn.gelu(jnp.einsum("ecd,edh->ech", given, up)), down)
    found = jnp.concatenate([made.reshape(-1, 512), jnp.zeros((1, 512))])[slots].reshape(-1, 2, 512)
    return (found * weights[..., None]).sum(1)


def tokens_of(key: Any) -> Any:
    return jax.random.randint(key, (SMALL.length,), 0, SMALL.vocabulary)


add("GPT-2 small forward f32", lambda key: (parameters(key, SMALL), tokens_of(key)), lambda p, t: forward(p, t, 12))
add(
    "GPT-2 small forward bf16",
    lambda key: (parameters(key, SMALL, jnp.bfloat16), tokens_of(key)),
    lambda p, t: forward(p, t, 12),
    tolerance=5e-2,
)
add(
    "GPT-2 small, one token with a cache",
    lambda key: (
        parameters(key, SMALL),
        jax.random.normal(key, (12, 2, 12, 1024, 64)),
        jnp.asarray(11),
        jnp.asarray(500),
    ),
    lambda p, caches, token, position: one_token(p, caches, token, position, 12),
)
add("GPT training step, 4 layers", training_state, train, tolerance=2e-2)
add(
    "attention, 2048 tokens",
    lambda key: (jax.random.normal(key, (3, 8, 2048, 64)),),
    lambda qkv: attend(tuple(qkv), jnp.tril(jnp.ones((2048, 2048), bool))),
)
add("mixture of experts", expert_parameters, experts)
