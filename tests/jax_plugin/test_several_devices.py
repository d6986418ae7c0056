"""Programs on several devices of the platform run without Python, their collectives too."""

from __future__ import annotations

from jax_plugin.platform_process import run_in_shared_process

START = """
from functools import partial
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec as P
from hloom.pjrt.native.api import code

mesh = jax.make_mesh((8,), ("i",))
rows = NamedSharding(mesh, P("i"))
host = np.random.default_rng(0).standard_normal((64, 40)).astype(np.float32)
x = jax.device_put(host, rows)

def upcalls(function, *arguments):
    jax.block_until_ready(function(*arguments))
    before = code().state.upcalls.load("monotonic")
    results = [function(*arguments) for _ in range(5)]
    jax.block_until_ready(results)
    return code().state.upcalls.load("monotonic") - before, np.asarray(results[-1])
"""


def test_collectives_of_shard_map() -> None:
    out = run_in_shared_process(
        START
        + """
def body(v):
    v = lax.psum(v, "i") + lax.axis_index("i") + lax.ppermute(v, "i", [(k, (k + 1) % 8) for k in range(8)])
    v = lax.all_to_all(v, "i", 0, 0, tiled=True) + lax.psum_scatter(lax.all_gather(v, "i", tiled=True), "i", tiled=True)
    return lax.fori_loop(0, 3, lambda k, w: lax.pmean(w, "i") * 2 - w, v)

blocks = host.reshape(8, 8, 40)
v = blocks.sum(0) + np.arange(8, dtype=np.float32)[:, None, None] + np.roll(blocks, 1, 0)
v = v.transpose(1, 0, 2) + 8 * v
for _ in range(3):
    v = v.mean(0) * 2 - v
calls, found = upcalls(jax.jit(jax.shard_map(body, mesh=mesh, in_specs=P("i"), out_specs=P("i"))), x)
np.testing.assert_allclose(found.reshape(8, 8, 40), v, rtol=1e-4, atol=1e-3)
print(calls)
"""
    )
    assert out == "0\n"


def test_partitioned_programs() -> None:
    out = run_in_shared_process(
        START
        + """
calls, found = upcalls(jax.jit(lambda v: jnp.tanh(v) @ host[:40] + v.mean(0)), x)
np.testing.assert_allclose(found, np.tanh(host) @ host[:40] + host.mean(0), rtol=1e-4, atol=1e-4)
print(calls)
"""
    )
    assert out == "0\n"


def test_donated_and_deleted_arguments() -> None:
    out = run_in_shared_process(
        START
        + """
step = jax.jit(lambda v: v * 2, donate_argnums=0, out_shardings=rows)
v = jax.device_put(host, rows)
for _ in range(4):
    given, v = v, step(v)
    assert given.is_deleted()
np.testing.assert_array_equal(np.asarray(v), host * 16)
try:
    step(given)
except (RuntimeError, ValueError) as error:
    print("deleted" in str(error))
np.testing.assert_array_equal(np.asarray(step(v)), host * 32)
"""
    )
    assert out == "True\n"


def test_many_results() -> None:
    """More records than native code has ready."""
    out = run_in_shared_process(
        START
        + """
results = jax.jit(lambda v: [v + k for k in range(200)])(x)
print(all(np.array_equal(np.asarray(r), host + np.float32(k)) for k, r in enumerate(results)))
"""
    )
    assert out == "True\n"
