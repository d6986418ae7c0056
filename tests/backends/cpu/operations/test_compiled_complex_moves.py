"""Elements of c64 that are only moved keep their bits."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
from hlo_text import module_text

SHAPE = "c64[37,45]"


@pytest.mark.parametrize(
    "program",
    [
        "ROOT r = c64[45,37] transpose(x), dimensions={1,0}",
        "z = c64[] constant((1, -2))\nROOT r = c64[41,50] pad(x, z), padding=1_3x2_3",
        "ROOT r = c64[7,20] slice(x), slice={[2:30:4],[1:41:2]}",
        "ROOT r = c64[74,45] concatenate(x, x), dimensions={0}",
        f"y = {SHAPE} add(x, x)\nROOT r = c64[74,45] concatenate(x, y), dimensions={{0}}",
        f"y = {SHAPE} reverse(x), dimensions={{0}}\nROOT r = {SHAPE} select(p, x, y)",
        f"""z = c64[] constant((1, -2))
        y = {SHAPE} broadcast(z), dimensions={{}}
        s = {SHAPE} select(p, x, y)
        ROOT r = c64[45,37] transpose(s), dimensions={{1,0}}""",
    ],
)
def test_moves(program: str) -> None:
    rng = np.random.default_rng(0)
    x, p = rng.integers(0, 1 << 64, (37, 45), np.uint64).view(np.complex64), rng.random((37, 45)) < 0.5
    text = module_text(f"x = {SHAPE} parameter(0)\np = pred[37,45] parameter(1)\n{program}")
    found, expected = (np.asarray(hl.compile(text, backend=backend)(x, p)) for backend in ("cpu", "interpreter"))
    if "add" in program:
        np.testing.assert_array_equal(found, expected)
    else:
        np.testing.assert_array_equal(found.view(np.uint64), expected.view(np.uint64))
