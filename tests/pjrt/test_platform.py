"""hloom as a JAX platform: devices, transfers, execution, donation, sharding, errors."""

import gc
import os
import re
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="needs jax: pip install hloom[jax]")
import jax.numpy as jnp  # noqa: E402
from jax.experimental import serialize_executable  # noqa: E402
from jax.experimental.layout import Format, Layout  # noqa: E402
from jax.sharding import NamedSharding, SingleDeviceSharding  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402

from hloom.pjrt import records  # noqa: E402


@pytest.fixture(scope="module")
def devices():
    return jax.devices("hloom")


@pytest.fixture(autouse=True)
def on_hloom(devices):
    with jax.default_device(devices[0]):
        yield


def bytes_in_use(device) -> int:
    gc.collect()
    return device.memory_stats()["bytes_in_use"]


def test_devices(devices):
    assert len(devices) == 4
    assert [device.id for device in devices] == [0, 1, 2, 3]
    assert {device.platform for device in devices} == {"hloom"}
    assert "hloom" in devices[0].client.platform_version
    assert [memory.kind for memory in devices[1].addressable_memories()] == ["device", "pinned_host", "unpinned_host"]
    assert jax.default_backend() != "hloom", "hloom has to be requested"


@pytest.mark.parametrize(
    "dtype",
    [
        *("bool", "int8", "int16", "int32", "uint8", "uint16", "uint32", "float16", "float32", "complex64"),
        *("bfloat16", "float8_e4m3fn", "float8_e5m2", "int4", "uint4"),
    ],
)
def test_arrays_of_every_type_are_transferred(dtype):
    array = np.array([[0, 1, 2], [3, 1, 0]]).astype(jnp.dtype(dtype))
    there = jax.device_put(array)
    assert there.devices() == {jax.devices("hloom")[0]} and there.dtype == array.dtype
    np.testing.assert_array_equal(np.asarray(there), array)
    np.testing.assert_array_equal(np.asarray(jax.jit(lambda x: x[::-1])(there)), array[::-1])


@pytest.mark.parametrize("view", [np.s_[::2, ::-1], np.s_[::-1], np.s_[:, 3:5], np.s_[0:0], np.s_[2, 1]])
@pytest.mark.parametrize("size", [6, 400])
def test_views_of_host_arrays(view, size):
    array = np.arange(size * size, dtype=np.float32).reshape(size, size)[view]
    np.testing.assert_array_equal(np.asarray(jax.device_put(array)), array)
    broadcast = np.broadcast_to(np.float32(3), (4, 5))
    np.testing.assert_array_equal(np.asarray(jax.device_put(broadcast)), broadcast)


def test_large_arrays_are_not_copied():
    array = np.ones(1 << 18, np.float32)
    there = jax.device_put(array)
    assert there.unsafe_buffer_pointer() == array.ctypes.data
    assert np.asarray(there).ctypes.data == there.unsafe_buffer_pointer()


def test_programs_run_and_differentiate():
    def loss(w, x):
        return jnp.sum(jnp.tanh(x @ w) ** 2)

    w, x = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3), np.ones((2, 4), np.float32)
    value, gradient = jax.jit(jax.value_and_grad(loss))(w, x)
    y = np.tanh(x @ w)
    np.testing.assert_allclose(value, np.sum(y**2), rtol=1e-6)
    np.testing.assert_allclose(gradient, x.T @ (2 * y * (1 - y**2)), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("size", [8, 1 << 16])
def test_donation(size):
    step = jax.jit(lambda p, g: p - g, donate_argnums=0)
    p, g = jnp.full(size, 5.0) + 0, jnp.ones(size)
    where = p.unsafe_buffer_pointer()
    q = step(p, g)
    assert p.is_deleted() and not g.is_deleted()
    assert q.unsafe_buffer_pointer() == where
    with pytest.raises((RuntimeError, ValueError), match="deleted"):
        p + 1
    seen = np.asarray(q)
    r = step(q, g)
    np.testing.assert_array_equal(seen, 4.0)  # a view that is in use keeps its values
    np.testing.assert_array_equal(r, 3.0)


def test_arguments_without_a_result_of_their_size_are_not_donated(devices):
    sharded = NamedSharding(jax.sharding.Mesh(np.array(devices[:2]), "x"), P("x"))
    x, y = (jax.device_put(np.arange(16.0, dtype=np.float32).reshape(8, 2), sharded) for _ in range(2))
    product, more = jax.jit(lambda x, y: (x @ y.T, y + 1), donate_argnums=(0, 1))(x, y)
    assert x.is_deleted() != y.is_deleted()  # one result has the size of either
    assert product.shape == (8, 8) and more.sharding.is_equivalent_to(sharded, 2)
    kept = jax.device_put(np.arange(16.0, dtype=np.float32).reshape(8, 2), sharded)
    product = jax.jit(lambda x: x @ x.T, donate_argnums=0)(kept)
    np.testing.assert_array_equal(product, np.asarray(kept) @ np.asarray(kept).T)


def test_layouts(devices):
    device = SingleDeviceSharding(devices[0])
    columns = Format(Layout((1, 0)), device)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    there = jax.device_put(x, columns)
    assert there.format.layout.major_to_minor == (1, 0)
    np.testing.assert_array_equal(np.asarray(there), x)

    program = jax.jit(
        lambda a: (a + 1, a.T), in_shardings=columns, out_shardings=(columns, Format(Layout.AUTO, device))
    )
    compiled = program.lower(jax.ShapeDtypeStruct(x.shape, x.dtype)).compile()
    more, transposed = compiled(there)
    assert more.format.layout.major_to_minor == (1, 0)
    np.testing.assert_array_equal(np.asarray(more), x + 1)
    np.testing.assert_array_equal(np.asarray(transposed), x.T)
    again = jax.jit(lambda a: a * 2)(more)
    np.testing.assert_array_equal(np.asarray(again), 2 * (x + 1))


def test_tiles_are_refused(devices):
    tiled = Format(Layout((0, 1), tiling=((8, 128),)), SingleDeviceSharding(devices[0]))
    with pytest.raises(Exception, match="no tiles"):
        jax.jit(lambda a: a, out_shardings=tiled)(np.ones((16, 256), np.float32))


def test_the_same_buffer_is_not_donated_and_used():
    x = jnp.ones(8) + 0
    with pytest.raises(Exception, match="donate"):
        jax.jit(lambda a, b: (a + 1, b + 1), donate_argnums=(0, 1))(x, x)


def test_host_arrays_are_never_overwritten():
    array = np.ones(1 << 18, np.float32)
    result = jax.jit(lambda p: p * 2, donate_argnums=0)(jax.device_put(array))
    assert array[0] == 1 and result[0] == 2


@pytest.mark.usefixtures("older_objects_frozen")
@pytest.mark.parametrize("size", [16, 1 << 16])
def test_memory_is_released(devices, size):
    step = jax.jit(lambda x: x + 1)
    x = step(jnp.zeros(size))
    before = bytes_in_use(devices[0])
    for _ in range(200):
        x = step(x)
    assert x[0] == 201
    assert bytes_in_use(devices[0]) <= before + 4096
    assert devices[0].memory_stats()["peak_bytes_in_use"] >= x.nbytes


@pytest.mark.parametrize("kind", ["shards", "int4", "columns first"])
def test_buffers_that_were_read_are_released(mesh, kind):
    shards, one = NamedSharding(mesh, P("x", "y")), SingleDeviceSharding(mesh.devices[0, 0])
    step, sharding = {
        "shards": (jax.jit(jnp.negative), shards),
        "int4": (jax.jit(lambda x: x.astype(jnp.int4)), one),
        "columns first": (jax.jit(jnp.negative, out_shardings=Format(Layout((1, 0)), one)), one),
    }[kind]
    x = jax.device_put(np.ones((64, 64), np.float32), sharding)
    live = []
    for _ in range(9):
        np.asarray(step(x))
        live.append(len(records.objects))
    assert live[3] == live[-1]


def test_calls_from_many_threads():
    step = jax.jit(lambda x: jnp.sort(x)[::-1] * 2)
    inputs = [np.random.default_rng(k).normal(size=50).astype(np.float32) for k in range(40)]

    def work(x):
        with jax.default_device(jax.devices("hloom")[0]):
            return [np.asarray(step(x)) for _ in range(20)][-1]

    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(work, inputs))
    for x, result in zip(inputs, results, strict=True):
        np.testing.assert_array_equal(result, np.sort(x)[::-1] * 2)


def test_running_out_of_memory_names_the_instruction():
    wanting = jax.jit(lambda x: jnp.sort(jnp.broadcast_to(x, (1 << 20, 1 << 22))))
    with pytest.raises(
        jax.errors.JaxRuntimeError, match=r"RESOURCE_EXHAUSTED(.|\n)*17,592,186,044,416 bytes: %\S+ = f32"
    ):
        wanting(1.0)


def test_errors_are_those_of_jax():
    with pytest.raises(jax.errors.JaxRuntimeError, match="No such compile option: 'no_such'"):
        jax.jit(lambda x: x + 1).lower(1.0).compile(compiler_options={"no_such": 1})
    for name, value in (("xla_embed_ir_in_executable", "no"), ("xla_backend_optimization_level", "high")):
        with pytest.raises(jax.errors.JaxRuntimeError, match=f"'{name}': '{value}' is not a valid (bool|int) value."):
            jax.jit(lambda x: x + 1).lower(1.0).compile(compiler_options={name: value})
    jax.jit(lambda x: x + 1).lower(1.0).compile(compiler_options={"xla_embed_ir_in_executable": True})

    def fail(x):
        raise ValueError("on purpose")

    shape = jax.ShapeDtypeStruct((), jnp.float32)
    with pytest.raises(jax.errors.JaxRuntimeError, match="on purpose"):
        jax.jit(lambda x: jax.pure_callback(fail, shape, x))(1.0).block_until_ready()


def test_queries_of_a_compiled_program():
    compiled = jax.jit(lambda x: jnp.sin(x) @ x).lower(jnp.ones((8, 8))).compile()
    assert "HloModule" in compiled.as_text()
    assert compiled.cost_analysis()["flops"] >= 2 * 8**3
    memory = compiled.memory_analysis()
    assert (memory.argument_size_in_bytes, memory.output_size_in_bytes) == (256, 256)


def test_executables_are_serialised(devices):
    compiled = jax.jit(lambda x: x * 3).lower(jnp.ones(3)).compile()
    serialized = serialize_executable.serialize(compiled)
    again = serialize_executable.deserialize_and_load(*serialized, backend="hloom", execution_devices=devices[:1])
    np.testing.assert_array_equal(again(jnp.ones(3)), 3.0)


def test_moving_between_devices_and_memories(devices):
    x = jax.device_put(np.arange(5), devices[0])
    y = jax.device_put(x, devices[3])
    assert y.devices() == {devices[3]}
    assert y.unsafe_buffer_pointer() != x.unsafe_buffer_pointer()
    z = jax.device_put(y, jax.sharding.SingleDeviceSharding(devices[3], memory_kind="pinned_host"))
    assert z.sharding.memory_kind == "pinned_host"
    np.testing.assert_array_equal(z, np.arange(5))
    assert jax.jit(lambda a: a + 1)(y).devices() == {devices[3]}


@pytest.mark.parametrize("kind", ["pinned_host", "unpinned_host"])
@pytest.mark.parametrize("with_layout", [False, True])
def test_results_are_in_the_memories_that_programs_name(mesh, kind, with_layout):
    x = jax.device_put(np.arange(64.0, dtype=np.float32).reshape(8, 8), NamedSharding(mesh, P("x", "y")))
    there = NamedSharding(mesh, P("x", "y"), memory_kind=kind)
    step = jax.jit(
        lambda x: (x * 2, x + 1), out_shardings=(Format(Layout((1, 0)), there) if with_layout else there, None)
    )
    for _ in range(3):  # by Python, then by native code
        doubled, more = step(x)
        assert {shard.data.sharding.memory_kind for shard in doubled.addressable_shards} == {kind}
        assert more.sharding.memory_kind == "device"
        np.testing.assert_array_equal(doubled, 2 * np.asarray(x))
    back = jax.jit(lambda y: jax.device_put(y, x.sharding) + 1)(doubled)
    assert back.sharding.memory_kind == "device"
    np.testing.assert_array_equal(back, 2 * np.asarray(x) + 1)
    assert re.search(rf"S\({5 if kind == 'pinned_host' else 6}\)", step.lower(x).compile().as_text())


@pytest.fixture(scope="module")
def mesh(devices):
    return jax.sharding.Mesh(np.array(devices).reshape(2, 2), ("x", "y"))


def test_sharded_programs(mesh):
    x = np.arange(64, dtype=np.float32).reshape(8, 8)
    sharded = jax.device_put(x, NamedSharding(mesh, P("x", "y")))
    product = jax.jit(lambda a: jnp.sin(a) @ a.T)(sharded)
    np.testing.assert_allclose(product, np.sin(x) @ x.T, rtol=1e-4, atol=1e-4)
    assert len(product.sharding.device_set) == 4


def test_a_sharded_program_may_have_no_results(mesh):
    x = jax.device_put(np.zeros((8, 8), np.float32), NamedSharding(mesh, P("x", "y")))
    assert jax.jit(lambda a: ())(x) == ()
    assert jax.jit(lambda a: [], keep_unused=True)(x) == []


def test_collectives_on_shards(mesh):
    x = np.arange(16, dtype=np.float32).reshape(4, 4)

    def body(block):
        total = jax.lax.psum(block, "x")
        moved = jax.lax.ppermute(block, "y", [(0, 1), (1, 0)])
        return total + moved * jax.lax.axis_index("x")

    mapped = jax.shard_map(body, mesh=mesh, in_specs=P("x", "y"), out_specs=P("x", "y"))
    total = np.concatenate([x[:2] + x[2:]] * 2)
    moved = np.concatenate([x[:, 2:], x[:, :2]], axis=1) * np.array([[0], [0], [1], [1]])
    np.testing.assert_array_equal(jax.jit(mapped)(x), total + moved)


def test_pmap(devices):
    mean = jax.pmap(lambda a: jax.lax.pmean(a, "i"), axis_name="i", devices=devices)
    np.testing.assert_array_equal(mean(np.arange(4.0, dtype=np.float32)), 1.5)


def test_a_process_ends_cleanly_with_live_objects():
    program = """
        import hloom, jax, jax.numpy as jnp, numpy as np, threading
        f = jax.jit(lambda x: x + 1)
        small, large = f(jnp.ones(8)), f(jnp.ones(1 << 20))
        shared = jax.device_put(np.ones(1 << 20, np.float32))
        jax.pure_callback(lambda v: v, jax.ShapeDtypeStruct((), jnp.float32), 1.0).block_until_ready()
        print(small[0], jax.default_backend())
    """
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        env={**os.environ, "JAX_PLATFORMS": "hloom"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (run.returncode, run.stdout) == (0, "2.0 hloom\n"), run.stderr
    assert "Error" not in run.stderr


def test_a_process_ends_cleanly_while_daemon_threads_run_programs():
    """Python, once it is finalised, unwinds the stacks of threads that ask for the GIL."""
    program = """
        import jax, numpy as np, threading, time
        both = jax.sharding.NamedSharding(jax.make_mesh((2,), "i"), jax.sharding.PartitionSpec("i"))
        f = jax.jit(lambda x: x * 2 + x.sum(0))
        def run(devices):
            x = jax.device_put(np.ones((8, 16), np.float32), devices)
            while True:
                f(x)
        def transfer():
            while True:
                np.asarray(jax.device_put(np.ones(8, np.float32)))
        for target, *arguments in ((run, both), (run, both), (run, jax.devices()[0]), (transfer,)):
            threading.Thread(target=target, args=arguments, daemon=True).start()
        time.sleep(0.3)
        print("end")
    """
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        env={**os.environ, "JAX_PLATFORMS": "hloom", "HLOOM_NUM_DEVICES": "2"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (run.returncode, run.stdout) == (0, "end\n"), run.stderr


def test_an_invalid_number_of_devices_is_an_error():
    run = subprocess.run(
        [sys.executable, "-c", "import jax; jax.devices()"],
        env={**os.environ, "JAX_PLATFORMS": "hloom", "HLOOM_NUM_DEVICES": "many"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert run.returncode != 0
    assert "HLOOM_NUM_DEVICES is a number of devices" in run.stderr
