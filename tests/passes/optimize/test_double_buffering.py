"""double-buffering: loops of stencils run two iterations in one, without a copy; others stay as they are."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
from hlo_text import compiled, interpreted
from hloom.analysis.counted_loop import trip_count
from hloom.backends.cpu.llvm.processor import processor
from hloom.backends.cpu.pipeline import Topology, cpu_pipeline
from hloom.backends.cpu.program.buffer_assignment import assign_buffers
from hloom.backends.cpu.program.build_program import build_program
from hloom.backends.cpu.program.program import CopyStep, KernelStep, WhileStep
from hloom.passes import clone_module, run_passes
from hloom.passes.edit import loops_of
from hloom.passes.optimize.double_buffering import DoubleBuffering
from hloom.target import Target
from hloom.verifier import verify_module

SIZE = 160
INNER = f"f32[{SIZE - 2},{SIZE - 2}]"
FIXED_EDGES = f"""up = {INNER} slice(x), slice={{[0:{SIZE - 2}], [1:{SIZE - 1}]}}
  left = {INNER} slice(x), slice={{[1:{SIZE - 1}], [0:{SIZE - 2}]}}
  sum = {INNER} add(up, left)
  half = f32[] constant(0.5)
  halves = {INNER} broadcast(half), dimensions={{}}
  inner = {INNER} multiply(sum, halves)
  one = s32[] constant(1)
  y = f32[{SIZE},{SIZE}] dynamic-update-slice(x, inner, one, one)"""
ROLLED = f"""low = f32[1,{SIZE}] slice(x), slice={{[0:1], [0:{SIZE}]}}
  high = f32[{SIZE - 1},{SIZE}] slice(x), slice={{[1:{SIZE}], [0:{SIZE}]}}
  rolled = f32[{SIZE},{SIZE}] concatenate(high, low), dimensions={{0}}
  difference = f32[{SIZE},{SIZE}] subtract(rolled, x)
  size = f32[{SIZE},{SIZE}] abs(difference)
  root = f32[{SIZE},{SIZE}] sqrt(size)
  quotient = f32[{SIZE},{SIZE}] divide(root, size)
  y = f32[{SIZE},{SIZE}] divide(quotient, root)"""
"""A step that costs too much to be computed again for each element of the next one."""
ELEMENTWISE = f"y = f32[{SIZE},{SIZE}] add(x, x)"
ROW = f"""i0 = s32[] constant(0)
  row = f32[1,{SIZE}] dynamic-slice(x, i, i0), dynamic_slice_sizes={{1,{SIZE}}}
  y = f32[{SIZE},{SIZE}] dynamic-update-slice(x, row, j, i0)"""
"""A step that reads other elements of an array than it writes, but writes few."""


def stencil(step: str = FIXED_EDGES, trips: int = 6, size: int = SIZE, limit: str = "n") -> hl.Module:
    """A loop of steps that compute y from x, in iteration i of `trips`; j is i + 1."""
    text = f"""HloModule m
body {{ t = (s32[], f32[{SIZE},{SIZE}], s32[]) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  x = f32[{SIZE},{SIZE}] get-tuple-element(t), index=1
  m = s32[] get-tuple-element(t), index=2
  k1 = s32[] constant(1)
  j = s32[] add(i, k1)
  {step}
  ROOT r = (s32[], f32[{SIZE},{SIZE}], s32[]) tuple(j, y, m) }}
condition {{ t = (s32[], f32[{SIZE},{SIZE}], s32[]) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  m = s32[] get-tuple-element(t), index=2
  n = s32[] constant({trips})
  ROOT less = pred[] compare(i, {limit}), direction=LT }}
ENTRY e {{ x = f32[{SIZE},{SIZE}] parameter(0)
  m = s32[] parameter(1)
  start = s32[] constant(0)
  t = (s32[], f32[{SIZE},{SIZE}], s32[]) tuple(start, x, m)
  w = (s32[], f32[{SIZE},{SIZE}], s32[]) while(t), condition=condition, body=body
  ROOT r = f32[{SIZE},{SIZE}] get-tuple-element(w), index=1 }}"""
    for difference in (2, 1, 0):
        text = text.replace(str(SIZE - difference), str(size - difference))
    return hl.parse(text)


def arrays(module: hl.Module) -> list[np.ndarray]:
    x = np.random.default_rng(0).integers(-64, 64, module.entry.parameter_shapes[0].dimensions)
    return [x.astype(np.float32), np.asarray(5, np.int32)]


@pytest.mark.sampled(5)
@pytest.mark.parametrize("step", [FIXED_EDGES, ROLLED])
@pytest.mark.parametrize("trips", [4, 5, 10, 11])
def test_two_steps_in_one(step: str, trips: int) -> None:
    module = stencil(step, trips)
    after = clone_module(module)
    assert DoubleBuffering().run(after) == 1
    verify_module(after)
    opcode = "dynamic-update-slice" if step is FIXED_EDGES else "concatenate"
    (loop,) = loops_of(after)
    assert [i.opcode for i in loop.op.body.instructions].count(opcode) == 2
    assert [i.opcode for i in after.entry.instructions].count(opcode) == trips % 2
    given = arrays(module)
    for want, got, native in zip(
        interpreted(module, *given), interpreted(after, *given), compiled(module, *given), strict=True
    ):
        np.testing.assert_array_equal(got, want)
        np.testing.assert_array_equal(native, want)


@pytest.mark.parametrize("step", [FIXED_EDGES, ROLLED])
def test_steps_are_kernels_without_copies(step: str) -> None:
    """A step with fixed edges is one kernel as well: it writes the whole array, not a part that is then copied."""
    module = stencil(step, trips=20)
    run_passes(module, cpu_pipeline(Topology.SINGLE))
    program = build_program(module, Target(vector_bytes=processor().vector_bytes, threads=1))
    assignment = assign_buffers(program)
    (loop,) = (s for s in program.steps if isinstance(s, WhileStep))
    is_large = [s for s in loop.body if any(b.byte_size >= 4 * SIZE * SIZE for b in s.writes)]
    assert len([s for s in is_large if isinstance(s, KernelStep)]) == 2
    assert all(assignment.is_elided(s) for s in is_large if isinstance(s, CopyStep))


@pytest.mark.parametrize(
    "unchanged",
    [
        stencil(ELEMENTWISE),
        stencil(ROW),
        stencil(ROLLED, trips=3),
        stencil(ROLLED, size=16),
        stencil(ROLLED, limit="m"),
    ],
    ids=["same elements", "a row in place", "few trips", "small", "unknown trips"],
)
def test_other_loops_stay(unchanged: hl.Module) -> None:
    trips = [trip_count(loop) for loop in loops_of(unchanged)]
    assert DoubleBuffering().run(unchanged) == 0
    assert [trip_count(loop) for loop in loops_of(unchanged)] == trips


def test_small_parts_are_updated_in_place() -> None:
    module = stencil(ROW, trips=20)
    given = arrays(module)
    np.testing.assert_array_equal(compiled(module, *given)[0], interpreted(module, *given)[0])
