"""Large windows against the interpreter: sizes, strides, padding, dilations, types, threads."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
from backends.cpu.kernels.run_kernel import check
from hloom.backends.cpu.kernels.scans import cumulative
from hloom.types import BY_NAME

CASES = [
    ((1000, 2), (801, 2), "size=200x1"),
    ((1000, 1, 2), (1000, 1, 2), "size=201x1x1 pad=100_100x0_0x0_0"),
    ((300, 2), (400, 2), "size=200x1 pad=150_149x0_0"),
    ((1000, 2), (290, 2), "size=132x1 stride=3x1"),
    ((500, 3), (301, 3), "size=200x1"),
    ((20, 30, 5), (9, 24, 5), "size=16x9x1 stride=1x1x1 pad=0_4x1_1x0_0"),
    ((3, 40, 41), (3, 15, 13), "size=1x12x12 stride=1x2x3 pad=0_0x0_0x3_4"),
    ((400, 20), (104, 20), "size=150x1 rhs_dilate=2x1 pad=1_1x0_0"),
    ((9000,), (8599,), "size=202 rhs_dilate=2 pad=1_0"),
    ((40, 37), (40, 37), "size=40x37 pad=39_0x0_36"),
]
SIDE_BY_SIDE = [
    ((1000,), (801,), "size=200"),
    ((3, 1000), (3, 1000), "size=1x201 pad=0_0x100_100"),
    ((300,), (400,), "size=200 pad=150_149"),
    ((1000,), (290,), "size=132 stride=3"),
]
HLO = """HloModule m
combiner {
  a = T[] parameter(0)
  b = T[] parameter(1)
  ROOT r = T[] %s(a, b)
}
ENTRY e {
  x = T[%s] parameter(0)
  i = T[] parameter(1)
  ROOT r = T[%s] reduce-window(x, i), window={%s}, to_apply=combiner
}"""


def module_of(sizes: tuple[int, ...], counts: tuple[int, ...], window: str, opcode: str, type: str) -> str:
    dims, out = (",".join(map(str, shape)) for shape in (sizes, counts))
    return (HLO % (opcode, dims, out, window)).replace("T[", f"{type}[")


@pytest.mark.sampled(6)
@pytest.mark.parametrize("type", ["s32", "f32", "u8", "s64", "bf16"])
@pytest.mark.parametrize("opcode", ["add", "maximum"])
@pytest.mark.parametrize(("sizes", "counts", "window"), CASES)
def test_windows(sizes: tuple[int, ...], counts: tuple[int, ...], window: str, opcode: str, type: str) -> None:
    opcode = "minimum" if opcode == "add" and type == "bf16" else opcode
    x = np.random.default_rng(0).integers(0, 50, sizes).astype(BY_NAME[type].dtype)
    check(cumulative.emit, module_of(sizes, counts, window, opcode, type), x, np.asarray(7, BY_NAME[type].dtype))


@pytest.mark.sampled(6)
@pytest.mark.parametrize("type", ["s32", "f32", "u8", "s64", "bf16"])
@pytest.mark.parametrize("opcode", ["add", "maximum"])
@pytest.mark.parametrize(("sizes", "counts", "window"), SIDE_BY_SIDE)
def test_windows_of_elements_side_by_side(
    sizes: tuple[int, ...], counts: tuple[int, ...], window: str, opcode: str, type: str
) -> None:
    opcode = "minimum" if opcode == "add" and type == "bf16" else opcode
    module = module_of(sizes, counts, window, opcode, type)
    x = np.random.default_rng(0).integers(0, 50, sizes).astype(BY_NAME[type].dtype)
    i = np.asarray(7, BY_NAME[type].dtype)
    compiled = hl.compile(module, backend="cpu")
    assert compiled.report() == []
    assert np.array_equal(compiled(x, i), hl.compile(module, backend="interpreter")(x, i))
