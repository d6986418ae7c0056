"""Hoisting of packing: which operands are packed once and where, and that results are unchanged."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

import hloom as hl
from hloom.backends.cpu.kernels.products.blocked import planning
from hloom.backends.cpu.pipeline import Topology, cpu_pipeline
from hloom.backends.cpu.program.build_program import build_program
from hloom.backends.cpu.program.program import CodeStep, Step, WhileStep
from hloom.passes import clone_module, run_passes
from hloom.target import Target

SIZE = 64
STATE = f"(s32[], f32[{SIZE},{SIZE}], f32[{SIZE},{SIZE}])"


@pytest.fixture(autouse=True)
def _products_pack_their_right_operand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products of this size too: as though it were too large to be read in place, or packed by each thread."""
    monkeypatch.setattr(planning, "MAX_DIRECT_BYTES", 0)
    monkeypatch.setattr(planning, "STACK_BYTES", 0)


def loop(name: str, body: str, inner: str = "") -> str:
    """The computations of a loop over (i, x, w); the body gives `next_x` and `next_w`."""
    return f"""{inner}
{name}_condition {{ p = {STATE} parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(17)
  ROOT l = pred[] compare(i, n), direction=LT }}
{name}_body {{ p = {STATE} parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[{SIZE},{SIZE}] get-tuple-element(p), index=1
  w = f32[{SIZE},{SIZE}] get-tuple-element(p), index=2
  one = s32[] constant(1)
  next = s32[] add(i, one)
  {body}
  ROOT t = {STATE} tuple(next, next_x, next_w) }}
"""


def run_of(name: str) -> str:
    return f"""zero = s32[] constant(0)
  start = {STATE} tuple(zero, x, w)
  loop = {STATE} while(start), condition={name}_condition, body={name}_body
  next_x = f32[{SIZE},{SIZE}] get-tuple-element(loop), index=1"""


def module_of(computations: str) -> hl.Module:
    return hl.parse(f"""HloModule m
{computations}
ENTRY e {{ x = f32[{SIZE},{SIZE}] parameter(0)
  w = f32[{SIZE},{SIZE}] parameter(1)
  {run_of("outer")}
  ROOT r = f32[{SIZE},{SIZE}] copy(next_x) }}""")


DIMENSIONS = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
PRODUCT = f"f32[{SIZE},{SIZE}] dot(x, w), {DIMENSIONS}"
UNCHANGED = f"d = {PRODUCT}\n next_x = f32[{SIZE},{SIZE}] tanh(d)\n next_w = f32[{SIZE},{SIZE}] copy(w)"
PASSED_ON = f"""d = {PRODUCT}
  next_x = f32[{SIZE},{SIZE}] tanh(d)
  next_w = f32[{SIZE},{SIZE}] get-tuple-element(p), index=2"""
TWICE = f"""d = {PRODUCT}
  y = f32[{SIZE},{SIZE}] tanh(d)
  d2 = f32[{SIZE},{SIZE}] dot(y, w), {DIMENSIONS}
  next_x = f32[{SIZE},{SIZE}] tanh(d2)
  next_w = f32[{SIZE},{SIZE}] get-tuple-element(p), index=2"""
CHANGED = f"d = {PRODUCT}\n next_x = f32[{SIZE},{SIZE}] tanh(d)\n next_w = f32[{SIZE},{SIZE}] tanh(w)"
AS_LEFT = f"""d = f32[{SIZE},{SIZE}] dot(w, x), {DIMENSIONS}
  next_x = f32[{SIZE},{SIZE}] tanh(d)
  next_w = f32[{SIZE},{SIZE}] get-tuple-element(p), index=2"""


def steps_of(module: hl.Module) -> list[Step]:
    copy = clone_module(module)
    run_passes(copy, cpu_pipeline(Topology.SINGLE))
    return build_program(copy, Target(32, 2)).steps


def packings(steps: Iterable[Step]) -> int:
    return sum(isinstance(step, CodeStep) and step.is_packing for step in steps)


def check(module: hl.Module) -> None:
    rng = np.random.default_rng(0)
    arrays: list[Any] = [rng.standard_normal((SIZE, SIZE), np.float32) / SIZE**0.5 for _ in range(2)]
    expected = hl.compile(module, "interpreter")(*arrays)
    np.testing.assert_allclose(hl.compile(module)(*arrays), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("body", "before"),
    [(PASSED_ON, 1), (UNCHANGED, 1), (TWICE, 1), (CHANGED, 0), (AS_LEFT, 0)],
    ids=["passed on", "copied", "read twice", "changed", "the other operand"],
)
def test_loop_invariant_operands_are_packed_before_the_loop(body: str, before: int) -> None:
    module = module_of(loop("outer", body))
    steps = steps_of(module)
    (outer,) = [step for step in steps if isinstance(step, WhileStep)]
    assert packings(steps) == before
    assert packings(outer.body) == 0
    check(module)


@pytest.mark.parametrize(
    ("next_w", "packed_buffers"),
    [("get-tuple-element(p), index=2", (1, 0, 0)), ("tanh(w)", (0, 1, 0))],
    ids=["never changed", "changed by the outer loop"],
)
def test_packing_leaves_the_loops_that_leave_the_operand_alone(
    next_w: str, packed_buffers: tuple[int, int, int]
) -> None:
    body = f"{run_of('inner')}\n  next_w = f32[{SIZE},{SIZE}] {next_w}"
    module = module_of(loop("outer", body, loop("inner", PASSED_ON)))
    steps = steps_of(module)
    (outer,) = [step for step in steps if isinstance(step, WhileStep)]
    (inner,) = [step for step in outer.body if isinstance(step, WhileStep)]
    assert (packings(steps), packings(outer.body), packings(inner.body)) == packed_buffers
    check(module)


def test_narrow_matrices_are_transposed_before_the_loop() -> None:
    """Products of a regression and its gradient, by rows and by columns of the points: each has its own copy."""
    state = "(s32[], f32[20], f32[100,20])"
    module = hl.parse(f"""HloModule m
condition {{ p = {state} parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(17)
  ROOT l = pred[] compare(i, n), direction=LT }}
body {{ p = {state} parameter(0)
  i = s32[] get-tuple-element(p), index=0
  w = f32[20] get-tuple-element(p), index=1
  x = f32[100,20] get-tuple-element(p), index=2
  one = s32[] constant(1)
  next = s32[] add(i, one)
  scores = f32[100] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  y = f32[100] tanh(scores)
  next_w = f32[20] dot(y, x), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}
  ROOT t = {state} tuple(next, next_w, x) }}
ENTRY e {{ w = f32[20] parameter(0)
  x = f32[100,20] parameter(1)
  zero = s32[] constant(0)
  start = {state} tuple(zero, w, x)
  loop = {state} while(start), condition=condition, body=body
  ROOT r = f32[20] get-tuple-element(loop), index=1 }}""")
    (outer,) = [step for step in steps_of(module) if isinstance(step, WhileStep)]
    assert (packings(steps_of(module)), packings(outer.body)) == (2, 0)
    rng = np.random.default_rng(0)
    arrays = rng.standard_normal(20, np.float32), rng.standard_normal((100, 20), np.float32) / 10
    np.testing.assert_allclose(hl.compile(module)(*arrays), hl.compile(module, "interpreter")(*arrays), rtol=1e-5)
