"""Triangular systems with one right-hand side, for orders that are and are not multiples of vectors."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg

import hloom as hl
from hlo_text import module_text
from hloom.cli.pipelines import stage_text

TYPES = {"f32": (np.float32, 1e-5), "f64": (np.float64, 1e-13)}


def program(type: str, batch: int, order: int, more: str = "", given: str = "b", **config: str) -> str:
    size = f"{batch},{order}"
    sides = f"{type}[{size},1]" if config["side"] == "L" else f"{type}[{batch},1,{order}]"
    values = ", ".join(f"{key} = {ord(value)} : ui8" for key, value in config.items())
    name = f'custom_call_target="lapack_{"s" if type == "f32" else "d"}trsm_ffi"'
    return module_text(
        f"a = {type}[{size},{order}] parameter(0)\nb = {sides} parameter(1)\nc = {sides} sine(b)\n"
        f'ROOT x = {sides} custom-call(a, {given}), {name}, backend_config="{{{values}}}"{more}'
    )


def systems(batch: int, order: int, uplo: str) -> tuple[np.ndarray, np.ndarray]:
    """Returns triangles, with NaN in the other one, and right-hand sides."""
    rng = np.random.default_rng(order)
    a = rng.standard_normal((batch, order, order)) / order + 2 * np.eye(order)
    is_inside = (np.tril if uplo == "L" else np.triu)(np.ones((order, order))) > 0
    return np.where(is_inside, a, np.nan), rng.standard_normal((batch, order, 1))


@pytest.mark.sampled(5)
@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize(("batch", "order"), [(1, 32), (3, 45), (1, 70)])
@pytest.mark.parametrize("uplo", "LU")
@pytest.mark.parametrize("side", "LR")
@pytest.mark.parametrize("trans_x", "NT")
def test_solutions_are_those_of_scipy(
    type: str, batch: int, order: int, uplo: str, side: str, trans_x: str
) -> None:  # fmt: skip
    """Only one triangle is read, and no routine is called."""
    dtype, tolerance = TYPES[type]
    a, b = systems(batch, order, uplo)
    for diag in "NU":
        text = program(type, batch, order, side=side, uplo=uplo, trans_x=trans_x, diag=diag)
        assert "routine" not in stage_text(hl.parse(text), "llvm")
        given = b if side == "L" else b.swapaxes(1, 2)
        found = hl.compile(text)(a.astype(dtype), given.astype(dtype))
        for triangle, right, x in zip(a, b, found, strict=True):
            options = {
                "lower": uplo == "L",
                "unit_diagonal": diag == "U",
                "trans": int((side == "L") != (trans_x == "N")),
            }
            want = scipy.linalg.solve_triangular(np.nan_to_num(triangle), right, **options)
            np.testing.assert_allclose(x.reshape(-1, 1), want, atol=tolerance)


@pytest.mark.parametrize("uplo", "LU")
@pytest.mark.parametrize("trans_x", "NT")
def test_a_solution_may_be_where_the_side_was(uplo: str, trans_x: str) -> None:
    """The last block of unknowns overlaps the one before it."""
    a, b = systems(1, 45, uplo)
    alias = ", output_to_operand_aliasing={{}: (1, {})}"
    text = program("f64", 1, 45, alias, "c", side="L", uplo=uplo, trans_x=trans_x, diag="N")
    options = {"lower": uplo == "L", "trans": int(trans_x == "T")}
    want = scipy.linalg.solve_triangular(np.nan_to_num(a[0]), np.sin(b[0]), **options)
    np.testing.assert_allclose(hl.compile(text)(a, b)[0], want, atol=1e-13)


def test_a_pivot_of_zero_gives_infinities() -> None:
    a, b = np.eye(40), np.ones((1, 40, 1))
    a[5, 5] = 0
    x = hl.compile(program("f64", 1, 40, side="L", uplo="L", trans_x="N", diag="N"))(a[None], b)
    assert np.isinf(x[0, 5]) and (x[0, :5] == 1).all()
