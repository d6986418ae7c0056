"""Operands that dots compute themselves: each dot becomes one fusion, which the pass leaves alone."""

from __future__ import annotations

import hloom as hl
from hloom.ops.control_flow import Fusion
from hloom.passes.fusion.product_operands import ProductOperands

TWO = """
HloModule two
ENTRY e { x = f32[8,64] parameter(0)
  v = s8[64,64] parameter(1)
  w = s8[64,64] parameter(2)
  wide = f32[64,64] convert(v)
  p = f32[8,64] dot(x, wide), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  other = f32[64,64] convert(w)
  ROOT q = f32[8,64] dot(p, other), lhs_contracting_dims={1}, rhs_contracting_dims={0} }
"""


def test_several_dots_of_a_computation_are_fused_once() -> None:
    module = hl.parse(TWO)
    step = ProductOperands(lambda _: True, lambda *_: True)
    assert step.run(module) == 2
    fusions = [i for i in module.instructions() if isinstance(i.op, Fusion)]
    assert len(fusions) == 2 and all(fusion.parent is module.entry for fusion in fusions)
