"""Prefetches of the rows from which a nest gathers."""

from __future__ import annotations

import pytest

from backends.cpu.nests.test_printed_functions import emitted

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
