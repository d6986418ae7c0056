"""Checks of products in tile registers, whichever way the weights are stored."""

from __future__ import annotations

import numpy as np

import hloom as hl
from backends.cpu.kernels.products.test_fused_dot import Case
from hloom.cli.pipelines import stage_text

INSTRUCTION = "x86.tdpbf16ps"


def check_infinite_scales(case: Case) -> None:
    """Infinite scales and NaN reach the columns that use them alone."""
    x, weights, scales = case.arguments()
    shape, scales = scales.shape, scales.reshape(-1)
    scales[[5, 9]] = np.inf, np.nan
    weights[weights == 0] = 1
    x[x == 0] = 1
    got = np.asarray(hl.compile(hl.parse(case.text()))(x, weights, scales.reshape(shape))).astype(np.float32)
    assert (~np.isfinite(got)).nonzero()[1].tolist() == [5, 9] * case.rows


def check_batch(rows: int, is_transposed: bool) -> None:
    """Three products of `rows` rows and 70 columns, with weights of bytes."""
    sizes, contracted = ("3,70,160", 2) if is_transposed else ("3,160,70", 1)
    text = f"""HloModule m
ENTRY e {{
  x = bf16[3,{rows},160] parameter(0)
  w = s8[{sizes}] parameter(1)
  c = bf16[{sizes}] convert(w)
  ROOT r = bf16[3,{rows},70] dot(x, c), lhs_batch_dims={{0}}, rhs_batch_dims={{0}}, lhs_contracting_dims={{2}},
    rhs_contracting_dims={{{contracted}}}
}}"""
    module, random = hl.parse(text), np.random.default_rng(0)
    assert INSTRUCTION in stage_text(module, "llvm")
    x = random.integers(-4, 5, (3, rows, 160)).astype(module.entry.parameters[0].shape.element_type.dtype)
    weights = random.integers(-4, 5, [int(size) for size in sizes.split(",")]).astype(np.int8)
    subscripts = "bik,bnk->bin" if is_transposed else "bik,bkn->bin"
    exact = np.einsum(subscripts, x.astype(np.float32), weights.astype(np.float32))
    np.testing.assert_array_equal(hl.compile(module)(x, weights), exact.astype(x.dtype))
