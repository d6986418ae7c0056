"""fft on both backends against NumPy, with one and several threads (FFT-1 to FFT-5)."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl


def fft(kind: str, sizes: list[int], result: list[int], lengths: list[int]) -> hl.Module:
    other = {"RFFT": ("f32", "c64"), "IRFFT": ("c64", "f32")}.get(kind, ("c64", "c64"))
    shapes = [f"{t}[{','.join(map(str, s))}]" for t, s in zip(other, (sizes, result), strict=True)]
    length = ",".join(map(str, lengths))
    return hl.parse(
        f"HloModule m\nENTRY e {{ p = {shapes[0]} parameter(0)\n"
        f" ROOT r = {shapes[1]} fft(p), fft_type={kind}, fft_length={{{length}}} }}"
    )


@pytest.mark.sampled(6)
@pytest.mark.parametrize("backend", ["cpu", "interpreter"])
@pytest.mark.parametrize("size", [6, 4096])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_complex_transforms_leave_their_operand_alone(backend: str, size: int, rank: int) -> None:
    sizes = [3, 4, size]
    rng = np.random.default_rng(0)
    x = (rng.standard_normal(sizes) + 1j * rng.standard_normal(sizes)).astype(np.complex64)
    given, axes = x.copy(), tuple(range(-rank, 0))
    for kind, function in (("FFT", np.fft.fftn), ("IFFT", np.fft.ifftn)):
        got = hl.compile(fft(kind, sizes, sizes, sizes[-rank:]), backend=backend)(given)
        want = function(x, axes=axes)
        np.testing.assert_allclose(got, want, atol=1e-6 * np.abs(want).max())
        np.testing.assert_array_equal(given, x)


@pytest.mark.parametrize("backend", ["cpu", "interpreter"])
@pytest.mark.parametrize("size", [1, 7, 8])
def test_real_transforms_and_back(backend: str, size: int) -> None:
    x = np.random.default_rng(0).standard_normal((3, size)).astype(np.float32)
    half = size // 2 + 1
    spectrum = hl.compile(fft("RFFT", [3, size], [3, half], [size]), backend=backend)(x)
    np.testing.assert_allclose(spectrum, np.fft.rfft(x), atol=1e-5)
    back = hl.compile(fft("IRFFT", [3, half], [3, size], [size]), backend=backend)(spectrum)
    np.testing.assert_allclose(back, x, atol=1e-6)


@pytest.mark.parametrize(("kind", "length"), [("FFT", "0"), ("IFFT", "0"), ("FFT", "1,0,1")])
def test_transforms_of_length_0_give_zeros(kind: str, length: str) -> None:
    """FFT-7: for a non-empty operand, as in XLA's evaluator."""
    text = f"ENTRY e {{\n x = c64[1,1,2,1] parameter(0)\n ROOT r = c64[1,1,2,1] fft(x), fft_type={kind}, fft_length={{{length}}}\n}}"
    x = np.full((1, 1, 2, 1), 3 + 4j, np.complex64)
    for backend in ("interpreter", "cpu"):
        assert np.array_equal(hl.compile(text, backend)(x), np.zeros_like(x))
