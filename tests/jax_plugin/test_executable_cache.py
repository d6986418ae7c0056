"""Programs that another process has compiled run without being parsed."""

from __future__ import annotations

from pathlib import Path

import pytest

from jax_plugin.platform_process import run

PROGRAM = """
from jax.experimental.layout import Format, Layout
from jax.sharding import SingleDeviceSharding
def f(w, x):
    return {"y": jnp.tanh(x @ w).sum(0), "n": (x > 0).sum(), "none": jnp.zeros((0, 3))}
w, x = jnp.ones((4, 3)), jnp.arange(8.0).reshape(2, 4) / 8
if READ:
    import hloom.pjrt.programs as programs
    def refuse(*arguments):
        raise AssertionError("read")
    programs.read_stablehlo = refuse
compiled = jax.jit(f).lower(w, x).compile()
given = compiled(w, x)
print({name: np.asarray(value).tolist() for name, value in given.items()})
print("fusion" in compiled.as_text(), compiled.memory_analysis().output_size_in_bytes, compiled.input_formats[0][0].layout)
columns = Format(Layout((1, 0)), SingleDeviceSharding(jax.devices()[0]))
other = jax.jit(lambda a: a * 2 + 1, in_shardings=columns, out_shardings=columns).lower(x).compile()
print(np.asarray(other(jax.device_put(x, columns))).tolist(), other.input_formats[0][0].layout)
print(jax.jit(lambda a: a.at[0].add(1.0), donate_argnums=0)(x + 1), x)
"""

SEVERAL_DEVICES = """
from jax.sharding import NamedSharding, PartitionSpec as P
mesh = jax.make_mesh((2,), ("i",))
x = jax.device_put(np.arange(8, dtype=np.float32), NamedSharding(mesh, P("i")))
if READ:
    import hloom.pjrt.programs as programs
    def refuse(*arguments):
        raise AssertionError("read")
    programs.read_stablehlo = refuse
def f(x):
    return jnp.cumsum(x - jax.lax.psum(x, "i"), axis=0), jax.lax.axis_index("i")[None]
summed, indices = jax.jit(jax.shard_map(f, mesh=mesh, in_specs=P("i"), out_specs=P("i")))(x)
print(summed.tolist(), indices.tolist(), summed.sharding.spec, jax.jit(jnp.sum)(x), jax.jit(jnp.mean)(x))
"""


@pytest.mark.long
def test_a_second_process_does_not_parse_a_program_of_several_devices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HLOOM_CACHE_DIR", str(tmp_path))
    first = run(SEVERAL_DEVICES.replace("READ", "False"), 2)
    # Each block is x - psum(x): [0 .. 3] - [4, 6, 8, 10] and [4 .. 7] - [4, 6, 8, 10].
    assert first.startswith("[-4.0, -9.0, -15.0, -22.0, 0.0, -1.0, -3.0, -6.0] [0, 1] ")
    assert first.endswith(" 28.0 3.5\n")
    assert run(SEVERAL_DEVICES.replace("READ", "True"), 2) == first


@pytest.mark.long
def test_a_second_process_does_not_parse_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLOOM_CACHE_DIR", str(tmp_path))
    first = run(PROGRAM.replace("READ", "False"))
    assert first.startswith("{'n': 7") and "True" in first
    assert run(PROGRAM.replace("READ", "True")) == first
    for file in tmp_path.glob("*.program"):
        file.write_bytes(b"damaged")
    assert run(PROGRAM.replace("READ", "False")) == first
