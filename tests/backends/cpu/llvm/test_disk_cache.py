"""The cache of machine code on disk."""

import hashlib
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hloom as hl
from hloom.backends.cpu import compiler
from hloom.backends.cpu.codegen import modules
from hloom.backends.cpu.elements import shared
from hloom.backends.cpu.kernels.sort.network import has_networks
from hloom.backends.cpu.kernels.usual import usual_programs
from hloom.backends.cpu.llvm import disk_cache, machine_code
from hloom.backends.cpu.llvm.processor import processor
from hloom.backends.cpu.runtime import dispatch, interrupts
from hloom.backends.cpu.runtime.thread_pool import shared_pool
from hloom.system import own_files
from hloom.types import BY_NAME

CONTRACTING = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
TEXT = "HloModule m\nENTRY e {\n  x = f32[5] parameter(0)\n  ROOT y = f32[5] add(x, x)\n}\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    # The code that all programs share is not counted.
    dispatch.method()
    interrupts.poll_address()
    shared_pool()
    monkeypatch.setenv("HLOOM_CACHE_DIR", str(tmp_path))
    return tmp_path


def test_a_second_compilation_takes_the_object_file_from_disk(folder: Path) -> None:
    made = []

    def make() -> bytes:
        made.append(1)
        return b"code"

    assert disk_cache.cached("text", "target", make) == b"code"
    assert disk_cache.cached("text", "target", make) == b"code"
    assert disk_cache.cached("text", "other target", make) == b"code"
    assert len(made) == 2
    assert len(list(folder.glob("*.o"))) == 2


@pytest.mark.parametrize("damage", [b"", b"x", b"x" * 100])
@pytest.mark.parametrize("kind", ["o", "program"])
def test_a_damaged_file_counts_as_missing_and_is_mended(folder: Path, damage: bytes, kind: str) -> None:
    run = hl.compile(TEXT, backend="cpu")
    kept = {file: file.read_bytes() for file in folder.glob(f"*.{kind}")}
    assert kept
    if kind == "o":
        for program in folder.glob("*.program"):
            program.unlink()
    for file, whole in kept.items():
        file.write_bytes(damage or whole[:-1])
    again = hl.compile(TEXT, backend="cpu")
    x = np.arange(5, dtype=np.float32)
    assert (run(x) == 2 * x).all() and (again(x) == 2 * x).all()
    assert {file: file.read_bytes() for file in kept} == kept


def test_a_program_is_compiled_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second process (here: a second call) goes from the module straight to the machine code."""
    x = np.arange(5, dtype=np.float32)
    assert (hl.compile(TEXT)(x) == 2 * x).all()
    monkeypatch.setattr(compiler, "build_program", no_compilation)
    assert (hl.compile(TEXT.replace("y =", "z ="))(x) == 2 * x).all()
    for other in (TEXT.replace("add", "multiply"), TEXT.replace("f32", "f64")):
        with pytest.raises(AssertionError, match="compiled"):
            hl.compile(other)


def no_compilation(*_: object, **__: object) -> None:
    raise AssertionError("the module is compiled anew")


HOST = """HloModule m, replica_count=2
sum { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }
on { x = f32[3] parameter(0)  ROOT s = f32[3] all-reduce(x), to_apply=sum }
off { ROOT x = f32[3] parameter(0) }
ENTRY e {
  x = f32[3] parameter(0)
  p = pred[] parameter(1)
  y = f32[3] conditional(p, x, x), true_computation=on, false_computation=off
  t = token[] after-all()
  s = (f32[3], u32[], token[]) send(y, t), channel_id=1, frontend_attributes={_xla_send_recv_source_target_pairs="{{0,1}}"}
  sent = token[] send-done(s), channel_id=1
  r = (f32[3], u32[], token[]) recv(t), channel_id=1, frontend_attributes={_xla_send_recv_source_target_pairs="{{0,1}}"}
  d = (f32[3], token[]) recv-done(r), channel_id=1
  got = f32[3] get-tuple-element(d), index=0
  n = s32[] convert(p)
  b = f32[<=3] set-dimension-size(got, n), dimensions={0}
  ROOT out = (f32[3], f32[<=3]) tuple(y, b)
}"""
"""A collective in a branch, a transfer, and an array of a dynamic size."""


def test_a_program_that_needs_the_host_is_compiled_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.arange(3, dtype=np.float32)
    for _ in range(2):
        (y, b), (z, c) = hl.compile(HOST).run_replicas([(x, True), (x + 1, True)])
        assert list(y) == list(z) == [1, 3, 5] and list(b) == [0] and list(c) == [1]
        monkeypatch.setattr(compiler, "build_program", no_compilation)


def test_errors_show_the_names_and_lines_of_their_own_program(folder: Path) -> None:
    for _ in range(2):
        for name, line in (("y", 4), ("z", 4), ("z", 5)):
            gap = "\n" * (line - 4)
            text = f"""HloModule m
            ENTRY e {{ x = f32[<=3] parameter(0)
              v = f32[<=3] parameter(1){gap}
              ROOT {name} = f32[<=3] add(x, v)
            }}"""
            with pytest.raises(hl.RunError, match=rf"%{name} = .*line {line}"):
                hl.compile(text)(np.zeros(2, np.float32), np.zeros(3, np.float32))


def test_programs_differ_by_what_their_long_constants_hold(folder: Path) -> None:
    text = "HloModule m\nENTRY e {{\n  ROOT c = f32[40] constant({{{}}})\n}}\n"
    for last in (1.0, 2.0, -0.0):
        values = [0.5] * 39 + [last]
        assert list(hl.compile(text.format(", ".join(map(str, values))))()) == values


def test_programs_are_forgotten_when_the_code_of_hloom_changes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hl.compile(TEXT)
    monkeypatch.setattr(disk_cache, "code_version", lambda: "other")
    monkeypatch.setattr(compiler, "build_program", no_compilation)
    with pytest.raises(AssertionError, match="compiled"):
        hl.compile(TEXT)


def test_no_program_is_kept_where_changes_of_the_code_cannot_be_told(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_cache, "code_version", lambda: "")
    x = np.arange(5, dtype=np.float32)
    assert (hl.compile(TEXT)(x) == 2 * x).all()
    assert not list(folder.glob("*.program")) and len(list(folder.glob("*.o"))) == 2  # the kernel, and what calls it


def test_who_watches_the_passes_sees_them_run(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hl.compile(TEXT)
    monkeypatch.setenv("HLOOM_DUMP", str(tmp_path / "dump"))
    hl.compile(TEXT)
    assert (tmp_path / "dump" / "m" / "program.ll").exists()


def test_donation_and_tuples_come_back_from_disk(folder: Path) -> None:
    text = """HloModule m, input_output_alias={ {1}: (0, {}, may-alias) }
    ENTRY e {
      x = f32[5] parameter(0)
      p = (f32[5], s32[]) parameter(1)
      a = f32[5] get-tuple-element(p), index=0
      n = s32[] get-tuple-element(p), index=1
      y = f32[5] add(x, a)
      s = (f32[5]) tuple(a)
      ROOT t = (s32[], f32[5], (f32[5])) tuple(n, y, s)
    }"""
    a = np.ones(5, np.float32)
    for _ in range(2):
        x = np.arange(5, dtype=np.float32)
        n, y, (same,) = hl.compile(text, donate=True)(x, (a, 7))
        assert n == 7 and list(y) == [1, 2, 3, 4, 5] and list(same) == [1] * 5
    assert len(list(folder.glob("*.program"))) == 1


def test_a_folder_that_cannot_be_written_to_does_not_matter(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("HLOOM_CACHE_DIR", str(blocked / "sub"))
    x = np.arange(5, dtype=np.float32)
    assert (hl.compile(TEXT, backend="cpu")(x) == 2 * x).all()


def test_an_empty_name_keeps_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HLOOM_CACHE_DIR", "")
    hl.compile(TEXT, backend="cpu")
    assert disk_cache.cache_folder() is None
    assert not os.listdir(tmp_path)


def test_the_least_recently_used_files_go_first(tmp_path: Path) -> None:
    for k in range(4):
        (tmp_path / f"{k}.o").write_bytes(bytes(10))
        os.utime(tmp_path / f"{k}.o", (k, k))
    os.utime(tmp_path / "0.o")
    disk_cache.remove_oldest(tmp_path, 25)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0.o", "3.o"]


def test_processes_may_write_at_once(folder: Path) -> None:
    program = f"import hloom as hl, numpy as np\nprint(hl.compile({TEXT!r}, backend='cpu')(np.ones(5, 'f4')).sum())"
    running = [subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert [process.communicate()[0].strip() for process in running] == ["10.0"] * 2
    # The kernel, what calls it, and what all programs share: dispatch, interrupts, the pool of threads.
    assert len(list(folder.glob("*.o"))) == 5
    assert not list(folder.glob(".*.part"))


def is_compiled_anew(monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether a second compilation finds neither a program nor an object file; what it makes is right."""
    made = []
    emit = machine_code.make_object
    monkeypatch.setattr(machine_code, "make_object", lambda text: (made.append(text), emit(text))[1])
    x = np.arange(5, dtype=np.float32)
    assert (hl.compile(TEXT)(x) == 2 * x).all()
    return bool(made)


class Evil:
    def __reduce__(self) -> Any:
        return (pytest.fail, ("code of the cache has run",))


def pickled(path: Path) -> None:
    body = pickle.dumps(Evil())
    path.write_bytes(hashlib.sha256(body).digest() + body)


def checked_by_everybody(path: Path) -> None:
    """Writes other code, with the checksum that anybody can make of it."""
    body = path.read_bytes()[32:].replace(b"hloom_main", b"another_on")
    path.write_bytes(hashlib.sha256(body).digest() + body)


def taken_for_another(path: Path) -> None:
    """The file of another program, under this one's name."""
    hl.compile(TEXT.replace("add", "multiply"))
    own = path.read_bytes()
    others = (other.read_bytes() for other in path.parent.glob(f"*{path.suffix}"))
    path.write_bytes(next(other for other in others if other != own))


def open_to_all(path: Path) -> None:
    path.chmod(0o666)


def given_away(path: Path) -> None:
    os.chown(path, 65534, 65534)


@pytest.mark.parametrize(
    "change",
    [
        *(pickled, checked_by_everybody, taken_for_another, open_to_all),
        pytest.param(given_away, marks=pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")),
    ],
)
def test_what_somebody_else_wrote_is_not_loaded(
    change: Callable[[Path], None], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hl.compile(TEXT)
    with monkeypatch.context() as unchanged:
        assert not is_compiled_anew(unchanged)
    for path in [*folder.glob("*.o"), *folder.glob("*.program")]:
        change(path)
    with monkeypatch.context() as changed:
        assert is_compiled_anew(changed)
    with monkeypatch.context() as mended:
        assert not is_compiled_anew(mended)


def test_what_another_user_signed_is_not_loaded(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that was brought from elsewhere: all of it is one's own, but for the key."""
    hl.compile(TEXT)
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setattr(own_files, "cache_folder_of_user", lambda: home)
    assert is_compiled_anew(monkeypatch)


def test_a_folder_of_everybody_keeps_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    monkeypatch.setenv("HLOOM_CACHE_DIR", str(shared))
    x = np.arange(5, dtype=np.float32)
    with pytest.warns(UserWarning, match="others may have written"):
        assert (hl.compile(TEXT)(x) == 2 * x).all()
    assert not [*shared.iterdir()]


def test_a_new_folder_is_the_users_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLOOM_CACHE_DIR", str(tmp_path / "new"))
    hl.compile(TEXT)
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "new").iterdir()} == {0o600}
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700


def test_programs_share_functions(folder: Path) -> None:
    def made(rows: int, length: int) -> tuple[set[str], Any]:
        before = {file.name for file in folder.glob("*.o")}
        text = f"HloModule m  ENTRY e {{ x = c64[{rows},{length}] parameter(0)  ROOT y = c64[{rows},{length}] fft(x), "
        run = hl.compile(f"{text} fft_type=FFT, fft_length={{{length}}} }}")
        return {file.name for file in folder.glob("*.o")} - before, run

    first, _ = made(64, 1024)
    second, run = made(64, 256)
    x = np.random.default_rng(0).standard_normal((64, 256)).astype(np.complex64)
    np.testing.assert_allclose(run(x), np.fft.fft(x), rtol=0, atol=1e-4)
    # All stages are those of the first program.
    assert len(first) >= 5 and len(second) == 1


@pytest.mark.sampled(6)
@pytest.mark.parametrize("terms_of", [(1, 0), (1, 1), (0, 0)])
@pytest.mark.parametrize(("factor", "result"), [("f32", "f32"), ("f64", "f64"), ("bf16", "f32"), ("s8", "s32")])
def test_products_of_several_sizes_share_their_tile(
    folder: Path, factor: str, result: str, terms_of: tuple[int, int]
) -> None:
    of_lhs, of_rhs = terms_of

    def made(terms: int) -> tuple[list[str], Any]:
        before = {*folder.glob("*.o")}
        lhs, rhs = (f"{factor}[{f'256,{terms}' if of else f'{terms},256'}]" for of in terms_of)
        run = hl.compile(
            f"HloModule m  ENTRY e {{ x = {lhs} parameter(0)  y = {rhs} parameter(1)  ROOT z = {result}[256,256] dot(x, y),"
            f" lhs_contracting_dims={{{of_lhs}}}, rhs_contracting_dims={{{of_rhs}}} }}"
        )
        return sorted({*folder.glob("*.o")} - before), run

    first, _ = made(200)
    second, run = made(232)
    shapes = [(256, 232) if of else (232, 256) for of in terms_of]
    x, y = (np.random.default_rng(0).integers(-5, 5, shape) for shape in shapes)
    expected = (x if of_lhs else x.T) @ (y.T if of_rhs else y)
    arguments = (each.astype(BY_NAME[factor].dtype) for each in (x, y))
    assert np.array_equal(np.asarray(run(*arguments)).astype(np.float64), expected)
    assert len(second) <= 2 < len(first), "tiles and packing are kept"


def test_sorts_of_several_sizes_share_their_merge(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modules, "is_strict", lambda: False)
    monkeypatch.setattr(shared, "_shared", {})

    def sort(size: int) -> str:
        parameters = "a = s32[] parameter(0)  b = s32[] parameter(1)"
        return (
            f"HloModule m  less {{ {parameters}  ROOT l = pred[] compare(a, b), direction=LT }}  ENTRY e {{"
            f" x = s32[{size}] parameter(0)  ROOT y = s32[{size}] sort(x), dimensions={{0}}, to_apply=less }}"
        )

    compiler.compile_shared(hl.parse(sort(10_000)))
    merges = [name for _, name in shared._shared if name.startswith("sort.merge")]
    assert bool(merges) == (has_networks(processor().vector_bytes) and shared_pool().threads > 1)
    shared._shared.clear()
    run = hl.compile(sort(20_011))
    assert all(function.write for function in shared._shared.values()), "all are kept"
    x = np.random.default_rng(0).integers(-9000, 9000, 20_011, np.int32)
    assert np.array_equal(run(x), np.sort(x))


@pytest.mark.long
def test_usual_programs_have_the_functions_of_others(folder: Path) -> None:
    for text in usual_programs():
        compiler.compile_shared(hl.parse(text))
    before = {*folder.glob("*.o")}
    lengths = 512, 768, 1000, 360, 720, 2048
    for n in lengths:
        text = f"HloModule m  ENTRY e {{ x = c64[96,{n}] parameter(0)  ROOT y = c64[96,{n}] fft(x), fft_type=FFT, "
        hl.compile(f"{text} fft_length={{{n}}} }}")
    assert len({*folder.glob("*.o")} - before) == len(lengths)
    before = {*folder.glob("*.o")}
    sizes = (200, 200), (576, 576), (480, 96)
    for n, m in sizes:
        text = f"HloModule m  ENTRY e {{ x = c64[{n},{m}] parameter(0)  ROOT y = c64[{n},{m}] fft(x), fft_type=FFT, "
        hl.compile(f"{text} fft_length={{{n},{m}}} }}")
    assert len({*folder.glob("*.o")} - before) == len(sizes)


def test_shared_functions_that_are_kept_are_not_written(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def transform(rows: int) -> str:
        text = f"HloModule m  ENTRY e {{ x = c64[{rows},64] parameter(0)  ROOT y = c64[{rows},64] fft(x)"
        return f"{text}, fft_type=FFT, fft_length={{64}} }}"

    monkeypatch.setattr(modules, "is_strict", lambda: False)
    monkeypatch.setattr(shared, "_shared", {})
    compiler.compile_shared(hl.parse(transform(32)))
    assert all(function.write is None for function in shared._shared.values())
    shared._shared.clear()
    run = hl.compile(transform(48))
    assert shared._shared and all(function.write for function in shared._shared.values())
    x = np.random.default_rng(0).standard_normal((48, 128)).astype(np.float32).view(np.complex64)
    np.testing.assert_allclose(run(x), np.fft.fft(x.astype(np.complex128)), rtol=0, atol=1e-5 * 64)
    monkeypatch.setattr(disk_cache, "code_version", lambda: "another")
    monkeypatch.setattr(machine_code, "code_version", lambda: "another")
    hl.compile(transform(80))
    assert all(function.write is None for function in shared._shared.values())


def sines(size: int) -> str:
    """Returns a program that calls the shared functions for sines and for their large operands."""
    lines = "\n".join(f"  x{k + 1} = f32[{size}] sine(x{k})" for k in range(5))
    return f"HloModule m  ENTRY e {{ x0 = f32[{size}] parameter(0)\n{lines}\n  ROOT y = f32[{size}] negate(x5) }}"


def test_functions_of_elements_that_are_kept_are_not_written(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modules, "is_strict", lambda: False)
    monkeypatch.setattr(shared, "_shared", {})
    compiler.compile_shared(hl.parse(sines(4096)))
    written = {name for (_, name), function in shared._shared.items() if function.write is None}
    assert {name.split(".")[0] for name in written} == {"sine", "reduce_large"} and len(list(folder.glob("*.o"))) == 2
    shared._shared.clear()
    run = hl.compile(sines(8192))
    assert len(shared._shared) == 2 and all(function.write for function in shared._shared.values())
    x = np.geomspace(1e-3, 1e30, 8192).astype(np.float32)
    expected = x.astype(np.float64)
    for _ in range(5):
        expected = np.sin(expected)
    np.testing.assert_allclose(run(x), -expected, rtol=0, atol=1e-6)


def test_a_lone_shared_function_is_taken_from_disk(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modules, "is_strict", lambda: False)
    monkeypatch.setattr(shared, "_shared", {})
    # The remainders of both sizes are equal for any vector, and call the same function.
    program = "HloModule m  ENTRY e {{ x = f32[{0}] parameter(0)  ROOT y = f32[{0}] sine(x) }}"
    compiler.compile_shared(hl.parse(program.format(100)))
    shared._shared.clear()
    run = hl.compile(program.format(52))
    assert shared._shared and all(function.write for function in shared._shared.values())
    x = np.float32(1e20) * np.arange(52, dtype=np.float32)
    np.testing.assert_allclose(run(x), np.sin(x.astype(np.float64)), rtol=0, atol=1e-6)
