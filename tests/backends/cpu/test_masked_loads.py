"""Windows at the edges of arrays: memory behind an array is never read."""

from __future__ import annotations

import re
from pathlib import Path

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


@pytest.mark.sampled(6)
@pytest.mark.parametrize("type", ["f32", "f64"])
@pytest.mark.parametrize("size", [5, 9, 12, 13, 20, 29])
def test_registers_without_a_lane_of_the_mask_read_nothing(size: int, type: str) -> None:
    executable = hl.compile(PROGRAM.replace("TYPE", type).replace("SIZE", str(size)))
    memory = np.full(8 * size + 64, 7.0, {"f32": np.float32, "f64": np.float64}[type])
    x = memory[32 : 32 + 4 * size].reshape(1, 4, size)
    x[...] = -np.inf
    assert (np.asarray(executable(x)) == -np.inf).all()


def test_a_load_whose_lanes_are_all_off_has_an_address_inside_the_array(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Elsewhere the page may not be mapped; then a processor takes hundreds of cycles to load nothing."""
    monkeypatch.setenv("HLOOM_DUMP", str(tmp_path))
    hl.compile(
        """HloModule m
        ENTRY e { x = f32[64] parameter(0)
          at = s32[] parameter(1)
          zero = f32[] constant(0)
          zeros = f32[200000] broadcast(zero), dimensions={}
          updated = f32[200000] dynamic-update-slice(zeros, x, at)
          ROOT r = f32[200000] negate(updated) }"""
    )
    text = (tmp_path / "m" / "program.ll").read_text()
    assert re.search(r"call <\d+ x float> @llvm\.masked\.load", text)
    indices = re.findall(r"(.*)\n.* = getelementptr float, ptr %b0, i64 (%\S+)\n", text)
    vectors = [(before, index) for before, index in indices if f"{index} = select i1" in before]
    assert vectors, "the index is that of a lane that is on, or 0"
