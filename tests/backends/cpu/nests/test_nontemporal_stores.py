"""The choice of non-temporal stores."""

from __future__ import annotations

import pytest

import hloom as hl
from hloom.backends.cpu.nests.emitter import emit_nest
from hloom.loops.lower import lower
from hloom.loops.schedule import schedule
from hloom.target import Target

MILLION = 1 << 20


def _is_nontemporal(line: str) -> bool:
    kernel = lower(hl.parse(f"ENTRY e {{ {line} }}").entry.root).kernel
    schedule(kernel, Target(vector_bytes=64, threads=2))
    (nest,) = kernel.nests
    function, _ = emit_nest("nest", kernel, nest, 64)
    return "nontemporal" in function.text()


@pytest.mark.parametrize(("millions", "expected"), [(1, False), (2, False), (4, True), (16, True)])
def test_a_sum_of_arrays_that_no_cache_holds(millions: int, expected: bool) -> None:
    shape = f"f32[{millions * MILLION}]"
    assert _is_nontemporal(f"x = {shape} parameter(0) y = {shape} parameter(1) ROOT r = {shape} add(x, y)") is expected


@pytest.mark.parametrize("millions", [4, 16, 64])
def test_results_much_larger_than_operands_are_cached(millions: int) -> None:
    size = millions * MILLION
    assert not _is_nontemporal(f"x = u8[{size}] parameter(0) ROOT r = f32[{size}] convert(x)")


def test_a_large_table_that_is_hardly_read_does_not_count() -> None:
    line = "x = f32[50000,256] parameter(0) i = s32[8192] parameter(1) ROOT r = f32[8192,256] gather(x, i), "
    line += "offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,256}"
    assert not _is_nontemporal(line)


@pytest.mark.parametrize(("rows", "expected"), [(50_000, True), (100, False)])
def test_rows_that_are_read_often_count_each_time_unless_a_private_cache_holds_them(rows: int, expected: bool) -> None:
    line = f"""x = f32[{rows},64] parameter(0) i = s32[200000,1] parameter(1)
        ROOT r = f32[200000,64] gather(x, i), offset_dims={{1}}, collapsed_slice_dims={{0}}, start_index_map={{0}},
        index_vector_dim=1, slice_sizes={{1,64}}"""
    assert _is_nontemporal(line) is expected
