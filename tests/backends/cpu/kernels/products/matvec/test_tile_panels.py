"""Products of a few rows with weights that are stored as [in, out], in tile registers."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

import hloom as hl
from backends.cpu.kernels.products.matvec.tile_checks import INSTRUCTION, check_batch, check_infinite_scales
from backends.cpu.kernels.products.test_fused_dot import SCALES, Case, _unpacking, check
from hloom.backends.cpu.elements.byte_tables import has_byte_tables
from hloom.backends.cpu.kernels.products.tiles.tile_registers import BF16, has_tile_instruction
from hloom.cli.pipelines import stage_text
from hloom.values import Array

pytestmark = pytest.mark.skipif(
    not has_tile_instruction(BF16, BF16) or not has_byte_tables(),
    reason="there are no tile registers",
)
PLAIN = Case(8, 512, 96, "s8", "bf16")


@pytest.mark.parametrize(
    ("case", "has_tiles"),
    [
        (PLAIN, True),
        (replace(PLAIN, rows=4), False),  # words of bytes are stored as fast as they are multiplied
        (replace(PLAIN, n=62), False),  # less than a panel
        (replace(PLAIN, scales="blocks", n=256), False),  # groups of rows have scales
        (replace(PLAIN, k=640, rows=12, floats="f32", scales="64"), True),
        (replace(PLAIN, k=640, rows=12, floats="f32", scales="groups"), True),
        (replace(PLAIN, k=640, rows=3, floats="f32", scales="groups"), False),
    ],
)
def test_products_of_a_size_have_tiles(case: Case, has_tiles: bool) -> None:
    assert (INSTRUCTION in stage_text(hl.parse(case.text()), "llvm")) == has_tiles
    check(case)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("floats", ["bf16", "f32"])
@pytest.mark.parametrize("sizes", [(257, 64), (291, 330), (641, 130), (385, 1030), (1311, 66)])
def test_ends_of_rows_and_of_k(sizes: tuple[int, int], floats: str) -> None:
    check(Case(11, *sizes, "s8", floats, "columns"))
    for scales in ("none", "columns"):
        _check_halves(Case(4, *sizes, "u8", floats, scales), is_swapped=False)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("weights", ["s8", "u8", "s4", "f8e4m3fn", "f8e5m2", "f4e2m1fn"])
@pytest.mark.parametrize("has_zero_points", [False, True])
def test_weights_of_groups(weights: str, has_zero_points: bool) -> None:
    check(Case(7, 1152, 77, weights, "bf16", "64", has_zero_points))


def _check_halves(case: Case, is_swapped: bool) -> None:
    x, _, *adjustments = case.arguments()
    _check_unpacked(case, _unpacking(case, "stack", is_swapped), is_swapped, [x, *adjustments])


def _check_unpacked(case: Case, text: str, is_swapped: bool, arguments: list[Array]) -> None:
    assert INSTRUCTION in stage_text(hl.parse(text), "llvm")
    x, *adjustments = arguments
    codes = np.random.default_rng(5).integers(0, 256, (case.k, case.n // 2), np.uint8)
    halves = [codes >> 4, codes & 15] if is_swapped else [codes & 15, codes >> 4]
    exact, bound = case.expected(x, np.stack(halves, -1).reshape(case.k, case.n), *adjustments)
    got = np.asarray(hl.compile(hl.parse(text))(x, codes, *adjustments)).astype(np.float64)
    assert (np.abs(got - exact) <= bound).all()


@pytest.mark.sampled(6)
@pytest.mark.parametrize("is_swapped", [False, True])
@pytest.mark.parametrize("floats", ["bf16", "f32"])
@pytest.mark.parametrize(
    ("k", "scales"), [(1280, "none"), (1280, "columns"), (1245, "columns"), (1280, "128"), (1216, "64")]
)
@pytest.mark.parametrize("has_zero_points", [False, True])
def test_halves_of_bytes(
    monkeypatch: pytest.MonkeyPatch, k: int, scales: str, has_zero_points: bool, floats: str, is_swapped: bool
) -> None:
    monkeypatch.setitem(SCALES, "128", (128, 1))
    case = Case(5, k, 134, "u8", floats, scales, has_zero_points and scales != "none")
    _check_halves(case, is_swapped)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("is_swapped", [False, True])
@pytest.mark.parametrize("scales", ["columns", "groups", "64"])
@pytest.mark.parametrize(("rows", "n"), [(4, 128), (9, 326)])
def test_halves_with_zero_points_of_bytes(rows: int, n: int, scales: str, is_swapped: bool) -> None:
    case = Case(rows, 1216, n, "u8", "f32", scales, has_zero_points=True)
    text = _unpacking(case, "stack", is_swapped)
    stored = re.sub(r"z = f32(.*) parameter\(2\)", r"zb = u8\1 parameter(2)\nz = f32\1 convert(zb)", text)
    assert stored != text
    x, _, zero_points, factors = case.arguments()
    _check_unpacked(case, stored, is_swapped, [x, zero_points.astype(np.uint8), factors])


def _smallest_loop(case: Case, instruction: str) -> str:
    """The shortest loop without another one that has an instruction, in a product with codes of 4 bits."""
    text = stage_text(hl.parse(_unpacking(case, "bitcast")), "asm")
    return min(re.findall(rf"(?s)\.LBB\d+_\d+:(?:(?!\.LBB).)*{instruction}.*?\n\tj", text), key=len)


def test_pairs_of_scaled_codes_are_rounded_once() -> None:
    loop = _smallest_loop(Case(8, 512, 128, "s4", "bf16", "groups"), "vcvtne2ps2bf16")
    assert loop.count("vpermps") + loop.count("vpermd") == 8
    assert loop.count("vcvtne2ps2bf16") == 4


def test_scaled_codes_are_looked_up_in_tables_of_their_column() -> None:
    """64 columns by 32 elements of K, whose codes were transposed before."""
    loop = _smallest_loop(Case(8, 512, 256, "s4", "bf16", "columns"), "tdpbf16ps")
    assert loop.count("vpermw") == 64
    assert not re.search("vmulps|vcvtne|vpunpck", loop)


@pytest.mark.parametrize("is_swapped", [False, True])
@pytest.mark.parametrize(("k", "scales"), [(1280, "columns"), (1245, "columns"), (1280, "128"), (1216, "64")])
@pytest.mark.parametrize("has_zero_points", [False, True])
@pytest.mark.parametrize(("rows", "n"), [(2, 256), (5, 390)])
def test_tables_of_rows(
    monkeypatch: pytest.MonkeyPatch, rows: int, n: int, k: int, scales: str, has_zero_points: bool, is_swapped: bool
) -> None:
    monkeypatch.setitem(SCALES, "128", (128, 1))
    _check_halves(Case(rows, k, n, "u8", "bf16", scales, has_zero_points), is_swapped)


@pytest.mark.parametrize("floats", ["bf16", "f32"])
@pytest.mark.parametrize("step", [1, 128])
def test_scales_that_all_columns_share(step: int, floats: str) -> None:
    """Each element of K, or each 128 of them, has a scale."""
    case = Case(5, 512, 256, "u8", floats, "columns")
    of_groups = f"s = {floats}[{512 // step}] parameter(2)\ns.4 = {floats}[{512 // step},{step},256] broadcast(s), dimensions={{0}}"
    text = re.sub(r"(?m)^s = .*\n", "", _unpacking(case, "stack"))
    text = re.sub(r"(?m)^s\.4 = .*", of_groups, text)
    x, _, _ = case.arguments()
    random = np.random.default_rng(5)
    codes = random.integers(0, 256, (512, 128), np.uint8)
    scales = random.integers(1, 100, 512 // step).astype(x.dtype)
    values = np.stack([codes & 15, codes >> 4], -1).reshape(512, 256)
    scaled = (values * np.repeat(scales, step)[:, None].astype(np.float64)).astype(x.dtype)
    exact, bound = replace(case, scales="none").expected(x, scaled)
    got = np.asarray(hl.compile(text)(x, codes, scales)).astype(np.float64)
    assert (np.abs(got - exact) <= bound).all()


def test_scales_that_are_not_finite_are_those_of_their_column() -> None:
    """Codes past the last one of K have no products, whatever the table."""
    case = Case(8, 531, 262, "u8", "bf16", "columns")
    x, _, scales = case.arguments()
    scales[0, [5, 9]], x[x == 0] = [np.inf, np.nan], 1
    codes = np.random.default_rng(5).integers(1, 16, (531, 131), np.uint8) * 17
    got = np.asarray(hl.compile(_unpacking(case, "stack"))(x, codes, scales)).astype(np.float32)
    assert (~np.isfinite(got)).nonzero()[1].tolist() == [5, 9] * case.rows
    x[:] = np.abs(x.astype(np.float32)).astype(x.dtype)
    got = np.asarray(hl.compile(_unpacking(case, "stack"))(x, codes, scales)).astype(np.float32)
    assert np.isposinf(got[:, 5]).all()


def test_constant_codes_are_looked_up_as_words() -> None:
    text = stage_text(hl.parse(_unpacking(Case(8, 512, 128, "s4", "f32", "columns"), "bitcast")), "asm")
    assert "vpermw" in text
    assert "vpermps" not in text.split("exact")[0]


def test_infinite_scales_and_nan_reach_the_columns_that_use_them_alone() -> None:
    check_infinite_scales(Case(8, 531, 77, "s8", "bf16", scales="columns"))


def test_a_batch_of_products() -> None:
    check_batch(8, is_transposed=False)
