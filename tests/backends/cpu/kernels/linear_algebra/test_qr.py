"""Blocked QR factorisations: by their definition, for shapes around the blocks, element types, and numbers out of range."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hloom as hl
from hlo_text import module_text
from hloom.cli.pipelines import stage_text

TYPES = {"s": ("f32", np.float32), "d": ("f64", np.float64)}
SHAPES = [
    (97, 65),
    (50, 80),
    *(pytest.param(*shape, marks=pytest.mark.long) for shape in ((48, 48), (64, 64), (520, 300))),
]


def compiled(routine: str, letter: str, shape: tuple[int, ...], count: int) -> Any:
    """Compiles geqrf, or orgqr of `count` reflections."""
    element, batch = TYPES[letter][0], ",".join(map(str, shape[:-2]))
    a, tau = f"{element}[{','.join(map(str, shape))}]", f"{element}[{batch + ',' * bool(batch)}{count}]"
    operands, result = ("a", f"({a}, {tau})") if routine == "geqrf" else ("a, tau", a)
    declared = f"a = {a} parameter(0)" + (f"\ntau = {tau} parameter(1)" if routine == "orgqr" else "")
    call = f'custom-call({operands}), custom_call_target="lapack_{letter}{routine}_ffi"'
    text = module_text(f"{declared}\nROOT r = {result} {call}")
    assert "routine" not in stage_text(hl.parse(text), "llvm")
    return hl.compile(text)


def matrices(letter: str, *shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(TYPES[letter][1])


def unitary(packed: np.ndarray, tau: np.ndarray) -> np.ndarray:
    """The product of reflections I - tau v v^T."""
    q = np.eye(len(packed))
    for k, factor in enumerate(tau.astype(np.float64)):
        v = np.concatenate([np.zeros(k), [1], packed[k + 1 :, k]])
        q -= factor * np.outer(q @ v, v)
    return q


@pytest.mark.parametrize("letter", TYPES)
@pytest.mark.parametrize(("m", "n"), SHAPES)
def test_the_product_of_the_factors_is_the_matrix(letter: str, m: int, n: int) -> None:
    a = matrices(letter, 2, m, n)
    epsilon = np.finfo(a.dtype).eps
    for given, packed, tau in zip(a, *compiled("geqrf", letter, a.shape, min(m, n))(a), strict=True):
        q = unitary(packed, tau)
        assert abs(q.T @ q - np.eye(m)).max() < 20 * epsilon
        assert np.linalg.norm(q @ np.triu(packed) - given) < 10 * epsilon * np.linalg.norm(given)


@pytest.mark.parametrize("letter", TYPES)
def test_factors_are_those_of_lapack(letter: str) -> None:
    """Signs, too; a column of zeros and one that is zero below the diagonal need no reflection."""
    import scipy.linalg

    a = matrices(letter, 70, 60)
    a[:, 3] = 0
    a[1:, 0] = 0
    packed, tau = compiled("geqrf", letter, a.shape, 60)(a)
    (expected, taus), _ = scipy.linalg.qr(a, mode="raw")
    tolerance = 100 * np.finfo(a.dtype).eps
    np.testing.assert_allclose(packed, expected, atol=tolerance * abs(expected).max())
    np.testing.assert_allclose(tau, taus, atol=tolerance)
    assert (tau[0], tau[3], packed[0, 0]) == (0, 0, a[0, 0])


@pytest.mark.parametrize("letter", TYPES)
@pytest.mark.parametrize("power", [-1, 1])
def test_squares_are_in_range(letter: str, power: int) -> None:
    """Elements are scaled where their squares are not."""
    a = matrices(letter, 50, 50)
    scale = np.asarray(2.0 ** (power * (70 if letter == "s" else 600)), a.dtype)
    run = compiled("geqrf", letter, a.shape, 50)
    (packed, tau), (expected, taus) = run(a * scale), run(a)
    np.testing.assert_array_equal(tau, taus)
    np.testing.assert_array_equal(np.triu(packed), np.triu(expected) * scale)


def test_a_nan_stays_in_its_column_and_those_after_it() -> None:
    a = matrices("d", 64, 64)
    run = compiled("geqrf", "d", a.shape, 64)
    expected, _ = run(a)
    a[40, 45] = np.nan
    packed, tau = run(a)
    np.testing.assert_array_equal(packed[:, :45], expected[:, :45])
    assert np.isnan(tau[45:-1]).all()


@pytest.mark.sampled(4)
@pytest.mark.parametrize("letter", TYPES)
@pytest.mark.parametrize(("m", "n", "count"), [(97, 65, 65), (80, 80, 35), (64, 64, 1)])
def test_reflections_multiplied(letter: str, m: int, n: int, count: int) -> None:
    """The first columns of the product; what is right of the reflections is not read."""
    packed = matrices(letter, 2, m, n)
    below = np.tril(packed.astype(np.float64), -1)[..., :count]
    tau = (2 / (1 + (below**2).sum(-2))).astype(packed.dtype)
    packed[..., count:] = np.nan
    found = compiled("orgqr", letter, packed.shape, count)(packed, tau)
    for q, each, factors in zip(found, packed, tau, strict=True):
        np.testing.assert_allclose(q, unitary(each, factors)[:, :n], atol=50 * np.finfo(packed.dtype).eps)


def test_a_matrix_in_a_batch_has_the_factor_that_it_has_alone() -> None:
    a = matrices("s", 5, 97, 65)
    batch, alone = compiled("geqrf", "s", a.shape, 65)(a), compiled("geqrf", "s", a[3].shape, 65)(a[3])
    for all_of_them, one in zip(batch, alone, strict=True):
        np.testing.assert_array_equal(all_of_them[3], one)
