"""Where the lanes of vectors lie in memory: one before the other, or in turns with those of other vectors."""

from __future__ import annotations

import itertools

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


def _check_transpose(type: str, size: tuple[int, ...], order: tuple[int, ...]) -> None:
    x = _numbers(size, TYPES[type])
    given, wanted, dimensions = (",".join(map(str, numbers)) for numbers in (size, [size[k] for k in order], order))
    line = f"x = {type}[{given}] parameter(0) ROOT r = {type}[{wanted}] transpose(x), dimensions={{{dimensions}}}"
    assert np.array_equal(hl.compile(_text(line))(x), x.transpose(order)), order


@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("planes", [2, 3, 4, 5, 8, 13, 16])
def test_planes_become_pixels_and_pixels_planes(type: str, planes: int) -> None:
    for n in SIZES:
        _check_transpose(type, (2, planes, n), (0, 2, 1))
        _check_transpose(type, (2, n, planes), (0, 2, 1))


@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("size", [(40, 17, 6, 3), (16, 48, 16, 2), (5, 64, 33, 7), (32, 32, 8, 12), (3, 7, 130, 1)])
def test_short_runs_in_any_order(type: str, size: tuple[int, ...]) -> None:
    """Every order of dimensions, of which some are as short as a part of a cache line."""
    for order in itertools.permutations(range(4)):
        _check_transpose(type, size, order)


@pytest.mark.parametrize("n", SIZES)
def test_rows_are_turned_inside_of_arithmetic(n: int) -> None:
    """Operands of both orders, one that is the same for all rows, and one that a condition guards."""
    text = f"""
      x = f32[{n},6] parameter(0)
      y = f32[6,{n}] parameter(1)
      z = f32[6] parameter(2)
      zero = f32[] constant(0)
      padded = f32[6,{n + 2}] pad(y, zero), padding=0_0x1_1
      part = f32[6,{n}] slice(padded), slice={{[0:6], [0:{n}]}}
      t = f32[6,{n}] transpose(x), dimensions={{1,0}}
      b = f32[6,{n}] broadcast(z), dimensions={{0}}
      sum = f32[6,{n}] add(t, part)
      product = f32[6,{n}] multiply(sum, b)
      back = f32[{n},6] transpose(product), dimensions={{1,0}}
      ROOT r = (f32[6,{n}], f32[{n},6]) tuple(product, back)"""
    x, y, z = _numbers((n, 6), np.float32), _numbers((6, n), np.float32), _numbers((6,), np.float32)
    expected = (x.T + np.pad(y, ((0, 0), (1, 1)))[:, :n]) * z[:, None]
    found = hl.compile(_text(text))(x, y, z)
    assert np.array_equal(found[0], expected)
    assert np.array_equal(found[1], expected.T)


def test_planes_are_stored_as_one_vector() -> None:
    text = "x = u8[8,3,224,224] parameter(0) ROOT r = u8[8,224,224,3] transpose(x), dimensions={0,2,3,1}"
    kernel = lower(hl.parse(_text(text)).entry.root).kernel
    schedule(kernel, vector_bytes=64, threads=1)
    assert "  vector i2 < 50176 lanes 128:\n    interleaved i3 < 3:" in kernel.to_text()
