"""Prefetches of the rows from which a nest gathers, and of the next one of rows that it reads several times."""

from __future__ import annotations

import numpy as np
import pytest

from backends.cpu.nests.test_printed_functions import emitted
from hlo_text import SOFTMAX, compiled, module_text

COLUMNS = """
    x = f32[ROWS,1024] parameter(0)
    i = s32[COUNT] parameter(1)
    ROOT r = f32[ROWS,COUNT] gather(x, i), offset_dims={0}, collapsed_slice_dims={1}, start_index_map={1},
      index_vector_dim=1, slice_sizes={ROWS,1}"""


@pytest.mark.parametrize(
    ("rows", "count", "expected"),
    [
        # A row has 64 cache lines, and the vector loop 32 iterations.
        (4096, 512, 2),
        # Arrays that the cache holds, and rows of which most lines are not read, are left to the processor.
        (64, 512, 0),
        (4096, 32, 0),
    ],
)
def test_rows_of_gathered_columns_are_prefetched(rows: int, count: int, expected: int) -> None:
    text = emitted(COLUMNS.replace("ROWS", str(rows)).replace("COUNT", str(count)))
    assert text.count("call void @llvm.prefetch") == expected


ROWS = """
    x = f32[ROWS,64] parameter(0)
    i = s32[300] parameter(1)
    ROOT r = f32[300,64] gather(x, i), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0},
      index_vector_dim=1, slice_sizes={1,64}"""


@pytest.mark.parametrize(("rows", "expected"), [(8192, 1), (64, 0)])
def test_gathered_rows_are_prefetched(rows: int, expected: int) -> None:
    """Vectors are in one line each."""
    text = ROWS.replace("ROWS", str(rows))
    assert emitted(text).count("call void @llvm.prefetch") == expected
    rng = np.random.default_rng(0)
    x, i = rng.random((rows, 64), np.float32), rng.integers(-5, rows + 5, 300).astype(np.int32)
    (found,) = compiled(module_text(text), x, i)
    np.testing.assert_array_equal(found, x[np.clip(i, 0, rows - 1)])


@pytest.mark.parametrize(
    ("rows", "columns", "is_prefetched"),
    [
        (1100, 1024, True),
        (1100, 1000, True),
        # Arrays that a private cache holds, and rows that no first cache holds, are left to the processor.
        (16, 1024, False),
        (40, 16384, False),
    ],
)
def test_the_next_row_is_prefetched_in_the_second_pass_over_a_row(rows: int, columns: int, is_prefetched: bool) -> None:
    """The exponentials of a softmax are the second pass: each line is prefetched once."""
    text = SOFTMAX.replace("ROWS", str(rows)).replace("COLUMNS", str(columns))
    function = emitted(text)
    assert ("call void @llvm.prefetch" in function) == is_prefetched
    loops = [part for part in function.split("br label %loop") if "@llvm.prefetch" in part]
    assert len(loops) == is_prefetched
    x = np.random.default_rng(0).standard_normal((rows, columns), np.float32)
    (found,) = compiled(module_text(text), x)
    powers = np.exp(x - x.max(1, keepdims=True).astype(np.float64))
    np.testing.assert_allclose(found, powers / powers.sum(1, keepdims=True), rtol=1e-5)


LARGEST = """
    x = f32[1100,1000] parameter(0)
    i = s32[1100,1000] iota(), iota_dimension=1
    low = f32[] constant(-inf)
    high = s32[] constant(2147483647)
    m = f32[1100] reduce(x, low), dimensions={1}, to_apply=largest
    b = f32[1100,1000] broadcast(m), dimensions={0}
    is_nan = pred[1100,1000] compare(x, x), direction=NE
    is_largest = pred[1100,1000] compare(x, b), direction=EQ
    either = pred[1100,1000] or(OPERANDS)
    none = s32[1100,1000] broadcast(high), dimensions={}
    positions = s32[1100,1000] select(either, i, none)
    ROOT r = s32[1100] reduce(positions, high), dimensions={1}, to_apply=least"""

LEAST = "least { a = s32[] parameter(0) b = s32[] parameter(1) ROOT r = s32[] minimum(a, b) }"


@pytest.mark.parametrize("operands", ["is_nan, is_largest", "is_largest, is_nan"])
def test_the_second_pass_is_the_one_that_needs_the_result_of_the_first(operands: str) -> None:
    """Without a loop over columns, and in either order of the operands of the second pass."""
    text = LARGEST.replace("OPERANDS", operands)
    (loop,) = [part for part in emitted(text, LEAST).split("br label %loop") if "@llvm.prefetch" in part]
    assert "@llvm.smin" in loop or "icmp slt" in loop
