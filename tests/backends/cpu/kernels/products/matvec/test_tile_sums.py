"""Products of a few rows of bf16 with computed weights, in tile registers."""

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

pytestmark = pytest.mark.skipif(
    not has_tile_instruction(BF16, BF16),
    reason="there are no tile registers",
)
PLAIN = Case(8, 512, 96, "s8", "bf16", transposed=True)


@pytest.mark.parametrize(
    ("case", "has_tiles"),
    [
        (PLAIN, True),
        (replace(PLAIN, rows=1), False),  # words are stored as fast as they are multiplied
        (replace(PLAIN, rows=4, transposed=False), False),  # bytes take longer where rows are adjacent
        (replace(PLAIN, k=31, n=640), False),  # less than a register
    ],
)
def test_rows_of_bf16_are_multiplied_in_tile_registers(case: Case, has_tiles: bool) -> None:
    assert (INSTRUCTION in stage_text(hl.parse(case.text()), "llvm")) == has_tiles
    check(case)


def test_four_registers_are_used() -> None:
    """A busy second thread of the core halves the rate of products that use more."""
    text = stage_text(hl.parse(PLAIN.text()), "llvm")
    assert set(re.findall(r"llvm\.x86\.t\w+\(i8 (\d)", text)) == set("0123")


def test_batch_invariant_products_have_no_tiles() -> None:
    module, arguments = hl.parse(PLAIN.text()), PLAIN.arguments()
    run = hl.compile(module, batch_invariant=True)
    other = replace(PLAIN, rows=1)
    one = hl.compile(hl.parse(other.text()), batch_invariant=True)
    np.testing.assert_array_equal(run(*arguments)[:1], one(arguments[0][:1], *arguments[1:]))


@pytest.mark.sampled(6)
@pytest.mark.parametrize("rows", [4, 5, 16])
@pytest.mark.parametrize("sizes", [(32, 512), (515, 33), (256, 64), (4611, 77), (9024, 40)])
def test_ends_of_rows_and_of_k(sizes: tuple[int, int], rows: int) -> None:
    check(Case(rows, *sizes, "s8", "bf16", "columns", transposed=True))


@pytest.mark.sampled(6)
@pytest.mark.parametrize("weights", ["s8", "u8", "s4", "f8e4m3fn", "f8e5m2", "f4e2m1fn"])
@pytest.mark.parametrize("has_zero_points", [False, True])
def test_weights_of_groups(weights: str, has_zero_points: bool) -> None:
    check(Case(7, 1184, 77, weights, "bf16", "groups", has_zero_points, transposed=True))


@pytest.mark.sampled(6)
@pytest.mark.parametrize("is_swapped", [False, True])
@pytest.mark.parametrize("has_zero_points", [False, True])
@pytest.mark.parametrize(
    ("k", "scales"),
    [
        (1280, "none"),
        (1280, "columns"),
        (320, "columns"),
        (1248, "columns"),
        (1280, "128"),
        (1216, "64"),
        (288, "groups"),
    ],
)
def test_halves_of_bytes(
    monkeypatch: pytest.MonkeyPatch, k: int, scales: str, has_zero_points: bool, is_swapped: bool
) -> None:
    """16, 32 or 64 bytes of a row are looked up together, in a table of constants, of the row or of a group."""
    monkeypatch.setitem(SCALES, "128", (128, 1))
    case = Case(5, k, 70, "u8", "bf16", scales, has_zero_points and scales != "none", transposed=True)
    text = _unpacking(case, "stack", is_swapped)
    assert INSTRUCTION in stage_text(hl.parse(text), "llvm")
    x, _, *adjustments = case.arguments()
    codes = np.random.default_rng(5).integers(0, 256, (70, k // 2), np.uint8)
    halves = [codes >> 4, codes & 15] if is_swapped else [codes & 15, codes >> 4]
    exact, bound = case.expected(x, np.stack(halves, -1).reshape(70, k), *adjustments)
    got = np.asarray(hl.compile(hl.parse(text))(x, codes, *adjustments)).astype(np.float64)
    assert (np.abs(got - exact) <= bound).all()


@pytest.mark.skipif(not has_byte_tables(), reason="codes are decoded by arithmetic")
@pytest.mark.parametrize("scales", ["columns", "64"])
def test_scaled_codes_are_looked_up_as_words(scales: str) -> None:
    case = Case(8, 512, 64, "s4", "bf16", scales, transposed=True)
    text = stage_text(hl.parse(_unpacking(case, "bitcast")), "asm")
    assert "vpermw" in text
    assert "vpermps" not in text


def test_infinite_scales_and_nan_reach_the_columns_that_use_them_alone() -> None:
    check_infinite_scales(Case(4, 531, 77, "s8", "bf16", scales="columns", transposed=True))


def test_a_batch_of_products() -> None:
    check_batch(5, is_transposed=True)
