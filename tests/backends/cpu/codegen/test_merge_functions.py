"""Merging of functions that differ in constants only."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

import hloom as hl
from hloom.backends.cpu.codegen.merge_functions import MIN_LENGTH, merge_functions
from hloom.backends.cpu.codegen.modules import Merging, Unit
from hloom.cli.pipelines import stage_text
from hloom.lir import (
    F32,
    I32,
    I64,
    PTR,
    CallAttribute,
    Function,
    FunctionBuilder,
    Parameter,
    Value,
    constant,
    poison,
    type_of,
)

RULE = Merging(max_constants=3, divisors=True)
Write = Callable[[FunctionBuilder, int], object]


def function(name: str, write: Write, size: int) -> Function:
    """Returns `@name(p, n)` with the instructions that `write` appends for a constant, made long enough."""
    b = FunctionBuilder(Function(name, [Parameter("p", PTR, is_read_only=True), Parameter("n", I64)]))
    write(b, size)
    for k in range(MIN_LENGTH):
        b.binary("add", n(b), constant(I64, k))
    return b.finish()


def unit(name: str, write: Write, size: int = 0, merging: Merging | None = RULE) -> Unit:
    return Unit([function(name, write, size)], merging)


def p(b: FunctionBuilder) -> Value:
    return b.function.parameters[0]


def n(b: FunctionBuilder) -> Value:
    return b.function.parameters[1]


def defined(units: list[Unit]) -> list[str]:
    return [each.name for unit in units for each in unit.functions]


def text(unit: Unit) -> str:
    """The text of a unit's only function, with the constants that it needs."""
    (function,) = unit.functions
    return "\n".join([*(need.text() for need in function.needs.values()), function.text()])


def multiply(b: FunctionBuilder, size: int) -> None:
    b.binary("mul", n(b), constant(I64, size), "nuw nsw")


def test_constants_that_differ_come_from_a_table() -> None:
    a, b, merged = merge_functions([unit("a", multiply, 5), unit("b", multiply, 7)])
    assert "@a.constants = internal constant [1 x i64] [i64 5]" in text(a)
    assert "@b.constants = internal constant [1 x i64] [i64 7]" in text(b)
    for each in (a, b):
        assert "call void @a.merged(ptr %p, i64 %n, ptr @" in text(each)
        assert "declare void @a.merged(ptr, i64, ptr)" in text(each)
    assert "  %v1 = mul nuw nsw i64 %n, %constant0\n" in text(merged)
    assert "define void @a.merged(ptr readonly %p, i64 %n, ptr %constants) nounwind {" in text(merged)


def test_what_is_equal_everywhere_is_one_constant() -> None:
    def write(b: FunctionBuilder, size: int) -> None:
        a = b.binary("mul", n(b), constant(I64, size))
        a = b.binary("add", a, constant(I64, size))
        b.binary("add", constant(I64, {5: 5, 7: 8}[size]), a)

    *_, merged = merge_functions([unit("a", write, 5), unit("b", write, 7)])
    assert text(merged).count("= load ") == 2
    assert "%v2 = add i64 %v1, %constant0" in text(merged)
    assert "%v3 = add i64 %constant1, %v2" in text(merged)


def test_names_are_constants() -> None:
    def write(b: FunctionBuilder, size: int) -> None:
        b.call_void(f"{b.function.name}.inner", p(b), constant(I64, size))

    a, _, merged = merge_functions([unit("a", write, 5), unit("b", write, 7)])
    assert "<{ ptr, i64 }> <{ ptr @a.inner, i64 5 }>" in text(a)
    assert "call void %constant0(ptr %p, i64 %constant1)" in text(merged)
    assert "@a.inner" not in text(merged)


PAIR, EIGHT = type_of("float", 2), type_of("float", 8)


@pytest.mark.parametrize(
    "write",
    [
        lambda b, size: b.slot(F32, size + 1),
        lambda b, size: b.extract(poison(EIGHT), size),
        lambda b, size: b.binary("add", b.convert("trunc", n(b), "i32"), constant(I32, size)),
        lambda b, size: b.shuffle(b.load(p(b), PAIR, 8), None, [size, 0]),
        lambda b, size: b.store(constant(F32, size), p(b), 4),
    ],
)
def test_some_constants_stay(write: Write) -> None:
    given = [unit("a", write, 1), unit("b", write, 0)]
    assert defined(merge_functions(given)) == ["a", "b"]
    same = [unit("a", write, 1), unit("b", write, 0), unit("c", write, 1)]
    assert defined(merge_functions(same)) == ["a", "b", "c", "a.merged"]


def test_bounds_of_loops_vary() -> None:
    def write(b: FunctionBuilder, size: int) -> None:
        with b.loop(10 * size, size) as loop:
            b.store(b.index(loop.index), p(b), 8)

    *_, merged = merge_functions([unit("a", write, 5), unit("b", write, 7)])
    assert "add nuw nsw i64 %v3, %constant0" in text(merged)
    assert "icmp ult i64 %v4, %constant1" in text(merged)


def test_divisors_stay_where_they_cost() -> None:
    def write(b: FunctionBuilder, size: int) -> None:
        b.binary("udiv", n(b), constant(I64, size))

    keeping = Merging(max_constants=3, divisors=False)
    for rule, count in ((RULE, 3), (keeping, 2)):
        given = [unit(name, write, size, rule) for name, size in (("a", 5), ("b", 7))]
        assert len(merge_functions(given)) == count


def test_not_too_many() -> None:
    def write(b: FunctionBuilder, size: int) -> None:
        for k in range(4):
            b.binary("add", n(b), constant(I64, 10 * k + size))

    assert defined(merge_functions([unit("a", write, 1), unit("b", write, 3)])) == ["a", "b"]


def test_kept_names_and_units_without_a_rule_stay() -> None:
    excluded_suffixes = Merging(max_constants=3, divisors=True, excluded_suffixes=("tile",))
    given = [unit("a.tile", multiply, 5, excluded_suffixes), unit("b.tile", multiply, 7, excluded_suffixes)]
    assert len(merge_functions(given)) == 2
    assert len(merge_functions([unit("a", multiply, 5, None), unit("b", multiply, 7, None)])) == 2


LAYERS = """HloModule layers

ENTRY e {
  x = f32[1,28,28,128] parameter(0)
  k = f32[3,3,128,128] parameter(1)
  y = f32[1,20,20,256] parameter(2)
  l = f32[3,3,256,256] parameter(3)
  a = f32[1,28,28,128] convolution(x, k), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f, operand_precision={highest,highest}
  b = f32[1,20,20,256] convolution(y, l), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f, operand_precision={highest,highest}
  ROOT t = (f32[1,28,28,128], f32[1,20,20,256]) tuple(a, b)
}
"""


def test_layers_of_two_sizes_share_their_functions() -> None:
    text = stage_text(hl.parse(LAYERS), "llvm")
    names = re.findall(r"^define .*@(convolution[\w.]*)\(", text, re.M)
    assert "convolution0.merged" in names
    widths = {tile for name in names for tile in re.findall(r"^convolution\.rows\.\d+x(\d+)\.", name)}
    for kind, count in {"store": 1, "copy": 1, "pack": len(widths)}.items():
        assert len([name for name in names if name.startswith(f"convolution.{kind}.")]) == count
    rng = np.random.default_rng(0)
    module = hl.parse(LAYERS)
    arguments = [rng.standard_normal(shape.dimensions, np.float32) for shape in module.entry.parameter_shapes]
    expected = hl.compile(module, "interpreter")(*arguments)
    for got, want in zip(hl.compile(module)(*arguments), expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-3)


def test_members_and_the_tasks_that_run_them_are_call_only() -> None:
    def with_task(name: str, size: int, merging: Merging | None) -> Unit:
        task = FunctionBuilder(Function(f"{name}.task", [Parameter("p", PTR), Parameter("n", I64)]))
        task.call_void(name, p(task), n(task), attribute=CallAttribute.ALWAYS_INLINE)
        return Unit([function(name, multiply, size), task.finish()], merging)

    *members, alone, merged = merge_functions(
        [with_task("a", 5, RULE), with_task("b", 7, RULE), with_task("c", 9, None)]
    )
    assert all(each.is_call_only for member in members for each in member.functions)
    assert not any(each.is_call_only for each in [*alone.functions, *merged.functions])


def test_the_program_inlines_members() -> None:
    rows = "\n".join(
        f"  s{k} = s32[1] slice(i), slice={{[{k}:{k + 1}]}}\n"
        f"  i{k} = s32[] reshape(s{k})\n"
        f"  r{k} = f32[9,40] dynamic-slice(x, i{k}, zero), dynamic_slice_sizes={{9,40}}\n"
        f"  e{k} = f32[9,40] tanh(r{k})"
        for k in range(4)
    )
    text = f"""
HloModule m
ENTRY e {{
  x = f32[100,40] parameter(0)
  i = s32[4] parameter(1)
  zero = s32[] constant(0)
{rows}
  ROOT c = f32[36,40] concatenate(e0, e1, e2, e3), dimensions={{0}}
}}
"""
    members = re.findall(
        r"^define (.*)@nest\d+\(.*\) (.*) {\n\w+:\n  call void @nest\d+\.merged",
        stage_text(hl.parse(text), "llvm"),
        re.M,
    )
    assert len(members) >= 3
    assert all(linkage.startswith("internal") and "alwaysinline" in attributes for linkage, attributes in members)
    x, i = np.random.default_rng(0).standard_normal((100, 40), np.float32), np.int32([3, 0, 91, 50])
    want = np.tanh(np.concatenate([x[k : k + 9] for k in i]))
    np.testing.assert_allclose(hl.compile(text)(x, i), want, rtol=1e-5, atol=1e-6)


def test_few_copies_of_functions_that_differ_in_constants_are_inlined_outside_of_loops() -> None:
    n = 16
    rows = "\n".join(
        f"""  p{k} = s32[] constant({k})
  s{k} = f32[1] slice(x), slice={{[{k}:{k + 1}]}}
  a{k} = f32[] reshape(s{k})
  c{k} = f32[1,1] reshape(f32[] cosine(a{k}))
  e{k} = f32[1,1] reshape(f32[] sine(a{k}))
  l{k} = f32[{n},{n}] dynamic-update-slice(m{k}, c{k}, p{k}, zero)
  o{k} = f32[{n},{n}] dynamic-update-slice(l{k}, e{k}, zero, p{k})
  m{k + 1} = f32[{n},{n}] dynamic-update-slice(o{k}, e{k}, p{k}, one)"""
        for k in range(n)
    )
    text = f"""
HloModule m
ENTRY e {{
  x = f32[{n}] parameter(0)
  m0 = f32[{n},{n}] parameter(1)
  zero = s32[] constant(0)
  one = s32[] constant(1)
{rows}
  ROOT r = f32[{n},{n}] copy(m{n})
}}
"""
    printed = stage_text(hl.parse(text), "llvm")
    merged = len(re.findall(r"call void @nest\d+\.merged", printed))
    copies = printed.count("call void @reduce_large") // 2  # by a large argument of the sine and of the cosine
    assert merged >= n // 2
    assert copies == n - merged + 1
    x, want = np.linspace(-3, 3, n, dtype=np.float32), np.ones((n, n), np.float32)
    for k in range(n):
        want[k, 0], want[0, k], want[k, 1] = np.cos(x[k]), np.sin(x[k]), np.sin(x[k])
    np.testing.assert_allclose(hl.compile(text)(x, np.ones((n, n), np.float32)), want, rtol=1e-5, atol=1e-6)


def test_what_only_one_unit_knows_comes_from_the_table_too() -> None:
    """Two functions of one kernel call a third one, whose name the merged function's module lacks."""

    def write(b: FunctionBuilder, size: int) -> None:
        multiply(b, size)
        b.call_void("inner", p(b))

    inner = FunctionBuilder(Function("inner", [Parameter("p", PTR)])).finish()
    both = Unit([function("a", write, 5), function("b", write, 7), inner], RULE)
    _, merged = merge_functions([both])
    assert "@inner" not in text(merged)
    tables = [both.functions[k].needs[f"{name}.constants"].text() for k, name in enumerate("ab")]
    assert ["<{ i64 5, ptr @inner }>" in tables[0], "<{ i64 7, ptr @inner }>" in tables[1]] == [True, True]


@pytest.mark.parametrize("size", [32, 64])
def test_transforms_of_equal_dimensions(size: int) -> None:
    shape = f"c64[{size},{size},{size}]"
    operation = f"fft(x), fft_type=FFT, fft_length={{{size},{size},{size}}}"
    text = f"HloModule m\nENTRY e {{ x = {shape} parameter(0)\n ROOT y = {shape} {operation} }}"
    rng = np.random.default_rng(0)
    x = (rng.standard_normal((size,) * 3) + 1j * rng.standard_normal((size,) * 3)).astype(np.complex64)
    np.testing.assert_allclose(hl.compile(hl.parse(text))(x), np.fft.fftn(x), atol=1e-6 * size**1.5 * 10)
