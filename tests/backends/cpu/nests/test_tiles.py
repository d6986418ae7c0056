"""Tiled transpositions against NumPy: squares, blocks staged on the stack, and remainders of both loops."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import hloom as hl

TYPES = {"s8": np.int8, "u16": np.uint16, "bf16": ml_dtypes.bfloat16, "f32": np.float32}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("rows, columns", [(64, 512), (128, 600), (192, 1027), (256, 64), (100, 700), (2048, 1100)])
@pytest.mark.parametrize("type", TYPES)
def test_transposes_of_matrices(type: str, rows: int, columns: int) -> None:
    text = f"ENTRY e {{ a = {type}[{columns},{rows}] parameter(0) ROOT t = {type}[{rows},{columns}] transpose(a), dimensions={{1,0}} }}"
    a = np.random.default_rng(0).integers(0, 100, (columns, rows)).astype(TYPES[type])
    np.testing.assert_array_equal(hl.compile(hl.parse(text))(a), a.T)


@pytest.mark.parametrize("type", TYPES)
def test_transposes_fused_with_arithmetic(type: str) -> None:
    text = f"""
        ENTRY e {{
          a = {type}[3,600,128] parameter(0)
          b = {type}[3,600,128] parameter(1)
          c = {type}[3,128,600] parameter(2)
          at = {type}[3,128,600] transpose(a), dimensions={{0,2,1}}
          bt = {type}[3,128,600] transpose(b), dimensions={{0,2,1}}
          more = {type}[3,128,600] add(at, c)
          ROOT r = {type}[3,128,600] multiply(more, bt)
        }}"""
    values = np.random.default_rng(1).integers(0, 5, (3, 3, 600 * 128)).astype(TYPES[type])
    a, b, c = values[0].reshape(3, 600, 128), values[1].reshape(3, 600, 128), values[2].reshape(3, 128, 600)
    got = hl.compile(hl.parse(text))(a, b, c)
    np.testing.assert_array_equal(got, (a.swapaxes(1, 2) + c) * b.swapaxes(1, 2))
