"""select-and-scatter kernels against the interpreter: strides, padding, dilations, ties, types, threads."""

from __future__ import annotations

import numpy as np
import pytest

from backends.cpu.kernels.run_kernel import check
from hloom.backends.cpu.kernels.scatter import select_and_scatter
from hloom.types import BY_NAME

CASES = [
    ((10,), (8,), "size=3"),
    ((10,), (5,), "size=3 stride=2 pad=1_1"),
    ((4, 9, 8, 3), (4, 4, 4, 3), "size=1x3x2x1 stride=1x2x2x1 pad=0_0x1_0x0_0x0_0"),
    ((2, 3, 9, 8), (2, 3, 11, 4), "size=1x1x3x3 stride=1x1x1x2 pad=0_0x0_0x2_2x0_1"),
    ((7, 8), (6, 7), "size=2x3 stride=2x1 pad=3_3x-1_2"),
    ((7, 8), (12, 24), "size=2x3 lhs_dilate=2x3 rhs_dilate=3x1 pad=1_1x2_2"),
    ((0, 8), (0, 6), "size=1x3"),
    ((5, 3), (5, 3), "size=1x1"),
]
HLO = """HloModule m
select {
  a = T[] parameter(0)
  b = T[] parameter(1)
  ROOT r = pred[] compare(a, b), direction=%s
}
scatter {
  a = T[] parameter(0)
  b = T[] parameter(1)
  ROOT r = T[] %s(a, b)
}
ENTRY e {
  x = T[%s] parameter(0)
  s = T[%s] parameter(1)
  i = T[] parameter(2)
  ROOT r = T[%s] select-and-scatter(x, s, i), window={%s}, select=select, scatter=scatter
}"""


def text(
    type: str, sizes: tuple[int, ...], counts: tuple[int, ...], window: str, select: str = "GE", scatter: str = "add"
) -> str:
    dims, source = (",".join(map(str, shape)) for shape in (sizes, counts))
    return (HLO % (select, scatter, dims, source, dims, window)).replace("T[", f"{type}[")


@pytest.mark.sampled(12)
@pytest.mark.parametrize("type", ["s32", "f32", "bf16", "u8"])
@pytest.mark.parametrize(("sizes", "counts", "window"), CASES)
@pytest.mark.parametrize("select", ["GE", "LT"])
def test_windows(sizes: tuple[int, ...], counts: tuple[int, ...], window: str, type: str, select: str) -> None:
    random, dtype = np.random.default_rng(0), BY_NAME[type].dtype
    x, source = (random.integers(0, 5, shape).astype(dtype) for shape in (sizes, counts))
    module = text(type, sizes, counts, window, select)
    check(select_and_scatter.emit, module, x, source, np.asarray(3, dtype))


def test_combiners_that_do_not_commute() -> None:
    module = text("s32", (30,), (30,), "size=5 stride=1 pad=2_2", scatter="subtract")
    random = np.random.default_rng(0)
    x, source = (random.integers(0, 5, 30).astype(np.int32) for _ in range(2))
    check(select_and_scatter.emit, module, x, source, np.int32(100))
