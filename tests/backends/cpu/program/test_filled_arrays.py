"""Arrays that a loop fills: which keep what they hold before the loop, and that results are those of the interpreter."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
from hlo_text import interpreted
from hloom.backends.cpu.program.build_program import build_program
from hloom.backends.cpu.program.program import CopyStep, KernelStep, WhileStep
from hloom.target import Target

LOOP = """HloModule m
body {{
  s = (s32[], f32[{whole}], f32[{part}]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  step = s32[] constant({step})
  next = s32[] add(i, step)
  y = f32[{whole}] get-tuple-element(s), index=1
  x = f32[{part}] get-tuple-element(s), index=2
  zero = s32[] constant(0)
  {write}
  t = f32[{part}] multiply(x, x)
  ROOT r = (s32[], f32[{whole}], f32[{part}]) tuple(next, z, t)
}}
condition {{
  s = (s32[], f32[{whole}], f32[{part}]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  end = s32[] constant({end})
  ROOT c = pred[] compare(i, end), direction=LT
}}
ENTRY e {{
  x = f32[{part}] parameter(0)
  c = f32[] parameter(1)
  d = f32[] sine(c)
  y = f32[{whole}] broadcast(d), dimensions={{}}
  z = s32[] constant({start})
  s = (s32[], f32[{whole}], f32[{part}]) tuple(z, y, x)
  w = (s32[], f32[{whole}], f32[{part}]) while(s), condition=condition, body=body
  {result}
}}
"""
SIZES = {"whole": "9,1,5", "part": "1,1,5", "step": "1", "start": "0", "end": "9"}
WRITE = "z = f32[{whole}] dynamic-update-slice(y, x, i, zero, zero)"
RESULT = "ROOT f = f32[{whole}] get-tuple-element(w), index=1"
FILLED = (SIZES, WRITE, RESULT)
KEPT = [
    (SIZES | {"end": "8"}, WRITE, RESULT),
    (SIZES | {"step": "2"}, WRITE, RESULT),
    (SIZES | {"part": "1,1,4"}, WRITE, RESULT),
    # The counter is below 0, and the first row is written each time.
    (SIZES | {"start": "-9", "end": "0"}, WRITE, RESULT),
    (SIZES | {"start": "-9", "end": "0"}, "k = s32[] maximum(i, zero)\n" + WRITE.replace(" i,", " k,"), RESULT),
    # Another element is written, or all of them are read.
    (SIZES, "k = s32[] add(i, next)\n" + WRITE.replace(" i,", " k,"), RESULT),
    (SIZES, "f = f32[] slice(y)\n".replace("f32[] slice(y)", "f32[1,1,5] slice(y), slice={{[3:4], [0:1], [0:5]}}")
     + "g = f32[1,1,5] add(x, f)\n" + WRITE.replace(" x,", " g,"), RESULT),
]  # fmt: skip
USED = (SIZES, WRITE, "f = f32[{whole}] get-tuple-element(w), index=1\nROOT g = f32[{whole}] add(f, y)")


def _text(sizes: dict[str, str], write: str, result: str) -> str:
    return LOOP.format(**sizes, write=write.format(**sizes), result=result.format(**sizes))


def _filling(text: str) -> tuple[int, int]:
    """The numbers of loops' arrays that are filled, and of kernels and copies before the loop that write as many."""
    program = build_program(hl.parse(text), Target(32, 1))
    (at,) = [k for k, step in enumerate(program.steps) if isinstance(step, WhileStep)]
    loop, before = program.steps[at], program.steps[:at]
    assert isinstance(loop, WhileStep)
    large = [
        s for s in before if isinstance(s, (KernelStep, CopyStep)) and any(b.byte_size == 9 * 5 * 4 for b in s.writes)
    ]
    return len(loop.filled), len(large)


def test_what_a_filled_array_holds_before_is_neither_computed_nor_copied() -> None:
    assert _filling(_text(*FILLED)) == (1, 0)


def test_a_value_with_other_uses_is_computed() -> None:
    assert _filling(_text(*USED)) == (1, 1)


@pytest.mark.parametrize("case", KEPT)
def test_arrays_that_keep_an_element_or_are_read_are_not_filled(case: tuple[dict[str, str], str, str]) -> None:
    assert _filling(_text(*case)) == (0, 2)


@pytest.mark.parametrize("case", [FILLED, USED, *KEPT])
def test_results_are_those_of_the_interpreter(case: tuple[dict[str, str], str, str]) -> None:
    text = _text(*case)
    module = hl.parse(text)
    x = np.linspace(-1, 1, 5).astype(np.float32)[: int(case[0]["part"][-1])].reshape(1, 1, -1)
    compiled = hl.compile(text)
    for c in (0.5, np.nan):  # memory of the first run is that of the second
        (expected,) = interpreted(module, x, np.float32(c))
        np.testing.assert_allclose(compiled(x, np.float32(c)), expected, rtol=1e-6)


@pytest.mark.parametrize(
    "sizes", [{"whole": "1,3", "part": "1,3", "end": "1"}, {"whole": "7,0", "part": "1,0", "end": "7"}]
)
def test_loops_of_one_row_and_empty_rows(sizes: dict[str, str]) -> None:
    text = _text(SIZES | sizes, WRITE.replace(", zero, zero", ", zero"), RESULT)
    x = np.ones([int(n) for n in sizes["part"].split(",")], np.float32)
    (expected,) = interpreted(hl.parse(text), x, np.float32(2))
    np.testing.assert_array_equal(hl.compile(text)(x, np.float32(2)), expected)
