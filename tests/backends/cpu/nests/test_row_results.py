"""Rows that are stored and reduced in one nest, some over what they are computed from."""

from __future__ import annotations

import numpy as np
import pytest

from hlo_text import compiled, interpreted, module_text
from hloom.api import parse
from hloom.cli.pipelines import stage_text

ROW = "reduce({}, zero), dimensions={{1}}, to_apply={}"
SUM = "s = f32[40] " + ROW.format("y", "sum")
BESIDE = "z = TYPE[40,COLUMNS] negate(x)"
LARGEST = f"t = f32[40] {ROW.format('y', 'sum')}\nu = f32[40] {ROW.format('x', 'largest')}\ns = f32[40] multiply(t, u)"
NARROW = f"z = bf16[40,COLUMNS] convert(y)\n{SUM}"


def program(lines: str, columns: int) -> str:
    """Results that are computed from an array that nothing else needs."""
    shapes = {"y": f"f32[40,{columns}]", "z": f"{'bf16' if lines == NARROW else 'f32'}[40,{columns}]", "s": "f32[40]"}
    results = [name for name in shapes if f"{name} = " in "y = " + lines]
    types = ", ".join(shapes[name] for name in results)
    return module_text(f"""given = f32[40,{columns}] parameter(0)
        x = f32[40,{columns}] sort(given), dimensions={{0}}, to_apply=less
        zero = f32[] constant(0)
        y = f32[40,{columns}] exponential(x)
        {lines.replace("COLUMNS", str(columns)).replace("TYPE", "f32")}
        ROOT r = ({types}) tuple({", ".join(results)})""")


@pytest.mark.sampled(8)
@pytest.mark.parametrize("columns", [32, 70, 1000])
@pytest.mark.parametrize("lines", [SUM, f"{BESIDE}\n{SUM}", f"{SUM}\n{BESIDE}", LARGEST, NARROW])
def test_rows_and_their_sums(lines: str, columns: int) -> None:
    x = np.random.default_rng(0).standard_normal((40, columns)).astype(np.float32)
    text = program(lines, columns)
    for found, expected in zip(compiled(text, x), interpreted(parse(text), x), strict=True):
        np.testing.assert_allclose(found.astype(np.float32), expected.astype(np.float32), rtol=1e-5)


def test_the_sum_stores_the_row() -> None:
    loops = stage_text(parse(program(SUM, 1000)), "loops")
    assert "keep b1[1000*i0 + r3] = exponential(b0[1000*i0 + r3])" in loops
