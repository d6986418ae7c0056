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
PADDED = """s = T[] constant(1)
  a = T[7,40] pad(x, s), padding=1_1x2_1
  c = T[5,37] slice(a), slice={[2:7],[0:37]}"""
SHORTENED = """s = T[] constant(1)
  a = T[6,50] pad(x, s), padding=-1_2x-6_19
  c = T[5,37] slice(a), slice={[1:6],[13:50]}"""
INSIDE = PADDED.replace("1_1x2_1", "1_1x1_1").replace("T[7,40]", "T[7,39]").replace("[2:7],[0:37]", "[1:6],[1:38]")
ONLY_PADDING = """s = T[] constant(1)
  a = T[10,37] pad(x, s), padding=0_5x0_0
  c = T[5,37] slice(a), slice={[5:10],[0:37]}"""
SUM = "\n  ROOT r = T[5,37] add(c, y)"


@pytest.mark.sampled(12)
@pytest.mark.parametrize("type", ["f32", "f64", "bf16", "s8", "c64"])
@pytest.mark.parametrize(
    "body",
    [ROLL, ROWS, EDGES, PADDED, SHORTENED, INSIDE],
    ids=["roll", "rows", "edges", "padded", "shortened", "inside"],
)
def test_results_are_equal(body: str, type: str) -> None:
    check_natively(joined(body + SUM, type), JoinedSlices())


def test_users_become_one_kernel() -> None:
    for body in (ROLL, PADDED):
        module = joined(body + SUM)
        run_passes(module, cpu_pipeline())
        assert [i.opcode for i in module.entry.instructions if i.opcode != "constant"] == ["parameter"] * 2 + ["fusion"]


@pytest.mark.parametrize(
    "body",
    [
        ROLL.replace("c =", "ROOT c ="),
        ROLL + "\n  ROOT r = T[37,5] transpose(c), dimensions={1,0}",
        ROLL.replace("[7:37]", "[7:37:1]").replace(
            "a = T[5,30] slice(x), slice={[0:5],[7:37:1]}", "a = T[5,30] parameter(2)"
        )
        + SUM,
        PADDED.replace("c =", "ROOT c ="),
        PADDED + "\n  ROOT r = T[37,5] transpose(c), dimensions={1,0}",
        PADDED.replace("2_1", "2_1_1").replace("T[7,40]", "T[7,76]") + SUM,
        PADDED.replace("T[7,40]", "T[7,76]").replace("2_1", "2_37").replace("[0:37]", "[0:74:2]") + SUM,
        ONLY_PADDING + SUM,
    ],
    ids=["result", "transposed", "no slice", "slice", "transposed slice", "interior", "stride", "only padding"],
)
def test_others_are_stored(body: str) -> None:
    assert JoinedSlices().run(clone_module(joined(body))) == 0


def test_infinities_and_nans_beside_the_slices_do_not_matter() -> None:
    module = joined(ROLL + SUM)
    x, y = arrays_for(module)
    x[:, ::3], x[:, 1::3] = np.inf, np.nan
    np.testing.assert_array_equal(compiled(module, x, y)[0], np.roll(x, -7, 1) + y)
