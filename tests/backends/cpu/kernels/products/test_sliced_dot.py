"""Products of slices that are read where they are, against the interpreter."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import hloom as hl
from hlo_text import module_text
from hloom.backends.cpu.pipeline import Topology, cpu_pipeline
from hloom.ops.control_flow import Fusion
from hloom.ops.slice import DynamicSlice, Slice
from hloom.passes import run_passes

STARTS = {"s32": np.int32, "s8": np.int8, "u8": np.uint8, "s64": np.int64, "u32": np.uint32}
DTYPES: dict[str, Any] = {
    "f32": np.float32, "f64": np.float64, "bf16": ml_dtypes.bfloat16, "s8": np.int8, "c64": np.complex64,
}  # fmt: skip
SUMS = {"f32": "f32", "f64": "f64", "bf16": "f32", "s8": "s32", "c64": "c64"}


def check(text: str, *arguments: Any, slices: int = 0) -> None:
    """Compares the result with the interpreter's; `slices` are computed outside of products."""
    module = hl.parse(text)
    run_passes(module, cpu_pipeline(Topology.SINGLE))
    entry = {c for i in module.entry.instructions if isinstance(i.op, Fusion) for c in [i.op.calls]}
    outside = [c for c in entry if isinstance(c.root.op, (Slice, DynamicSlice))]
    assert len(outside) == slices
    executable = hl.compile(text)
    assert executable.report() == []
    want = np.asarray(hl.compile(text, "interpreter")(*arguments))
    tolerance = 1e-4 if want.dtype.kind in "fc" else 0
    np.testing.assert_allclose(np.asarray(executable(*arguments)), want, rtol=tolerance, atol=100 * tolerance)


def filled(rng: np.random.Generator, sizes: tuple[int, ...], type: str) -> np.ndarray:
    """Small integers, whose sums are exact."""
    return rng.integers(-4, 5, sizes).astype(DTYPES[type])


@pytest.mark.sampled(12)
@pytest.mark.parametrize("type", STARTS)
@pytest.mark.parametrize("start", [0, 3, 7, 100, -1])
def test_starts_are_clamped(start: int, type: str) -> None:
    rng = np.random.default_rng(0)
    lines = f"w = f32[8,300,64] parameter(0)\nx = f32[16,64] parameter(1)\nk = {type}[] parameter(2)\n"
    lines += f"j = {type}[] constant(5)\n"
    lines += "s = f32[1,64,64] dynamic-slice(w, k, j, j), dynamic_slice_sizes={1,64,64}\nr = f32[64,64] reshape(s)\n"
    lines += "ROOT p = f32[16,64] dot(x, r), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    k = np.array(start).astype(STARTS[type])
    check(module_text(lines), *(rng.standard_normal(s, np.float32) for s in ((8, 300, 64), (16, 64))), k)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("type", DTYPES)
@pytest.mark.parametrize("rows", [1, 3, 40])
@pytest.mark.parametrize("contracted", [0, 1])
def test_types_and_sides(type: str, rows: int, contracted: int) -> None:
    """Parts of odd sizes, which begin anywhere, on either side."""
    rng = np.random.default_rng(rows)
    arrays = filled(rng, (301, 67), type), filled(rng, (rows, 67), type)
    for is_left in (False, True):
        operands = "r, x" if is_left else "x, r"
        dims = (contracted, 1) if is_left else (1, contracted)
        shape = f"{SUMS[type]}[67,{rows}]" if is_left else f"{SUMS[type]}[{rows},67]"
        lines = f"w = {type}[301,67] parameter(0)\nx = {type}[{rows},67] parameter(1)\n"
        lines += f"r = {type}[67,67] slice(w), slice={{[201:268],[0:67]}}\n"
        lines += (
            f"ROOT p = {shape} dot({operands}), lhs_contracting_dims={{{dims[0]}}}, rhs_contracting_dims={{{dims[1]}}}"
        )
        check(module_text(lines), *arrays)


def test_both_operands_and_batches() -> None:
    rng = np.random.default_rng(1)
    lines = "w = f32[9,33,40] parameter(0)\nk = s32[] parameter(1)\nz = s32[] constant(0)\n"
    lines += "a = f32[4,33,40] dynamic-slice(w, k, z, z), dynamic_slice_sizes={4,33,40}\n"
    lines += "b = f32[4,33,40] slice(w), slice={[2:6],[0:33],[0:40]}\n"
    lines += "ROOT p = f32[4,33,33] dot(a, b), lhs_batch_dims={0}, rhs_batch_dims={0}, "
    lines += "lhs_contracting_dims={2}, rhs_contracting_dims={2}"
    check(module_text(lines), rng.standard_normal((9, 33, 40), np.float32), np.int32(3))
