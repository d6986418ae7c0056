"""joined-slices: rolled and extended arrays become part of the kernels that read them element by element."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
from hlo_text import arrays_for, compiled
from hloom.backends.cpu.pipeline import cpu_pipeline
from hloom.passes import clone_module, run_passes
from hloom.passes.fusion.joined_slices import JoinedSlices
from passes.modules import check_natively


def joined(body: str, type: str = "f32") -> hl.Module:
    return hl.parse(
        f"""HloModule m
ENTRY e {{ x = {type}[5,37] parameter(0)
  y = {type}[5,37] parameter(1)
  {body} }}""".replace("T[", f"{type}[")
    )


ROLL = """a = T[5,30] slice(x), slice={[0:5],[7:37]}
  b = T[5,7] slice(x), slice={[0:5],[0:7]}
  c = T[5,37] concatenate(a, b), dimensions={1}"""
ROWS = """a = T[2,37] slice(x), slice={[3:5],[0:37]}
  b = T[3,37] slice(x), slice={[0:3],[0:37]}
  c = T[5,37] concatenate(a, b), dimensions={0}"""
EDGES = """a = T[5,1] slice(x), slice={[0:5],[0:1]}
  i = T[5,35] slice(y), slice={[0:5],[1:36]}
  b = T[5,1] slice(x), slice={[0:5],[36:37]}
  c = T[5,37] concatenate(a, i, b), dimensions={1}"""
SUM = "\n  ROOT r = T[5,37] add(c, y)"


@pytest.mark.parametrize("type", ["f32", "f64", "bf16", "s8", "c64"])
@pytest.mark.parametrize("body", [ROLL, ROWS, EDGES], ids=["roll", "rows", "edges"])
def test_results_are_equal(body: str, type: str) -> None:
    check_natively(joined(body + SUM, type), JoinedSlices())


def test_users_become_one_kernel() -> None:
    module = joined(ROLL + SUM)
    run_passes(module, cpu_pipeline())
    assert [i.opcode for i in module.entry.instructions] == ["parameter", "parameter", "fusion"]


@pytest.mark.parametrize(
    "body",
    [
        ROLL.replace("c =", "ROOT c ="),
        ROLL + "\n  ROOT r = T[37,5] transpose(c), dimensions={1,0}",
        ROLL.replace("[7:37]", "[7:37:1]").replace(
            "a = T[5,30] slice(x), slice={[0:5],[7:37:1]}", "a = T[5,30] parameter(2)"
        )
        + SUM,
    ],
    ids=["result", "transposed", "no slice"],
)
def test_others_are_stored(body: str) -> None:
    assert JoinedSlices().run(clone_module(joined(body))) == 0


def test_infinities_and_nans_beside_the_slices_do_not_matter() -> None:
    module = joined(ROLL + SUM)
    x, y = arrays_for(module)
    x[:, ::3], x[:, 1::3] = np.inf, np.nan
    np.testing.assert_array_equal(compiled(module, x, y)[0], np.roll(x, -7, 1) + y)
