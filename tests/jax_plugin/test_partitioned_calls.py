"""custom_partitioning, inspect_array_sharding and partitioned callbacks, on eight devices of the platform."""

from __future__ import annotations

import pytest

from jax_plugin.platform_process import run_in_shared_process

MESH = """
from jax.sharding import NamedSharding, PartitionSpec as P
mesh = jax.make_mesh((4, 2), ("x", "y"))
x = jax.device_put(np.arange(64.0, dtype=np.float32).reshape(8, 8), NamedSharding(mesh, P("x", "y")))
"""


def test_custom_partitioning_runs_what_it_lowers_for_one_partition() -> None:
    out = run_in_shared_process(
        MESH
        + """
from jax.experimental.custom_partitioning import custom_partitioning

@custom_partitioning
def total(x):
    return jnp.sum(x, axis=1)

def partition(mesh, arguments, result):
    print([*arguments[0].sharding.spec], [*result.sharding.spec])
    def lower(x):
        assert x.shape == (2, 4)
        return jax.lax.psum(jnp.sum(x, axis=1), "y")
    return mesh, lower, NamedSharding(mesh, P("x")), (NamedSharding(mesh, P("x", "y")),)

total.def_partition(partition=partition, sharding_rule="i j -> i", reduction_factors=("j",))
with jax.set_mesh(mesh):
    y = jax.jit(lambda x: total(x) + 1)(x)
print([*y.sharding.spec], np.array_equal(y, np.asarray(x).sum(axis=1) + 1))

def mistaken(mesh, arguments, result):
    raise ValueError("no partition today")

total.def_partition(partition=mistaken, sharding_rule="i j -> i")
try:
    with jax.set_mesh(mesh):
        jax.jit(lambda x: total(x) + 2)(x)
except jax.errors.JaxRuntimeError as error:
    print("ValueError: no partition today" in str(error))
"""
    )
    assert out.splitlines() == [
        "['x', 'y'] ['x']",
        "['x'] True",
        "True",
    ]


def test_shardings_are_inspected_in_a_jitted_function() -> None:
    out = run_in_shared_process(
        MESH
        + """
@jax.jit
def f(x):
    y = jnp.sin(x).T
    jax.debug.inspect_array_sharding(y, callback=lambda found: print([*found.spec]))
    return y.sum()

f(x)
"""
    )
    assert out == "['y', 'x']\n"


def test_partitioned_callbacks_see_blocks() -> None:
    out = run_in_shared_process(
        MESH
        + """
seen = []
@jax.jit
def f(x):
    jax.debug.callback(lambda v: seen.append(np.asarray(v)), x * 2, partitioned=True)
    return x

jax.block_until_ready(f(x))
jax.effects_barrier()
blocks = [2 * np.asarray(shard.data) for shard in x.addressable_shards]
print(sorted(v.tolist() for v in seen) == sorted(v.tolist() for v in blocks))
"""
    )
    assert out == "True\n"


@pytest.mark.long
def test_programs_exported_for_the_cpu_run_here() -> None:
    out = run_in_shared_process("""
        from jax import export
        a = jnp.array([[4.0, 2.0], [2.0, 5.0]])
        for platforms in (["cpu"], ["tpu", "cpu"]):
            exported = export.export(jax.jit(lambda a: jnp.tanh(a) + 1), platforms=platforms)(a)
            print(np.allclose(jax.jit(exported.call)(a), np.tanh(a) + 1))
        other = export.export(jax.jit(jnp.sin), platforms=["tpu"])(a)
        try:
            other.call(a)
        except ValueError as error:
            print("exported for platforms '('tpu',)'" in str(error))
    """)
    assert out.splitlines() == ["True", "True", "True"]
