"""Merging of functions that differ in constants only."""

from __future__ import annotations

import re

import numpy as np
import pytest

import hloom as hl
from hloom.backends.cpu.codegen.merge_functions import MIN_LINES, merge_functions
from hloom.backends.cpu.codegen.modules import Merging, Unit
from hloom.cli.pipelines import stage_text

RULE = Merging(max_constants=3, divisors=True)


def unit(name: str, *lines: str, merging: Merging | None = RULE, **constants: int) -> Unit:
    """`name(p, n)` that runs the lines, made long enough."""
    text = "\n".join(line.format(name=name, **constants) for line in lines)
    filling = "\n".join(f"  %f{k} = add i64 %n, {k}" for k in range(MIN_LINES))
    whole = (
        f"define internal void @{name}(ptr readonly %p, i64 %n) nounwind {{\nentry:\n{text}\n{filling}\n  ret void\n}}"
    )
    return Unit(whole, {}, [], merging)


def defined(units: list[Unit]) -> list[str]:
    return [name for each in units for name in re.findall(r"define [^@]*@([\w.]+)", each.text)]


def test_constants_that_differ_come_from_a_table() -> None:
    line = "  %a = mul nuw nsw i64 %n, {size}"
    a, b, merged = merge_functions([unit("a", line, size=5), unit("b", line, size=7)])
    assert "@a.constants = internal constant <{ i64 }> <{ i64 5 }>" in a.text
    assert "@b.constants = internal constant <{ i64 }> <{ i64 7 }>" in b.text
    for each in (a, b):
        assert "call void @a.merged(ptr %p, i64 %n, ptr @" in each.text
        assert each.declarations == {"declare void @a.merged(ptr, i64, ptr)": None}
    assert merged.entries == ["declare void @a.merged(ptr, i64, ptr)"]
    assert "  %a = mul nuw nsw i64 %n, %constant0\n" in merged.text
    assert "define void @a.merged(ptr readonly %p, i64 %n, ptr %constants) nounwind {" in merged.text


def test_what_is_equal_everywhere_is_one_constant() -> None:
    lines = ("  %a = mul i64 %n, {size}", "  %b = add i64 %a, {size}", "  %c = add i64 {other}, %b")
    *_, merged = merge_functions([unit("a", *lines, size=5, other=5), unit("b", *lines, size=7, other=8)])
    assert merged.text.count("= load ") == 2
    assert "%b = add i64 %a, %constant0" in merged.text
    assert "%c = add i64 %constant1, %b" in merged.text


def test_names_are_constants() -> None:
    lines = ("  call void @{name}.inner(ptr %p, i64 {size})",)
    a, _, merged = merge_functions([unit("a", *lines, size=5), unit("b", *lines, size=7)])
    assert "<{ ptr, i64 }> <{ ptr @a.inner, i64 5 }>" in a.text
    assert "call void %constant0(ptr %p, i64 %constant1)" in merged.text


@pytest.mark.parametrize(
    "line",
    [
        "  %a = alloca float, i64 {size}, align 64",
        "  %a = extractelement <8 x float> %v, i64 {size}",
        "  %a = add i32 %n, {size}",
        "  %a = shufflevector <2 x float> %v, <2 x float> %v, <2 x i32> <i32 {size}, i32 0>",
        "  store float 0x40{size}0000000, ptr %p, align 4",
    ],
)
def test_some_constants_stay(line: str) -> None:
    given = [unit("a", line, size=1), unit("b", line, size=0)]
    assert defined(merge_functions(given)) == ["a", "b"]
    same = [unit("a", line, size=1), unit("b", line, size=0), unit("c", line, size=1)]
    assert defined(merge_functions(same)) == ["a", "b", "c", "a.merged"]


def test_divisors_stay_where_they_cost() -> None:
    line = "  %a = udiv i64 %n, {size}"
    keeping = Merging(max_constants=3, divisors=False)
    for rule, count in ((RULE, 3), (keeping, 2)):
        given = [unit(name, line, merging=rule, size=size) for name, size in (("a", 5), ("b", 7))]
        assert len(merge_functions(given)) == count


def test_not_too_many() -> None:
    lines = [f"  %a{k} = add i64 %n, {{size{k}}}" for k in range(4)]
    given = [unit(name, *lines, **{f"size{k}": 10 * k + add for k in range(4)}) for name, add in (("a", 1), ("b", 3))]
    assert defined(merge_functions(given)) == ["a", "b"]


def test_kept_names_and_units_without_a_rule_stay() -> None:
    line = "  %a = mul i64 %n, {size}"
    excluded_suffixes = Merging(max_constants=3, divisors=True, excluded_suffixes=("tile",))
    given = [
        unit("a.tile", line, merging=excluded_suffixes, size=5),
        unit("b.tile", line, merging=excluded_suffixes, size=7),
    ]
    assert len(merge_functions(given)) == 2
    given = [unit("a", line, merging=None, size=5), unit("b", line, merging=None, size=7)]
    assert len(merge_functions(given)) == 2


LAYERS = """HloModule layers

ENTRY e {
  x = f32[1,28,28,128] parameter(0)
  k = f32[3,3,128,128] parameter(1)
  y = f32[1,14,14,256] parameter(2)
  l = f32[3,3,256,256] parameter(3)
  a = f32[1,28,28,128] convolution(x, k), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f, operand_precision={highest,highest}
  b = f32[1,14,14,256] convolution(y, l), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f, operand_precision={highest,highest}
  ROOT t = (f32[1,28,28,128], f32[1,14,14,256]) tuple(a, b)
}
"""


def test_layers_of_two_sizes_share_their_functions() -> None:
    text = stage_text(hl.parse(LAYERS), "llvm")
    assert len(re.findall(r"^define .*@convolution0[\w.]*\.merged", text, re.M)) >= 3
    rng = np.random.default_rng(0)
    module = hl.parse(LAYERS)
    arguments = [rng.standard_normal(shape.dimensions, np.float32) for shape in module.entry.parameter_shapes]
    expected = hl.compile(module, "interpreter")(*arguments)
    for got, want in zip(hl.compile(module)(*arguments), expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-3)


def test_what_only_one_unit_knows_comes_from_the_table_too() -> None:
    """Two functions of one kernel call a third one, whose name the merged function's module lacks."""
    line = "  %a = mul nuw nsw i64 %n, {size}\n  call void @inner(ptr %p)"
    one, other = unit("a", line, size=5), unit("b", line, size=7)
    both = Unit(f"{one.text}\n{other.text}\ndefine internal void @inner(ptr %p) {{\n  ret void\n}}", {}, [], RULE)
    _, merged = merge_functions([both])
    assert "@inner" not in merged.text
    assert both.text.count("<{ i64 5, ptr @inner }>") == both.text.count("<{ i64 7, ptr @inner }>") == 1


@pytest.mark.parametrize("size", [32, 64])
def test_transforms_of_equal_dimensions(size: int) -> None:
    shape = f"c64[{size},{size},{size}]"
    operation = f"fft(x), fft_type=FFT, fft_length={{{size},{size},{size}}}"
    text = f"HloModule m\nENTRY e {{ x = {shape} parameter(0)\n ROOT y = {shape} {operation} }}"
    rng = np.random.default_rng(0)
    x = (rng.standard_normal((size,) * 3) + 1j * rng.standard_normal((size,) * 3)).astype(np.complex64)
    np.testing.assert_allclose(hl.compile(hl.parse(text))(x), np.fft.fftn(x), atol=1e-6 * size**1.5 * 10)
