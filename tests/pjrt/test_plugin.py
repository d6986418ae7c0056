"""The PJRT plugin as a shared library: clients in C, threads that Python does not know, forks, exits, no Python."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hloom.pjrt.c_api import VERSION, ExecuteOptions, Field, Program, ShapeSpec, functions, structures
from hloom.pjrt.plugin import library_path

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")

STRUCTURES = [(each.__name__, each._fields_) for each in (Program, ExecuteOptions, ShapeSpec)]
FOLDER = Path(__file__).parent
SQUARE = """module {
  func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
    %one = stablehlo.constant dense<1.0> : tensor<4xf32>
    %y = stablehlo.multiply %x, %x : tensor<4xf32>
    %z = stablehlo.add %y, %one : tensor<4xf32>
    return %z : tensor<4xf32>
  }
}
"""


LONG = """module {
  func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
    %i = stablehlo.iota dim = 1 : tensor<4x4000000xf32>
    %b = stablehlo.broadcast_in_dim %x, dims = [0] : (tensor<4xf32>) -> tensor<4x4000000xf32>
    %p = stablehlo.multiply %i, %b : tensor<4x4000000xf32>
    %s = stablehlo.sine %p : tensor<4x4000000xf32>
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %r = stablehlo.reduce(%s init: %zero) applies stablehlo.add across dimensions = [1]
      : (tensor<4x4000000xf32>, tensor<f32>) -> tensor<4xf32>
    return %r : tensor<4xf32>
  }
}
"""
"""A program of milliseconds, which runs on the threads of the pool, and in the queue."""


def header() -> str:
    """The interface in C, from hloom's table; sizes and counts are told by their names."""
    lines = ["#include <stdbool.h>\n#include <stddef.h>\n#include <stdint.h>"]
    kinds = ("Error", "Client", "Device", "Memory", "Executable", "LoadedExecutable", "Buffer", "Event")
    kinds += ("AsyncHostToDeviceTransferManager", "TopologyDescription")
    lines += [f"typedef struct PJRT_{kind} PJRT_{kind};" for kind in kinds]
    for name, fields in STRUCTURES:
        typed = [f"{'int32_t ' if kind is ctypes.c_int32 else _word(field)}{field};" for field, kind in fields]
        lines.append(f"typedef struct {{ {' '.join(typed)} }} PJRT_{name};")
    ((_, count), *_) = structures()
    table = [*functions().values()][:count]
    for function in table:
        typed = ["size_t struct_size;", "void *extension_start;", *map(_declaration, function.fields)]
        lines.append(f"typedef struct {{ {' '.join(typed)} }} PJRT_{function.name}_Args;")
    pointers = "".join(f"PJRT_Error *(*PJRT_{f.name})(void *); " for f in table)
    lines.append(
        f"typedef struct {{ size_t struct_size; void *extension_start; size_t version[3]; {pointers}}} PJRT_Api;"
    )
    return "\n".join(lines)


def _word(name: str) -> str:
    is_size = name.startswith("num_") or name.endswith("_size") or name in ("size", "offset")
    return "size_t " if is_size else "void *"


def _declaration(field: Field) -> str:
    return f"{ {'i32': 'int32_t ', 'bool': 'bool ', 'word': _word(field.name)}[field.type] }{field.name};"


def compiled(folder: Path, name: str, *options: str) -> Path:
    """Returns a client that is compiled from a source beside this file."""
    (folder / "pjrt_c_api.h").write_text(header())
    command = ["cc", "-O1", "-Wall", "-Wno-incompatible-pointer-types", "-I", str(folder), *options]
    made = folder / Path(name).stem
    subprocess.run([*command, str(FOLDER / name), "-o", str(made), "-ldl", "-lpthread"], check=True)
    return made


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("client")
    (folder / "square.mlir").write_text(SQUARE)
    return compiled(folder, "client.c")


def run(client: Path, *more: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [str(client), str(library_path()), str(client.with_name("square.mlir")), *more]
    return subprocess.run(command, capture_output=True, text=True, timeout=200, env=os.environ | variables)


def test_a_program_in_c_runs(client: Path) -> None:
    done = run(client, "4")
    assert (done.returncode, done.stdout, done.stderr) == (0, "2 5 10 17\n", "")


def test_text_needs_no_jaxlib(client: Path, tmp_path: Path) -> None:
    (tmp_path / "jaxlib.py").write_text("raise ImportError('blocked')")
    done = run(client, PYTHONPATH=f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
    assert (done.returncode, done.stdout, done.stderr) == (0, "2 5 10 17\n", "")


def test_without_python_the_plugin_says_so(client: Path) -> None:
    done = run(client, HLOOM_LIBPYTHON="/nowhere/libpython.so")
    assert done.returncode == 3
    assert "Plugin_Initialize: code 9: hloom needs Python: /nowhere/libpython.so" in done.stderr


def test_without_hloom_the_plugin_says_so(client: Path) -> None:
    done = run(client, HLOOM_PYTHONPATH="/nowhere", PYTHONPATH="", PATH=os.defpath)
    assert done.returncode == 3 and "hloom does not start in Python" in done.stderr


LOADED_BY_JAX = """
import sys
import jax, jax.numpy as jnp
from jax._src import xla_bridge
xla_bridge.register_plugin("native_hloom", library_path=sys.argv[1])
jax.config.update("jax_platforms", "native_hloom,hloom")
by_path, by_entry_point = (jax.devices(platform)[0] for platform in ("native_hloom", "hloom"))
x = jax.jit(lambda x: jnp.sin(x) @ x)(jax.device_put(jnp.ones(4), by_path))
print(by_path.platform, x, jax.device_put(x, by_entry_point) + 1)
"""


@pytest.mark.long
def test_jax_loads_the_plugin_by_its_path_beside_its_own() -> None:
    pytest.importorskip("jax")
    command = [sys.executable, "-c", LOADED_BY_JAX, str(library_path())]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "hloom 3.3658838 4.365884\n"


def test_the_plugin_joins_the_python_that_runs() -> None:
    from hloom.pjrt import api_address

    get = ctypes.CDLL(str(library_path())).GetPjrtApi
    get.restype = ctypes.c_void_p
    assert get() == api_address()
    assert (ctypes.c_uint64 * 5).from_address(get())[4] == VERSION[0] | VERSION[1] << 32


@pytest.mark.long
@pytest.mark.parametrize("scenario", ["copies", "forks", "thread", "close", "exits"])
def test_a_client_in_c_lives_as_processes_do(scenario: str, tmp_path: Path) -> None:
    (tmp_path / "long.mlir").write_text(LONG)
    copy = shutil.copy(library_path(), tmp_path / "copy.so")
    command = [compiled(tmp_path, "lifetimes.c"), scenario, tmp_path / "long.mlir", library_path(), copy]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert (done.returncode, done.stdout.splitlines()[-1:], done.stderr) == (0, ["ok"], "")


LATE = """
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
library.prepare_for_end(*(word.encode() for word in sys.argv[2:]))
"""


@pytest.mark.long
def test_a_client_may_end_after_python(tmp_path: Path) -> None:
    (tmp_path / "long.mlir").write_text(LONG)
    shared = compiled(tmp_path, "lifetimes.c", "-shared", "-fPIC")
    command = [sys.executable, "-c", LATE, shared, tmp_path / "long.mlir", library_path()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ok\n", "")
