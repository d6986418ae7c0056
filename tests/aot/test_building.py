"""Libraries of several functions: shared constants, unbounded sizes, forms of code."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import hloom as hl
from conftest import ROOT
from hlo_text import module_text
from hloom.aot import Emit, Library
from hloom.numerics import Array
from targets.c_program import compile_program, results_of

WEIGHTS = np.random.default_rng(0).standard_normal(3000).astype(np.float32)
SCALE = (
    f"x = f32[3000] parameter(0)\nc = f32[3000] constant({{{', '.join(map(str, WEIGHTS))}}})\n"
    "ROOT r = f32[3000] multiply(x, c)"
)
ROWS = "x = f32[?,3] parameter(0)\nROOT r = f32[?,3] tanh(x)"
X = np.random.default_rng(1).standard_normal(3000).astype(np.float32)


def scaled_by(library: Library, folder: Path) -> Array:
    compile_program(library, folder)
    return results_of(library, [X], folder)[0][0]


def test_a_function_takes_the_size(tmp_path: Path) -> None:
    """SL-25: a size without a bound is that of the argument."""
    library = hl.build({"f": module_text(ROWS)}, tmp_path, sizes=[1, 4], emit=Emit.SHARED, threads=1)
    declared = library.files["f.h"].decode()
    assert "/* For sizes 1, 4; returns 2 for others. */" in declared
    assert "int64_t size, /* a size */\n    const float *x, /* f32[size,3] */" in declared
    shared = ctypes.CDLL(str(tmp_path / "libf.so"))
    x, y = X[:12].copy(), np.zeros(12, np.float32)
    pointers = [ctypes.c_void_p(array.ctypes.data) for array in (x, y)]
    assert [shared.f(ctypes.c_int64(size), *pointers, None, None) for size in (1, 3, 4)] == [0, 2, 0]
    want = hl.compile(module_text(ROWS))(x.reshape(4, 3))
    assert y.tobytes() == want.tobytes()
    assert shared.f_1(*pointers, None, None) == 0


def test_large_results_are_aligned(tmp_path: Path) -> None:
    """Non-temporal stores need it."""
    library = hl.build({"f": module_text("x = f32[16384] parameter(0)\nROOT r = f32[16384] negate(x)")}, emit="shared")
    assert "float *result, /* f32[16384], written, aligned to 64 bytes */" in library.files["f.h"].decode()
    library.write(tmp_path)
    shared = ctypes.CDLL(str(tmp_path / "libf.so"))
    memory = np.zeros(2 * 65536 + 64, np.uint8)
    start = memory.ctypes.data + -memory.ctypes.data % 64
    arguments = [ctypes.c_void_p(start + 65536 + 4), ctypes.c_void_p(start + 8)]
    assert shared.f(*arguments, None, None) == 1
    assert shared.f(arguments[0], ctypes.c_void_p(start), None, None) == 0


def test_sizes_are_checked() -> None:
    two = module_text("x = f32[?,?] parameter(0)\nROOT r = f32[?,?] tanh(x)")
    with pytest.raises(hl.ArgumentError, match="f has 2 dynamic sizes: give bounds"):
        hl.build({"f": two})
    with pytest.raises(hl.ArgumentError, match=r"f has 2 unbounded sizes, which cannot be \(1, 2, 3\)"):
        hl.build({"f": two}, sizes=[(1, 2, 3)])
    names = [function.name for function in hl.build({"f": two}, sizes=[(2, 8), (4, 8)]).functions]
    assert names == ["f_2x8", "f_4x8"]


def test_functions_share_constants(tmp_path: Path) -> None:
    module = hl.parse(module_text(SCALE))
    one, both = (hl.build(dict.fromkeys(names, module), name="lib") for names in (["f"], ["f", "g"]))
    (block,) = (name for name in both.binaries if "constants" in name)
    assert both.binaries[block] == one.binaries[block] and len(both.binaries["f.o"]) < 2 * WEIGHTS.nbytes
    assert scaled_by(both, tmp_path).tobytes() == (X * WEIGHTS).tobytes()


def test_constants_are_mapped_from_a_file(tmp_path: Path) -> None:
    library = hl.build({"f": module_text(SCALE)}, constants_file=True)
    assert WEIGHTS.tobytes() in library.files["f.constants"]
    assert not any(WEIGHTS.tobytes() in content for content in library.binaries.values())
    assert scaled_by(library, tmp_path).tobytes() == (X * WEIGHTS).tobytes()
    (tmp_path / "f.constants").write_bytes(bytes(len(library.files["f.constants"])))
    done = subprocess.run(["./main", "in", "out"], cwd=tmp_path, check=False)
    assert done.returncode == 3


def test_static_memory_needs_no_heap_and_no_threads() -> None:
    library = hl.build({"f": module_text(ROWS)}, sizes=[4], static_memory=True)
    runtime = library.binaries["hloom_runtime.o"]
    assert b"hloom_parallel_for" in runtime and not any(name in runtime for name in (b"pthread", b"memalign", b"free"))
    assert "hloom_pool *pool = 0;" in library.files["example.c"].decode()


@pytest.mark.long
@pytest.mark.parametrize("emit", [Emit.ASSEMBLY, Emit.LLVM])
def test_assembly_and_ir_are_compiled_elsewhere(emit: Emit, tmp_path: Path) -> None:
    library = hl.build({"f": module_text(SCALE)}, emit=emit, target="aarch64")
    if shutil.which("qemu-aarch64-static") is None:
        pytest.skip("no qemu-aarch64-static")
    compile_program(library, tmp_path)
    results, _ = results_of(library, [X], tmp_path, ["qemu-aarch64-static"])
    assert results[0].tobytes() == (X * WEIGHTS).tobytes()


@pytest.mark.long
def test_symbolic_shapes_of_jax_are_sizes() -> None:
    jax = pytest.importorskip("jax")
    from jax import export

    (batch,) = export.symbolic_shape("b")
    module = hl.from_jax(lambda x: (x @ x.T).reshape(-1), jax.ShapeDtypeStruct((batch, 3), np.float32))
    library = hl.build({"f": module}, sizes=[2, 5])
    assert "const float *x, /* f32[size,3] */" in library.files["f.h"].decode()
    assert [f.outputs[0].shape for f in library.functions] == ["f32[4]", "f32[25]"]


@pytest.mark.long
def test_builds_do_not_depend_on_what_the_process_compiled_before() -> None:
    """LLVM's options are global, and set for both compilers."""
    module = ROOT / "tests" / "corpus" / "bench_normal_4m" / "module.hlo"
    build = f"build = lambda: hl.build({{'f': hl.load({str(module)!r})}}, threads=1).binaries['f.o']"
    code = (
        f"import hloom as hl\n{build}\nfirst = build()\nhl.compile(hl.load({str(module)!r}))\nassert first == build()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
