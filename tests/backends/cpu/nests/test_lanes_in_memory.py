"""Where the lanes of vectors lie in memory: one before the other, or in turns with those of other vectors."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import hloom as hl
from hloom.loops.lower import lower
from hloom.loops.schedule import schedule

TYPES = {
    "f32": np.float32, "f64": np.float64, "bf16": ml_dtypes.bfloat16, "s8": np.int8, "pred": np.bool_,
    "c64": np.complex64,
}  # fmt: skip
SIZES = (1, 2, 3, 7, 15, 16, 31, 33, 70, 500, 5000)


def _text(line: str) -> str:
    return f"ENTRY e {{ {line} }}"


def _numbers(size: tuple[int, ...], dtype: type) -> np.ndarray:
    return np.random.default_rng(size[-1]).integers(-50, 50, size).astype(dtype)


@pytest.mark.parametrize("type", TYPES)
def test_elements_in_reverse(type: str) -> None:
    for n in SIZES:
        run = hl.compile(_text(f"x = {type}[3,{n}] parameter(0) ROOT r = {type}[3,{n}] reverse(x), dimensions={{1}}"))
        x = _numbers((3, n), TYPES[type])
        assert np.array_equal(run(x), x[:, ::-1])


@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("planes", [2, 3, 4, 5])
def test_planes_become_pixels(type: str, planes: int) -> None:
    for n in SIZES:
        shapes = f"x = {type}[2,{planes},{n}] parameter(0) ROOT r = {type}[2,{n},{planes}]"
        x = _numbers((2, planes, n), TYPES[type])
        run = hl.compile(_text(f"{shapes} transpose(x), dimensions={{0,2,1}}"))
        assert np.array_equal(run(x), x.transpose(0, 2, 1))


def test_planes_are_stored_as_one_vector() -> None:
    text = "x = u8[8,3,224,224] parameter(0) ROOT r = u8[8,224,224,3] transpose(x), dimensions={0,2,3,1}"
    kernel = lower(hl.parse(_text(text)).entry.root).kernel
    schedule(kernel, vector_bytes=64, threads=1)
    assert "  vector i2 < 50176 lanes 128:\n    interleaved i3 < 3:" in kernel.to_text()
