"""Transpositions in registers, run by the interpreter of the low-level IR."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from hloom.backends.cpu.elements.transpose import transpose, transpose_squares
from hloom.backends.cpu.llvm.processor import processor
from hloom.lir import PTR, Builder, Function, FunctionBuilder, LirModule, Parameter, Value, poison, type_of
from hloom.lir.instructions import Convert, Shuffle
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


@pytest.mark.parametrize("write", [transpose, transpose_squares])
@pytest.mark.parametrize(("count", "squares"), [(2, 1), (4, 1), (4, 4), (8, 2)])
def test_each_square_of_several_is_transposed(
    count: int, squares: int, write: Callable[[Builder, list[Value]], list[Value]]
) -> None:
    rows = np.arange(count * count * squares, dtype=np.int32).reshape(count, squares * count)
    expected = rows.reshape(count, squares, count).transpose(2, 1, 0).reshape(rows.shape)
    np.testing.assert_array_equal(shuffled(rows, write), expected)


@pytest.mark.parametrize("element", ["float", "i32"])
@pytest.mark.parametrize("given", [16, 5])
def test_no_more_than_two_shuffles_are_a_chain(element: str, given: int) -> None:
    """Rows after the first `given` ones are not used, and nothing is computed from them alone."""
    f = FunctionBuilder(Function("run", [Parameter("source", PTR)]), processor().vector_bytes)
    (source,), type = f.function.parameters, type_of(element, 16)
    rows = [f.load(f.at(source, k * 16, element), type, 4) for k in range(given)]
    transpose(f, rows + [poison(type)] * (16 - given))
    lengths: dict[object, int] = {}
    for instruction in f.body:
        if isinstance(instruction, (Convert, Shuffle)):
            lengths[instruction] = max(lengths.get(operand, 0) for operand in instruction.operands)
        if isinstance(instruction, Shuffle):
            lengths[instruction] += 1
            assert {operand.text for operand in instruction.operands} != {"poison"}
    assert max(lengths.values()) == 2
