"""Libraries that are built ahead of time: their functions compute what the JIT does, bit for bit."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import hloom as hl
from conftest import ROOT
from hlo_text import module_text
from hloom.aot import Emit
from hloom.aot.interface import unique_names
from hloom.cli import main
from hloom.files.arrays import flat, random_value
from targets import web_program
from targets.c_program import compile_program, results_of
from test_corpus import STORED, load_case

LARGE = np.random.default_rng(0).standard_normal(3000).astype(np.float32)
PROGRAMS = {
    "product": "x = f32[64,96] parameter(0)\nw = f32[96,200] parameter(1)\n"
    "d = f32[64,200] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}\nROOT r = f32[64,200] tanh(d)",
    "tuple": "x = (f32[3], s32[2]) parameter(0)\na = f32[3] get-tuple-element(x), index=0\n"
    "b = s32[2] get-tuple-element(x), index=1\nROOT r = (s32[2], f32[3]) tuple(b, a)",
    "narrow": "x = bf16[33] parameter(0)\ny = f8e4m3fn[33] convert(x)\nz = s4[33] convert(x)\nh = f16[33] convert(x)\n"
    "e = f16[33] exponential(h)\nROOT r = (f8e4m3fn[33], s4[33], bf16[33], f16[33]) tuple(y, z, x, e)",
    "complex": "x = c64[16] parameter(0)\nROOT r = c64[16] fft(x), fft_type=FFT, fft_length={16}",
    "constant": f"x = f32[3000] parameter(0)\nc = f32[3000] constant({{{', '.join(map(str, LARGE))}}})\n"
    "ROOT r = f32[3000] multiply(x, c)",
    "extrema": "x = f64[40] parameter(0)\ny = f64[40] reverse(x), dimensions={0}\nm = f64[40] maximum(x, y)\n"
    "n = f64[40] minimum(x, y)\nROOT r = (f64[40], f64[40]) tuple(m, n)",
    "empty": "x = f32[0,4] parameter(0)\nROOT r = f32[0,4] negate(x)",
    "sort": "x = f32[5000] parameter(0)\nROOT r = f32[5000] sort(x), dimensions={0}, to_apply=less",
    "class": "int = s32[] parameter(0)\nROOT r = s32[] add(int, int)",
}

WIDE = module_text("x = f32[600,700] parameter(0)\ny = f32[600,700] tanh(x)\nROOT r = f32[600,700] exponential(y)")
"""Enough work for several threads."""


def program(name: str) -> hl.Module:
    return hl.parse(module_text(PROGRAMS[name]))


def check(module: hl.Module, folder: Path, arguments: Any = None, **options: Any) -> None:
    """Compares the results of a library with the JIT's."""
    if arguments is None:
        rng = np.random.default_rng(0)
        arguments = [random_value(rng, shape) for shape in module.entry.parameter_shapes]
    threads, emulator = options.pop("threads", 1), options.pop("emulator", ())
    library = hl.build({"f": module}, threads=threads, **options)
    compile_program(library, folder, threads)
    got, _ = results_of(library, [leaf for a in arguments for leaf in flat(a)], folder, emulator)
    for mine, want in zip(got, flat(hl.compile(module)(*arguments)), strict=True):
        if emulator:
            assert_close(mine, want)
        else:
            assert mine.tobytes() == np.ascontiguousarray(want).tobytes()


def assert_close(mine: Any, want: Any) -> None:
    """Compares results of different processors, whose multiply-adds are fused or not, and vectors longer or shorter."""
    wide = np.complex128 if want.dtype.kind == "c" else np.float64
    np.testing.assert_allclose(mine.astype(wide), want.astype(wide), rtol=1e-3, atol=1e-4)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", PROGRAMS)
def test_libraries_compute_what_the_jit_does(name: str, tmp_path: Path) -> None:
    check(program(name), tmp_path)


def test_a_pool_shares_the_work_and_ends_its_threads(tmp_path: Path) -> None:
    check(hl.parse(WIDE), tmp_path, threads=3)


def test_functions_share_a_library(tmp_path: Path) -> None:
    library = hl.build({"a": program("product"), "b": program("sort")}, tmp_path, name="both", emit=Emit.SHARED)
    assert [*library.binaries] == ["libboth.so"]
    shared = ctypes.CDLL(str(tmp_path / "libboth.so"))
    x, y = np.random.default_rng(0).standard_normal(5000).astype(np.float32), np.empty(5000, np.float32)
    scratch = np.empty(library.functions[1].scratch_bytes + 1, np.uint8)
    pointers = [ctypes.c_void_p(array.ctypes.data) for array in (x, y, scratch)]
    assert shared.b(*pointers, None) == 0 and y.tolist() == np.sort(x).tolist()
    assert shared.b(pointers[0], None, pointers[2], None) == 1


def test_the_examples_run(tmp_path: Path) -> None:
    hl.build({"f": program("narrow"), "g": program("tuple")}, tmp_path, emit=Emit.SHARED)
    done = subprocess.run([sys.executable, str(tmp_path / "example.py")], capture_output=True, text=True, check=True)
    assert "g: result1 f32[3] = [1. 1. 1.]" in done.stdout
    hl.build({"f": program("narrow"), "g": program("tuple")}, tmp_path / "c")
    if shutil.which("cc") and shutil.which("make"):
        subprocess.run(["make", "-s", "-C", str(tmp_path / "c"), "CFLAGS=-Wall -Wextra -Werror"], check=True)
        done = subprocess.run([str(tmp_path / "c" / "example")], capture_output=True, text=True, check=True)
        assert "g: result1 f32[3] = 1 1 1" in done.stdout


def test_names_are_identifiers() -> None:
    assert unique_names(["a.1", "a_1", "int", "3d", "é", "int"]) == ["a_1", "a_1_1", "int_1", "_3d", "_", "int_2"]
    with pytest.raises(hl.ArgumentError, match="but 'f_1'"):
        hl.build({"f.1": program("empty")})


def test_what_needs_python_is_refused() -> None:
    call = 'ROOT c = f32[2] custom-call(x), custom_call_target="my.norm"'
    with pytest.raises(hl.ArgumentError, match=r"'my.norm' cannot be the name of one\n  at %c = f32"):
        hl.build({"f": hl.parse(module_text("x = f32[2] parameter(0)\n" + call))})
    infeed = "t = token[] after-all()\nROOT r = (f32[2], token[]) infeed(t)"
    with pytest.raises(hl.ArgumentError, match="cannot run Python"):
        hl.build({"f": hl.parse(module_text(infeed))})


@pytest.mark.parametrize("count, n", [(1, 40), (3, 5), (33, 7)])
def test_factorisations_need_no_lapack(count: int, n: int, tmp_path: Path) -> None:
    """CHOLESKY-1, TRIANGULARSOLVE-1: of one matrix, a few, and enough for a group in the lanes of vectors."""
    shape = f"f64[{count},{n},{n}]"
    solve = "triangular-solve(l, b), left_side=true, lower=true, transpose_a=NO_TRANSPOSE"
    module = module_text(
        f"a = {shape} parameter(0)\nb = f64[{count},{n},2] parameter(1)\nl = {shape} cholesky(a), lower=true\n"
        f"x = f64[{count},{n},2] {solve}\nROOT r = ({shape}, f64[{count},{n},2]) tuple(l, x)"
    )
    rng = np.random.default_rng(0)
    random, b = rng.standard_normal((count, n, n)), rng.standard_normal((count, n, 2))
    a = random @ random.swapaxes(1, 2) + n * np.eye(n)
    library = hl.build({"f": module}, threads=2)
    compile_program(library, tmp_path, threads=2)
    (lower, x), _ = results_of(library, [a, b], tmp_path)
    np.testing.assert_allclose(np.tril(lower), np.linalg.cholesky(a), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(x, np.linalg.solve(np.linalg.cholesky(a), b), rtol=1e-10, atol=1e-12)


NORM = """
#include <math.h>
#include <string.h>
void norm(void *out, const void **in) { const float *x = in[0]; *(float *)out = sqrtf(x[0] * x[0] + x[1] * x[1]); }
void both(void **out, const void **in) { memcpy(out[0], in[1], 4); memcpy(out[1], in[0], 8); }
"""


def test_custom_calls_are_functions_of_the_program(tmp_path: Path) -> None:
    """CUSTOMCALL-2: `void f(void *out, const void **in)`; several results have an array of addresses."""
    module = module_text(
        'x = f32[2] parameter(0)\nn = f32[] custom-call(x), custom_call_target="norm"\n'
        'ROOT b = (f32[], f32[2]) custom-call(x, n), custom_call_target="both"'
    )
    library = hl.build({"f": module})
    assert "extern void norm(void *out, const void **in);" in library.files["f.h"].decode()
    compile_program(library, tmp_path, sources={"norm.c": NORM})
    (n, x), _ = results_of(library, [np.array([3, 4], np.float32)], tmp_path)
    assert n == 5 and x.tolist() == [3, 4]


def test_the_command(tmp_path: Path) -> None:
    (tmp_path / "m.hlo").write_text(program("tuple").to_text())
    command = [
        "build",
        f"f={tmp_path / 'm.hlo'}",
        "-o",
        str(tmp_path / "out"),
        "--target",
        "aarch64",
        "--emit",
        "objects",
    ]
    shown = CliRunner().invoke(main, command)
    assert shown.exit_code == 0, shown.output
    assert (tmp_path / "out" / "f.o").read_bytes()[18] == 183  # EM_AARCH64
    assert "const float *x_0, /* f32[3] */" in (tmp_path / "out" / "f.h").read_text()


@pytest.mark.long
def test_a_jax_function_becomes_a_program_in_two_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A newcomer needs one command of hloom, and one of the C compiler."""
    pytest.importorskip("jax")
    monkeypatch.chdir(tmp_path)
    Path("model.py").write_text("import jax.numpy as jnp\n\ndef predict(x, w):\n    return jnp.tanh(x @ w)\n")
    shown = CliRunner().invoke(main, ["build", "model.py:predict(f32[4,3], f32[3,2])", "-o", "out"])
    assert shown.exit_code == 0, shown.output
    files = ["out/example.c", "out/predict.o", "out/hloom_runtime.o", "-lm", "-lpthread"]
    subprocess.run(["cc", *files, "-o", "predict"], check=True)
    done = subprocess.run(["./predict"], check=True, capture_output=True, text=True)
    assert done.stdout.startswith("predict: result f32[4,2] = 0.995055 ")
    shown = CliRunner().invoke(main, ["build", "model.py:forecast(f32[4])", "-o", "out"])
    assert shown.exit_code == 2 and "there is no function forecast in model.py" in shown.output


@pytest.mark.long
@pytest.mark.parametrize("case", STORED, ids=lambda case: case.name)
def test_the_corpus_runs_in_libraries(case: Path, tmp_path: Path) -> None:
    meta, module, inputs = load_case(case)
    if not meta.get("replicas") and module.num_partitions == 1 and case.name not in LINEAR_ALGEBRA:
        check(module, tmp_path, inputs[0], threads=2)


LINEAR_ALGEBRA = ("cholesky_solve", "linalg_custom_calls")
"""Programs for which the JIT calls LAPACK."""
CROSS = {"armv7": "qemu-arm-static", "aarch64": "qemu-aarch64-static", "riscv64": "qemu-riscv64-static"}


@pytest.mark.long
@pytest.mark.parametrize("target", CROSS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_libraries_run_on_other_processors(target: str, name: str, tmp_path: Path) -> None:
    emulator = shutil.which(CROSS[target])
    if emulator is None:
        pytest.skip(f"no {CROSS[target]}")
    check(program(name), tmp_path, target=target, emulator=[emulator])


@pytest.mark.long
@pytest.mark.parametrize("target", CROSS)
def test_pools_share_the_work_on_other_processors(target: str, tmp_path: Path) -> None:
    emulator = shutil.which(CROSS[target])
    if emulator is None:
        pytest.skip(f"no {CROSS[target]}")
    check(hl.parse(WIDE), tmp_path, target=target, threads=3, emulator=[emulator])


@pytest.mark.long
@pytest.mark.parametrize("target", ["windows-x86-64", "macos-aarch64", "macos-x86-64"])
def test_the_example_is_linked_for_other_systems(target: str, tmp_path: Path) -> None:
    """Runs on Windows' threads and memory where there is Wine."""
    library = hl.build({"f": WIDE}, tmp_path, target=target, threads=3)
    command = [sys.executable, "-m", "ziglang", "cc", "-target", library.target.zig, "example.c", *library.binaries]
    subprocess.run([*command, "-o", "example.exe"], cwd=tmp_path, check=True, capture_output=True)
    wine = shutil.which("wine") if target == "windows-x86-64" else None
    if wine is not None:
        done = subprocess.run([wine, "example.exe"], cwd=tmp_path, check=True, capture_output=True, text=True)
        assert done.stdout.startswith("f: result f32[600,700] = 2.14169 2.14169")  # exp(tanh(1))
    shared = hl.build({"f": WIDE}, target=target, emit=Emit.SHARED)
    assert [*shared.binaries] == [library.target.shared_name("f")]


MEMCHECK = ["valgrind", "-q", "--error-exitcode=9", "--leak-check=full", "--errors-for-leak-kinds=all"]


@pytest.mark.long
@pytest.mark.skipif(shutil.which("valgrind") is None, reason="no valgrind")
@pytest.mark.parametrize("name", PROGRAMS)
def test_valgrind_finds_no_errors(name: str, tmp_path: Path) -> None:
    """Arrays end where their blocks end; the pool frees its memory. Valgrind knows no AVX-512."""
    check(program(name), tmp_path, target="x86-64-v3", threads=2, emulator=MEMCHECK)


@pytest.mark.long
@pytest.mark.parametrize("case", STORED, ids=lambda case: case.name)
def test_the_corpus_runs_as_web_assembly(case: Path, tmp_path: Path) -> None:
    if shutil.which("node") is None:
        pytest.skip("no node")
    meta, module, inputs = load_case(case)
    if meta.get("replicas") or module.num_partitions > 1:
        return
    library = hl.build({"f": module}, target="wasm32")
    results, _ = web_program.results_in_node(library, [leaf for a in inputs[0] for leaf in flat(a)], tmp_path)
    for mine, want in zip(results, flat(hl.compile(module)(*inputs[0])), strict=True):
        assert_close(mine, want)


def test_web_assembly_converts_vectors_at_once() -> None:
    """Multiply-adds of f32 that are rounded once go by f64; LLVM takes conversions of four elements apart."""
    text = module_text("x = f32[64] parameter(0)\nROOT r = f32[64] erf(x)")
    assembly = hl.build({"f": text}, target="wasm32", emit="asm").binaries["f.s"].decode()
    assert "f32x4.demote_f64x2_zero" in assembly and "f32.demote_f64" not in assembly


@pytest.mark.long
@pytest.mark.skipif(shutil.which("node") is None, reason="no node")
def test_relaxed_multiply_adds_are_as_close(tmp_path: Path) -> None:
    """Engines fuse them or not (GEN-13)."""
    x, w = arguments = [
        np.random.default_rng(k).standard_normal(s).astype(np.float32) for k, s in enumerate([(64, 96), (96, 200)])
    ]
    library = hl.build({"f": program("product")}, target="wasm32-relaxed")
    assert bytes([0xFD, 0x85, 2]) in library.binaries["f.wasm"]  # f32x4.relaxed_madd
    flag = "--experimental-wasm-relaxed-simd"
    options = [flag] if flag in subprocess.run(["node", "--v8-options"], capture_output=True, text=True).stdout else []
    (got,), _ = web_program.results_in_node(library, arguments, tmp_path, options=options)
    assert_close(got, hl.compile(program("product"))(x, w))


@pytest.mark.long
@pytest.mark.skipif(shutil.which("node") is None, reason="no node")
def test_workers_share_the_work_in_node(tmp_path: Path) -> None:
    library = hl.build({"f": WIDE}, target="wasm32", threads=3)
    (x,) = arguments = [np.random.default_rng(0).standard_normal((600, 700)).astype(np.float32)]
    (got,), _ = web_program.results_in_node(library, arguments, tmp_path, seconds=0.5)
    assert_close(got, hl.compile(WIDE)(x))


@pytest.mark.long
def test_workers_share_the_work_in_a_page(tmp_path: Path) -> None:
    pytest.importorskip("selenium.webdriver")
    if shutil.which("chromedriver") is None:
        pytest.skip("no chromedriver")
    library = hl.build({"f": WIDE}, target="wasm32", threads=3)
    (x,) = arguments = [np.random.default_rng(0).standard_normal((600, 700)).astype(np.float32)]
    with web_program.opened(tmp_path) as browser:
        (got,), _ = browser.results(library, arguments, tmp_path / "f", seconds=0.5)
        assert browser.driver.execute_script("return crossOriginIsolated")
    assert_close(got, hl.compile(WIDE)(x))


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Any]:
    pytest.importorskip("selenium.webdriver")
    if shutil.which("chromedriver") is None:
        pytest.skip("no chromedriver")
    with web_program.opened(tmp_path) as opened:
        yield opened.driver


def open_page(browser: Any, page: Path) -> str:
    """The text of a page that runs without complaint."""
    browser.get(f"file://{page}")
    assert browser.execute_script("return document.body.dataset.ready") == "yes"
    assert browser.get_log("browser") == []
    return browser.find_element("tag name", "body").text


@pytest.mark.long
def test_the_page_runs_in_a_browser(browser: Any, tmp_path: Path) -> None:
    hl.build({"f": program("product"), "g": program("narrow")}, tmp_path, target="wasm32", threads=2)
    assert "result f32[64,200]" in open_page(browser, tmp_path / "index.html")


@pytest.mark.long
def test_the_fluid_of_the_examples_flows(browser: Any, tmp_path: Path) -> None:
    subprocess.run([sys.executable, str(ROOT / "examples" / "web" / "fluid.py")], cwd=tmp_path, check=True)
    assert "Drag to stir" in open_page(browser, tmp_path / "build" / "fluid" / "index.html")
    time.sleep(1)
    assert browser.execute_script(
        "return document.querySelector('canvas').getContext('2d').getImageData(0, 0, 128, 128).data.some((x, k) => k % 4 < 3 && x > 100)"
    )
