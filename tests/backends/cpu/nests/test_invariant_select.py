"""Loop-invariant selects of whole arrays: if one changes nothing in place, no loop runs and no thread is woken."""

from __future__ import annotations

import re

import numpy as np
import pytest

import hloom as hl
from hloom.backends.cpu.codegen.emitter import emit_program
from hloom.backends.cpu.pipeline import cpu_pipeline
from hloom.backends.cpu.program.buffer_assignment import assign_buffers
from hloom.backends.cpu.program.build_program import build_program
from hloom.passes import run_passes
from hloom.target import Target

SORTED = """HloModule choice
less {{ a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = pred[] compare(a, b), direction=LT }}
ENTRY e {{
  x = f32[300,1000] parameter(0)
  p = pred[] parameter(1)
  y = f32[300,1000] {made}
  ps = pred[300,1000] broadcast(p), dimensions={{}}
  nan = f32[] constant(nan)
  nans = f32[300,1000] broadcast(nan), dimensions={{}}
  ROOT r = f32[300,1000] select(ps, {choices})
}}"""
SORT, PARAMETER = "sort(x), dimensions={1}, to_apply=less", "parameter(2)"


@pytest.mark.sampled(8)
@pytest.mark.parametrize("made", [SORT, PARAMETER], ids=["in place", "elsewhere"])
@pytest.mark.parametrize("choices", ["y, nans", "nans, y", "y, x", "x, y"])
@pytest.mark.parametrize("condition", [False, True])
def test_either_value(made: str, choices: str, condition: bool) -> None:
    x = np.random.default_rng(0).random((300, 1000), np.float32)
    values = {"x": x, "y": np.sort(x, 1) if made == SORT else x + 1, "nans": np.full_like(x, np.nan)}
    more = [] if made == SORT else [values["y"]]
    got = hl.compile(SORTED.format(made=made, choices=choices), backend="cpu")(x, np.bool_(condition), *more)
    np.testing.assert_array_equal(got, values[choices.split(", ")[not condition]])


@pytest.mark.parametrize(
    ("made", "choices", "forks"), [(SORT, "y, nans", False), (SORT, "y, x", True), (PARAMETER, "y, nans", True)]
)
def test_in_place_checks_wake_no_thread(made: str, choices: str, forks: bool) -> None:
    module = hl.parse(SORTED.format(made=made, choices=choices))
    run_passes(module, cpu_pipeline())
    program = build_program(module, Target(32, 2))
    text = "\n".join(emit_program(program, assign_buffers(program), 32))
    chosen = set(re.findall(r"void @(nest\d+)\([^\n]*\nentry:(?:\n  %[^\n]*)*icmp ne ptr", text))
    forked = set(re.findall(r"call void %\w+\(.*ptr @(nest\d+)\.task", text))
    assert len(chosen) == 1
    assert (chosen <= forked) == forks
