"""Sums of many terms, of every kind of product, convolution and reduction: as good as pairwise sums (GEN-13)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hloom as hl
from hloom.types import BY_NAME

TERMS = 20_000
"""The length of sums that err by twice the bound, and more, if added one after another."""
MAX_CHAIN = 512
DIMS = "lhs_contracting_dims={%d}, rhs_contracting_dims={%d}"
BATCHED = "lhs_batch_dims={0}, rhs_batch_dims={0}, " + DIMS

# The dimensions of operands and result, the product, and its meaning as a sum over k, l or w.
PRODUCTS = {
    "matrices": ("16,{k}", "{k},16", "16,16", "dot(a, b), " + DIMS % (1, 0), "ik,kj->ij"),
    "large matrices": ("100,{k}", "{k},150", "100,150", "dot(a, b), " + DIMS % (1, 0), "ik,kj->ij"),
    "columns of both": ("{k},40", "{k},40", "40,40", "dot(a, b), " + DIMS % (0, 0), "ki,kj->ij"),
    "rows of both": ("3,{k}", "5,{k}", "3,5", "dot(a, b), " + DIMS % (1, 1), "ik,jk->ij"),
    "row and matrix": ("1,{k}", "{k},70", "1,70", "dot(a, b), " + DIMS % (1, 0), "ik,kj->ij"),
    "matrix and vector": ("33,{k}", "{k}", "33", "dot(a, b), " + DIMS % (1, 0), "ik,k->i"),
    "columns and vector": ("{k},33", "{k}", "33", "dot(a, b), " + DIMS % (0, 0), "ki,k->i"),
    "vectors": ("{k}", "{k}", "", "dot(a, b), " + DIMS % (0, 0), "k,k->"),
    "batches": ("3,8,{k}", "3,{k},8", "3,8,8", "dot(a, b), " + BATCHED % (2, 1), "bik,bkj->bij"),
    "batches side by side": (
        "{k},2,16", "{k},16", "16,2",
        "dot(a, b), lhs_batch_dims={2}, rhs_batch_dims={1}, " + DIMS % (0, 0), "kib,kb->bi",
    ),
    "two dimensions": (
        "4,{k4},8", "4,{k4},8", "8,8",
        "dot(a, b), lhs_contracting_dims={0,1}, rhs_contracting_dims={0,1}", "lki,lkj->ij",
    ),
    "fused operands": (
        "16,{k}", "{k},16", "16,16", "dot(negate(a), negate(b)), " + DIMS % (1, 0), "ik,kj->ij",
    ),
}  # fmt: skip
TYPES = {
    "bf16": ("matrices", "row and matrix", "matrix and vector", "columns and vector"),
    "f16": ("matrices", "row and matrix", "matrix and vector"),
    "f64": ("matrices", "row and matrix", "matrix and vector", "vectors"),
    "c64": ("matrices", "matrix and vector", "vectors"),
}
CASES = [*(("f32", kind) for kind in PRODUCTS), *((type, kind) for type, kinds in TYPES.items() for kind in kinds)]


def random_array(dims: str, type: str, seed: int) -> np.ndarray:
    """Returns values >= 0, so that sums and their rounding errors grow."""
    r, shape = np.random.default_rng(seed), tuple(map(int, dims.split(",")))
    values = r.random(shape) + (1j * r.random(shape) if type == "c64" else 0)
    return values.astype(BY_NAME[type].dtype)


def check(found: np.ndarray, exact: np.ndarray, sizes: np.ndarray, terms: int) -> None:
    """A pairwise sum of n products errs by at most log2(n) + 1 roundings of the sum of their sizes."""
    roundings = math.log2(terms) + 1
    if exact.dtype.kind == "c":
        sizes, roundings = sizes * math.sqrt(2), roundings + 1
    unit = np.finfo(found.dtype).eps / 2
    assert np.max(np.abs(found - exact) / sizes) <= roundings * unit


def wide(x: np.ndarray) -> np.ndarray:
    return x.astype({"c": np.complex128}.get(x.dtype.kind, np.longdouble if x.dtype == np.float64 else np.float64))


@pytest.mark.sampled(5)
@pytest.mark.parametrize(("type", "kind"), CASES)
def test_products_are_as_good_as_pairwise_sums(backend: str, type: str, kind: str) -> None:
    """GEN-13, DOT-3."""
    lhs, rhs, out, product, meaning = PRODUCTS[kind]
    lhs, rhs = (dims.format(k=TERMS, k4=TERMS // 4) for dims in (lhs, rhs))
    result = "f32" if type in ("bf16", "f16") else type
    for operand, dims in (("a", lhs), ("b", rhs)):
        product = product.replace(f"negate({operand})", f"{type}[{dims}] negate({operand})")
    text = f"""HloModule m
ENTRY e {{
  a = {type}[{lhs}] parameter(0)
  b = {type}[{rhs}] parameter(1)
  ROOT r = {result}[{out}] {product}
}}"""
    a, b = random_array(lhs, type, 1), random_array(rhs, type, 2)
    found = np.asarray(hl.compile(text, backend=backend)(a, b))
    exact = np.einsum(meaning, wide(a), wide(b), optimize=type != "f64")
    sizes = np.einsum(meaning, np.abs(wide(a)), np.abs(wide(b)), optimize=type != "f64")
    check(found, exact, sizes, TERMS)


def windows(x: np.ndarray, sizes: tuple[int, ...], axes: tuple[int, ...]) -> np.ndarray:
    """The windows of an array, their elements in the last dimensions."""
    return np.lib.stride_tricks.sliding_window_view(x, sizes, axes)  # type: ignore[call-overload]


# The dimensions of operands and result, window, labels and groups, the terms of a sum, and the meaning.
CONVOLUTIONS: dict[str, tuple[str, str, str, str, str, int, int, Callable[[Any, Any], Any]]] = {
    "long window": (
        "1,20007,1", "20000,1,4", "1,8,4", "size=20000", "b0f_0io->b0f", 1, 20_000,
        lambda a, b: np.einsum("btfw,wfo->bto", windows(a, (20_000,), (1,)), b, optimize=True),
    ),
    "many features": (
        "1,4,4,2000", "3,3,2000,16", "1,2,2,16", "size=3x3", "b01f_01io->b01f", 1, 18_000,
        lambda a, b: np.einsum("byxfhw,hwfo->byxo", windows(a, (3, 3), (1, 2)), b, optimize=True),
    ),
    "features first": (
        "1,2000,4,4", "5,2000,3,3", "1,5,2,2", "size=3x3", "bf01_oi01->bf01", 1, 18_000,
        lambda a, b: np.einsum("bfyxhw,ofhw->boyx", windows(a, (3, 3), (2, 3)), b, optimize=True),
    ),
    "in tiles": (
        "1,16,16,2000", "3,3,2000,24", "1,16,16,24", "size=3x3 pad=1_1x1_1", "b01f_01io->b01f", 1, 18_000,
        lambda a, b: sum(
            np.einsum("byxf,fo->byxo", np.pad(a, [(0, 0), (1, 1), (1, 1), (0, 0)])[:, h : h + 16, w : w + 16], b[h, w])
            for h in range(3)
            for w in range(3)
        ),
    ),
    "gradient of a window": (
        "20,32,32,4", "20,30,30,8", "3,3,4,8", "size=30x30", "f01b_i01o->01bf", 1, 18_000,
        lambda a, b: np.einsum("nyxfhw,nhwo->yxfo", windows(a, (30, 30), (1, 2)), b, optimize=True),
    ),
    "a group for each feature": (
        "1,20003,16", "20000,1,16", "1,4,16", "size=20000", "b0f_0io->b0f", 16, 20_000,
        lambda a, b: np.einsum("btfw,wf->btf", windows(a, (20_000,), (1,)), b[:, 0], optimize=True),
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", CONVOLUTIONS)
def test_convolutions_are_as_good_as_pairwise_sums(kind: str) -> None:
    """GEN-13, CONVGENERAL-3."""
    lhs, rhs, out, window, labels, groups, terms, meaning = CONVOLUTIONS[kind]
    text = f"""HloModule m
ENTRY e {{
  a = f32[{lhs}] parameter(0)
  b = f32[{rhs}] parameter(1)
  ROOT r = f32[{out}] convolution(a, b), window={{{window}}}, dim_labels={labels}, feature_group_count={groups}
}}"""
    a, b = random_array(lhs, "f32", 1), random_array(rhs, "f32", 2)
    exact = np.asarray(meaning(wide(a), wide(b)))
    check(hl.compile(text)(a, b), exact, np.asarray(meaning(np.abs(wide(a)), np.abs(wide(b)))), terms)


def test_products_of_constants_are_as_good_as_pairwise_sums(backend: str) -> None:
    """GEN-13: a million equal terms have equal rounding errors, which do not cancel: bounded by the longest chain."""
    text = """HloModule m
ENTRY e {
  c = f32[] constant(0.7)
  d = f32[] constant(1.3)
  a = f32[3,1000000] broadcast(c), dimensions={}
  b = f32[1000000,3] broadcast(d), dimensions={}
  ROOT r = f32[3,3] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}"""
    exact = 1e6 * float(np.float32(0.7)) * float(np.float32(1.3))
    assert hl.compile(text, backend=backend)() == pytest.approx(np.full((3, 3), exact), rel=MAX_CHAIN * 2.0**-24)


REDUCTIONS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "columns": ("ROOT r = f32[16] reduce(a, zero), dimensions={0}, to_apply=add", lambda a: a.sum(0)),
    "two sums at once": (
        """square = f32[1500,16] multiply(a, a)
  sum = f32[16] reduce(a, zero), dimensions={0}, to_apply=add
  squares = f32[16] reduce(square, zero), dimensions={0}, to_apply=add
  ROOT r = f32[16] add(sum, squares)""", lambda a: a.sum(0) + (a * a).sum(0),
    ),
    "windows": (
        "ROOT r = f32[5,16] reduce-window(a, zero), window={size=1496x1}, to_apply=add",
        lambda a: windows(a, (1496,), (0,)).sum(-1),
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", REDUCTIONS)
def test_reductions_are_as_good_as_pairwise_sums(backend: str, kind: str) -> None:
    """GEN-13, REDUCE-3."""
    reduction, meaning = REDUCTIONS[kind]
    text = f"""HloModule m
add {{
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT s = f32[] add(x, y)
}}
ENTRY e {{
  a = f32[1500,16] parameter(0)
  zero = f32[] constant(0)
  {reduction}
}}"""
    a = random_array("1500,16", "f32", 1)
    exact = meaning(wide(a))
    check(hl.compile(text, backend=backend)(a), exact, exact, 1500)
