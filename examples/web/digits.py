"""Handwritten digits in the browser: trains a network on hloom, and builds a page on which one draws with the mouse.

JAX_PLATFORMS=hloom python examples/web/digits.py     # writes build/digits/index.html
"""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import hloom as hl
from hloom.aot import single_page

HERE = Path(__file__).parent
STEPS, BATCH, RATE = 2000, 128, 0.05

Weights = dict[str, jax.Array]


def initial(key: jax.Array) -> Weights:
    """Returns the weights of a convolution and two layers."""
    keys = jax.random.split(key, 3)
    scaled = jax.nn.initializers.he_normal()
    return {
        "filters": scaled(keys[0], (3, 3, 1, 24)),
        "hidden": scaled(keys[1], (4 * 4 * 24, 64)),
        "output": scaled(keys[2], (64, 10)),
        "bias": jnp.zeros(64),
    }


def logits(weights: Weights, images: jax.Array) -> jax.Array:
    """Returns f32[batch,10] for images f32[batch,8,8] with ink from 0 to 1."""
    features = jax.nn.relu(
        jax.lax.conv_general_dilated(
            images[..., None], weights["filters"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
    )
    pooled = jax.lax.reduce_window(features, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    hidden = jax.nn.relu(pooled.reshape(len(images), -1) @ weights["hidden"] + weights["bias"])
    return hidden @ weights["output"]


def trained() -> Weights:
    """Trains on scikit-learn's digits, shifted and scaled at random as people draw them."""
    data = load_digits()
    images, test_images, labels, test_labels = train_test_split(
        (data.images / 16).astype(np.float32), data.target, test_size=0.2, random_state=0
    )

    @jax.jit
    def step(weights: Weights, velocity: Weights, images: jax.Array, labels: jax.Array) -> tuple[Weights, Weights]:
        def loss(weights: Weights) -> jax.Array:
            scores = jax.nn.log_softmax(logits(weights, images))
            return -jnp.take_along_axis(scores, labels[:, None], axis=1).mean()

        velocity = jax.tree.map(lambda v, g: 0.9 * v - RATE * g, velocity, jax.grad(loss)(weights))
        return jax.tree.map(jnp.add, weights, velocity), velocity

    rng, weights = np.random.default_rng(0), initial(jax.random.key(0))
    velocity = jax.tree.map(jnp.zeros_like, weights)
    for _ in range(STEPS):
        batch = rng.integers(len(images), size=BATCH)
        shifted = np.roll(images[batch], tuple(rng.integers(-1, 2, size=2)), axis=(1, 2))
        weights, velocity = step(weights, velocity, shifted * np.float32(rng.uniform(0.7, 1.0)), labels[batch])
    accuracy = float((logits(weights, test_images).argmax(-1) == test_labels).mean())
    print(f"{accuracy:.1%} of {len(test_images)} test images are recognised")
    return weights


def main() -> None:
    """Trains, and builds the page; the weights are constants of the program."""
    weights = jax.tree.map(np.asarray, trained())

    def predict(image: jax.Array) -> jax.Array:
        return jax.nn.softmax(logits(weights, image[None]))[0]

    module = hl.from_jax(predict, jax.ShapeDtypeStruct((8, 8), jnp.float32))
    library = hl.build({"predict": module}, name="digits", target="wasm32")
    folder = Path("build/digits")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "index.html").write_text(single_page(library, (HERE / "digits.html").read_text()))
    print(f"open {folder / 'index.html'}")


if __name__ == "__main__":
    main()
