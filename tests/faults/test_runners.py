"""The runners that `bisect` compares."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import hloom as hl
from hloom.faults.bisect import RUNNERS
from hloom.files.arrays import random_value

SCALARS = """HloModule m
ENTRY e {
  p = pred[] parameter(0)
  c = c64[] parameter(1)
  x = f32[4] parameter(2)
  n = f32[4] negate(x)
  b = pred[4] broadcast(p), dimensions={}
  s = f32[4] select(b, x, n)
  r = f32[] real(c)
  q = f32[4] broadcast(r), dimensions={}
  ROOT o = f32[4] add(s, q)
}"""


@pytest.mark.parametrize("runner", ["cpu", "interpreter"])
def test_scalars_of_every_kind_reach_the_program(runner: str) -> None:
    module = hl.parse(SCALARS)
    p, c, x = (random_value(np.random.default_rng(0), shape) for shape in module.entry.parameter_shapes)
    assert np.array_equal(RUNNERS[runner](module, [p, c, x]), np.where(p, x, -x) + c.real)


def test_they_reach_xla(tmp_path: Path) -> None:
    """Runs in a child process, since it changes JAX's settings."""
    pytest.importorskip("jaxlib")
    path = tmp_path / "m.hlo"
    path.write_text(SCALARS)
    command = [sys.executable, "-m", "hloom", "bisect", str(path), "--random", "0", "--between", "cpu,xla"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.stdout.strip() == "no difference", done
