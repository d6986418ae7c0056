"""Conversions of f16 without instructions for them: bit for bit those of NumPy, over all f16 and much of f32."""

from __future__ import annotations

import ctypes

import numpy as np

from hloom.backends.cpu.llvm.half import f16_of_f32, f32_of_f16
from hloom.backends.cpu.llvm.machine_code import compile_text, load_object
from hloom.backends.cpu.llvm.native.translator import native_module

CODE = load_object(compile_text(native_module([f16_of_f32, f32_of_f16]).text()))
NARROW, WIDEN = (
    ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_uint32)(CODE.address(name))
    for name in ("hloom_f16_of_f32", "hloom_f32_of_f16")
)


def test_every_f16_is_widened() -> None:
    halves = np.arange(1 << 16, dtype=np.uint16)
    floats = halves.view(np.float16).astype(np.float32)
    found = np.array([WIDEN(int(h)) for h in halves], np.uint32).view(np.float32)
    assert np.array_equal(found, floats, equal_nan=True)
    assert np.array_equal(np.signbit(found), np.signbit(floats))
    assert [f32_of_f16(int(h)) for h in halves[::997]] == found.view(np.uint32)[::997].tolist()


def test_f32_is_rounded_to_the_nearest_even() -> None:
    exact = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)
    halfway = (exact[:-1].astype(np.float64) + exact[1:].astype(np.float64)).astype(np.float32) / 2
    bits = np.random.default_rng(0).integers(0, 1 << 32, 60_000, np.uint64).astype(np.uint32)
    special = np.array([65519.996, 65520, 65536, 1e30, np.inf, -np.inf, 2.0**-25, 2.0**-26, -0.0], np.float32)
    near = np.random.default_rng(1).normal(size=60_000).astype(np.float32) * 1e-5
    values = np.concatenate(
        [exact, halfway, np.nextafter(halfway, np.float32(9e9)), bits.view(np.float32), special, near]
    )
    with np.errstate(over="ignore"):
        wanted = values.astype(np.float16)
    found = np.array([NARROW(int(b)) for b in values.view(np.uint32)], np.uint16).view(np.float16)
    assert np.array_equal(found, wanted, equal_nan=True)
    assert np.array_equal(np.signbit(found), np.signbit(wanted))
    sample = values.view(np.uint32)[::4999]
    assert [f16_of_f32(int(b)) for b in sample] == found.view(np.uint16)[::4999].tolist()
