"""Programs in several modules, compiled in parallel, and the calls into LLVM for that."""

from __future__ import annotations

import ctypes
import re
import subprocess
import sys
import threading
import types
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import numpy as np
import pytest

import hloom as hl
from hloom.backends.cpu.codegen import modules as program_modules
from hloom.backends.cpu.codegen.emitter import emit_program
from hloom.backends.cpu.llvm import calls as llvm_calls
from hloom.backends.cpu.llvm import machine_code
from hloom.backends.cpu.llvm.calls import LlvmCalls
from hloom.backends.cpu.llvm.processor import FAST_DIVISION, processor
from hloom.backends.cpu.program.buffer_assignment import assign_buffers
from hloom.backends.cpu.program.build_program import build_program
from hloom.target import Target

# A product, a sort, a nest that is split into chunks, and a blocked loop.
PROGRAM = """HloModule m
less { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = pred[] compare(a, b), direction=LT }
body { s = (s32[], f32[300000]) parameter(0)
  k = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  next = s32[] add(k, one)
  v = f32[300000] get-tuple-element(s), index=1
  half = f32[] constant(0.5)
  h = f32[300000] broadcast(half), dimensions={}
  w = f32[300000] multiply(v, h)
  ROOT t = (s32[], f32[300000]) tuple(next, w) }
condition { s = (s32[], f32[300000]) parameter(0)
  k = s32[] get-tuple-element(s), index=0
  n = s32[] get-tuple-element(s), index=0
  limit = s32[] constant(100)
  ROOT r = pred[] compare(k, limit), direction=LT }
ENTRY e {
  x = f32[40,50] parameter(0)
  y = f32[50,30] parameter(1)
  z = f32[300000] parameter(2)
  p = f32[40,30] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  q = f32[40,30] sort(p), dimensions={1}, to_apply=less
  a = f32[300000] abs(z)
  r = f32[300000] sqrt(a)
  zero = s32[] constant(0)
  start = (s32[], f32[300000]) tuple(zero, z)
  end = (s32[], f32[300000]) while(start), condition=condition, body=body
  l = f32[300000] get-tuple-element(end), index=1
  ROOT t = (f32[40,30], f32[300000], f32[300000]) tuple(q, r, l)
}
"""
ADDITION = "define i64 @add(i64 %a, i64 %b) {\n  %c = add i64 %a, %b\n  ret i64 %c\n}\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HLOOM_CACHE_DIR", str(tmp_path))
    return tmp_path


def arguments() -> list[np.ndarray]:
    random = np.random.default_rng(0)
    shapes = [(40, 50), (50, 30), (300000,)]
    return [random.integers(-8, 8, shape).astype(np.float32) for shape in shapes]


def check(run: hl.Executable) -> None:
    x, y, z = arguments()
    q, r, v = run(x, y, z)
    assert np.array_equal(q, np.sort(x @ y, axis=1))
    assert np.array_equal(r, np.sqrt(np.abs(z)))
    assert np.array_equal(v, z * np.float32(0.5) ** 100)


def texts_of(text: str, threads: int = 2) -> list[str]:
    program = build_program(hl.parse(text), Target(processor().vector_bytes, threads))
    return emit_program(program, assign_buffers(program), processor().vector_bytes)


@pytest.mark.parametrize("cost", [1, 2_000, 1 << 40])
def test_programs_in_pieces_compute_the_same(folder: Path, monkeypatch: pytest.MonkeyPatch, cost: int) -> None:
    monkeypatch.setattr(program_modules, "MIN_MODULE_COST", cost)
    check(hl.compile(PROGRAM, backend="cpu"))


def test_kernels_are_pieces_of_their_own_and_those_of_short_programs_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(texts_of("HloModule m\nENTRY e {\n  x = f32[5] parameter(0)\n  ROOT y = f32[5] add(x, x)\n}\n")) == 2
    monkeypatch.setattr(program_modules, "MIN_MODULE_COST", 1)
    main, *pieces = texts_of(PROGRAM)
    assert "define i32 @hloom_main(" in main
    for kernel in (r"define \w* ?void @product\.[^(]*\(", r"define \w* ?void @sort\d+\.rows\("):
        assert sum(bool(re.search(kernel, piece)) for piece in pieces) == 1
        assert not re.search(kernel, main)
    assert texts_of(PROGRAM) == [main, *pieces]


def test_each_piece_is_kept_on_disk_and_a_damaged_one_is_mended(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program_modules, "MIN_MODULE_COST", 1)
    check(hl.compile(PROGRAM, backend="cpu"))
    kept = {path: path.read_bytes() for path in folder.glob("*.o")}
    assert len(kept) > 3
    for path in kept:
        path.write_bytes(b"damaged")
    for program in folder.glob("*.program"):
        program.unlink()
    check(hl.compile(PROGRAM, backend="cpu"))
    assert {path: path.read_bytes() for path in folder.glob("*.o")} == kept


def test_threads_compile_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLOOM_CACHE_DIR", "")
    monkeypatch.setattr(program_modules, "MIN_MODULE_COST", 1)
    with ThreadPoolExecutor(4) as executor:
        for run in executor.map(lambda _: hl.compile(PROGRAM, backend="cpu"), range(8)):
            check(run)


def test_calls_run_at_the_same_time_with_this_llvmlite() -> None:
    assert llvm_calls.llvm_calls().are_parallel


@pytest.mark.parametrize(
    "insides", [types.SimpleNamespace(), types.SimpleNamespace(lib=types.SimpleNamespace(_name="/no/such/library"))]
)
def test_an_llvmlite_with_other_insides_is_called_as_it_wants(
    monkeypatch: pytest.MonkeyPatch, insides: types.SimpleNamespace
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(llvm_calls, "ffi", insides)
        calls = llvm_calls.llvm_calls()
    assert type(calls) is LlvmCalls
    monkeypatch.setenv("HLOOM_CACHE_DIR", "")
    monkeypatch.setattr(machine_code, "_calls", lambda: calls)
    with machine_code.Compilation(threads=2) as compilation:
        compilation.begin([ADDITION])
        files = compilation.finish([ADDITION.replace("add", "sub")])
    code = machine_code.load_object(*files)
    native = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
    assert native(code.address("add"))(7, 3) == 10
    assert native(code.address("sub"))(7, 3) == 4


def test_text_that_llvm_refuses_is_an_error_and_the_next_one_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLOOM_CACHE_DIR", "")
    with pytest.raises(RuntimeError, match="parsing error"):
        machine_code.compile_text("define i64 @f( {")
    assert machine_code.compile_text(ADDITION)


def test_compilers_of_a_crowd_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    most = machine_code._needed[True] + machine_code.MAX_IDLE
    together, compile = threading.Barrier(most + 3, timeout=60), machine_code._Compiler.compile

    def crowded(self: machine_code._Compiler, text: str) -> bytes:
        together.wait()
        return compile(self, text)

    monkeypatch.setattr(machine_code._Compiler, "compile", crowded)
    text = f"{machine_code.CALL_ONLY}define void @f() {{\n  ret void\n}}\n"
    with ThreadPoolExecutor(most + 3) as executor:
        assert len({*executor.map(machine_code.make_object, [text] * (most + 3))}) == 1
    assert len(machine_code._idle_compilers[True]) == machine_code._compiler_counts[True] == most


def test_the_longest_module_begins_before_other_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller compiles it; what is called meanwhile runs on another thread, after the last of the other modules."""
    events: list[str] = []
    called = threading.Event()
    longest = ADDITION.replace("add", "longest")

    def compile_text(text: str) -> bytes:
        if text == longest:
            assert called.wait(60)
        events.append(f"{text == longest} {threading.current_thread() is threading.main_thread()}")
        return text.encode()

    def meanwhile() -> None:
        events.append("meanwhile")
        called.set()

    monkeypatch.setattr(machine_code, "compile_text", compile_text)
    with machine_code.Compilation(threads=2) as compilation:
        files = compilation.finish([ADDITION, longest], meanwhile)
    assert files == [longest.encode(), ADDITION.encode()]
    assert events == ["False False", "meanwhile", "True True"]


def test_the_next_program_is_compiled_by_the_same_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[threading.Thread] = []

    def compile_text(text: str) -> bytes:
        threads.append(threading.current_thread())
        return text.encode()

    monkeypatch.setattr(machine_code, "compile_text", compile_text)
    for _ in range(2):
        with machine_code.Compilation(threads=2) as compilation:
            compilation.begin([ADDITION])
            wait(compilation._futures)
    assert threads[0] is threads[1] is not threading.current_thread()


LATE = """
import atexit, os, sys, threading
os.environ.update(HLOOM_NUM_THREADS="2", HLOOM_CACHE_DIR="")
import hloom as hl

def compiled(opcode):
    return hl.compile("ENTRY e { x = f32[] parameter(0)\\n ROOT y = f32[] " + opcode + "(x) }")

def late():
    threading.main_thread().join()
    print(compiled("negate")(2.0))

if sys.argv[1] != "first":
    compiled("sine")
if sys.argv[1] != "atexit":
    threading.Thread(target=late).start()
else:
    atexit.register(lambda: print(compiled("negate")(2.0)))
"""


@pytest.mark.parametrize("when", ["thread", "atexit", "first"])
def test_programs_compile_after_the_main_thread_has_ended(when: str) -> None:
    done = subprocess.run([sys.executable, "-c", LATE, when], capture_output=True, text=True, timeout=250)
    assert (done.stdout.strip(), done.stderr) == ("-2.0", "")


@pytest.mark.skipif(not processor().has(FAST_DIVISION), reason="needs a processor that divides 64 bits fast")
def test_divisions_of_64_bits_are_one_instruction() -> None:
    text = "define i64 @f(i64 %a, i64 %b) {\n  %c = udiv i64 %a, %b\n  ret i64 %c\n}\n"
    code = machine_code.assembly(text)
    assert "divq" in code and "divl" not in code
