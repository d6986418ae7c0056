"""Slices whose start indices are clamped, updates, concatenations and padding."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from miscompilations.case import Case, module

S32, F32 = np.int32, np.float32
TENS = np.arange(10, dtype=F32) * 10

CASES = [
    Case(
        "slice-of-slice-inner-start",
        ("openxla/xla#49121", "openxla/xla#48024", "jax-ml/jax#40849"),
        "DYNAMICSLICE-2",
        "The start 9 of four elements of ten is clamped to 6, and the first of these is element 6; not element 9.",
        module(
            "slice_of_slice",
            """x = f32[10] parameter(0); i = s32[] parameter(1); j = s32[] parameter(2)
            d = f32[4] dynamic-slice(x, i), dynamic_slice_sizes={4}
            ROOT r = f32[1] dynamic-slice(d, j), dynamic_slice_sizes={1}""",
        ),
        (TENS, np.array(9, S32), np.array(0, S32)),
        np.array([60], F32),
    ),
    Case(
        "slice-of-slice-outer-start",
        ("openxla/xla#49121", "jax-ml/jax#40849"),
        "DYNAMICSLICE-2",
        "The inner slice is {30, 40, 50, 60}; the start 5 of one element of it is clamped to 3: 60; not element 8.",
        module(
            "slice_of_slice",
            """x = f32[10] parameter(0); i = s32[] parameter(1); j = s32[] parameter(2)
            d = f32[4] dynamic-slice(x, i), dynamic_slice_sizes={4}
            ROOT r = f32[1] dynamic-slice(d, j), dynamic_slice_sizes={1}""",
        ),
        (TENS, np.array(3, S32), np.array(5, S32)),
        np.array([60], F32),
    ),
    Case(
        "slice-of-rotation",
        ("openxla/xla#49121",),
        "DYNAMICSLICE-2",
        "A rotation is a slice of the array beside itself; the start 12 of four elements of nine is clamped to 5.",
        module(
            "slice_of_rotation",
            """x = s32[9] parameter(0); shift = s32[] parameter(1); start = s32[] parameter(2)
            c = s32[18] concatenate(x, x), dimensions={0}
            d = s32[9] dynamic-slice(c, shift), dynamic_slice_sizes={9}
            ROOT r = s32[4] dynamic-slice(d, start), dynamic_slice_sizes={4}""",
        ),
        (np.arange(9, dtype=S32) * 10, np.array(5, S32), np.array(12, S32)),
        np.array([10, 20, 30, 40], S32),
    ),
    Case(
        "update-of-slice",
        ("openxla/xla#49121", "openxla/xla#48024"),
        "DYNAMICUPDATESLICE-1",
        "Both outer starts 9 are clamped to 6, so the inner update 7, 8 lands on elements 7 and 8; not on 8 and 9.",
        module(
            "update_of_slice",
            """x = f32[10] parameter(0); u = f32[2] parameter(1); i = s32[] parameter(2); j = s32[] parameter(3)
            d = f32[4] dynamic-slice(x, i), dynamic_slice_sizes={4}
            e = f32[4] dynamic-update-slice(d, u, j)
            ROOT r = f32[10] dynamic-update-slice(x, e, i)""",
        ),
        (TENS, np.array([7, 8], F32), np.array(9, S32), np.array(1, S32)),
        np.array([0, 10, 20, 30, 40, 50, 60, 7, 8, 90], F32),
    ),
    Case(
        "update-after-padding",
        ("openxla/xla#49119",),
        "DYNAMICUPDATESLICE-1",
        "Starts of two dimensions and the shift of a rotation are three values: each goes to its own operand.",
        module(
            "update_after_padding",
            """x = s32[3,4] parameter(0); i = s32[] parameter(1); j = s32[] parameter(2); k = s32[] parameter(3)
            zero = s32[] constant(0); v = s32[] constant(-1)
            p = s32[4,4] pad(x, zero), padding=1_0x0_0
            u = s32[2,1] broadcast(v), dimensions={}
            d = s32[4,4] dynamic-update-slice(p, u, i, j)
            c = s32[4,8] concatenate(d, d), dimensions={1}
            ROOT r = s32[4,4] dynamic-slice(c, zero, k), dynamic_slice_sizes={4,4}""",
        ),
        (np.arange(1, 13, dtype=S32).reshape(3, 4), np.array(9, S32), np.array(1, S32), np.array(3, S32)),
        np.array([[0, 0, 0, 0], [4, 1, 2, 3], [8, 5, -1, 7], [12, 9, -1, 11]], S32),
    ),
    Case(
        "rotated-row-written-back",
        ("jax-ml/jax#10129",),
        "DYNAMICUPDATESLICE-3",
        "A row is rotated and written back to its array: all its elements are read before any is overwritten.",
        module(
            "rotated_row",
            """x = f32[2,6] parameter(0); zero = s32[] constant(0)
            a = f32[1,2] slice(x), slice={[0:1], [4:6]}; b = f32[1,4] slice(x), slice={[0:1], [0:4]}
            c = f32[1,6] concatenate(a, b), dimensions={1}
            ROOT r = f32[2,6] dynamic-update-slice(x, c, zero, zero)""",
        ),
        (np.arange(12, dtype=F32).reshape(2, 6),),
        np.array([[4, 5, 0, 1, 2, 3], [6, 7, 8, 9, 10, 11]], F32),
    ),
    Case(
        "mask-written-to-both-ends",
        ("jax-ml/jax#22382",),
        "DYNAMICUPDATESLICE-1",
        "A conjunction of neighbours replaces all rows but the last, which keeps its value.",
        module(
            "mask",
            """k = s32[3,1] parameter(0); zero = s32[] constant(0)
            q = s32[3] reshape(k)
            b = s32[3,4] broadcast(q), dimensions={0}; i = s32[3,4] iota(), iota_dimension=1
            m = pred[3,4] compare(b, i), direction=LE
            above = pred[2,4] slice(m), slice={[0:2], [0:4]}; below = pred[2,4] slice(m), slice={[1:3], [0:4]}
            both = pred[2,4] and(above, below)
            ROOT r = pred[3,4] dynamic-update-slice(m, both, zero, zero)""",
        ),
        (np.array([[1], [3], [0]], S32),),
        np.array([[0, 0, 0, 1], [0, 0, 0, 1], [1, 1, 1, 1]], bool),
    ),
    Case(
        "padding-under-a-reduction",
        ("pytorch/pytorch#189895",),
        "PAD-1",
        "The padded element is 0 and enters the running sum: lengths become offsets that begin with 0.",
        module(
            "padding_under_a_reduction",
            """x = s32[5] parameter(0); zero = s32[] constant(0)
            p = s32[6] pad(x, zero), padding=1_0
            ROOT r = s32[6] reduce-window(p, zero), window={size=6 pad=5_0}, to_apply=plus""",
            "plus {; a = s32[] parameter(0); b = s32[] parameter(1); ROOT r = s32[] add(a, b); }",
        ),
        (np.array([3, 1, 4, 1, 5], S32),),
        np.array([0, 3, 4, 8, 9, 14], S32),
    ),
    Case(
        "copy-of-degenerate-transpose",
        ("openxla/xla#18441",),
        "GEN-9",
        "Layouts do not change values: the elements of the transposed array, row by row.",
        module(
            "copy_of_transpose",
            """x = f32[3,1,2]{2,1,0} parameter(0)
            t = f32[1,2,3]{1,0,2} transpose(x), dimensions={1,2,0}
            c = f32[1,2,3]{2,1,0} copy(t)
            s = f32[1,6]{1,0} reshape(c)
            ROOT r = f32[1,6]{0,1} copy(s)""",
        ),
        (np.arange(6, dtype=F32).reshape(3, 1, 2),),
        np.array([[0, 2, 4, 1, 3, 5]], F32),
    ),
    Case(
        "four-bit-transpose",
        ("iree-org/iree#16219",),
        "CONVERT-4",
        "Elements of s4 with an odd number of columns: a row begins in the middle of a byte (IREE takes a neighbour).",
        module(
            "four_bit_transpose",
            """x = s4[3,5] parameter(0)
            t = s4[5,3] transpose(x), dimensions={1,0}
            ROOT r = s8[5,3] convert(t)""",
        ),
        ((np.arange(15, dtype=np.int8) % 8).reshape(3, 5).astype(ml_dtypes.int4),),
        (np.arange(15, dtype=np.int8) % 8).reshape(3, 5).T.copy(),
    ),
    Case(
        "columns-of-a-constant",
        ("jax-ml/jax#33479", "openxla/xla#34260"),
        "GATHER-3",
        "Columns 0 to 4 of a constant, in order, are the constant; a row is not mixed with the other one.",
        module(
            "columns_of_a_constant",
            """c = s32[2,5] constant({{0, 1, 2, 3, 4}, {0, 1, 2, 3, 4}})
            i = s32[5,1] iota(), iota_dimension=0
            g = s32[2,5] gather(c, i), offset_dims={0}, collapsed_slice_dims={1}, start_index_map={1},
            index_vector_dim=1, slice_sizes={2,1}
            one = s32[] constant(1)
            ones = s32[2,5] broadcast(one), dimensions={}
            ROOT r = s32[2,5] add(g, ones)""",
        ),
        (),
        np.array([[1, 2, 3, 4, 5]] * 2, S32),
    ),
    Case(
        "element-at-a-large-unsigned-constant",
        ("openxla/xla#48717",),
        "GATHER-7",
        "The u8 index 200 of 300 elements is element 200, also where it is a constant; not element 0.",
        module(
            "element_at_a_constant",
            """x = s32[300] parameter(0); i = u8[1] constant({200})
            ROOT r = s32[] gather(x, i), offset_dims={}, collapsed_slice_dims={0}, start_index_map={0},
            index_vector_dim=0, slice_sizes={1}""",
        ),
        (np.arange(300, dtype=S32),),
        np.array(200, S32),
    ),
    Case(
        "slice-at-a-large-unsigned-constant",
        ("openxla/xla#48717",),
        "DYNAMICSLICE-5",
        "The u8 start 200 in 300 elements is not negative, and not clamped to 0.",
        module(
            "slice_at_a_constant",
            """x = s32[300] parameter(0); i = u8[] constant(200)
            ROOT r = s32[2] dynamic-slice(x, i), dynamic_slice_sizes={2}""",
        ),
        (np.arange(300, dtype=S32),),
        np.array([200, 201], S32),
    ),
    Case(
        "slice-reversed",
        ("iree-org/iree#24342", "iree-org/iree#23637"),
        "REV-1",
        "The middle rows of each matrix, in the other order, in the second matrix as in the first.",
        module(
            "slice_reversed",
            """x = f32[2,4,2] parameter(0); s = f32[2,2,2] slice(x), slice={[0:2], [1:3], [0:2]}
            ROOT r = f32[2,2,2] reverse(s), dimensions={1}""",
        ),
        (np.arange(1, 17, dtype=F32).reshape(2, 4, 2),),
        np.array([[[5, 6], [3, 4]], [[13, 14], [11, 12]]], F32),
    ),
    Case(
        "slopes-along-the-last-dimension",
        ("openvinotoolkit/openvino#35958",),
        "BROADCASTINDIM-1",
        "Three slopes belong to dimension 3, as `dimensions` says, although dimension 1 has the same size.",
        module(
            "slopes",
            """x = f32[1,3,2,3] parameter(0); s = f32[3] parameter(1); zero = f32[] constant(0)
            z = f32[1,3,2,3] broadcast(zero), dimensions={}; b = f32[1,3,2,3] broadcast(s), dimensions={3}
            n = pred[1,3,2,3] compare(x, z), direction=LT; m = f32[1,3,2,3] multiply(b, x)
            ROOT r = f32[1,3,2,3] select(n, m, x)""",
        ),
        (-np.arange(1, 19, dtype=F32).reshape(1, 3, 2, 3), np.array([0.5, 1.5, 2.5], F32)),
        -np.arange(1, 19, dtype=F32).reshape(1, 3, 2, 3) * np.array([0.5, 1.5, 2.5], F32),
    ),
    Case(
        "row-read-and-written-twice",
        ("pytorch/pytorch#138908",),
        "SCATTER-5",
        "Row 0 is read twice before it is written twice with its double: it is doubled once.",
        module(
            "row_written_twice",
            """y = f32[2,32] parameter(0); i = s64[2] parameter(1)
            g = f32[2,32] gather(y, i), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0},\
 index_vector_dim=1, slice_sizes={1,32}
            s = f32[2,32] add(g, g)
            ROOT r = f32[2,32] scatter(y, i, s), update_window_dims={1}, inserted_window_dims={0},\
 scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=new""",
            "new {; a = f32[] parameter(0); ROOT b = f32[] parameter(1); }",
        ),
        (np.arange(64, dtype=F32).reshape(2, 32), np.array([0, 0], np.int64)),
        np.arange(64, dtype=F32).reshape(2, 32) * np.array([[2], [1]], F32),
    ),
]
