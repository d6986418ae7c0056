"""map-inline: maps of element-wise computations have the same results as element-wise operations on arrays."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
from hloom.passes.canonicalize.map_inline import MapInliner
from passes.modules import check_same_results

MAP = """HloModule m
f {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  one = f32[] constant(1)
  c = pred[] compare(a, one), direction=LT
  d = f32[] multiply(b, one)
  ROOT r = f32[] select(c, a, d)
}
first {
  a = f32[] parameter(0)
  ROOT b = f32[] parameter(1)
}
looping {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  c = f32[4] broadcast(b), dimensions={}
  d = f32[1] slice(c), slice={[0:1]}
  ROOT r = f32[] reshape(d)
}
ENTRY e {
  x = f32[2,3] parameter(0)
  y = f32[2,3] parameter(1)
  ROOT r = f32[2,3] map(x, y), dimensions={0,1}, to_apply=F
}
"""


@pytest.mark.parametrize(("computation", "count"), [("f", 1), ("first", 1), ("looping", 0)])
def test_map(computation: str, count: int) -> None:
    before = hl.parse(MAP.replace("=F", f"={computation}"))
    x = np.array([[np.nan, 0, 1], [2, -3, 0.5]], np.float32)
    after = check_same_results(before, MapInliner().run, [x, 2 * x])
    assert ("map(" not in after.to_text()) == bool(count)
