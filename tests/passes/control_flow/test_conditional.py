"""simplify-conditional: conditionals whose branch is known."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
from hloom.passes.control_flow.conditional import ConditionalSimplifier
from passes.modules import check_same_results

CONDITIONAL = """HloModule m
f {
  p = f32[] parameter(0)
  ROOT n = f32[] negate(p)
}
g {
  p = f32[] parameter(0)
  ROOT s = f32[] sine(p)
}
ENTRY e {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  i = s32[] parameter(2)
  k = s32[] constant(INDEX)
  ROOT r = f32[] conditional(CHOICE, x, y), branch_computations={f, g}
}
"""


@pytest.mark.parametrize(("index", "opcode"), [(0, "negate"), (1, "sine"), (-1, "sine"), (7, "sine")])
def test_known_branches_are_inlined(index: int, opcode: str) -> None:
    before = hl.parse(CONDITIONAL.replace("INDEX", str(index)).replace("CHOICE", "k"))
    after = check_same_results(before, ConditionalSimplifier().run, [np.float32(1), np.float32(2), np.int32(0)])
    assert after.entry.root.opcode == opcode


def test_only_the_same_branch_on_the_same_operand_is_no_choice() -> None:
    text = CONDITIONAL.replace("INDEX", "0").replace("CHOICE", "i")
    assert ConditionalSimplifier().run(hl.parse(text)) == 0
    assert ConditionalSimplifier().run(hl.parse(text.replace("{f, g}", "{f, f}"))) == 0
    assert ConditionalSimplifier().run(hl.parse(text.replace("{f, g}", "{f, f}").replace("x, y)", "x, x)"))) == 1
