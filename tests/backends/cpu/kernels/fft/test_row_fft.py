"""The plan of a transform of rows: which lengths have one, the order of its results, and its factors."""

from __future__ import annotations

import numpy as np
import pytest

from hloom.backends.cpu.kernels.fft.lane_fft import Access
from hloom.backends.cpu.kernels.fft.row_fft import RowFft, interleave
from hloom.backends.cpu.kernels.kernel_function import KernelFunction
from hloom.lir import PTR, LirModule, type_of
from hloom.lir.interpret import Interpreter
from hloom.types import PrimitiveType


@pytest.mark.parametrize(
    ("width", "lengths", "others"),
    [
        (16, (64, 128, 256, 768, 1280, 2048), (8, 16, 32, 63, 96, 192, 1000, 2 * 37 * 16)),
        (8, (16, 32, 64, 192, 320, 2048), (8, 24, 96, 1000)),
        (2, (16, 48, 720), (2, 4, 15, 1000)),
    ],
)
def test_rows_fit_whose_stages_fill_vectors(width: int, lengths: tuple[int, ...], others: tuple[int, ...]) -> None:
    assert all(RowFft(n, type_of("float", width)).fits for n in lengths)
    assert not any(RowFft(n, type_of("float", width)).fits for n in others)


@pytest.mark.parametrize(("count", "group"), [(8, 1), (8, 4), (4, 1), (4, 8), (2, 2), (16, 2)])
def test_groups_of_all_vectors_are_interleaved(count: int, group: int) -> None:
    rows = np.arange(16 * count, dtype=np.float32).reshape(count, 16)
    f = KernelFunction("run", source=PTR, target=PTR)
    vectors = [f.load(f.at(f["source"], 16 * k, "float"), type_of("float", 16), 4) for k in range(count)]
    for k, vector in enumerate(interleave(f, vectors, group)):
        f.store(vector, f.at(f["target"], 16 * k, "float"), 4)
    result = np.zeros_like(rows)
    Interpreter(LirModule([f.finish()])).call("run", rows.ctypes.data, result.ctypes.data)
    np.testing.assert_array_equal(result, rows.reshape(count, -1, group).swapaxes(0, 1).reshape(rows.shape))


@pytest.mark.parametrize(
    ("n", "element", "width", "is_square"),
    [
        (64, "float", 16, True),
        (64, "float", 8, True),
        (64, "double", 8, True),
        (16, "float", 8, True),
        (16, "double", 4, True),
        (64, "float", 4, False),
        (128, "float", 16, False),
        (256, "float", 16, False),
    ],
)
def test_squares_pass_results_of_the_first_stage_in_registers(
    n: int, element: str, width: int, is_square: bool
) -> None:
    fft = RowFft(n, type_of(element, width))
    assert fft.is_square is is_square
    access = Access(PrimitiveType.C64 if element == "float" else PrimitiveType.C128, 1, True)
    module = LirModule([fft.task("rows", 100, 2, access, access).finish()])
    assert len(module.all_functions()) - 1 == (1 if is_square else len(fft.stages))


@pytest.mark.parametrize(("n", "rows"), [(64, 2), (256, 1)])
def test_vectors_of_two_rows_have_factors_for_both(n: int, rows: int) -> None:
    first, *_, last = RowFft(n, type_of("float", 16)).stages
    assert first.rows == rows and last.factors.size == 0
    assert first.factors.size == 2 * (first.radix - 1) * first.butterflies * rows
    re, im = first.factors[:32].reshape(2, 16)
    np.testing.assert_allclose(re + 1j * im, np.exp(-2j * np.pi / n * (np.arange(16) % first.butterflies)), atol=1e-15)
