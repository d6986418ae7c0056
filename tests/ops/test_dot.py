"""Products: cases beyond the specification's examples."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
from built import evaluate

PRODUCT = """
HloModule products
ENTRY e {{
  a = pred[{n},33] parameter(0)
  b1 = pred[33,7] parameter(1)
  ROOT r = {result}[{n},7] dot(a, b1), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
}}
"""


@pytest.mark.sampled(6)
@pytest.mark.parametrize("backend", ["interpreter", "cpu"])
@pytest.mark.parametrize("n", [2, 40])
@pytest.mark.parametrize("result", ["pred", "s32", "f32"])
def test_predicates_are_multiplied_if_the_result_type_is_declared(backend: str, n: int, result: str) -> None:
    random = np.random.default_rng(0)
    a, b = random.random((n, 33)) < 0.1, random.random((33, 7)) < 0.1
    counts = a.astype(np.int32) @ b.astype(np.int32)
    found = np.asarray(hl.compile(PRODUCT.format(n=n, result=result), backend=backend)(a, b))
    assert 0 < np.count_nonzero(counts) < counts.size
    assert np.array_equal(found, counts > 0 if result == "pred" else counts)


def test_the_builder_rejects_predicates() -> None:
    b = hl.XlaBuilder("products")
    x = b.parameter(0, hl.pred[2, 2], "x")
    with pytest.raises(hl.RuleError, match=r"dot\[DOT-2\]: takes numbers, got pred\[2,2\]"):
        b.dot(x, x)


def test_a_product_is_a_sum_over_contracting_dimensions_for_each_batch(backend: str) -> None:
    """DOTGENERAL-1, with dimensions in no particular order, against the definition by einsum in f64."""
    random = np.random.default_rng(0)
    lhs = random.normal(size=(3, 2, 5, 4)).astype(np.float32)  # contracting, batch, free, contracting
    rhs = random.normal(size=(4, 6, 3, 2)).astype(np.float32)  # contracting, free, contracting, batch
    dimension_numbers = {
        "lhs_contracting_dimensions": (0, 3),
        "rhs_contracting_dimensions": (2, 0),
        "lhs_batch_dimensions": (1,),
        "rhs_batch_dimensions": (3,),
    }
    found = evaluate(backend, lambda b, x, y: b.dot_general(x, y, dimension_numbers), lhs, rhs)
    wanted = np.einsum("kbfm,mgkb->bfg", lhs.astype(np.float64), rhs.astype(np.float64))
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("backend", ["interpreter", "cpu"])
def test_scales_multiply_blocks_and_a_scalar_scale_stands_for_none(backend: str) -> None:
    """DOTGENERAL-6: with scales, whose sizes divide those of the operand; XLA ignores the value of a scalar."""
    text = """HloModule scaled
    ENTRY e {
      a = f32[4,4] parameter(0)
      blocks = f32[2,1] parameter(1)
      scalar = f32[] constant(3)
      ROOT r = f32[4,4] scaled-dot(a, a, blocks, scalar), lhs_contracting_dims={1}, rhs_contracting_dims={1}
    }"""
    a = np.arange(16, dtype=np.float32).reshape(4, 4)
    blocks = np.array([[2], [10]], np.float32)
    found = np.asarray(hl.compile(text, backend=backend)(a, blocks))
    assert np.array_equal(found, (np.repeat(blocks, 2, axis=0) * a) @ a.T)
