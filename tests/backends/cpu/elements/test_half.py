"""Code of f16 on processors without instructions for it: that of NumPy, over all f16 and much of f32."""

from __future__ import annotations

import numpy as np
import pytest

from backends.cpu.elements.compile_elementwise import compile_elementwise
from hloom.backends.cpu.elements.types import load_element, rounded, store_element
from hloom.backends.cpu.llvm.processor import generating_for, level_of_x86
from hloom.lir import Builder, Value
from hloom.types import PrimitiveType

F16 = PrimitiveType.F16
OLD = level_of_x86("x86-64-v2")
each_width = pytest.mark.parametrize("width", [0, 16])


@each_width
def test_every_f16_is_loaded_and_stored(width: int) -> None:
    """Codes are passed in the lower halves of f32; a NaN keeps its payload."""

    def emit(b: Builder, x: Value) -> tuple[Value, Value]:
        value = load_element(b, b.convert("trunc", b.bitcast(x, x.type.integer), "i16"), F16)
        return value, b.bitcast(b.convert("zext", store_element(b, value, F16), "i32"), x.type)

    codes = np.arange(1 << 16, dtype=np.uint32)
    with generating_for(OLD):
        value, again = compile_elementwise(emit, np.float32, width, 1, 2)(codes.view(np.float32))
    want = codes.astype(np.uint16).view(np.float16).astype(np.float32)
    assert np.array_equal(value, want, equal_nan=True)
    assert np.array_equal(np.signbit(value), np.signbit(want))
    assert np.array_equal(again.view(np.uint32), codes)


@each_width
def test_f32_is_rounded_to_the_nearest_even(width: int) -> None:
    exact = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)
    halfway = (exact[:-1].astype(np.float64) + exact[1:].astype(np.float64)).astype(np.float32) / 2
    bits = np.random.default_rng(0).integers(0, 1 << 32, 60_000, np.uint64).astype(np.uint32)
    special = np.array([65519.996, 65520, 65536, 1e30, np.inf, -np.inf, 2.0**-25, 2.0**-26, -0.0], np.float32)
    near = np.random.default_rng(1).normal(size=60_000).astype(np.float32) * 1e-5
    parts = [exact, halfway, np.nextafter(halfway, np.float32(9e9)), bits.view(np.float32), special, near]
    x = np.resize(np.concatenate(parts), 320_000)
    with np.errstate(over="ignore", invalid="ignore"):
        want = x.astype(np.float16)
    with generating_for(OLD):
        run = compile_elementwise(lambda b, x: rounded(b, x, F16), np.float32, width, 1)
    got = run(x)
    assert np.array_equal(got, want.astype(np.float32), equal_nan=True)
    assert np.array_equal(np.signbit(got), np.signbit(want))
