"""Transforms of lengths without kernels: native, and accurate compared with SciPy's in f64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.fft

import hloom as hl
from hloom.backends.cpu.kernels.fft import fft as fft_kernel
from hloom.passes.legalize import fft_lengths
from hloom.passes.legalize.fft_lengths import FftLengths

Array = np.ndarray[Any, Any]


def text(kind: str, given: str, made: str, lengths: tuple[int, ...]) -> str:
    sizes = ",".join(map(str, lengths))
    return (
        f"HloModule m\nENTRY e {{\n p = {given} parameter(0)\n ROOT r = {made} fft(p), fft_type={kind}, "
        f"fft_length={{{sizes}}}\n}}"
    )


def shape(type: str, sizes: tuple[int, ...]) -> str:
    return f"{type}[{','.join(map(str, sizes))}]"


def random_array(sizes: tuple[int, ...], is_complex: bool) -> Array:
    random = np.random.default_rng(0)
    x = random.standard_normal(sizes)
    return (x + 1j * random.standard_normal(sizes)).astype(np.complex64) if is_complex else x.astype(np.float32)


CASES = [
    ((4099,), 1),
    ((3, 6561), 1),
    ((2, 10006), 1),
    ((4096, 6), 2),
    ((2053, 5), 2),
    ((3, 4096, 4), 3),
    ((1, 4099, 2187), 2),
    ((2049, 2, 30), 3),
]
SHORT_CASES = [
    ((67,), 1),
    ((3, 81), 1),
    ((2, 134), 1),
    ((128, 6), 2),
    ((71, 5), 2),
    ((3, 128, 4), 3),
    ((1, 67, 81), 2),
    ((74, 2, 30), 3),
]
"""Lengths that relate to `SHORT` as those of `CASES` to the largest length with a kernel."""
SHORT = 64


@pytest.fixture
def kernels_of_short_sequences(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets kernels transform lengths up to `SHORT` only, and products of two."""
    monkeypatch.setattr(fft_lengths, "MAX_LENGTH", SHORT)
    monkeypatch.setattr(fft_kernel, "MAX_LENGTH", SHORT)


def check(kind: str, x: Array, lengths: tuple[int, ...], expected: Array) -> None:
    types = {np.dtype(np.complex64): "c64", np.dtype(np.float32): "f32"}
    made = "f32" if kind == "IRFFT" else "c64"
    module = text(kind, shape(types[x.dtype], x.shape), shape(made, expected.shape), lengths)
    parsed = hl.parse(module)
    assert FftLengths().run(parsed) == 1
    assert not FftLengths().run(parsed)
    compiled = hl.compile(module)
    assert not compiled.report()
    found = np.asarray(compiled(x))
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() <= 1e-6 * np.abs(expected).max()


@pytest.mark.sampled(5)
@pytest.mark.parametrize(("sizes", "rank"), [case for case in SHORT_CASES if case[0] != (3, 81)])
@pytest.mark.parametrize("kind", ["FFT", "IFFT"])
@pytest.mark.usefixtures("kernels_of_short_sequences")
def test_complex(sizes: tuple[int, ...], rank: int, kind: str) -> None:
    check_complex(sizes, rank, kind)


@pytest.mark.parametrize("kind", ["FFT", "IFFT"])
def test_a_long_complex_sequence(kind: str) -> None:
    check_complex((4099,), 1, kind)


@pytest.mark.long
@pytest.mark.parametrize(("sizes", "rank"), [case for case in CASES if case[0] != (3, 6561)])
@pytest.mark.parametrize("kind", ["FFT", "IFFT"])
def test_long_complex_sequences(sizes: tuple[int, ...], rank: int, kind: str) -> None:
    check_complex(sizes, rank, kind)


def check_complex(sizes: tuple[int, ...], rank: int, kind: str) -> None:
    lengths = sizes[-rank:]
    x, axes = random_array(sizes, True), tuple(range(-rank, 0))
    function = scipy.fft.fftn if kind == "FFT" else scipy.fft.ifftn
    check(kind, x, lengths, function(x.astype(np.complex128), axes=axes))


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("sizes", "rank"), SHORT_CASES)
@pytest.mark.usefixtures("kernels_of_short_sequences")
def test_real(sizes: tuple[int, ...], rank: int) -> None:
    check_real(sizes, rank)


def test_a_long_real_sequence() -> None:
    check_real((4099,), 1)


@pytest.mark.long
@pytest.mark.parametrize(("sizes", "rank"), CASES)
def test_long_real_sequences(sizes: tuple[int, ...], rank: int) -> None:
    check_real(sizes, rank)


def check_real(sizes: tuple[int, ...], rank: int) -> None:
    lengths, axes = sizes[-rank:], tuple(range(-rank, 0))
    x = random_array(sizes, False)
    spectrum = scipy.fft.rfftn(x.astype(np.float64), axes=axes)
    check("RFFT", x, lengths, spectrum)
    given = spectrum.astype(np.complex64)
    check("IRFFT", given, lengths, scipy.fft.irfftn(given.astype(np.complex128), s=lengths, axes=axes))


@pytest.mark.parametrize("kind", ["FFT", "IFFT"])
def test_few_rows_of_large_primes(kind: str) -> None:
    x = random_array((3, 1009), True)
    function = scipy.fft.fft if kind == "FFT" else scipy.fft.ifft
    check(kind, x, (1009,), function(x.astype(np.complex128)))


def test_lengths_with_kernels_are_left_alone() -> None:
    for lengths in ((64, 64), (2048, 4096), (1 << 22,), (5, 1009), (37,)):
        module = hl.parse(text("FFT", shape("c64", lengths), shape("c64", lengths), lengths))
        assert not FftLengths().run(module)


def test_few_lengths_are_left_to_the_host() -> None:
    n = (1 << 22) + 15  # a prime, whose convolution would be too long
    module = hl.parse(text("FFT", f"c64[{n}]", f"c64[{n}]", (n,)))
    assert not FftLengths().run(module)


def test_the_number_of_rows_decides_nothing_where_results_do_not_depend_on_the_batch() -> None:
    """A single row of a length with a large prime factor has a kernel, and is padded since that is faster."""
    sizes = shape("c64", (1, 898))
    module = hl.parse(text("FFT", sizes, sizes, (898,)))
    assert not FftLengths(batch_invariant=True).run(module)
    assert FftLengths().run(module) == 1
