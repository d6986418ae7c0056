"""Parallel loops: which loops are found, and that their results equal those of serial loops."""

from __future__ import annotations

import pytest
from assigned import assigned, check_results

from hloom.backends.cpu.program.parallel_loops import fills_threads
from hloom.backends.cpu.program.program import ParallelLoop, WhileStep, all_steps

STATE = "(s32[], f32[64,32,32], f32[64,32,32])"
MAP = """HloomModule
sum {{ a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b) }}
condition {{
  t = {state} parameter(0)
  i = s32[] get-tuple-element(t), index=0
  n = s32[] constant({trips})
  ROOT l = pred[] compare(i, n), direction=LT
}}
body {{
  t = {state} parameter(0)
  i = s32[] get-tuple-element(t), index=0
  x = f32[64,32,32] get-tuple-element(t), index=1
  y = f32[64,32,32] get-tuple-element(t), index=2
  z = s32[] constant(0)
  one = s32[] constant(1)
  four = s32[] constant(4)
  {start}
  slice = f32[4,32,32] dynamic-slice(x, start, z, z), dynamic_slice_sizes={{4,32,32}}
  product = f32[4,32,32] dot(slice, slice), lhs_batch_dims={{0}}, rhs_batch_dims={{0}}, lhs_contracting_dims={{2}}, rhs_contracting_dims={{1}}
  {value}
  updated = f32[64,32,32] dynamic-update-slice(y, value, start, z, z)
  next = s32[] add(i, one)
  ROOT r = {state} tuple(next, x, {result})
}}
ENTRY e {{
  x = f32[64,32,32] parameter(0)
  first = s32[] constant({first})
  zero = f32[] constant(0)
  zeros = f32[64,32,32] broadcast(zero), dimensions={{}}
  t = {state} tuple(first, x, zeros)
  w = {state} while(t), condition=condition, body=body
  ROOT y = f32[64,32,32] get-tuple-element(w), index=2
}}""".replace("HloomModule", "HloModule m")
SCALED = "start = s32[] multiply(i, four)"


def text(
    trips: int = 16,
    first: int = 0,
    start: str = SCALED,
    value: str = "value = f32[4,32,32] sine(product)",
    result: str = "updated",
) -> str:
    return MAP.format(state=STATE, trips=trips, first=first, start=start, value=value, result=result)


def parallel_loops_of(found: str, threads: int = 2) -> list[ParallelLoop]:
    """Returns the loops that run in parallel."""
    program, assignment = assigned(found, threads)
    loops = [step for step in all_steps(program.steps) if isinstance(step, WhileStep)]
    assert len(loops) == 1
    return [step.parallel for step in loops if step.parallel is not None and step in assignment.parallel_loops]


@pytest.mark.parametrize(
    ("found", "counts"),
    [
        (text(), (0, 1, 16)),
        (text(start="t2 = s32[] add(i, i)\ntwo = s32[] constant(2)\nstart = s32[] multiply(t2, two)"), (0, 1, 16)),
        (text(trips=14, start="s = s32[] multiply(i, four)\nstart = s32[] add(four, s)"), (0, 1, 14)),
        (text(first=2, start="less = s32[] constant(-8)\ns = s32[] multiply(i, four)\nstart = s32[] add(s, less)"), (2, 1, 14)),
        (text(trips=10, start="six = s32[] constant(6)\nstart = s32[] multiply(i, six)"), (0, 1, 10)),
    ],
    ids=["scaled", "sums", "offset", "counts from two", "gaps"],
)  # fmt: skip
def test_loops_that_write_disjoint_slices_are_parallel(found: str, counts: tuple[int, int, int]) -> None:
    (parallel,) = parallel_loops_of(found)
    assert (parallel.first, parallel.step, parallel.trips) == counts and parallel.tasks == 2
    check_results(found, rtol=2e-5)


def with_mixed_radix_starts(rows: str, columns: str, trips: int = 16, size: str = "16,8") -> str:
    """A loop that writes slices of two dimensions, whose starts are digits of the counter."""
    start = f"""two = s32[] constant(2)
  eight = s32[] constant(8)
  sixteen = s32[] constant(16)
  {rows}
  {columns}
  {SCALED}"""
    value = f"corner = f32[4,16,8] slice(product), slice={{[0:4], [0:16], [0:8]}}\n  value = f32[4,{size}] CUT"
    sliced = f"slice(corner), slice={{[0:4], [0:{size.split(',')[0]}], [0:{size.split(',')[1]}]}}"
    found = text(trips, start=start, value=value.replace("CUT", sliced))
    return found.replace("(y, value, start, z, z)", "(y, value, z, row, column)")


HALF, QUARTER = "q = s32[] divide(i, two)\n", "f = s32[] divide(i, four)\n"


@pytest.mark.parametrize(
    ("found", "is_parallel"),
    [
        (with_mixed_radix_starts("h = s32[] remainder(i, two)\nrow = s32[] multiply(h, sixteen)",
                   f"{HALF}c = s32[] remainder(q, four)\ncolumn = s32[] multiply(c, eight)", trips=8 + 1), False),
        (with_mixed_radix_starts("h = s32[] remainder(i, four)\nrow = s32[] multiply(h, eight)",
                   f"{QUARTER}c = s32[] remainder(f, four)\ncolumn = s32[] multiply(c, eight)", size="8,8"), True),
        (with_mixed_radix_starts("h = s32[] remainder(i, four)\nrow = s32[] multiply(h, eight)",
                   f"{QUARTER}column = s32[] multiply(f, eight)", size="8,8"), True),
        (with_mixed_radix_starts("h = s32[] remainder(i, four)\nrow = s32[] multiply(h, eight)",
                   f"{HALF}c = s32[] remainder(q, four)\ncolumn = s32[] multiply(c, eight)", size="8,8"), False),
        (with_mixed_radix_starts("h = s32[] remainder(i, four)\nrow = s32[] multiply(h, eight)",
                   f"{QUARTER}c = s32[] remainder(f, two)\ncolumn = s32[] multiply(c, eight)", size="8,8"), False),
        (with_mixed_radix_starts("h = s32[] remainder(i, four)\nrow = s32[] multiply(h, four)",
                   f"{QUARTER}c = s32[] remainder(f, four)\ncolumn = s32[] multiply(c, eight)", size="8,8"), False),
    ],
    ids=["too many rounds", "digits", "the last one whole", "digits that overlap", "digits that are missing", "parts that overlap"],
)  # fmt: skip
def test_starts_that_are_mixed_radix_digits(found: str, is_parallel: bool) -> None:
    assert bool(parallel_loops_of(found)) == is_parallel
    check_results(found, rtol=2e-4)


@pytest.mark.parametrize(
    "found",
    [
        text(start="three = s32[] constant(3)\nstart = s32[] multiply(i, three)"),
        text(trips=18),
        text(start="s = s32[] multiply(i, four)\nfifty = s32[] constant(50)\nstart = s32[] subtract(fifty, s)"),
        text(start="s = s32[] multiply(i, i)\nstart = s32[] multiply(s, four)"),
        text(trips=0, first=-16, start="start = s32[] negate(i)"),
        text(trips=4, first=-12, start="m = s32[] remainder(i, four)\nsixteen = s32[] constant(16)\n"
                                       "s = s32[] multiply(m, four)\nt3 = s32[] multiply(four, sixteen)\n"
                                       "start = s32[] add(s, t3)").replace("f32[64,32,32]", "f32[128,32,32]"),
        text(value="old = f32[4,32,32] dynamic-slice(y, start, z, z), dynamic_slice_sizes={4,32,32}\n"
                   "value = f32[4,32,32] add(product, old)"),
        text(result="further").replace("next = ", "further = f32[64,32,32] negate(updated)\nnext = "),
        text(value="w = f32[4,32,32] slice(y), slice={[0:4], [0:32], [0:32]}\nvalue = f32[4,32,32] add(product, w)"),
        text().replace("tuple(next, x, updated)", "tuple(next, updated, updated)"),
    ],
    ids=["overlapping", "clamped", "downwards", "not linear", "below zero", "remainders below zero", "reads its part", "changes all", "reads a part", "twice"],
)  # fmt: skip
def test_loops_with_loop_carried_dependences_are_serial(found: str) -> None:
    assert not parallel_loops_of(found)
    check_results(found, rtol=2e-4)


def test_short_loops_and_loops_of_little_work_are_serial() -> None:
    assert not parallel_loops_of(text(), threads=1)
    assert not parallel_loops_of(text(), threads=32)
    small = text().replace("32,32", "2,2").replace("product = f32[4,2,2] dot(slice, slice), lhs_batch_dims={0}, "
        "rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}", "product = f32[4,2,2] sine(slice)")  # fmt: skip
    assert "dot" not in small and not parallel_loops_of(small)
    assert fills_threads(16, 16) and fills_threads(3, 2) and not fills_threads(17, 16) and not fills_threads(1, 2)


def test_loops_inside_parallel_loops() -> None:
    inner = """
inner {
  t = (s32[], f32[4,32,32]) parameter(0)
  j = s32[] get-tuple-element(t), index=0
  v = f32[4,32,32] get-tuple-element(t), index=1
  one = s32[] constant(1)
  k = s32[] add(j, one)
  s = f32[4,32,32] sine(v)
  ROOT r = (s32[], f32[4,32,32]) tuple(k, s)
}
until {
  t = (s32[], f32[4,32,32]) parameter(0)
  j = s32[] get-tuple-element(t), index=0
  n = s32[] constant(3)
  ROOT l = pred[] compare(j, n), direction=LT
}
"""
    value = """zero = s32[] constant(0)
  begin = (s32[], f32[4,32,32]) tuple(zero, product)
  loop = (s32[], f32[4,32,32]) while(begin), condition=until, body=inner
  value = f32[4,32,32] get-tuple-element(loop), index=1"""
    found = text(value=value).replace("condition {", f"{inner}condition {{", 1)
    program, assignment = assigned(found)
    assert len(assignment.parallel_loops) == 1, "the outer loop"
    check_results(found, rtol=2e-4)
