"""The step debugger, as its commands are typed."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import hloom as hl
from hloom.cli import main
from hloom.errors import HloomError
from hloom.faults import Case
from hloom.faults.debugger import Debugger

LOOP = """HloModule m
body { s = (s32[], f32[2]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[2] get-tuple-element(s), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  y = f32[2] add(x, x)
  ROOT t = (s32[], f32[2]) tuple(j, y) }
condition { s = (s32[], f32[2]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(3)
  ROOT c = pred[] compare(i, n), direction=LT }
ENTRY main { x = f32[2] parameter(0)
  zero = s32[] constant(0)
  start = (s32[], f32[2]) tuple(zero, x)
  loop = (s32[], f32[2]) while(start), condition=condition, body=body
  last = f32[2] get-tuple-element(loop), index=1
  ROOT r = f32[2] negate(last) }
"""


def session(*commands: str, text: str = LOOP) -> str:
    """Output of the debugger for commands."""
    case = Case(hl.parse(text), (np.float32([1.0, 2.0]),))
    output = io.StringIO()
    Debugger(case, io.StringIO("\n".join([*commands, ""])), output).run()
    return output.getvalue()


def test_it_stops_after_the_first_instruction_and_steps() -> None:
    output = session("s", "s 2", "print", "c")
    assert "%start = (s32[], f32[2]) tuple(%zero, %x)" in output
    assert "after 27 instructions: f32[2] min -16, max -8" in output


def test_breakpoints_stop_at_names_opcodes_and_conditions() -> None:
    assert session("b y", "c", "c", "p", "c", "c").count("breakpoint y:") == 3
    conditional = session("break add if np.max(value) > 10", "c", "print x", "c")
    assert conditional.count("breakpoint add if np.max(value) > 10:") == 1
    assert "max 8" in conditional.split("breakpoint", 2)[-1]  # x before it is doubled to 16
    failing = session("break y if value.nothing", "c", "clear", "c")
    assert "fails: AttributeError" in failing


def test_next_steps_over_calls() -> None:
    output = session("n", "n", "l", "c")
    assert "%last = f32[2] get-tuple-element(%loop)" in output
    assert "-> %last" in output
    assert "%y" not in output


def test_watches_show_each_value_and_quit_ends() -> None:
    assert session("watch y", "c").count("%y = f32[2]") == 3
    assert "the result" not in session("q")
    assert "the result" not in session()  # the end of the input


def test_missing_names_and_breakpoints_are_reported() -> None:
    output = session("print nothing", "print r", "clear 7", "c")
    assert "%nothing has no value yet" in output and "%r has no value yet" in output
    assert "there is no breakpoint 7" in output


def test_a_failing_program_can_be_inspected() -> None:
    text = LOOP.replace("negate(last)", 'custom-call(last), custom_call_target="nobody"')
    with pytest.raises(HloomError, match="nobody"):
        session("c", "print last", "c", text=text)


def test_the_command_runs_to_a_breakpoint(tmp_path: Path) -> None:
    path = tmp_path / "m.hlo"
    path.write_text(LOOP)
    result = CliRunner().invoke(main, ["debug", str(path), "--random", "0", "--break", "r"], input="c\n")
    assert result.exit_code == 0, result.output
    assert "breakpoint r: %r = f32[2] negate(%last)" in result.output
