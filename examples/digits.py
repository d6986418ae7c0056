"""Training on the handwritten digits of scikit-learn: the common part of the two examples, transformer and convnet.

python examples/train_convnet.py                       # on JAX's default platform
JAX_PLATFORMS=hloom python examples/train_convnet.py   # on hloom
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

Parameters = Any  # a tree of arrays
Apply = Callable[[Parameters, jax.Array, jax.Array | None], jax.Array]
"""A function from parameters, images f32[batch,8,8] and a key (None: no dropout) to logits f32[batch,10]."""


@dataclass
class History:
    """The measurements of a training run."""

    platform: str
    losses: list[float] = field(default_factory=list)  # the mean of each epoch
    accuracy: float = 0.0  # of the test images, at the end
    first_step_seconds: float = 0.0  # with tracing and compilation
    step_seconds: list[float] = field(default_factory=list)  # all later steps


def train(parameters: Parameters, apply: Apply, *, epochs: int, batch: int = 128, rate: float = 2e-3) -> History:
    """Trains with AdamW, prints each epoch, and writes the history to the path of `--json`."""
    options = _arguments()
    parameters = _perturbed(parameters, options.perturb)
    images, test_images, labels, test_labels = digits()
    steps = len(images) // batch
    optimizer = optax.adamw(optax.cosine_decay_schedule(rate, epochs * steps))

    @jax.jit
    def step(parameters: Parameters, state: Any, images: jax.Array, labels: jax.Array, key: jax.Array) -> Any:
        def loss_of(parameters: Parameters) -> jax.Array:
            logits = apply(parameters, images, key)
            return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

        loss, gradients = jax.value_and_grad(loss_of)(parameters)
        updates, state = optimizer.update(gradients, state, parameters)
        return optax.apply_updates(parameters, updates), state, loss

    history = History(jax.default_backend())
    order, key = np.random.default_rng(0), jax.random.key(1)
    state = optimizer.init(parameters)
    for epoch in range(epochs):
        losses, seconds = [], []
        for chosen in order.permutation(len(images))[: steps * batch].reshape(steps, batch):
            key, step_key = jax.random.split(key)
            began = time.perf_counter()
            parameters, state, loss = step(parameters, state, images[chosen], labels[chosen], step_key)
            losses.append(float(loss))  # waits for the step to end
            seconds.append(time.perf_counter() - began)
        if epoch == 0:
            history.first_step_seconds = seconds.pop(0)
        history.losses.append(float(np.mean(losses)))
        history.step_seconds += seconds
        print(f"epoch {epoch + 1:2}  loss {history.losses[-1]:.5f}  {1e3 * np.median(seconds):.2f} ms/step", flush=True)
    guesses = jax.jit(lambda parameters, images: apply(parameters, images, None).argmax(-1))(parameters, test_images)
    history.accuracy = float((guesses == test_labels).mean())
    print(f"{history.platform}: test accuracy {history.accuracy:.1%}")
    if options.json:
        options.json.write_text(json.dumps(asdict(history)))
    return history


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", type=Path, help="Write losses, accuracy and times.")
    parser.add_argument("--perturb", type=int, default=0, metavar="SEED", help="Move parameters by a rounding error.")
    return parser.parse_args()


def _perturbed(parameters: Parameters, seed: int) -> Parameters:
    """Perturbs parameters by at most an epsilon of f32, to measure the divergence of runs that differ only in
    rounding.
    """
    if not seed:
        return parameters
    random = np.random.default_rng(seed)
    epsilon = float(np.finfo(np.float32).eps)
    return jax.tree.map(lambda x: x * jnp.float32(1 + epsilon * random.integers(-1, 2, x.shape)), parameters)


def digits() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Returns images f32[n,8,8] in [0, 1] and labels s32[n] for training and for testing."""
    data = load_digits()
    images, labels = (data.images / 16).astype(np.float32), data.target.astype(np.int32)
    return tuple(train_test_split(images, labels, test_size=0.2, random_state=0, stratify=labels))
