"""A small vision transformer, with Flax's linen, that learns handwritten digits in a few seconds: see digits.py."""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp

from digits import train

WIDTH, HEADS, LAYERS, PATCH = 64, 4, 2, 2


class Block(nn.Module):
    """Attention, then a perceptron, both with pre-normalisation and a residual connection."""

    @nn.compact
    def __call__(self, x: jax.Array, training: bool) -> jax.Array:
        attention = nn.MultiHeadDotProductAttention(HEADS, dropout_rate=0.1, deterministic=not training)
        x = x + attention(nn.LayerNorm()(x))
        hidden = nn.gelu(nn.Dense(4 * WIDTH)(nn.LayerNorm()(x)))
        return x + nn.Dropout(0.1, deterministic=not training)(nn.Dense(WIDTH)(hidden))


class Transformer(nn.Module):
    """A transformer whose tokens are patches of an image; their mean gives the logits."""

    @nn.compact
    def __call__(self, images: jax.Array, training: bool) -> jax.Array:
        n, side = images.shape[0], images.shape[1] // PATCH
        patches = images.reshape(n, side, PATCH, side, PATCH).swapaxes(2, 3).reshape(n, side * side, PATCH * PATCH)
        positions = self.param("positions", nn.initializers.normal(0.3), (side * side, WIDTH))
        x = nn.Dense(WIDTH)(patches) + positions
        for _ in range(LAYERS):
            x = Block()(x, training)
        return nn.Dense(10)(nn.LayerNorm()(x).mean(axis=1))


def apply(parameters: dict, images: jax.Array, key: jax.Array | None) -> jax.Array:
    return Transformer().apply(parameters, images, key is not None, rngs=None if key is None else {"dropout": key})


if __name__ == "__main__":
    train(Transformer().init(jax.random.key(0), jnp.zeros((1, 8, 8)), False), apply, epochs=20, rate=3e-3)
