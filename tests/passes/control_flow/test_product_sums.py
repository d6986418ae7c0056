"""product-sums: products that a loop adds up are one product after it; sums that others read stay in the loop."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
from hlo_text import compiled, interpreted
from hloom.backends.cpu.pipeline import cpu_pipeline
from hloom.passes import clone_module
from hloom.passes.control_flow.product_sums import ProductSums
from hloom.passes.edit import loops_of
from hloom.verifier import verify_module

ROWS, LEFT, RIGHT, TRIPS = 2, 24, 40, 9
SUM = "next = SUM add(s, product)"
COUNTS = "counter = s32[] copy(i)"
READS_SUM = """s = SUM get-tuple-element(t), index=3
  corner = f32[1,1] slice(s), slice={[0:1], [0:1]}
  whole = s32[1,1] convert(corner)
  number = s32[] reshape(whole)
  counter = s32[] maximum(i, number)"""


def gradient(
    total: str = SUM, test: str = COUNTS, state: str = "x", rows: int = ROWS, trips: int = TRIPS, type: str = "f32"
) -> hl.Module:
    """A loop that changes rows x by those of an array, and adds up products of both: s is the sum, i counts."""
    x, w, s = f"{type}[{rows},{LEFT}]", f"{type}[{TRIPS},{rows},{RIGHT}]", f"{type}[{LEFT},{RIGHT}]"
    loop = f"(s32[], {x}, {w}, {s})"
    return hl.parse(
        f"""HloModule m
body {{ t = {loop} parameter(0)
  i = s32[] get-tuple-element(t), index=0
  x = {x} get-tuple-element(t), index=1
  w = {w} get-tuple-element(t), index=2
  s = {s} get-tuple-element(t), index=3
  zero = s32[] constant(0)
  part = {type}[1,{rows},{RIGHT}] dynamic-slice(w, i, zero, zero), dynamic_slice_sizes={{1,{rows},{RIGHT}}}
  y = {type}[{rows},{RIGHT}] reshape(part)
  product = {s} dot(x, y), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}
  {total.replace("SUM", s)}
  left = {x} slice(y), slice={{[0:{rows}], [0:{LEFT}]}}
  changed = {x} subtract({state}, left)
  one = s32[] constant(1)
  j = s32[] add(i, one)
  ROOT r = {loop} tuple(j, changed, w, next) }}
condition {{ t = {loop} parameter(0)
  i = s32[] get-tuple-element(t), index=0
  n = s32[] constant({trips})
  {test.replace("SUM", s)}
  ROOT less = pred[] compare(counter, n), direction=LT }}
ENTRY e {{ x = {x} parameter(0)
  w = {w} parameter(1)
  s = {s} parameter(2)
  start = s32[] constant(0)
  t = {loop} tuple(start, x, w, s)
  ROOT r = {loop} while(t), condition=condition, body=body }}"""
    )


def arrays(module: hl.Module) -> list[np.ndarray]:
    """Integers, of which all sums are exact."""
    rng = np.random.default_rng(0)
    return [rng.integers(-8, 9, s.dimensions).astype(s.element_type.dtype) for s in module.entry.parameter_shapes]


@pytest.mark.sampled(5)
@pytest.mark.parametrize("total", [SUM, "next = SUM add(product, s)"])
@pytest.mark.parametrize("type", ["f32", "f64"])
@pytest.mark.parametrize("rows", [1, ROWS])
def test_one_product_after_the_loop(total: str, type: str, rows: int) -> None:
    module = gradient(total, type=type, rows=rows)
    after = clone_module(module)
    assert ProductSums().run(after) == 1
    verify_module(after)
    (loop,) = loops_of(after)
    assert "dot" not in [i.opcode for i in loop.op.body.instructions]
    (product,) = [i for i in after.entry.instructions if i.opcode == "dot"]
    assert product.operand_shapes[0].dimensions == (TRIPS * rows, LEFT)
    given = arrays(module)
    want = interpreted(module, *given)
    for each, got, native in zip(want, interpreted(after, *given), compiled(module, *given), strict=True):
        np.testing.assert_array_equal(got, each)
        np.testing.assert_array_equal(native, each)


def test_nan_and_infinity_are_terms() -> None:
    module = gradient()
    x, w, s = arrays(module)
    w[3, 0, 30], w[5, 1, 35], s[2, 7] = np.nan, np.inf, -np.inf
    with np.errstate(invalid="ignore"):
        want = interpreted(module, x, w, s)
    for each, native in zip(want, compiled(module, x, w, s), strict=True):
        np.testing.assert_array_equal(native, each)


@pytest.mark.parametrize(
    "unchanged",
    [
        gradient("half = SUM multiply(product, product)\n next = SUM add(s, half)"),
        gradient("kept = SUM add(s, product)\n next = SUM multiply(kept, kept)"),
        gradient("next = SUM subtract(s, product)"),
        gradient("next = SUM add(product, product)"),
        gradient(f"{SUM}\n row = f32[{ROWS},{LEFT}] slice(s), slice={{[0:{ROWS}], [0:{LEFT}]}}", state="row"),
        gradient(test=READS_SUM),
        gradient(rows=8),
        gradient(trips=3),
        gradient(type="s32"),
        gradient(type="bf16"),
    ],
    ids=["product of products", "other state", "difference", "no sum", "sum is read", "sum ends the loop", "many rows", "few trips", "s32", "bf16"],
)  # fmt: skip
def test_other_loops_stay(unchanged: hl.Module) -> None:
    assert ProductSums().run(unchanged) == 0


def test_batch_invariant_sums_keep_their_order() -> None:
    names = [step.name for step in cpu_pipeline(batch_invariant=True).leaves()]
    assert "product-sums" not in names
