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
