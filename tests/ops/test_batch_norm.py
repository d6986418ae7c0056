"""Batch normalisation: cases beyond the specification's examples."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
from built import built, evaluate

EPSILON = 0.01
RANDOM = np.random.default_rng(0)
OPERAND = RANDOM.normal(size=(4, 3, 5)).astype(np.float32)
SCALE, OFFSET, MEAN = (RANDOM.normal(size=3).astype(np.float32) for _ in range(3))
VARIANCE = RANDOM.uniform(0.5, 2, 3).astype(np.float32)


def row(vector: np.ndarray) -> np.ndarray:
    return vector.astype(np.float64)[:, None]


def test_inference_normalises_with_the_moments_that_it_is_given(backend: str) -> None:
    """BATCHNORMINFERENCE-1."""
    arrays = (OPERAND, SCALE, OFFSET, MEAN, VARIANCE)
    found = evaluate(backend, lambda b, *x: b.batch_norm_inference(*x, EPSILON, 1), *arrays)
    wanted = row(SCALE) * (OPERAND - row(MEAN)) / np.sqrt(row(VARIANCE) + EPSILON) + row(OFFSET)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def loss(operand: np.ndarray, scale: np.ndarray, offset: np.ndarray, weights: np.ndarray) -> float:
    mean, variance = operand.mean((0, 2), keepdims=True), operand.var((0, 2), keepdims=True)
    normal = (operand - mean) / np.sqrt(variance + EPSILON)
    return float((weights * (scale[:, None] * normal + offset[:, None])).sum())


def test_the_gradient_with_the_moments_of_training_is_that_of_the_training(backend: str) -> None:
    """BATCHNORMGRAD-2: differences of the loss, whose moments change with the operand, in f64."""
    weights = RANDOM.normal(size=OPERAND.shape).astype(np.float32)

    def gradient(b: hl.XlaBuilder, x: hl.XlaOp, scale: hl.XlaOp, offset: hl.XlaOp, g: hl.XlaOp) -> hl.XlaOp:
        training = b.batch_norm_training(x, scale, offset, EPSILON, 1)
        mean, variance = b.get_tuple_element(training, 1), b.get_tuple_element(training, 2)
        return b.batch_norm_grad(x, scale, mean, variance, g, EPSILON, 1)

    found = evaluate(backend, gradient, OPERAND, SCALE, OFFSET, weights)
    inputs = [a.astype(np.float64) for a in (OPERAND, SCALE, OFFSET)]
    for k, got in enumerate(found):
        for index in [(0, 1, 2), (3, 2, 4), (1, 0, 0)] if k == 0 else [(0,), (2,)]:
            changed = []
            for step in (1e-5, -1e-5):
                moved = [a.copy() for a in inputs]
                moved[k][index] += step
                changed.append(loss(*moved, weights.astype(np.float64)))
            assert got[index] == pytest.approx((changed[0] - changed[1]) / 2e-5, rel=1e-3, abs=1e-4)


def test_the_gradient_of_no_elements_is_an_empty_sum(backend: str) -> None:
    """BATCHNORMGRAD-1: 0, though the moments of no elements are NaN."""
    none, nan = np.zeros((0, 3, 2), np.float32), np.full(3, np.nan, np.float32)
    got = evaluate(backend, lambda b, *x: b.batch_norm_grad(*x, EPSILON, 1), none, SCALE, nan, nan, none)
    np.testing.assert_array_equal(got[1], np.zeros(3))
    np.testing.assert_array_equal(got[2], np.zeros(3))


def test_the_variance_of_a_constant_feature_is_not_negative(backend: str) -> None:
    """BATCHNORMTRAINING-4: where the mean of squares less the square of the mean would be below zero."""
    operand = np.full((7, 3, 9), np.float32(1000.1))
    operand[:, 1] = np.float32(0.3)
    _, mean, variance = evaluate(backend, lambda b, *x: b.batch_norm_training(*x, EPSILON, 1), operand, SCALE, OFFSET)
    assert (variance >= 0).all() and (variance < 1e-6 * mean**2).all()


@pytest.mark.parametrize("wrong", ["feature", "scalar", "vector", "type"])
def test_training_refuses_what_the_gradient_refuses(wrong: str) -> None:
    """BATCHNORMTRAINING-4: as BATCHNORMGRAD-4."""
    operand, scale, feature = hl.f32[4, 3, 5], hl.f32[3], 1
    if wrong == "feature":
        feature = 3
    elif wrong == "scalar":
        operand = hl.f32[()]
    elif wrong == "vector":
        scale = hl.f32[5]
    else:
        operand = hl.s32[4, 3, 5]
    with pytest.raises(hl.RuleError, match="BATCHNORM|GEN-"):
        built(lambda b, *x: b.batch_norm_training(*x, EPSILON, feature), operand, scale, scale)
