"""inline: calls that are inlined, and others."""

from __future__ import annotations

import numpy as np

import hloom as hl
from hloom.passes.control_flow.call_inliner import CallInliner
from passes.modules import check_same_results

CALLS = """HloModule m
g {
  p = f32[4] parameter(0)
  ROOT n = f32[4] negate(p), metadata={op_name="inner"}
}
f {
  p = f32[4] parameter(0)
  q = f32[4] parameter(1)
  c = f32[4] call(q), to_apply=g
  ROOT s = f32[4] subtract(p, c)
}
ENTRY e {
  x = f32[4] parameter(0)
  y = f32[4] parameter(1)
  a = f32[4] call(y, x), to_apply=f, metadata={op_name="outer"}ATTRIBUTES
  ROOT b = f32[4] call(a, a), to_apply=f
}
"""

ARRAYS = [np.float32([1, -2, np.inf, 0]), np.float32([3, 4, 5, -0.0])]


def test_nested_calls_are_inlined_with_their_metadata() -> None:
    after = check_same_results(hl.parse(CALLS.replace("ATTRIBUTES", "")), CallInliner().run, ARRAYS)
    opcodes = [i.opcode for i in after.entry.instructions]
    assert opcodes == ["parameter", "parameter", "negate", "subtract", "negate", "subtract"]
    assert len(after.computations) == 1
    assert [i.metadata.get("op_name") for i in after.entry.instructions[2:4]] == ["inner", "outer"]


def test_composites_are_inlined_and_marked_calls_are_not() -> None:
    composite = hl.parse(CALLS.replace("ATTRIBUTES", ', is_composite=true, frontend_attributes={composite.name="f"}'))
    assert CallInliner().run(composite) == 4
    marked = hl.parse(CALLS.replace("ATTRIBUTES", ', frontend_attributes={inlineable="false"}'))
    after = check_same_results(marked, CallInliner().run, ARRAYS)
    assert [i.opcode for i in after.entry.instructions].count("call") == 1


def test_equal_calls_have_one_copy_of_their_instructions() -> None:
    """Also where a callee calls it, with arguments that are equal only because calls have been inlined."""
    text = """HloModule m
    g { p = f32[4] parameter(0)  ROOT n = f32[4] negate(p) }
    f { p = f32[4] parameter(0)  c = f32[4] call(p), to_apply=g  ROOT s = f32[4] sine(c) }
    h { p = f32[4] parameter(0)  c = f32[4] call(p), to_apply=g  d = f32[4] call(c), to_apply=f  ROOT s = f32[4] add(c, d) }
    ENTRY e {
      x = f32[4] parameter(0)
      a = f32[4] call(x), to_apply=g
      b = f32[4] call(a), to_apply=f
      c = f32[4] call(x), to_apply=h
      d = f32[4] call(x), to_apply=f
      u = f32[4] subtract(b, c)
      ROOT r = f32[4] multiply(u, d)
    }"""
    after = check_same_results(hl.parse(text), CallInliner().run, ARRAYS[:1])
    opcodes = [i.opcode for i in after.entry.instructions]
    # -x, --x, sine(--x), sine(-x) once each
    assert sorted(opcodes) == ["add", "multiply", "negate", "negate", "parameter", "sine", "sine", "subtract"]


def test_random_draws_and_effects_of_equal_calls_are_not_shared() -> None:
    text = """HloModule m
    f {
      low = f32[] parameter(0)
      high = f32[] parameter(1)
      r = f32[4] rng(low, high), distribution=rng_uniform
      ROOT c = f32[4] custom-call(r), custom_call_target="draw", custom_call_has_side_effect=true
    }
    ENTRY e {
      low = f32[] constant(0)
      high = f32[] constant(1)
      a = f32[4] call(low, high), to_apply=f
      b = f32[4] call(low, high), to_apply=f
      ROOT r = f32[4] subtract(a, b)
    }"""
    module = hl.parse(text)
    assert CallInliner().run(module) == 2
    opcodes = [i.opcode for i in module.entry.instructions]
    assert opcodes.count("rng") == opcodes.count("custom-call") == 2


def test_copies_with_control_edges_are_not_shared() -> None:
    text = """HloModule m
    f {
      p = f32[4] parameter(0)
      n = f32[4] negate(p)
      ROOT s = f32[4] sine(p), control-predecessors={n}
    }
    ENTRY e {
      x = f32[4] parameter(0)
      a = f32[4] call(x), to_apply=f
      b = f32[4] call(x), to_apply=f
      ROOT r = f32[4] subtract(a, b)
    }"""
    after = check_same_results(hl.parse(text), CallInliner().run, ARRAYS[:1])
    sines = [i for i in after.entry.instructions if i.opcode == "sine"]
    assert len(sines) == 2
    assert all([p.opcode for p in sine.control_predecessors] == ["negate"] for sine in sines)
