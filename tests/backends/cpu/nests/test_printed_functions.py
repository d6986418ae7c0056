"""LLVM functions of nests as they are emitted, in full, for vectors of 16 bytes: short nests, one of each form."""

from __future__ import annotations

import pytest

from hlo_text import module_text
from hloom.backends.cpu.llvm.processor import processor
from hloom.backends.cpu.nests.emitter import emit_nest
from loops.test_schedule import scheduled


def emitted(entry: str, computations: str = "") -> str:
    """The function of the entry's only nest."""
    kernel = scheduled(module_text(entry, computations))
    (nest,) = kernel.nests
    function, _ = emit_nest("nest0", kernel, nest, vector_bytes=16)
    return function.text()


def test_the_remainder_of_a_short_vector_loop_has_a_vector_of_its_own() -> None:
    entry = """
        x = s32[6] parameter(0)
        ROOT r = s32[6] negate(x)"""
    assert (
        emitted(entry)
        == """\
define internal void @nest0(ptr readonly %b0, ptr %b1, i64 %first, i64 %last) nounwind {
entry:
  %v1 = getelementptr i32, ptr %b0, i64 0
  %v2 = load <4 x i32>, ptr %v1, align 4
  %v3 = sub <4 x i32> splat (i32 0), %v2
  %v4 = getelementptr i32, ptr %b1, i64 0
  store <4 x i32> %v3, ptr %v4, align 4
  %v5 = getelementptr i32, ptr %b0, i64 4
  %v6 = load <2 x i32>, ptr %v5, align 4
  %v7 = sub <2 x i32> splat (i32 0), %v6
  %v8 = getelementptr i32, ptr %b1, i64 4
  store <2 x i32> %v7, ptr %v8, align 4
  ret void
}"""
    )


def test_a_parallel_loop_runs_from_the_first_to_the_last_of_its_iterations() -> None:
    """Threads call the function with ranges; the sizes of all but the last are multiples of the vector's."""
    entry = """
        x = s32[65536] parameter(0)
        y = s32[65536] parameter(1)
        ROOT r = s32[65536] xor(x, y)"""
    assert (
        emitted(entry)
        == """\
define internal void @nest0(ptr readonly %b0, ptr readonly %b1, ptr %b2, i64 %first, i64 %last) nounwind {
entry:
  br label %loop1
loop1:
  %v3 = phi i64 [ %first, %entry ], [ %v10, %loop1 ]
  %v4 = getelementptr i32, ptr %b0, i64 %v3
  %v5 = load <16 x i32>, ptr %v4, align 4
  %v6 = getelementptr i32, ptr %b1, i64 %v3
  %v7 = load <16 x i32>, ptr %v6, align 4
  %v8 = xor <16 x i32> %v5, %v7
  %v9 = getelementptr i32, ptr %b2, i64 %v3
  store <16 x i32> %v8, ptr %v9, align 4
  %v10 = add nuw nsw i64 %v3, 16
  %v11 = icmp ult i64 %v10, %last
  br i1 %v11, label %loop1, label %after2
after2:
  ret void
}"""
    )


def test_a_sum_of_rows_is_reduced_in_lanes_and_then_across_them() -> None:
    """-0.0 is the identity of addition: the sum of the lanes starts with it, and the initial value, 0.0, enters once."""
    entry = """
        x = f32[2,16] parameter(0)
        zero = f32[] constant(0)
        ROOT r = f32[2] reduce(x, zero), dimensions={1}, to_apply=sum"""
    assert (
        emitted(entry)
        == """\
define internal void @nest0(ptr readonly %b0, ptr %b1, i64 %first, i64 %last) nounwind {
entry:
  br label %loop1
loop1:
  %v3 = phi i64 [ 0, %entry ], [ %v19, %loop1 ]
  %v4 = mul i64 %v3, 16
  %v5 = add i64 %v4, 0
  %v6 = getelementptr float, ptr %b0, i64 %v5
  %v7 = load <16 x float>, ptr %v6, align 4
  %v8 = fadd <16 x float> splat (float 0x8000000000000000), %v7
  %v9 = shufflevector <16 x float> %v8, <16 x float> poison, <8 x i32> <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7>
  %v10 = shufflevector <16 x float> %v8, <16 x float> poison, <8 x i32> <i32 8, i32 9, i32 10, i32 11, i32 12, i32 13, i32 14, i32 15>
  %v11 = fadd <8 x float> %v9, %v10
  %v12 = shufflevector <8 x float> %v11, <8 x float> poison, <4 x i32> <i32 0, i32 1, i32 2, i32 3>
  %v13 = shufflevector <8 x float> %v11, <8 x float> poison, <4 x i32> <i32 4, i32 5, i32 6, i32 7>
  %v14 = fadd <4 x float> %v12, %v13
  %v15 = call <4 x float> @llvm.arithmetic.fence.v4f32(<4 x float> %v14)
  %v16 = call reassoc float @llvm.vector.reduce.fadd.v4f32(float 0x8000000000000000, <4 x float> %v15)
  %v17 = fadd float 0x0000000000000000, %v16
  %v18 = getelementptr float, ptr %b1, i64 %v3
  store float %v17, ptr %v18, align 4
  %v19 = add nuw nsw i64 %v3, 1
  %v20 = icmp ult i64 %v19, 2
  br i1 %v20, label %loop1, label %after2
after2:
  ret void
}"""
    )


def test_a_gather_of_rows_clamps_each_index_once_for_its_row() -> None:
    entry = """
        x = f32[9,4] parameter(0)
        i = s32[3,1] parameter(1)
        ROOT r = f32[3,4] gather(x, i), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0},
          index_vector_dim=1, slice_sizes={1,4}"""
    assert (
        emitted(entry)
        == """\
define internal void @nest0(ptr readonly %b0, ptr readonly %b1, ptr %b2, i64 %first, i64 %last) nounwind {
entry:
  br label %loop1
loop1:
  %v3 = phi i64 [ 0, %entry ], [ %v16, %loop1 ]
  %v4 = getelementptr i32, ptr %b1, i64 %v3
  %v5 = load i32, ptr %v4, align 4
  %v6 = call i32 @llvm.smax.i32(i32 %v5, i32 0)
  %v7 = call i32 @llvm.smin.i32(i32 %v6, i32 8)
  %v8 = sext i32 %v7 to i64
  %v9 = mul i64 %v8, 4
  %v10 = add i64 0, %v9
  %v11 = getelementptr float, ptr %b0, i64 %v10
  %v12 = load <4 x float>, ptr %v11, align 4
  %v13 = mul i64 %v3, 4
  %v14 = add i64 %v13, 0
  %v15 = getelementptr float, ptr %b2, i64 %v14
  store <4 x float> %v12, ptr %v15, align 4
  %v16 = add nuw nsw i64 %v3, 1
  %v17 = icmp ult i64 %v16, 3
  br i1 %v17, label %loop1, label %after2
after2:
  ret void
}"""
    )


@pytest.mark.skipif(processor().architecture != "x86_64", reason="other processors have other instructions")
def test_three_rows_are_transposed_in_registers() -> None:
    entry = """
        x = f32[3,4] parameter(0)
        ROOT r = f32[4,3] transpose(x), dimensions={1,0}"""
    assert (
        emitted(entry)
        == """\
define internal void @nest0(ptr readonly %b0, ptr %b1, i64 %first, i64 %last) nounwind {
entry:
  %v1 = getelementptr float, ptr %b0, i64 0
  %v2 = load <4 x float>, ptr %v1, align 4
  %v3 = add i64 0, 4
  %v4 = getelementptr float, ptr %b0, i64 %v3
  %v5 = load <4 x float>, ptr %v4, align 4
  %v6 = add i64 0, 8
  %v7 = getelementptr float, ptr %b0, i64 %v6
  %v8 = load <4 x float>, ptr %v7, align 4
  %v9 = mul i64 0, 3
  %v10 = getelementptr float, ptr %b1, i64 %v9
  %v11 = shufflevector <4 x float> %v2, <4 x float> %v5, <4 x i32> <i32 0, i32 2, i32 4, i32 6>
  %v12 = shufflevector <4 x float> %v5, <4 x float> %v8, <4 x i32> <i32 1, i32 3, i32 5, i32 7>
  %v13 = shufflevector <4 x float> %v8, <4 x float> %v2, <4 x i32> <i32 0, i32 2, i32 5, i32 7>
  %v14 = shufflevector <4 x float> %v11, <4 x float> %v13, <4 x i32> <i32 0, i32 2, i32 4, i32 6>
  %v15 = shufflevector <4 x float> %v12, <4 x float> %v11, <4 x i32> <i32 0, i32 2, i32 5, i32 7>
  %v16 = shufflevector <4 x float> %v13, <4 x float> %v12, <4 x i32> <i32 1, i32 3, i32 5, i32 7>
  %v17 = getelementptr float, ptr %v10, i64 0
  store <4 x float> %v14, ptr %v17, align 4
  %v18 = getelementptr float, ptr %v10, i64 4
  store <4 x float> %v15, ptr %v18, align 4
  %v19 = getelementptr float, ptr %v10, i64 8
  store <4 x float> %v16, ptr %v19, align 4
  ret void
}"""
    )


def test_values_that_a_reduction_does_not_change_precede_its_loop() -> None:
    entry = """
        x = f32[64,256] parameter(0)
        zero = f32[] constant(0)
        total = f32[64] reduce(x, zero), dimensions={1}, to_apply=sum
        root = f32[64] sqrt(total)
        roots = f32[64,256] broadcast(root), dimensions={0}
        apart = f32[64,256] subtract(x, roots)
        ROOT r = f32[64] reduce(apart, zero), dimensions={1}, to_apply=sum"""
    _, row, total, apart = emitted(entry).split("\nloop")
    assert "llvm.sqrt" not in row and "llvm.sqrt" in total and "llvm.sqrt" not in apart
