"""Windows at the edges of arrays: what lies behind an array in memory is never read."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl

PROGRAM = """HloModule window

larger { a = TYPE[] parameter(0)
  b = TYPE[] parameter(1)
  ROOT m = TYPE[] maximum(a, b) }

ENTRY main { x = TYPE[1,4,SIZE] parameter(0)
  low = TYPE[] constant(-inf)
  ROOT r = TYPE[1,2,SIZE] reduce-window(x, low), window={size=2x2x4 stride=2x2x1 pad=0_1x0_0x1_2}, to_apply=larger }
"""


@pytest.mark.parametrize("type", ["f32", "f64"])
@pytest.mark.parametrize("size", [5, 9, 12, 13, 20, 29])
def test_registers_without_a_lane_of_the_mask_read_nothing(size: int, type: str) -> None:
    executable = hl.compile(PROGRAM.replace("TYPE", type).replace("SIZE", str(size)))
    memory = np.full(8 * size + 64, 7.0, {"f32": np.float32, "f64": np.float64}[type])
    x = memory[32 : 32 + 4 * size].reshape(1, 4, size)
    x[...] = -np.inf
    assert (np.asarray(executable(x)) == -np.inf).all()
