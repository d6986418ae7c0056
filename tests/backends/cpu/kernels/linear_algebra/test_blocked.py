"""Blocked factorisations of large matrices: by their definitions, for orders around the blocks, types and threads."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest

import hloom as hl
from backends.cpu.kernels.run_kernel import Emit, Kernel
from hlo_text import module_text
from hloom.backends.cpu.kernels.code import KernelCode
from hloom.backends.cpu.kernels.linear_algebra import cholesky, qr
from hloom.backends.cpu.kernels.linear_algebra import lu as lu_kernel
from hloom.backends.cpu.kernels.linear_algebra.blocks import Square, tile_copy
from hloom.ir import Instruction
from hloom.lir import LirModule, type_of
from hloom.lir.interpret import Interpreter
from hloom.ops.custom_call import CustomCall
from hloom.runtime.custom_calls.targets import routine_call
from hloom.target import Target

TYPES = {"s": ("f32", np.float32, 2e-5), "d": ("f64", np.float64, 1e-13)}
ORDERS = [165, *(pytest.param(order, marks=pytest.mark.long) for order in (160, 192, 203, 520, 1000, 1100))]


def compiled(routine: str, letter: str, shape: tuple[int, ...], more: str, config: str = "{}") -> Any:
    array = f"{TYPES[letter][0]}[{','.join(map(str, shape))}]"
    batch = ",".join(map(str, shape[:-2]))
    results = f"({array}, {more}s32[{batch}])"
    executable = hl.compile(
        f"HloModule m\nENTRY e {{\na = {array} parameter(0)\nROOT r = {results} custom-call(a), "
        f'custom_call_target="lapack_{letter}{routine}_ffi", backend_config="{config}"\n}}'
    )
    assert executable.report() == []
    return executable


def emitter(kernel: ModuleType) -> Emit:
    def emit(op: CustomCall, name: str, instruction: Instruction, target: Target) -> KernelCode | None:
        call = routine_call(instruction)
        assert call is not None
        code: KernelCode | None = kernel.emit(name, instruction, call, target)
        return code

    return emit


def positive(letter: str, *shape: int) -> np.ndarray:
    x = np.random.default_rng(sum(shape)).standard_normal(shape)
    return (x @ x.swapaxes(-1, -2) / shape[-1] + 0.1 * np.eye(shape[-1])).astype(TYPES[letter][1])


@pytest.mark.parametrize("letter", TYPES)
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("uplo", "LU")
def test_the_product_of_cholesky_factors_is_the_matrix(letter: str, order: int, uplo: str) -> None:
    """Only one triangle is read and written."""
    a = positive(letter, 2, order, order)
    keep = np.tril if uplo == "L" else np.triu
    given = np.where(keep(np.ones((order, order))) > 0, a, 7).astype(a.dtype)
    factor, info = compiled("potrf", letter, a.shape, "", f"{{uplo = {ord(uplo)} : ui8}}")(given)
    assert not info.any()
    np.testing.assert_array_equal(factor - keep(factor), given - keep(given))
    found = keep(factor) if uplo == "L" else keep(factor).swapaxes(-1, -2)
    error = abs(found.astype(np.float64) @ found.swapaxes(-1, -2) - a).max()
    assert error < TYPES[letter][2] * abs(a).max()


@pytest.mark.parametrize("row", [64, *(pytest.param(row, marks=pytest.mark.long) for row in (0, 63, 164))])
def test_cholesky_names_the_first_row_that_fails(row: int) -> None:
    a = positive("s", 165, 165)
    a[row, row] = -1
    assert compiled("potrf", "s", a.shape, "", "{uplo = 76 : ui8}")(a)[1] == row + 1
    a[row, row] = np.nan
    assert compiled("potrf", "s", a.shape, "", "{uplo = 76 : ui8}")(a)[1] == row + 1


def product_of(lu: np.ndarray, pivots: np.ndarray) -> np.ndarray:
    packed = lu.astype(np.float64)
    product = (np.tril(packed, -1) + np.eye(len(lu))) @ np.triu(packed)
    for row, other in reversed([*enumerate(pivots - 1)]):
        product[[row, other]] = product[[other, row]]
    return product


@pytest.mark.parametrize("letter", TYPES)
@pytest.mark.parametrize("order", ORDERS)
def test_the_product_of_lu_factors_is_the_matrix(letter: str, order: int) -> None:
    """Pivots are the largest of their columns: no factor exceeds 1."""
    a = np.random.default_rng(order).standard_normal((2, order, order)).astype(TYPES[letter][1])
    lu, pivots, info = compiled("getrf", letter, a.shape, f"s32[2,{order}], ")(a)
    assert not info.any() and abs(np.tril(lu, -1)).max() <= 1
    for given, factors, swaps in zip(a, lu, pivots, strict=True):
        assert abs(product_of(factors, swaps) - given).max() < 10 * TYPES[letter][2] * abs(given).max()


def test_pivots_are_those_of_lapack() -> None:
    import scipy.linalg

    a = np.random.default_rng(0).integers(-3, 4, (130, 130)).astype(np.float64)  # has equal magnitudes
    lu, pivots, info = compiled("getrf", "d", a.shape, "s32[130], ")(a)
    expected, swaps = scipy.linalg.lu_factor(a)
    assert info == 0
    np.testing.assert_array_equal(pivots[:40], swaps[:40] + 1)  # later ones may be equal but for rounding
    np.testing.assert_allclose(np.triu(lu)[:40], np.triu(expected)[:40], atol=1e-12)


@pytest.mark.parametrize("column", [32, *(pytest.param(column, marks=pytest.mark.long) for column in (0, 31, 99))])
def test_lu_names_the_first_column_without_a_pivot(column: int) -> None:
    a = np.random.default_rng(column).standard_normal((100, 100))
    a[:, column] = 0
    lu, pivots, info = compiled("getrf", "d", a.shape, "s32[100], ")(a)
    assert info == column + 1
    np.testing.assert_allclose(product_of(lu, pivots), a, atol=1e-12)


def test_a_matrix_in_a_batch_has_the_factor_that_it_has_alone() -> None:
    """Neither the number of matrices nor that of threads chooses between these kernels and LAPACK."""
    a = positive("s", 5, 165, 165)
    for routine, more in (("potrf", ""), ("getrf", "s32[{}165], ")):
        config = "{uplo = 76 : ui8}" if routine == "potrf" else "{}"
        batch, alone = (
            compiled(routine, "s", each.shape, more.format(prefix), config)(each)
            for each, prefix in ((a, "5,"), (a[3], ""))
        )
        np.testing.assert_array_equal(batch[0][3], alone[0])


@pytest.mark.parametrize("order", [97, pytest.param(330, marks=pytest.mark.long)])
def test_panels_that_are_factored_ahead_do_not_depend_on_threads(order: int) -> None:
    a = np.random.default_rng(0).standard_normal((2, order, order)).astype(np.float32)
    results = f"(f32[2,{order},{order}], s32[2,{order}], s32[2])"
    is_same_on_threads(lu_kernel, results, "getrf", a)


@pytest.mark.parametrize(("m", "n"), [(97, 130), pytest.param(330, 300, marks=pytest.mark.long)])
def test_reflections_that_are_computed_ahead_do_not_depend_on_threads(m: int, n: int) -> None:
    a = np.random.default_rng(0).standard_normal((2, m, n)).astype(np.float32)
    count = min(m, n)
    is_same_on_threads(qr, f"(f32[2,{m},{n}], f32[2,{count}])", "geqrf", a)
    taus = np.full((2, count), 2 / (1 + m / 2), np.float32)
    is_same_on_threads(qr, f"f32[2,{m},{count}]", "orgqr", a[..., :count].copy(), taus)


@pytest.mark.parametrize("order", [197, pytest.param(1050, marks=pytest.mark.long)])
def test_squares_that_are_factored_ahead_do_not_depend_on_threads(order: int) -> None:
    results = f"(f32[2,{order},{order}], s32[2])"
    is_same_on_threads(cholesky, results, "potrf", positive("s", 2, order, order), backend_config="{uplo = 76 : ui8}")


def is_same_on_threads(
    kernel: ModuleType, results: str, routine: str, *arrays: np.ndarray, backend_config: str = "{}"
) -> None:
    shapes = [f"f32[{','.join(map(str, array.shape))}]" for array in arrays]
    operands = "\n".join(f"x{k} = {shape} parameter({k})" for k, shape in enumerate(shapes))
    call = f'custom_call_target="lapack_s{routine}_ffi", backend_config="{backend_config}"'
    names = ", ".join(f"x{k}" for k in range(len(arrays)))
    text = module_text(f"{operands}\nROOT r = {results} custom-call({names}), {call}")
    one, *others = (Kernel(emitter(kernel), text, threads)(*arrays) for threads in (1, 2, 4))
    for other in others:
        for expected, found in zip(one, other, strict=True):
            np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("scale", [1e-310, 1e-300, 1e300])
def test_columns_are_divided_by_pivots_whose_reciprocal_is_out_of_range(scale: float) -> None:
    a = np.random.default_rng(0).standard_normal((97, 97)).clip(-1, 1)
    a[:, 0] *= scale
    lu, pivots, info = compiled("getrf", "d", a.shape, "s32[97], ")(a)
    assert info == 0 and abs(np.tril(lu, -1)).max() <= 1
    found = product_of(lu, pivots)
    np.testing.assert_allclose(found[:, 1:], a[:, 1:], atol=1e-12)
    np.testing.assert_allclose(found[:, 0] / scale, a[:, 0] / scale, atol=1e-10)


@pytest.mark.parametrize("width", [4, 8, 16])
@pytest.mark.parametrize(("rows", "columns"), [(16, 16), (16, 5), (3, 16)])
@pytest.mark.parametrize(("is_transposed", "is_mean"), [(False, False), (True, False), (True, True)])
def test_tiles_are_copied_by_vectors_of_one_register(
    width: int, rows: int, columns: int, is_transposed: bool, is_mean: bool
) -> None:
    square = Square(64, type_of("float", width), 32)
    f = tile_copy("copy", square, (20, 24), is_transposed, is_mean).finish()
    assert max(i.type.width for i in f.body) == width
    source, mirrored = np.random.default_rng(width).standard_normal((2, 16, 20)).astype(np.float32)
    target = np.zeros((16, 24), np.float32)
    arrays = (source, mirrored, target) if is_mean else (source, target)
    Interpreter(LirModule([f])).call("copy", *(array.ctypes.data for array in arrays), rows, columns)
    tile = source[:rows, :columns]
    tile = tile.T if is_transposed else tile
    expected = np.zeros_like(target)
    m, n = tile.shape
    expected[:m, :n] = (tile + mirrored[:m, :n]) / 2 if is_mean else tile
    np.testing.assert_array_equal(target, expected)
