"""Fourier transforms in native code against NumPy's in double precision: kinds, types, lengths, dimensions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import hloom as hl
from hloom.backends.cpu.kernels.code import KernelCode
from hloom.backends.cpu.kernels.fft.fft import emit
from hloom.backends.cpu.llvm.machine_code import COMBINED, assembly
from hloom.backends.cpu.llvm.processor import processor
from hloom.lir import Function, LirModule
from hloom.ops.attributes import FftType
from hloom.ops.fft import Fft
from hloom.passes.legalize.fft_lengths import radices_of
from hloom.target import Target

KINDS = ("FFT", "IFFT", "RFFT", "IRFFT")
DTYPES = {"f32": (np.float32, np.complex64), "f64": (np.float64, np.complex128)}
ERRORS = {"f32": 2.0**-24, "f64": 2.0**-53}
EXACT: dict[str, Any] = {"FFT": np.fft.fftn, "IFFT": np.fft.ifftn, "RFFT": np.fft.rfftn, "IRFFT": np.fft.irfftn}


def module(kind: str, sizes: Sequence[int], axes: int, real: str) -> tuple[str, list[int]]:
    """Returns the text of a transform of the last axes, and the sizes of its parameter."""
    whole, half = ",".join(map(str, sizes)), ",".join(map(str, [*sizes[:-1], sizes[-1] // 2 + 1]))
    wide = {"f32": "c64", "f64": "c128"}[real]
    given = {"RFFT": f"{real}[{whole}]", "IRFFT": f"{wide}[{half}]"}.get(kind, f"{wide}[{whole}]")
    made = {"RFFT": f"{wide}[{half}]", "IRFFT": f"{real}[{whole}]"}.get(kind, f"{wide}[{whole}]")
    lengths = ",".join(map(str, sizes[len(sizes) - axes :]))
    text = f"ENTRY e {{ p = {given} parameter(0) ROOT r = {made} fft(p), fft_type={kind}, fft_length={{{lengths}}} }}"
    return f"HloModule m\n{text}", [int(size) for size in (half if kind == "IRFFT" else whole).split(",")]


def check(kind: str, sizes: Sequence[int], axes: int, real: str) -> None:
    """Errors grow with the logarithm of the length, and three times as fast for lengths with large prime factors."""
    text, given = module(kind, sizes, axes, real)
    rng = np.random.default_rng(7)
    x = rng.standard_normal(given)
    if kind != "RFFT":
        x = x + 1j * rng.standard_normal(given)
    narrow, wide = DTYPES[real]
    x = x.astype(narrow if kind == "RFFT" else wide)
    run = hl.compile(text)
    assert not run.report()
    lengths = sizes[len(sizes) - axes :]
    exact = x.astype(np.float64 if kind == "RFFT" else np.complex128)
    want = EXACT[kind](exact, s=lengths, axes=range(len(sizes) - axes, len(sizes)))
    times = 4 if all(radices_of(length) for length in lengths) else 12
    allowed = times * ERRORS[real] * max(1.0, math.log2(math.prod(lengths))) * math.sqrt(np.mean(np.abs(want) ** 2)) * 4
    got = np.asarray(run(x))
    assert got.dtype == (narrow if kind == "IRFFT" else wide)
    assert np.abs(got - want).max() <= allowed


SHORT = (1, 2, 3, 4, 5, 7, 8, 12, 16, 30, 31, 37, 64, 74, 100, 127, 128, 360)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", SHORT)
def test_rows(n: int, kind: str) -> None:
    check(kind, (17, n), 1, "f32")
    check(kind, (3, n), 1, "f64")


@pytest.mark.sampled(6)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sizes", [(1,), (64,), (1021,), (2048,), (6000,), (16 * 1009,), (2, 4096), (2, 2 * 37 * 64)])
def test_one_sequence_alone_and_long_ones(sizes: tuple[int, ...], kind: str) -> None:
    check(kind, sizes, 1, "f32")


@pytest.mark.sampled(4)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "sizes, axes", [((8, 8), 2), ((2, 33, 16), 2), ((5, 12, 7), 3), ((41, 37), 2), ((3, 16, 20, 24), 3)]
)
def test_several_dimensions(sizes: tuple[int, ...], axes: int, kind: str) -> None:
    check(kind, sizes, axes, "f32")
    check(kind, sizes, axes, "f64")


@pytest.mark.sampled(6)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sizes", [(40, 1024), (33, 768), (7, 256), (20, 4096), (5, 3000), (301, 64), (67, 448)])
def test_rows_that_threads_share(sizes: tuple[int, ...], kind: str) -> None:
    check(kind, sizes, 1, "f32")
    check(kind, sizes, 1, "f64")


@pytest.mark.sampled(4)
@pytest.mark.parametrize("kind", ["FFT", "IFFT"])
@pytest.mark.parametrize("sizes", [(512, 40), (1024, 33), (1009, 20), (243, 50), (2048, 17), (3, 64, 300)])
def test_columns_far_apart(sizes: tuple[int, ...], kind: str) -> None:
    check(kind, sizes, 2, "f32")
    check(kind, sizes, 2, "f64")


@pytest.mark.parametrize("kind, sizes, axes", [("FFT", (2053,), 1), ("RFFT", (4095,), 1), ("IFFT", (4096, 3), 2)])
def test_what_is_made_of_other_transforms(kind: str, sizes: tuple[int, ...], axes: int) -> None:
    check(kind, sizes, axes, "f32")


def test_empty_transforms_give_what_the_interpreter_gives() -> None:
    text = "HloModule m\nENTRY e { p = c64[0,8] parameter(0) ROOT r = c64[0,8] fft(p), fft_type=FFT, fft_length={8} }"
    assert hl.compile(text)(np.zeros((0, 8), np.complex64)).shape == (0, 8)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [15, 16])
def test_sequences_do_not_change_each_other(n: int, kind: str) -> None:
    text, given = module(kind, (40, n), 1, "f32")
    run = hl.compile(text)
    plain = np.random.default_rng(1).standard_normal(given).astype(DTYPES["f32"][kind != "RFFT"])
    for number in (np.nan, np.inf, 1e30):
        for row in (0, 7, 39):
            x = plain.copy()
            x[row, 2] = number
            others = np.arange(len(x)) != row
            np.testing.assert_array_equal(run(x)[others], run(plain)[others])


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("first", range(1, 2049, 64))
def test_every_length(first: int, kind: str) -> None:
    for n in range(first, first + 64, 1 if first < 256 else 7):
        check(kind, (n % 5 + 1, n), 1, "f32")


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("power", range(12, 23))
def test_large_powers_of_two(power: int, kind: str) -> None:
    check(kind, (1 << power,), 1, "f32")
    check(kind, (1 << power,), 1, "f64")


def test_kinds_are_all_that_there_are() -> None:
    assert set(KINDS) == {kind.value for kind in FftType}


@pytest.mark.skipif(np.finfo(np.longdouble).nmant < 63, reason="needs a long double wider than f64")
@pytest.mark.parametrize(("length", "bound"), [(1000, 1.2), (4096, 1.2), (1009, 2.0)])
def test_factors_have_all_digits(length: int, bound: float) -> None:
    """Errors in machine epsilons; with factors from rounded angles they are 1.7, 1.7 and 3.0."""
    from scipy import fft

    text, _ = module("FFT", [length], 1, "f64")
    random = np.random.default_rng(7)
    x = random.standard_normal(length) + 1j * random.standard_normal(length)
    exact = fft.fft(x.astype(np.clongdouble))
    error = np.linalg.norm((hl.compile(text)(x) - exact).astype(np.complex128)) / np.linalg.norm(x) / length**0.5
    assert error <= bound * 2.0**-52


def code_of(sizes: Sequence[int], axes: int, threads: int = 2, vector_bytes: int = 64) -> KernelCode:
    """Returns the code of a transform, by default for vectors of 64 bytes."""
    text, _ = module("FFT", sizes, axes, "f32")
    instruction = hl.parse(text).entry.root
    assert isinstance(instruction.op, Fft)
    code = emit(instruction.op, "k", instruction, Target(vector_bytes, threads))
    assert code is not None
    return code


def called(code: KernelCode) -> set[str]:
    """Returns the names of the functions that its functions call."""
    return {name for function in code.functions for name in function.needs}


def test_columns_are_read_and_written_by_the_first_and_the_last_stage() -> None:
    names = called(code_of((64, 64), 2))
    assert not any("columns" in name for name in names)
    assert any(".from.c64" in name for name in names) and any(".to.c64" in name for name in names)


@pytest.mark.parametrize(("sizes", "axes"), [((2187,), 1), ((1000,), 1), ((64, 9), 2)])
def test_columns_fewer_than_lanes_are_read_and_written_as_columns(sizes: Sequence[int], axes: int) -> None:
    assert not any(".elements." in name for name in called(code_of(sizes, axes)))


def test_elements_far_apart_are_prefetched() -> None:
    assert not any("prefetched" in name for name in called(code_of((64, 64), 2)))
    assert any("prefetched" in name for name in called(code_of((64, 1024), 2)))


def test_columns_of_equal_lengths_share_code_with_masks_and_prefetches() -> None:
    names = {name for name in called(code_of((200, 200, 200), 3)) if ".from." in name or ".to." in name}
    assert len(names) == 2 and all(name.endswith(".partial.prefetched") for name in names)
    alone = {name for name in called(code_of((64, 200, 200), 3)) if ".from." in name}
    assert len(alone) == 2


@pytest.mark.parametrize(("columns", "are_partial"), [(200, False), (204, True)])
def test_columns_that_fill_vectors_have_no_masks_though_they_fill_no_block(columns: int, are_partial: bool) -> None:
    names = called(code_of((64, columns), 2, vector_bytes=32))
    assert any("partial" in name for name in names) == are_partial


@pytest.mark.parametrize(("sizes", "axes"), [((64, 200, 200), 3), ((4096,), 1)])
def test_instruction_combining_shortens_no_function_that_is_left_out_of_it(sizes: Sequence[int], axes: int) -> None:
    code = code_of(sizes, axes, vector_bytes=processor().vector_bytes)
    functions = [need for function in code.functions for need in function.needs.values()]
    combined = {f.name: f for f in functions if isinstance(f, Function) and f.is_combined}
    assert combined
    for function in combined.values():
        text = LirModule([function]).text()
        fewer, all_passes = (assembly(mark + text).count("\n\t") for mark in (COMBINED, ""))
        assert fewer <= 1.05 * all_passes, function.name


@pytest.mark.parametrize(("n", "lanes"), [(1 << 14, 32), (1 << 16, 16), (1 << 20, 32)])
def test_matrices_have_blocks_that_stay_in_the_first_level_cache_if_one_vector_does(n: int, lanes: int) -> None:
    assert f"fft.load.rows.c64.{lanes}.v16f32.full.twisted.prefetched" in called(code_of((n,), 1))


def test_tiles_that_the_first_level_cache_holds_are_not_prefetched() -> None:
    assert "fft.load.rows.c64.32.v16f32.full.twisted" in called(code_of((8192,), 1))


def test_arrays_larger_than_the_last_cache_are_written_with_nontemporal_stores() -> None:
    assert not any("nontemporal" in name for name in called(code_of((1 << 20,), 1)))
    (store,) = (name for name in called(code_of((1 << 22,), 1)) if "nontemporal" in name)
    assert "prefetched" not in store


@pytest.mark.sampled(4)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sizes", [(16384,), (2, 12288), (2, 8748)])
def test_nontemporal_stores(sizes: tuple[int, ...], kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks are full, or not; arrays start at cache lines."""
    monkeypatch.setattr("hloom.backends.cpu.kernels.fft.fft.MIN_NONTEMPORAL_BYTES", 0)
    assert any("nontemporal" in name for name in called(code_of(sizes, 1))) == (sizes[-1] % 1024 == 0)
    check(kind, sizes, 1, "f32")
    check(kind, sizes, 1, "f64")


def test_threads_share_rows_that_are_matrices() -> None:
    """The passes of each row run in the task of its thread."""
    (task,) = [f for f in code_of((512, 4096), 1).functions if ".rows" in f.name]
    assert sum(".pass" in name for name in task.needs) == 2
    assert not any(".rows" in f.name for f in code_of((512, 1000), 1).functions)


def test_rows_that_fill_vectors_are_transformed_in_place_of_their_transposes() -> None:
    for n in (64, 512, 1280):
        names = called(code_of((33, n), 1))
        assert any(name.startswith(("fft.row", "fft.square")) for name in names)
        assert not any(name.startswith(("fft.load", "fft.store", "fft.stage")) for name in names)
    assert not any(name.startswith("fft.row") for name in called(code_of((33, 1000), 1)))
