"""memory-scheduler: orders with a lower peak of memory."""

from __future__ import annotations

import numpy as np

import hloom as hl
from hloom.passes.optimize.memory_scheduler import MemoryScheduler, peak_bytes
from hloom.verifier import verify_module

SUMS = """HloModule m

add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }

ENTRY e {
  x = f32[] parameter(0)
  zero = f32[] constant(0)
  u = f32[1000] broadcast(x), dimensions={}
  v = f32[1000] exponential(u)
  w = f32[1000] sine(u)
  y = f32[1000] cosine(u)
  p = f32[] reduce(v, zero), dimensions={0}, to_apply=add
  q = f32[] reduce(w, zero), dimensions={0}, to_apply=add
  r = f32[] reduce(y, zero), dimensions={0}, to_apply=add
  s = f32[] add(p, q)
  ROOT t = f32[] add(s, r)
}
"""


def test_values_are_used_soon_after_their_definition() -> None:
    module = hl.parse(SUMS)
    before = peak_bytes(module.entry, module.entry.instructions)
    x = np.float32(0.5)
    want = hl.compile(module, backend="interpreter")(x)
    assert MemoryScheduler().run(module) == 1
    verify_module(module)
    assert [i.name for i in module.entry.instructions if i.name in "vwypqr"] == ["v", "p", "w", "q", "y", "r"]
    assert before == 16000 and peak_bytes(module.entry, module.entry.instructions) == 8008
    assert hl.compile(module, backend="interpreter")(x) == want
    assert MemoryScheduler().run(module) == 0, "an order that takes no more stays"


def test_effects_keep_their_order() -> None:
    text = """HloModule m

ENTRY e {
  x = f32[] parameter(0)
  k = token[] after-all()
  u = f32[100] broadcast(x), dimensions={}
  first = token[] outfeed(u, k), outfeed_shape=f32[100]{0}
  second = token[] outfeed(x, k), outfeed_shape=f32[]
  ROOT r = f32[] add(x, x)
}
"""
    module = hl.parse(text)
    MemoryScheduler().run(module)
    names = [i.name for i in module.entry.instructions]
    assert names.index("first") < names.index("second")
