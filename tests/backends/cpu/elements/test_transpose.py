"""Transpositions in registers, run by the interpreter of the low-level IR."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from hloom.backends.cpu.elements.transpose import transpose, transpose_squares
from hloom.backends.cpu.llvm.processor import processor
from hloom.lir import PTR, Builder, Function, FunctionBuilder, LirModule, Parameter, Value, type_of
from hloom.lir.interpret import Interpreter


def shuffled(rows: np.ndarray, write: Callable[[Builder, list[Value]], list[Value]]) -> np.ndarray:
    """Returns the vectors that code makes of the rows of a matrix of int32."""
    count, lanes = rows.shape
    source, target = Parameter("source", PTR), Parameter("target", PTR)
    f = FunctionBuilder(Function("run", [source, target]), processor().vector_bytes)
    vectors = [f.load(f.at(source, k * lanes, "i32"), type_of("i32", lanes), 4) for k in range(count)]
    for k, vector in enumerate(write(f, vectors)):
        f.store(vector, f.at(target, k * lanes, "i32"), 4)
    result = np.zeros_like(rows)
    Interpreter(LirModule([f.finish()])).call("run", rows.ctypes.data, result.ctypes.data)
    return result


@pytest.mark.parametrize("nearest_first", [False, True])
@pytest.mark.parametrize(("count", "span"), [(2, 1), (4, 1), (16, 1), (4, 2), (8, 2)])
def test_items_of_rows_become_rows_of_items(count: int, span: int, nearest_first: bool) -> None:
    rows = np.arange(count * count * span, dtype=np.int32).reshape(count, count * span)
    expected = rows.reshape(count, count, span).swapaxes(0, 1).reshape(rows.shape)
    result = shuffled(rows, lambda f, vectors: transpose(f, vectors, span, nearest_first))
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize(("count", "squares"), [(2, 1), (4, 1), (4, 4), (8, 2)])
def test_each_square_of_several_is_transposed(count: int, squares: int) -> None:
    rows = np.arange(count * count * squares, dtype=np.int32).reshape(count, squares * count)
    expected = rows.reshape(count, squares, count).transpose(2, 1, 0).reshape(rows.shape)
    np.testing.assert_array_equal(shuffled(rows, transpose_squares), expected)
