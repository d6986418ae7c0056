"""Single passes on modules with layouts, such as dumps of XLA: bitcasts mean what they meant before."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
from hlo_text import interpreted, module_text
from hloom.passes import parse_passes, run_passes

COMPUTATIONS = """
twice { s = f32[] parameter(0)
  ROOT t = f32[] add(s, s) }
negated { s = f32[2,3]{1,0} parameter(0)
  ROOT t = f32[2,3]{1,0} negate(s) }
flat { s = f32[2,3]{0,1} parameter(0)
  ROOT t = f32[6]{0} bitcast(s) }
"""
READ = "\nROOT r = f32[6]{0} bitcast(a)"
CASES = {
    "inline": "a = f32[2,3]{0,1} call(x), to_apply=negated" + READ,
    "inline of a reader": "ROOT r = f32[6]{0} call(x), to_apply=flat",
    "simplify-conditional": "t = pred[] constant(true)\n"
    "a = f32[2,3]{0,1} conditional(t, x, x), true_computation=negated, false_computation=negated" + READ,
    "map-inline": "a = f32[2,3]{0,1} map(x), dimensions={0,1}, to_apply=twice" + READ,
    "mixed-precision": "y = bf16[2,3]{1,0} convert(x)\na = f32[2,3]{0,1} add(x, y)" + READ,
    "dot-strength-reduction": "v = f32[2,1]{1,0} slice(x), slice={[0:2], [0:1]}\nw = f32[1,3]{1,0} slice(x), "
    "slice={[0:1], [0:3]}\na = f32[2,3]{0,1} dot(v, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}" + READ,
    "algsimp": "z = f32[2,3,1]{2,1,0} reshape(x)\nzero = f32[] constant(0)\n"
    "a = f32[2,3]{0,1} reduce(z, zero), dimensions={2}, to_apply=sum" + READ,
}


@pytest.mark.parametrize("name", CASES)
def test_bitcasts_mean_the_same(name: str) -> None:
    text = module_text("x = f32[2,3]{1,0} parameter(0)\n" + CASES[name], COMPUTATIONS)
    module, x = hl.parse(text), np.arange(6, dtype=np.float32).reshape(2, 3)
    want = interpreted(hl.parse(text), x)
    changes = run_passes(module, parse_passes(name.split()[0]), verify=True)[0].changes
    np.testing.assert_array_equal(interpreted(module, x), want)
    assert changes or name == "algsimp"
