"""Schedules: vector loops, tiles and chunks; values that are kept; split and unrolled loops."""

from __future__ import annotations

import pytest

import hloom as hl
from hlo_text import module_text, softmax
from hloom.loops import nest
from hloom.loops.lower import can_lower, lower
from hloom.loops.nest import Kernel, nest_lines
from hloom.loops.schedule import schedule
from hloom.passes.fusion.fusion import FusionPass
from hloom.target import CACHE_LINE, Target

AVX2_BYTES = 32
Z = "zero = f32[] constant(0)\n"
ROW_SUM = "x = f32[1000,1000] parameter(0)\n" + Z + "ROOT r = f32[1000] reduce(x, zero), dimensions={1}, to_apply=sum"
COLUMN_SUM = ROW_SUM.replace("{1}", "{0}")
SUM = "x = f32[1000,1000] parameter(0)\n" + Z + "ROOT r = f32[] reduce(x, zero), dimensions={0,1}, to_apply=sum"
NORMALISED = (
    "x = f32[ROWS,COLUMNS] parameter(0)\n" + Z + "y = f32[ROWS,COLUMNS] sine(x)\n"
    "s = f32[ROWS] reduce(y, zero), dimensions={1}, to_apply=sum\n"
    "b = f32[ROWS,COLUMNS] broadcast(s), dimensions={0}\nROOT r = f32[ROWS,COLUMNS] divide(y, b)"
)

COLUMNS_NORMALISED = (
    "x = f32[100,1000] parameter(0)\n" + Z + "y = f32[100,1000] sine(x)\n"
    "s = f32[1000] reduce(y, zero), dimensions={0}, to_apply=sum\n"
    "b = f32[100,1000] broadcast(s), dimensions={1}\nROOT r = f32[100,1000] divide(y, b)"
)


def scheduled(text: str, threads: int = 2, vector_bytes: int = AVX2_BYTES) -> Kernel:
    """The kernel of a module whose entry is fused into one instruction."""
    module = hl.parse(text if text.startswith("HloModule") else module_text(text))
    FusionPass(can_fuse=lambda i: can_lower(i, lambda *_: True)).run(module)
    fusions = [i for i in module.entry.instructions if i.opcode == "fusion"]
    kernel = lower(fusions[0] if module.entry.root.shape.is_tuple else module.entry.root).kernel
    schedule(kernel, Target(vector_bytes, threads))
    return kernel


def nests(text: str, threads: int = 2, vector_bytes: int = AVX2_BYTES) -> str:
    """The text of the nests without that of the buffers."""
    lines = scheduled(text, threads, vector_bytes).to_text().split("\n")
    return "\n".join(line for line in lines if not _is_buffer(line))


def _is_buffer(line: str) -> bool:
    return line.startswith("b") and line.split(":")[0][1:].isdigit()


def normalised(rows: int, columns: int, function: str = "sine") -> str:
    text = NORMALISED.replace("sine", function)
    return nests(text.replace("ROWS", str(rows)).replace("COLUMNS", str(columns)))


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        # Loops that traverse all arrays in order are collapsed.
        (
            "x = f32[40,60] parameter(0)\nROOT r = f32[40,60] negate(x)",
            "vector i1 < 2400 lanes 16:\n  b1[i1] = negate(b0[i1])",
        ),
        # The number of lanes follows the element size; cheap operations use several registers.
        (
            "x = s8[64,64] parameter(0)\nROOT r = s8[64,64] not(x)",
            "vector i1 < 4096 lanes 64:\n  b1[i1] = not(b0[i1])",
        ),
        (
            "x = f64[1000] parameter(0)\nROOT r = f64[1000] sine(x)",
            "vector i0 < 1000 lanes 4:\n  b1[i0] = sine(b0[i0])",
        ),
        (
            "x = f32[7] parameter(0)\nROOT r = f32[7] sine(x)",
            "vector i0 < 7 lanes 8:\n  b1[i0] = sine(b0[i0])",
        ),
        # A row that each iteration of the outer loop reads prevents collapsing.
        (
            "x = f32[60] parameter(0)\ny = f32[40,60] broadcast(x), dimensions={1}\nROOT r = f32[40,60] negate(y)",
            "for i0 < 40:\n  vector i1 < 60 lanes 16:\n    b1[60*i0 + i1] = negate(b0[i1])",
        ),
        # Small squares are transposed in registers, larger ones tile by tile.
        (
            "x = f32[8,8] parameter(0)\nROOT r = f32[8,8] transpose(x), dimensions={1,0}",
            "vector i1 < 8 lanes 8:\n  b1[i1] = b0[8*i1]"
            + "".join(f"\n  b1[i1 + {8 * k}] = b0[8*i1 + {k}]" for k in range(1, 8)),
        ),
        (
            "x = f32[64,64] parameter(0)\nROOT r = f32[64,64] transpose(x), dimensions={1,0}",
            "for tile i0 < 64:\n  vector i1 < 64 lanes 8:\n    b1[64*i0 + i1] = b0[i0 + 64*i1]",
        ),
        # Iterations that share cache lines run inside a strip-mined vector loop.
        (
            "x = f32[64,8,8,3] parameter(0)\nROOT r = f32[8,8,64,3] transpose(x), dimensions={2,1,0,3}",
            "for i1 < 8:\n  for i2s < 8:\n    for i0 < 8:\n      vector i2 < 8 lanes 8:"
            + "".join(
                f"\n        b1[1536*i0 + 192*i1 + 24*i2s + 3*i2{plus}] = b0[3*i0 + 24*i1 + 1536*i2s + 192*i2{plus}]"
                for plus in ("", " + 1", " + 2")
            ),
        ),
        # The threads share a long vector loop around few tiles.
        (
            "x = f32[6400,64] parameter(0)\nROOT r = f32[64,6400] transpose(x), dimensions={1,0}",
            "parallel i1s < 25 by 2:\n  for tile i0 < 64:\n    vector i1 < 256 lanes 8:\n"
            "      b1[6400*i0 + 256*i1s + i1] = b0[i0 + 16384*i1s + 64*i1]",
        ),
        # If rows stay contiguous, no tile is transposed.
        (
            "x = f32[4,10,30] parameter(0)\nROOT r = f32[10,4,30] transpose(x), dimensions={1,0,2}",
            "for i0 < 10:\n  for i1 < 4:\n    vector i2 < 30 lanes 16:\n"
            "      b1[120*i0 + 30*i1 + i2] = b0[30*i0 + 300*i1 + i2]",
        ),
    ],
)
def test_loops_of_elements(entry: str, expected: str) -> None:
    assert nests(entry) == expected


def test_much_expensive_work_uses_two_registers() -> None:
    """Chains of dependent instructions overlap."""
    power = "x = f64[N] parameter(0)\nROOT r = f64[N] power(x, x)"
    lanes = [nests(power.replace("N", size), threads=1).splitlines()[0] for size in ("1000", "4000")]
    assert lanes == ["vector i0 < 1000 lanes 4:", "vector i0 < 4000 lanes 8:"]


def test_long_rows_are_summed_along_themselves_by_several_threads() -> None:
    assert nests(ROW_SUM) == "parallel i0 < 1000 by 63:\n  b1[i0] = reduce[r2 < 1000; add](b0[1000*i0 + r2])"
    assert nests(ROW_SUM, threads=1) == nests(ROW_SUM).replace("parallel", "for").replace(" by 63", "")


def test_short_rows_are_summed_in_lanes() -> None:
    assert nests(ROW_SUM.replace("1000", "6")).startswith("vector i0 < 6 lanes")


def test_sums_of_columns_are_split_into_ranges_of_rows() -> None:
    """Each part adds its rows, 8 at a time, to a row of accumulators; then parts and remaining rows are added."""
    assert nests(COLUMN_SUM).split("\n") == [
        "for p < 15:",
        "  vector i0 < 1000 lanes 16:",
        "    b2[i0 + 1000*p] = -0.0",
        "parallel p < 15 by 1:",
        "  for t < 8:",
        "    vector i0 < 1000 lanes 16:",
        "      b2[i0 + 1000*p] = add(b2[i0 + 1000*p], reduce[s < 8; add](b0[i0 + 64000*p + 8000*t + 1000*s]))",
        "vector i0 < 1000 lanes 64:",
        "  b1[i0] = add(reduce[p < 15; add](b2[i0 + 1000*p]), reduce[q < 40; add](b0[i0 + 1000*q + 960000]))",
    ]
    assert [(b.role, b.size) for b in scheduled(COLUMN_SUM).buffers][2:] == [("temporary", 15000)]


def test_sums_of_short_columns_are_not_split() -> None:
    assert nests(COLUMN_SUM.replace("1000,1000", "20,1000")).startswith("vector i0 < 1000 lanes 64:\n")


def test_a_full_sum_is_split_into_parts() -> None:
    assert nests(SUM).split("\n") == [
        "parallel p < 16 by 1:",
        "  b2[p] = reduce[s < 62500; add](b0[62500*p + s])",
        "b1[0] = reduce[p < 16; add](b2[p])",
    ]


def test_small_sums_and_ordered_reductions_are_not_split() -> None:
    assert nests(SUM.replace("1000,1000", "10,10")) == "b1[0] = reduce[r3 < 100; add](b0[r3])"
    assert "b2" not in scheduled(SUM.replace("sum", "second")).to_text()


def test_softmax_keeps_the_exponentials_of_a_row() -> None:
    exponential = "exponential(subtract(b0[1000*i0 + r5], reduce[r3 < 1000; maximum](b0[1000*i0 + r3])))"
    assert scheduled(softmax(100, 1000)).to_text().split("\n")[2:] == [
        "b2: scratch f32[1000]",
        "parallel i0 < 100 by 7:",
        "  vector i1 < 1000 lanes 16:",
        f"    keep b2[r5] = {exponential}",
        f"    b1[1000*i0 + i1] = divide(b2[i1], reduce[r5 < 1000; add]({exponential}))",
    ]


def test_softmax_keeps_the_exponentials_of_a_vector_of_columns() -> None:
    kernel = scheduled(module_text(COLUMNS_NORMALISED)).to_text()
    assert "b2: scratch f32[1600]" in kernel
    assert "keep b2[16*r3 + (i1 mod 16)] = sine(b0[i1 + 1000*r3])" in kernel
    assert "divide(b2[16*i0 + (i1 mod 16)], reduce" in kernel


def test_long_nests_are_printed_by_expression(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nest, "MAX_TEXT", 0)
    assert scheduled(softmax(100, 1000)).to_text().split("\n")[5:] == [
        "    t0 = reduce[r3 < 1000; maximum](b0[1000*i0 + r3])",
        "    t1 = subtract(b0[1000*i0 + r5], t0)",
        "    t2 = exponential(t1)",
        "    t3 = reduce[r5 < 1000; add](t2)",
        "    t4 = divide(b2[i1], t3)",
        "    keep b2[r5] = t2",
        "    b1[1000*i0 + i1] = t4",
    ]


def test_cheap_values_are_recomputed_rather_than_kept() -> None:
    assert "keep b2[r3] = sine" in normalised(100, 100)
    assert "keep" not in normalised(100, 100, "negate")
    assert "keep" not in normalised(20, 20_000), "a row must fit into the cache"


def test_rows_of_narrow_elements_are_computed_in_pairs() -> None:
    text = nests(softmax(100, 1000).replace("f32", "bf16"), vector_bytes=CACHE_LINE)
    assert "  vector i1 < 1000 lanes" in text
    assert [line.split(" = ")[0].strip() for line in text.split("\n")[2:]] == [
        "keep b2[r5]",
        "keep b3[r5]",
        "b1[i1 + 2000*i0p]",
        "b1[i1 + 2000*i0p + 1000]",
    ]
    assert "i0p" not in nests(softmax(99, 1000).replace("f32", "bf16"), vector_bytes=CACHE_LINE)
    assert "i0p" not in nests(softmax(100, 1000), vector_bytes=CACHE_LINE)


@pytest.mark.parametrize(("columns", "are_paired"), [(100, True), (1000, False)])
def test_short_vectors_compute_only_short_rows_in_pairs(columns: int, are_paired: bool) -> None:
    assert ("i0p" in nests(softmax(100, columns).replace("f32", "bf16"))) == are_paired


def test_narrow_floats_are_kept_as_f32() -> None:
    text = module_text(NORMALISED.replace("ROWS", "50").replace("COLUMNS", "500")).replace("f32", "bf16")
    kept = [str(buffer.type) for buffer in scheduled(text).buffers if buffer.role == "scratch"]
    assert kept == ["f32"]


def test_short_rows_are_unrolled() -> None:
    """Kernels have one store for each element of a row, and the sum of the row is a shared expression."""
    row = "add(0.0, add(sine(b0[2*i0]), sine(b0[2*i0 + 1])))"
    assert normalised(1000, 2).split("\n") == [
        "vector i0 < 1000 lanes 8:",
        f"  b1[2*i0] = divide(sine(b0[2*i0]), {row})",
        f"  b1[2*i0 + 1] = divide(sine(b0[2*i0 + 1]), {row})",
    ]


def test_reductions_of_short_rows_are_trees() -> None:
    """Narrow floats are added in f32 and rounded once."""
    text = module_text(ROW_SUM.replace("1000,1000", "1000,3")).replace("f32", "bf16")
    a, b, c = (f"convert(b0[3*i0{plus}])" for plus in ("", " + 1", " + 2"))
    assert nests(text).endswith(f"  b1[i0] = convert(add(convert(0.0), add(add({a}, {b}), {c})))")


def test_longer_rows_are_reduced_along_themselves() -> None:
    assert "reduce[r2 < 17; add](b0[17*i0 + r2])" in nests(ROW_SUM.replace("1000,1000", "1000,17"))


def test_products_of_few_terms_run_along_contiguous_columns() -> None:
    """The four operands of a row are a record too, but each is the same for all columns."""
    product = (
        "x = f32[2048,4] parameter(0)\ny = f32[4,32] parameter(1)\nzero = f32[] constant(0)\n"
        "t = f32[32,4] transpose(y), dimensions={1,0}\na = f32[2048,32,4] broadcast(x), dimensions={0,2}\n"
        "b = f32[2048,32,4] broadcast(t), dimensions={1,2}\np = f32[2048,32,4] multiply(a, b)\n"
        "ROOT r = f32[2048,32] reduce(p, zero), dimensions={2}, to_apply=sum"
    )
    assert "vector i1 < 32" in nests(product)


def test_large_nests_are_split_into_chunks() -> None:
    text = "x = f32[ELEMENTS] parameter(0)\nROOT r = f32[ELEMENTS] negate(x)"
    assert nests(text.replace("ELEMENTS", "1000")).startswith("vector")
    for threads, chunk in ((2, 62512), (3, 41680), (16, 7824)):
        (nest,) = scheduled(text.replace("ELEMENTS", "1000000"), threads).nests
        assert nest.schedule.chunk == chunk
        assert chunk % nest.schedule.lanes == 0


def test_buffers_are_shared_by_updates_but_not_by_moved_elements() -> None:
    add = scheduled("x = f32[100] parameter(0)\ny = f32[100] parameter(1)\nROOT r = f32[100] add(x, y)")
    assert add.in_place == {(2, 0), (2, 1)}
    mixed = scheduled("x = f32[100] parameter(0)\ny = f32[100] reverse(x), dimensions={0}\nROOT r = f32[100] add(x, y)")
    assert mixed.in_place == frozenset()


def test_rows_are_stored_and_reduced_in_one_nest() -> None:
    """The sum reads all of a row before the row overwrites it."""
    kernel = scheduled(
        "x = f32[64,512] parameter(0)\n" + Z + "y = f32[64,512] exponential(x)\n"
        "s = f32[64] reduce(y, zero), dimensions={1}, to_apply=sum\nROOT r = (f32[64,512], f32[64]) tuple(y, s)"
    )
    assert nest_lines(kernel.nests[0])[1:] == [
        "  keep b1[512*i0 + r3] = exponential(b0[512*i0 + r3])",
        "  b2[i0] = reduce[r3 < 512; add](exponential(b0[512*i0 + r3]))",
    ]
    assert kernel.in_place == {(1, 0)}


def test_rows_beside_shared_weights_are_lanes() -> None:
    """The record of a row is read once, before the loop over the weights."""
    found = nests(
        "x = f32[1000,2] parameter(0)\nw = f32[32] parameter(1)\nzero = f32[] constant(0)\n"
        "s = f32[1000] reduce(x, zero), dimensions={1}, to_apply=sum\n"
        "a = f32[1000,32] broadcast(s), dimensions={0}\nb = f32[1000,32] broadcast(w), dimensions={1}\n"
        "p = f32[1000,32] multiply(a, b)\nt = f32[1000,32] sine(p)\n"
        "ROOT r = f32[1000] reduce(t, zero), dimensions={1}, to_apply=sum"
    )
    row = "add(0.0, add(b0[2*i0], b0[2*i0 + 1]))"
    assert found.split("\n")[0].startswith("parallel vector i0 < 1000")
    assert found.endswith(f"  b2[i0] = reduce[r2 < 32; add](sine(multiply({row}, b1[r2])))")


@pytest.mark.parametrize(("rows", "columns", "parts"), [(800, 300, 16), (47, 6000, 23), (31, 9000, 31)])
def test_sums_over_loops_that_do_not_collapse_are_split_along_the_first(rows: int, columns: int, parts: int) -> None:
    """Few rows make more parts, so that hardly any are left."""
    found = nests(
        f"x = f32[{rows},{columns + 2}] parameter(0)\ny = f32[{rows},{columns}] parameter(1)\n"
        f"zero = f32[] constant(0)\np = f32[{rows},{columns}] slice(x), slice={{[0:{rows}], [1:{columns + 1}]}}\n"
        f"q = f32[{rows},{columns}] multiply(p, y)\n"
        "ROOT r = f32[] reduce(q, zero), dimensions={0,1}, to_apply=sum"
    )
    assert found.startswith(f"parallel p < {parts}")


def test_sums_of_losses_of_rows_are_split_into_ranges_of_rows() -> None:
    found = nests(
        "x = f32[250,800] parameter(0)\nzero = f32[] constant(0)\n"
        "s = f32[250] reduce(x, zero), dimensions={1}, to_apply=sum\nl = f32[250] log(s)\n"
        "ROOT r = f32[] reduce(l, zero), dimensions={0}, to_apply=sum"
    )
    assert found.startswith("parallel p < 16 by 1:\n  b2[p] = reduce[s < 15; add](log(reduce[")
    assert "reduce[p < 16; add](b2[p]), reduce[q < 10; add](log(" in found


def test_reductions_that_choose_what_they_read_are_unrolled() -> None:
    entry = """x = f32[64,3] parameter(0)
        y = f32[64,3] parameter(1)
        z = f32[] constant(0)
        wide = f32[64,6] pad(x, z), padding=0_0x0_3
        other = f32[64,6] pad(y, z), padding=0_0x3_0
        both = f32[64,6] add(wide, other)
        few = f32[64,4] slice(both), slice={[0:64], [1:5]}
        ROOT r = f32[64] reduce(few, z), dimensions={1}, to_apply=sum"""
    assert "reduce[" not in nests(entry) and " if " not in nests(entry)


FORCES = """x = f32[100,3] parameter(0)
    z = f32[] constant(0)
    a = f32[100,100,3] broadcast(x), dimensions={0,2}
    b = f32[100,100,3] broadcast(x), dimensions={1,2}
    apart = f32[100,100,3] subtract(a, b)
    other = f32[100,100,3] cosine(b)
    parts = f32[100,100,3] multiply(apart, apart)
    squares = f32[100,100] reduce(parts, z), dimensions={2}, to_apply=sum
    sizes = f32[100,100] parameter(1)
    scaled = f32[100,100] multiply(squares, sizes)
    spread = f32[100,100,3] broadcast(scaled), dimensions={0,1}
    forces = f32[100,100,3] multiply(spread, apart)
    ROOT r = f32[100,3] reduce(forces, z), dimensions={1}, to_apply=sum"""


def test_short_sums_of_what_is_computed_beside_them_are_unrolled() -> None:
    """The sum of squares shares the differences with the three forces; longer ones would be added in another order."""
    assert "< 3; add]" not in nests(FORCES)
    assert "< 3; add]" in nests(FORCES.replace("multiply(spread, apart)", "multiply(spread, other)"))
    assert "< 4; add]" in nests(FORCES.replace("3]", "4]"))


@pytest.mark.parametrize(
    ("sizes", "type", "threads", "step"),
    [
        # A page of reads for each of many writes, if each thread has some of these runs.
        ("4096,4096", "f32", 2, 1024),
        ("4096,4096", "f64", 2, 512),
        ("4096,4096", "f32", 16, 128),
        # Matrices that a cache holds, squares with parts of cache lines, and extents that no longer run divides.
        ("512,512", "f32", 2, 64),
        ("4096,4096", "bf16", 2, 1024),
        ("4096,4096", "s8", 2, 1024),
        ("4096,4112", "f32", 2, 16),
    ],
)
def test_large_matrices_are_transposed_in_runs_of_a_page(sizes: str, type: str, threads: int, step: int) -> None:
    rows, columns = sizes.split(",")
    module = hl.parse(
        module_text(
            f"x = {type}[{rows},{columns}] parameter(0)\nROOT r = {type}[{columns},{rows}] transpose(x), dimensions={{1,0}}"
        )
    )
    kernel = lower(module.entry.root).kernel
    schedule(kernel, Target(64, threads))
    assert [nest.schedule.tile_step for nest in kernel.nests] == [step]


@pytest.mark.parametrize(
    ("entry", "vector_bytes", "lanes"),
    [
        ("x = f32[4194304] parameter(0)\nROOT r = f32[4194304] tanh(x)", 64, 64),
        ("x = f32[4194304] parameter(0)\nROOT r = f32[4194304] tanh(x)", 32, 32),
        # Less work, narrow registers, cheap elements, and gathered ones.
        ("x = f32[65536] parameter(0)\nROOT r = f32[65536] tanh(x)", 64, 16),
        ("x = f32[4194304] parameter(0)\nROOT r = f32[4194304] tanh(x)", 16, 4),
        ("x = f32[4194304] parameter(0)\nROOT r = f32[4194304] add(x, x)", 64, 32),
        (
            "x = f32[2048,2048] parameter(0)\nt = f32[2048,2048] tanh(x)\nROOT r = f32[2048,2048] reverse(t), dimensions={1}",
            64,
            16,
        ),
    ],
)
def test_much_work_on_elements_runs_in_chains_side_by_side(entry: str, vector_bytes: int, lanes: int) -> None:
    module = hl.parse(module_text(entry))
    FusionPass(can_fuse=lambda i: can_lower(i, lambda *_: True)).run(module)
    kernel = lower(module.entry.root).kernel
    schedule(kernel, Target(vector_bytes, 2))
    assert [nest.schedule.lanes for nest in kernel.nests] == [lanes]


def test_windows_of_one_element_in_a_short_loop_are_reduced_over_nothing() -> None:
    window = "w = f32[3,100] reduce-window(x, zero), window={size=1x1}, to_apply=sum\n"
    text = "x = f32[3,100] parameter(0)\n" + Z + window + "ROOT r = f32[100,3] transpose(w), dimensions={1,0}"
    assert nests(text).count("reduce[; add]") == 3
