"""Bitcasts and stochastic conversions: compiled to native code with the results of the interpreter."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
from hlo_text import module_text
from hloom.files.arrays import random_value

BODIES = {
    "a bitcast to the other order": "x = f32[4,6]{1,0} parameter(0)\nROOT r = f32[4,6]{0,1} bitcast(x)",
    "a bitcast that transposes": "x = f32[2,3,4]{1,2,0} parameter(0)\nROOT r = f32[4,6]{0,1} bitcast(x)",
    "a bitcast of tiles": "x = s32[2,512]{1,0:T(2,128)} parameter(0)\nROOT r = s32[512,2]{0,1:T(2,128)} bitcast(x)",
    "a bitcast between tiles": "x = s32[16,256]{1,0:T(8,128)} parameter(0)\nROOT r = s32[256,16]{0,1:T(4,64)} bitcast(x)",
    "a bitcast of tiles in tiles": "x = bf16[16,256]{1,0:T(8,128)(2,1)} parameter(0)\nROOT r = bf16[16,256]{1,0} bitcast(x)",
    "a bitcast of another type": "x = f32[4,6]{0,1} parameter(0)\nROOT r = s32[6,4]{1,0} bitcast(x)",
    "a bitcast of another width": "x = f32[4,6]{1,0} parameter(0)\nROOT r = u8[24,4]{1,0} bitcast(x)",
    "a bitcast of tiles that pad": "x = s32[2,512]{1,0:T(2,128)} parameter(0)\nROOT r = s32[512,2]{1,0:T(8,128)} bitcast(x)",
    "a bitcast of what one device alone gathers":
        "x = f32[4,6]{0,1} parameter(0)\na = f32[4,6]{1,0} all-gather(x), dimensions={0}, replica_groups={{0}}\n"
        "ROOT r = f32[24]{0} bitcast(a)",
    "two nibbles of a byte": "x = s8[5] parameter(0)\nROOT r = s4[5,2] bitcast-convert(x)",
    "a byte of two nibbles": "x = s4[5,2] parameter(0)\nROOT r = s8[5] bitcast-convert(x)",
    "a float of eight nibbles": "x = u4[3,8] parameter(0)\nROOT r = f32[3] bitcast-convert(x)",
    "crumbs of a word": "x = u32[3] parameter(0)\nROOT r = u2[3,16] bitcast-convert(x)",
    "crumbs of a nibble": "x = s4[3] parameter(0)\nROOT r = s2[3,2] bitcast-convert(x)",
    "floats of a nibble": "x = u8[6] parameter(0)\nROOT r = f4e2m1fn[6,2] bitcast-convert(x)",
    "chance toward integers": "x = f32[4,64] parameter(0)\ny = u32[4,64] parameter(1)\nROOT r = s8[4,64] stochastic-convert(x, y)",
    "chance toward bf16": "x = f32[4,64] parameter(0)\ny = u32[4,64] parameter(1)\nROOT r = bf16[4,64] stochastic-convert(x, y)",
    "chance toward wider floats": "x = bf16[4,64] parameter(0)\ny = u16[4,64] parameter(1)\nROOT r = f32[4,64] stochastic-convert(x, y)",
    "top elements, as JAX writes them": "x = f32[4,64] parameter(0)\n"
    'ROOT r = (f32[4,3], s32[4,3]) custom-call(x), custom_call_target="TopK"',
    "least elements": "x = f32[4,64] parameter(0)\nROOT r = (f32[4,3], s32[4,3]) custom-call(x), "
    'custom_call_target="mhlo.topk", backend_config="{largest = false}"',
    "a large window in a dilated base": "x = bf16[6,4,32] parameter(0)\nz = bf16[] constant(0)\n"
    "ROOT r = bf16[6,4,32] reduce-window(x, z), window={size=1x1x255 pad=0_0x0_0x127_127 stride=2x1x1 lhs_dilate=2x1x1}, "
    "to_apply=max",
}  # fmt: skip
MAX = "max {\n  a = bf16[] parameter(0)\n  b = bf16[] parameter(1)\n  ROOT r = bf16[] maximum(a, b)\n}\n"


@pytest.mark.sampled(10)
@pytest.mark.parametrize("case", BODIES)
def test_compiled_programs_give_what_the_interpreter_gives(case: str) -> None:
    text = module_text(BODIES[case]).replace("ENTRY", MAX + "ENTRY", 1)
    compiled, interpreted = hl.compile(text, backend="cpu"), hl.compile(text, backend="interpreter")
    assert compiled.report() == []
    rng = np.random.default_rng(0)
    given = [random_value(rng, p.shape) for p in hl.parse(text).entry.parameters]
    got, want = compiled(*given), interpreted(*given)
    for g, w in zip(*((v if isinstance(v, tuple) else (v,)) for v in (got, want)), strict=True):
        assert g.dtype == w.dtype and g.shape == w.shape
        assert np.array_equal(g.astype(np.float64), w.astype(np.float64), equal_nan=True)


def test_a_registered_target_is_not_expanded() -> None:
    text = module_text(
        'x = f32[4] parameter(0)\nROOT r = (f32[1], s32[1]) custom-call(x), custom_call_target="mhlo.topk"'
    )
    hl.register_custom_call("mhlo.topk", lambda x: (x[:1] * 100, np.zeros(1, np.int32)))
    try:
        values, _ = hl.compile(text, backend="cpu")(np.ones(4, np.float32))
    finally:
        from hloom.runtime.custom_calls.registry import REGISTERED

        del REGISTERED["mhlo.topk"]
    assert values.tolist() == [100]
