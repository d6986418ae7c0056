"""Trains the transformer of train_transformer.py on several processes: each batch and each layer is split in two.

    mpiexec -n 4 env JAX_PLATFORMS=hloom python examples/train_on_ranks.py

Then the first process trains again, alone on its own device: the losses must be equal up to rounding.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import optax
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from digits import digits
from train_transformer import Transformer, apply

STEPS, BATCH, RATE = 60, 128, 3e-3
SHARDED_DIMENSION = {"query": 1, "key": 1, "value": 1, "out": 0, "Dense_0": -1, "Dense_1": 0}
"""The dimension along which a layer's kernel is sharded over a row of processes: attention heads, hidden units."""


def main() -> int:
    jax.distributed.initialize(cluster_detection_method="mpi4py")
    columns = 2 if jax.process_count() % 2 == 0 else 1
    sizes = jax.process_count() // columns, columns
    mesh = jax.make_mesh(sizes, ("batch", "layer"), axis_types=(AxisType.Auto,) * 2)
    together, bytes_here, bytes_all = train(lambda path, x: shard(mesh, layer_spec(path, x), x), mesh)
    if jax.process_index() == 0:
        alone, _, _ = train(lambda path, x: jax.device_put(x, jax.local_devices()[0]), None)
        print(f"\n{'step':>4} {'on ' + str(jax.process_count()) + ' processes':>16} {'on one':>10}")
        for step in range(0, STEPS, 6):
            print(f"{step:4} {together[step]:16.5f} {alone[step]:10.5f}")
        print(f"weights and moments: {bytes_all:,} bytes, {bytes_here:,} of them on each process")
        return 0 if np.allclose(together, alone, rtol=1e-3, atol=1e-4) else 1
    return 0


def train(put: Callable[[str, Any], jax.Array], mesh: Any) -> tuple[list[float], int, int]:
    """Returns the losses, and the bytes of the state on this process and in total, each array counted once."""
    images, _, labels, _ = digits()
    with jax.default_device(jax.local_devices()[0]):
        parameters = Transformer().init(jax.random.key(0), np.zeros((1, 8, 8), np.float32), False)
    optimizer = optax.adamw(RATE)
    state = jax.tree.map_with_path(
        lambda path, x: put(jax.tree_util.keystr(path), np.asarray(x)), (parameters, optimizer.init(parameters))
    )

    @jax.jit
    def step(state: Any, images: jax.Array, labels: jax.Array, seed: jax.Array) -> Any:
        def loss_of(parameters: Any) -> jax.Array:
            logits = apply(parameters, images, jax.random.key(seed))
            return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

        parameters, moments = state
        loss, gradients = jax.value_and_grad(loss_of)(parameters)
        updates, moments = optimizer.update(gradients, moments, parameters)
        return (optax.apply_updates(parameters, updates), moments), loss

    order, losses = np.random.default_rng(0), []
    for number in range(STEPS):
        chosen = order.integers(0, len(images), BATCH)
        rows = [images[chosen], labels[chosen]]
        if mesh is not None:
            rows = [shard(mesh, PartitionSpec("batch"), each) for each in rows]
        state, loss = step(state, *rows, np.uint32(number))
        losses.append(float(np.asarray(loss.addressable_data(0))))
    leaves = jax.tree.leaves(state)
    here = sum(shard.data.nbytes for x in leaves for shard in x.addressable_shards)
    return losses, here, sum(x.nbytes for x in leaves)


def layer_spec(path: str, x: np.ndarray) -> PartitionSpec:
    """Returns the sharding of an array of the state: kernels along SHARDED_DIMENSION, and the biases of those sharded
    last.
    """
    dimension = next(
        (SHARDED_DIMENSION[name] for name in SHARDED_DIMENSION if f"'{name}'" in path and "Block" in path), None
    )
    if dimension is None or (x.ndim == 1 and dimension != -1) or ("'out'" in path and x.ndim < 3):
        return PartitionSpec()
    dimension = (dimension - ("'bias'" in path and x.ndim == 2)) % x.ndim
    return PartitionSpec(*("layer" if d == dimension else None for d in range(x.ndim)))


def shard(mesh: Any, spec: PartitionSpec, x: np.ndarray) -> jax.Array:
    """Distributes an array that all processes have over the mesh."""
    return jax.make_array_from_callback(x.shape, NamedSharding(mesh, spec), lambda index: x[index])


if __name__ == "__main__":
    sys.exit(main())
