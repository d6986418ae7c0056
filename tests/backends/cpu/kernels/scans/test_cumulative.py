"""Cumulative kernels against the interpreter: combiners, types, dimensions, both directions, sizes, threads."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from backends.cpu.kernels.run_kernel import Array, Kernel, assert_same, check, interpreted
from hloom.backends.cpu.kernels.scans import cumulative
from hloom.types import BY_DTYPE

ADD = "ROOT r = T[] add(a0, b0)"
# Composition of linear functions: associative, not commutative.
COMPOSE = "p = s32[] multiply(a0, b0)\n  q = s32[] multiply(a1, b0)\n  s = s32[] add(q, b1)\n  ROOT r = (s32[], s32[]) tuple(p, s)"


def text(arrays: list[Array], combiner: str, dimension: int, backward: bool = False) -> str:
    types = [str(BY_DTYPE[array.dtype]) for array in arrays]
    sizes = arrays[0].shape
    n, size = len(arrays), sizes[dimension]
    dims = ",".join(map(str, sizes))
    window = "x".join(str(s) if d == dimension else "1" for d, s in enumerate(sizes))
    pads = [(0, size - 1) if backward else (size - 1, 0)]
    pad = "x".join("{}_{}".format(*(pads[0] if d == dimension else (0, 0))) for d in range(len(sizes)))
    parameters = [
        f"  {side}{k} = {t}[] parameter({k + s * n})" for s, side in enumerate("ab") for k, t in enumerate(types)
    ]
    operands = [f"  x{k} = {t}[{dims}] parameter({k})" for k, t in enumerate(types)]
    operands += [f"  i{k} = {t}[] parameter({k + n})" for k, t in enumerate(types)]
    shapes = [f"{t}[{dims}]" for t in types]
    result = shapes[0] if n == 1 else "(" + ", ".join(shapes) + ")"
    names = ", ".join([f"x{k}" for k in range(n)] + [f"i{k}" for k in range(n)])
    root = f"  ROOT r = {result} reduce-window({names}), window={{size={window} pad={pad}}}, to_apply=combiner"
    combiner = combiner.replace("T[]", f"{types[0]}[]")
    return "\n".join(
        ["HloModule m", "combiner {", *parameters, "  " + combiner, "}", "ENTRY e {", *operands, root, "}"]
    )


@pytest.mark.sampled(4)
@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("size", [2, 3, 15, 16, 17, 32, 100, 2048, 2049, 5000, 40000, 600001])
def test_sizes(size: int, backward: bool) -> None:
    x = np.random.default_rng(0).integers(-9, 9, size).astype(np.int32)
    y = x[::-1].copy()
    check(cumulative.emit, text([x], ADD, 0, backward), x, np.int32(5))
    check(cumulative.emit, text([x, y], COMPOSE, 0, backward), x, y, np.int32(3), np.int32(7))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize(
    "shape", [(3, 40), (40, 3), (5, 7, 11), (300, 40), (2, 300, 5), (2, 3, 2100), (5, 0), (3, 2000)]
)
def test_dimensions(shape: tuple[int, ...], backward: bool) -> None:
    x = np.random.default_rng(0).integers(-9, 9, shape).astype(np.int32)
    for dimension in range(len(shape)):
        if shape[dimension] > 1:
            check(cumulative.emit, text([x], ADD, dimension, backward), x, np.int32(5))
            check(cumulative.emit, text([x, x], COMPOSE, dimension, backward), x, x, np.int32(3), np.int32(7))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("opcode", ["add", "maximum", pytest.param("minimum", marks=pytest.mark.long), "multiply"])
@pytest.mark.parametrize(
    "dtype",
    [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64]
    + [np.float16, ml_dtypes.bfloat16, np.float32, np.float64],
)
def test_types(dtype: type, opcode: str) -> None:
    values = [1, 2] if opcode == "multiply" else range(-5, 5) if np.dtype(dtype).kind not in "u" else range(5)
    x = np.random.default_rng(0).choice(np.array(values), (50, 90)).astype(dtype)
    if np.dtype(dtype).kind not in "iu" and opcode == "multiply":
        x = np.where(np.arange(90) % 9 == 0, x, 1).astype(dtype)
    for dimension in (0, 1):
        for backward in (False, True):
            module = text([x], ADD.replace("add", opcode), dimension, backward)
            check(cumulative.emit, module, x, np.asarray(1, dtype), threads=(1, 2))


@pytest.mark.parametrize("opcode", ["and", "or", "xor"])
def test_predicates(opcode: str) -> None:
    x = np.random.default_rng(0).random((30, 3000)) < 0.5
    for dimension in (0, 1):
        check(cumulative.emit, text([x], ADD.replace("add", opcode), dimension), x, np.bool_(False))


def test_complex_elements() -> None:
    x = np.random.default_rng(0).integers(-9, 9, (30, 300, 2)).astype(np.float32).view(np.complex64)[..., 0]
    for dimension in (0, 1):
        for backward in (False, True):
            check(cumulative.emit, text([x], ADD, dimension, backward), x, np.complex64(1 + 2j))


@pytest.mark.parametrize("shape", [(1 << 20,), (1 << 18, 3)])
def test_sums_of_floats_are_accurate(shape: tuple[int, ...]) -> None:
    """Sums are also equal for any number of threads."""
    x = np.random.default_rng(0).random(shape).astype(np.float32)
    module = text([x], ADD, 0)
    results = [Kernel(cumulative.emit, module, threads)(x, np.float32(0))[0] for threads in (1, 2, 3)]
    exact = np.cumsum(x.astype(np.float64), axis=0)
    assert np.max(np.abs(results[0] - exact) / exact) < 2e-6
    assert_same(results[1:], results[:1] * 2)


def test_maximum_with_nan() -> None:
    x = np.random.default_rng(0).standard_normal((3, 100)).astype(np.float32)
    x[1, 50] = np.nan
    module = text([x], ADD.replace("add", "maximum"), 1)
    (found,) = Kernel(cumulative.emit, module)(x, np.float32(-np.inf))
    np.testing.assert_array_equal(found, interpreted(module, x, np.float32(-np.inf))[0])
