"""Training in C: a network for handwritten digits, as a library with the functions init, step and predict.

python examples/c/digits.py && cd build/c && make && ./example     # digits.c has the training loop
"""

from __future__ import annotations

import shutil
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.datasets import load_digits

import hloom as hl

HERE, FOLDER = Path(__file__).parent, Path("build/c")
BATCH, TESTED, RATE = 64, 360, 0.2


def init(seed: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Returns the weights of two layers."""
    keys = jax.random.split(jax.random.key(seed))
    scaled = jax.nn.initializers.he_normal()
    return scaled(keys[0], (64, 48)), scaled(keys[1], (48, 10))


def scores(hidden: jax.Array, output: jax.Array, images: jax.Array) -> jax.Array:
    """Returns f32[batch,10] for images f32[batch,64] with ink from 0 to 1."""
    return jax.nn.relu(images @ hidden) @ output


def step(hidden: jax.Array, output: jax.Array, images: jax.Array, labels: jax.Array) -> tuple[jax.Array, ...]:
    """Returns the weights after a step of gradient descent, and the loss before it."""

    def loss(hidden: jax.Array, output: jax.Array) -> jax.Array:
        likelihoods = jax.nn.log_softmax(scores(hidden, output, images))
        return -jnp.take_along_axis(likelihoods, labels[:, None], axis=1).mean()

    value, (d_hidden, d_output) = jax.value_and_grad(loss, (0, 1))(hidden, output)
    return hidden - RATE * d_hidden, output - RATE * d_output, value


def predict(hidden: jax.Array, output: jax.Array, images: jax.Array) -> jax.Array:
    """Returns the digits of images as s32[batch]."""
    return scores(hidden, output, images).argmax(-1).astype(jnp.int32)


def modules() -> dict[str, hl.Module]:
    """Returns the three functions as modules."""

    def f32(*sizes: int) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(sizes, jnp.float32)

    weights = f32(64, 48), f32(48, 10)
    return {
        "init": hl.from_jax(init, np.uint32(0)),
        "step": hl.from_jax(step, *weights, f32(BATCH, 64), jax.ShapeDtypeStruct((BATCH,), jnp.int32)),
        "predict": hl.from_jax(predict, *weights, f32(TESTED, 64)),
    }


def data() -> tuple[np.ndarray, np.ndarray]:
    """Returns all images as f32[1797,64] and their labels; the last ones are for tests."""
    digits = load_digits()
    return (digits.data / 16).astype(np.float32), digits.target.astype(np.int32)


def main() -> None:
    """Writes the library, the data and the program in C."""
    hl.build(modules(), FOLDER, name="model")
    shutil.copy(HERE / "digits.c", FOLDER / "example.c")
    for name, array in zip(("images", "labels"), data(), strict=True):
        (FOLDER / f"{name}.bin").write_bytes(array.tobytes())


if __name__ == "__main__":
    main()
