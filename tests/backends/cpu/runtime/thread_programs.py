"""Programs large enough for several threads. As a script it prints a digest of each one's results."""

from __future__ import annotations

import hashlib
import json
import sys

import numpy as np

import hloom as hl
from hlo_text import compiled, loop, module_text, run_loop, softmax

MATRIX = "x = f32[1000,500] parameter(0)\nzero = f32[] constant(0)\n"
STATE = "f32[50000] f32[50000]"

PROGRAMS = {
    "elements": module_text("x = f32[70001] parameter(0)\ns = f32[70001] sine(x)\nROOT r = f32[70001] multiply(s, x)"),
    "row sums": module_text(MATRIX + "ROOT r = f32[1000] reduce(x, zero), dimensions={1}, to_apply=sum"),
    "column sums": module_text(MATRIX + "ROOT r = f32[500] reduce(x, zero), dimensions={0}, to_apply=sum"),
    "largest": module_text(MATRIX + "ROOT r = f32[] reduce(x, zero), dimensions={0,1}, to_apply=largest"),
    "sum": module_text(MATRIX + "ROOT r = f32[] reduce(x, zero), dimensions={0,1}, to_apply=sum"),
    "softmax": softmax(300, 700),
    "transpose": module_text("x = f32[333,501] parameter(0)\nROOT r = f32[501,333] transpose(x), dimensions={1,0}"),
    "blocked loop": module_text(
        run_loop(STATE) + "\nROOT r = (f32[50000], f32[50000]) tuple(y0, y1)",
        loop(STATE, "s = f32[50000] sine(x1)\ny0 = f32[50000] add(x0, s)\ny1 = f32[50000] multiply(x1, x0)"),
    ),
    "scatter": module_text(
        "x = f32[1000,40] parameter(0)\nk = s32[9000,1] parameter(1)\nu = f32[9000,40] parameter(2)\n"
        "ROOT r = f32[1000,40] scatter(x, k, u), update_window_dims={1}, inserted_window_dims={0}, "
        "scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=sum"
    ),
    "sort": module_text("x = f32[90000] parameter(0)\nROOT r = f32[90000] sort(x), dimensions={0}, to_apply=less"),
    "running sums": module_text(
        "x = f32[100000] parameter(0)\nzero = f32[] constant(0)\n"
        "ROOT r = f32[100000] reduce-window(x, zero), window={size=100000 pad=99999_0}, to_apply=sum"
    ),
    "product": module_text(
        "x = f32[200,300] parameter(0)\ny = f32[300,150] parameter(1)\n"
        "ROOT r = f32[200,150] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    ),
    "matrix times vector": module_text(
        "x = f32[2000,300] parameter(0)\ny = f32[300] parameter(1)\n"
        "ROOT r = f32[2000] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    ),
    "convolution": module_text(
        "x = f32[2,40,40,16] parameter(0)\ny = f32[3,3,16,24] parameter(1)\n"
        "ROOT r = f32[2,38,38,24] convolution(x, y), window={size=3x3}, dim_labels=b01f_01io->b01f"
    ),
}  # fmt: skip


def arrays_of(text: str) -> list[np.ndarray]:
    """Arguments: numbers whose sums depend on their order; indices below 1000."""
    rng = np.random.default_rng(0)
    shapes = hl.parse(text).entry.parameter_shapes
    return [
        rng.integers(0, 1000, s.dimensions, np.int32)
        if s.element_type.is_integer
        else rng.standard_normal(s.dimensions, np.float32)
        for s in shapes
    ]


def digest(arrays: list[np.ndarray]) -> str:
    return hashlib.sha256(b"".join(a.tobytes() for a in arrays)).hexdigest()[:16]


if __name__ == "__main__":
    json.dump({name: digest(compiled(text, *arrays_of(text))) for name, text in PROGRAMS.items()}, sys.stdout)
