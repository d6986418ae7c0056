"""Kernels as they are printed, in full: what each line of a nest looks like, from HLO text to the scheduled nest."""

from __future__ import annotations

from hlo_text import module_text, softmax
from loops.test_schedule import scheduled


def printed(entry: str) -> list[str]:
    """The lines of the kernel for 32-byte vectors and two threads."""
    return scheduled(entry if entry.startswith("HloModule") else module_text(entry)).to_text().split("\n")


def test_a_softmax_of_rows_keeps_the_exponentials_of_a_row() -> None:
    assert printed(softmax(64, 1000)) == [
        "b0: input f32[64000]",
        "b1: output f32[64000]",
        "b2: scratch f32[1000]",
        "parallel i0 < 64 by 4:",
        "  vector i1 < 1000 lanes 16:",
        "    keep b2[r5] = exponential(subtract(b0[1000*i0 + r5], reduce[r3 < 1000; maximum](b0[1000*i0 + r3])))",
        "    b1[1000*i0 + i1] = divide(b2[i1], reduce[r5 < 1000; add](exponential(subtract(b0[1000*i0 + r5], "
        "reduce[r3 < 1000; maximum](b0[1000*i0 + r3])))))",
    ]


def test_a_sum_of_columns_runs_over_rows_in_lanes() -> None:
    assert printed("""
        x = f32[100,40] parameter(0)
        zero = f32[] constant(0)
        ROOT r = f32[40] reduce(x, zero), dimensions={0}, to_apply=sum""") == [
        "b0: input f32[4000]",
        "b1: output f32[40]",
        "vector i0 < 40 lanes 32:",
        "  b1[i0] = reduce[r2 < 100; add](b0[i0 + 40*r2])",
    ]


def test_a_transposed_operand_of_a_sum_is_read_in_tiles() -> None:
    assert printed("""
        x = f32[64,32] parameter(0)
        y = f32[32,64] parameter(1)
        t = f32[32,64] transpose(x), dimensions={1,0}
        ROOT r = f32[32,64] add(t, y)""") == [
        "b0: input f32[2048]",
        "b1: input f32[2048]",
        "b2: output f32[2048]",
        "for tile i0 < 32:",
        "  vector i1 < 64 lanes 8:",
        "    b2[64*i0 + i1] = add(b0[i0 + 32*i1], b1[64*i0 + i1])",
    ]


def test_a_pad_reads_the_operand_where_it_has_elements() -> None:
    assert printed("""
        x = f32[6,20] parameter(0)
        v = f32[] parameter(1)
        ROOT r = f32[9,24] pad(x, v), padding=1_2x3_1""") == [
        "b0: input f32[120]",
        "b1: input f32[1]",
        "b2: output f32[216]",
        "for i0 < 9:",
        "  vector i1 < 24 lanes 16:",
        "    b2[24*i0 + i1] = (b0[20*i0 + i1 + -23] if and((0 <= i0 + -1 < 6), (0 <= i1 + -3 < 20)) else b1[0])",
    ]


def test_an_interior_pad_reads_every_second_element() -> None:
    assert printed("""
        x = f32[6] parameter(0)
        v = f32[] parameter(1)
        ROOT r = f32[12] pad(x, v), padding=1_0_1""") == [
        "b0: input f32[6]",
        "b1: input f32[1]",
        "b2: output f32[12]",
        "vector i0 < 12 lanes 8:",
        "  b2[i0] = (b0[((i0 + 1) // 2) + -1] if and((0 <= i0 + -1 < 11), (0 <= ((i0 + 1) mod 2) < 1)) else b1[0])",
    ]


def test_a_gather_of_rows_clamps_the_index() -> None:
    assert printed("""
        x = f32[100,16] parameter(0)
        i = s32[50,1] parameter(1)
        ROOT r = f32[50,16] gather(x, i), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0},
          index_vector_dim=1, slice_sizes={1,16}""") == [
        "b0: input f32[1600]",
        "b1: input s32[50]",
        "b2: output f32[800]",
        "for i0 < 50:",
        "  vector i1 < 16 lanes 16:",
        "    b2[16*i0 + i1] = b0[i1 + 16*clamp(0, b1[i0], 99)]",
    ]


def test_an_index_that_is_computed_from_shared_values_is_printed_once() -> None:
    """The text of one line would have 2^40 loads."""
    steps = "\n".join(f"i{k + 1} = s32[] multiply(i{k}, i{k})" for k in range(40))
    lines = printed(f"""
        x = f32[100] parameter(0)
        i0 = s32[] parameter(1)
        {steps}
        ROOT r = f32[10] dynamic-slice(x, i40), dynamic_slice_sizes={{10}}""")
    assert lines[3:6] == ["vector i0 < 10 lanes 8:", "  t0 = multiply(b0[0], b0[0])", "  t1 = multiply(t0, t0)"]
    assert lines[-2:] == ["  t40 = b1[i0 + clamp(0, t39, 90)]", "  b2[i0] = t40"]
