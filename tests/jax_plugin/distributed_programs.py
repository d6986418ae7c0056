"""JAX programs on two processes of two devices each: `mpiexec -n 2 python distributed_programs.py NAME,..`."""

from __future__ import annotations

import functools
import sys
from typing import Any

import numpy as np


@functools.cache
def start() -> Any:
    import jax

    jax.distributed.initialize(cluster_detection_method="mpi4py")
    assert jax.process_count() == 2 and len(jax.devices()) == 4 and len(jax.local_devices()) == 2
    assert [d.process_index for d in jax.devices()] == [0, 0, 1, 1]
    return jax


def training() -> None:
    """Data-parallel steps with donated parameters give the losses of one device."""
    jax = start()
    import jax.numpy as jnp
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((64, 8)).astype(np.float32), np.arange(8, dtype=np.float32)
    y = x @ w

    def step(w: Any, x: Any, y: Any) -> Any:
        loss, gradient = jax.value_and_grad(lambda w: jnp.mean((x @ w - y) ** 2))(w)
        return w - 0.1 * gradient, loss

    mesh = Mesh(np.array(jax.devices()), ("data",))
    sharded, replicated = NamedSharding(mesh, PartitionSpec("data")), NamedSharding(mesh, PartitionSpec())
    mine = slice(32 * jax.process_index(), 32 * (jax.process_index() + 1))
    xs, ys = (jax.make_array_from_process_local_data(sharded, a[mine]) for a in (x, y))
    shared = jax.jit(step, out_shardings=(replicated, replicated), donate_argnums=0)
    alone = jax.jit(step)
    v = jax.make_array_from_process_local_data(replicated, np.zeros(8, np.float32))
    u = jnp.zeros(8)
    for _ in range(40):
        (v, loss), (u, expected) = shared(v, xs, ys), alone(u, x, y)
        assert np.allclose(loss, expected, rtol=1e-4, atol=1e-6)
    assert loss < 1e-2 and not xs.is_fully_addressable


def collectives() -> None:
    jax = start()
    from jax.experimental import multihost_utils
    from jax.sharding import Mesh, PartitionSpec

    mesh = Mesh(np.array(jax.devices()), ("i",))
    given = np.arange(8, dtype=np.float32)
    array = multihost_utils.host_local_array_to_global_array(
        given[4 * jax.process_index() :][:4], mesh, PartitionSpec("i")
    )

    def body(x: Any) -> Any:
        lax = jax.lax
        shifted = lax.ppermute(x, "i", [(k, (k + 1) % 4) for k in range(4)])
        return lax.psum(x, "i"), lax.all_gather(x, "i", tiled=True), shifted, lax.pmax(x, "i")

    specs = (PartitionSpec(), PartitionSpec(), PartitionSpec("i"), PartitionSpec())
    f = jax.jit(jax.shard_map(body, mesh=mesh, in_specs=PartitionSpec("i"), out_specs=specs, check_vma=False))
    total, gathered, shifted, largest = (multihost_utils.process_allgather(a, tiled=True) for a in f(array))
    assert np.array_equal(total, [12, 16]) and np.array_equal(largest, [6, 7])
    assert np.array_equal(gathered, given) and np.array_equal(shifted, np.roll(given, 2))
    assert multihost_utils.broadcast_one_to_all(np.float32(jax.process_index() + 5)) == 5
    multihost_utils.sync_global_devices("the end")


def pmap() -> None:
    jax = start()
    x = np.arange(2, dtype=np.float32) + 2 * jax.process_index()
    total = jax.pmap(lambda x: jax.lax.psum(x, "i"), axis_name="i")(x)
    assert np.array_equal(total, [6, 6])


def local_work() -> None:
    """A process may run programs on its own devices without the others."""
    jax = start()
    if jax.process_index() == 0:
        seen = []

        def f(x: Any) -> Any:
            jax.debug.callback(lambda v: seen.append(float(v)), x)
            return jax.pure_callback(lambda v: np.asarray(v) * 2, jax.ShapeDtypeStruct((), np.float32), x)

        assert jax.jit(f)(np.float32(3)) == 6
        jax.effects_barrier()
        assert seen == [3]
    pmapped = jax.pmap(lambda x: x + 1, devices=jax.local_devices())(np.zeros(2, np.float32))
    assert np.array_equal(pmapped, [1, 1])


def elsewhere() -> None:
    """A program on devices of the other process is compiled here but has no effect here."""
    jax = start()
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    mesh = Mesh(np.array(jax.devices()[:2]), ("i",))
    sharding = NamedSharding(mesh, PartitionSpec("i"))
    given = np.arange(4, dtype=np.float32)
    x = jax.make_array_from_callback((4,), sharding, lambda index: given[index], dtype=given.dtype)
    y = jax.jit(lambda x: x * 2)(x)
    assert [*map(float, np.concatenate([s.data for s in y.addressable_shards] or [[]]))] == (
        [] if jax.process_index() else [0, 2, 4, 6]
    )


def one_fails() -> None:
    jax = start()
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    def unlucky(v: Any) -> Any:
        if jax.process_index():
            raise ValueError("no luck")
        return np.asarray(v)

    mesh = Mesh(np.array(jax.devices()), ("i",))
    x = jax.make_array_from_process_local_data(NamedSharding(mesh, PartitionSpec("i")), np.ones(2, np.float32))

    def body(x: Any) -> Any:
        y = jax.pure_callback(unlucky, jax.ShapeDtypeStruct(x.shape, x.dtype), x)
        return jax.lax.psum(y, "i")

    f = jax.jit(jax.shard_map(body, mesh=mesh, in_specs=PartitionSpec("i"), out_specs=PartitionSpec(), check_vma=False))
    print(f(x))


def without_mpi() -> None:
    import jax

    jax.distributed.initialize(sys.argv[2], num_processes=2, process_id=int(sys.argv[3]))
    jax.devices()


if __name__ == "__main__":
    for name in sys.argv[1].split(","):
        globals()[name]()
    print("well")
