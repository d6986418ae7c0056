"""Proofs: every rewrite rule on the cases of its tests, wrong rules, and the meaning of operations on terms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import hloom as hl
from hlo_text import module_text
from hloom.cli import main
from hloom.passes.rewrite import RuleSet
from hloom.prove import Proved, Refuted, Undecided, prove
from hloom.prove.meanings.evaluator import Evaluator
from hloom.prove.meanings.structure import symbol_of
from hloom.prove.terms.concrete import from_codes
from hloom.prove.terms.term import Term, constant
from passes.simplify.test_algebraic_simplifier import BY_NAME, CASES, module

PARAMETERS = """
x = f32[4] parameter(0)
y = f32[4] parameter(1)
i = s32[4] parameter(2)
j = s32[4] parameter(3)
u = u8[4] parameter(4)
p = pred[4] parameter(5)
k = s32[] parameter(6)
h = f16[4] parameter(7)
m = f32[2,3] parameter(8)
v = s8[4] parameter(9)
w = s8[4] parameter(10)
zero = f32[] constant(0)
one = s32[4] constant({1, 1, 1, 1})
fone = f32[4] constant({1, 1, 1, 1})
"""


LOOP = """
goes {
  k = s32[] parameter(0)
  ROOT r = pred[] compare(k, s32[] constant(0)), direction=NE
}
steps {
  k = s32[] parameter(0)
  ROOT r = s32[] subtract(k, s32[] constant(1))
}
sums {
  a = f16[] parameter(0)
  b = f16[] parameter(1)
  ROOT r = f16[] add(a, b)
}
"""


def program(lines: str) -> hl.Module:
    return hl.parse(module_text(PARAMETERS + lines.replace("; ", "\n"), LOOP))


@pytest.mark.parametrize(
    ("rule", "before"), [case[:2] for case in CASES], ids=[f"{k}-{case[0]}" for k, case in enumerate(CASES)]
)
def test_rules_are_proved(rule: str, before: str) -> None:
    given, rewritten = module(before), module(before)
    RuleSet([BY_NAME[rule]]).apply(rewritten)
    assert prove(given, rewritten) == Proved()


def test_what_has_no_meaning_is_said() -> None:
    loop = program("ROOT r = s32[] while(k), condition=goes, body=steps")
    assert prove(loop, loop) == Undecided(
        "a loop of more than 64 iterations, for some arguments\n  at %r = s32[] while"
    )


def test_the_order_of_sums_is_open() -> None:
    """GEN-13: sums may be computed in any order."""
    before = "ROOT r = f32[] reduce(x, zero), dimensions={0}, to_apply=sum"
    rotated = "a = f32[1] slice(x), slice={[0:1]}; b = f32[3] slice(x), slice={[1:4]}; y2 = f32[4] concatenate(b, a), dimensions={0}; "
    after = rotated + "ROOT r = f32[] reduce(y2, zero), dimensions={0}, to_apply=sum"
    assert prove(program(before), program(after)) == Proved(clauses=("GEN-13",))


# The meaning of operations: constants as terms give the interpreter's results

ARITHMETIC = [
    *(f"{t}[64] {op}(a, b)" for t in ("s32", "u8", "s4", "f32", "f16", "bf16", "f64") for op in
      ("add", "subtract", "multiply", "divide", "maximum", "minimum")),
    *(f"{t}[64] {op}(a, b)" for t in ("s32", "u8", "s4") for op in
      ("remainder", "and", "or", "xor", "shift-left", "shift-right-logical", "shift-right-arithmetic")),
    *(f"{t}[64] {op}(a)" for t in ("s32", "s8", "f32", "f16") for op in ("negate", "abs", "sign")),
    *(f"{t}[64] {op}(a)" for t in ("s32", "u8") for op in ("not", "popcnt", "count-leading-zeros")),
    *(f"{t}[64] {op}(a)" for t in ("f32", "bf16") for op in
      ("ceil", "floor", "round-nearest-afz", "round-nearest-even", "sqrt")),
    *(f"pred[64] compare({t} a, b), direction={d}" for t in ("s32", "u8", "f32") for d in ("EQ", "NE", "LT", "GE")),
    *(f"pred[64] compare(f32 a, b), direction={d}, type=TOTALORDER" for d in ("LT", "GE")),
    *(f"{to}[64] convert({t} a)" for t in ("s32", "u8", "f32", "f64", "f16", "pred") for to in
      ("s8", "u32", "f16", "bf16", "f32", "pred")),
    "s32[64] bitcast-convert(f32 a)", "f32[64] bitcast-convert(s32 a)", "f32[64] clamp(a, b, a)",
]  # fmt: skip


def operation(text: str) -> tuple[hl.Module, list[np.ndarray[Any, Any]]]:
    """A module of one operation on random elements, special ones among them."""
    words = text[text.index("(") + 1 : text.index(")")].replace(",", "").split()
    type = words[0] if len(words) > 1 and len(words[0]) > 1 else text.split("[")[0]
    line = text.replace(f"({type} ", "(")
    parsed = hl.parse(module_text(f"a = {type}[64] parameter(0)\nb = {type}[64] parameter(1)\nROOT r = {line}"))
    random = np.random.default_rng(len(text))
    dtype = parsed.entry.parameter_shapes[0].element_type.dtype
    bits = [random.integers(0, 256, 64 * dtype.itemsize).astype(np.uint8).view(dtype) for _ in range(2)]
    if type == "pred":
        return parsed, [random.random(64) < 0.5 for _ in range(2)]
    if type == "s4":
        return parsed, [random.integers(-8, 8, 64).astype(dtype) for _ in range(2)]
    small = random.integers(0, 6, 64).astype(dtype)
    special = np.array([0, 1, -1, 2.5, -2.5, 3.5, np.inf, -np.inf, np.nan, -0.0, 1e9, -1e9, 300, 1e-40] * 5)[:64]
    if type.startswith(("f", "bf")):
        return parsed, [np.where(small % 2, special.astype(dtype), bits[0]), np.where(small < 3, small, bits[1])]
    return parsed, [bits[0], np.where(small < 3, small, bits[1]).astype(dtype)]


def concrete(module: hl.Module, arguments: Sequence[np.ndarray[Any, Any]]) -> list[Term]:
    """The result of a module on constants as terms."""
    shapes = module.entry.parameter_shapes
    symbols = [symbol_of(argument, shape) for shape, argument in zip(shapes, arguments, strict=True)]
    return list(Evaluator().run(module.entry, symbols).reshape(-1))


def check_against_interpreter(module: hl.Module, arguments: Sequence[np.ndarray[Any, Any]]) -> None:
    result = hl.compile(module, "interpreter")(*arguments).reshape(-1)
    type = module.entry.result_shape.element_type
    for index, (term, value) in enumerate(zip(concrete(module, arguments), result, strict=True)):
        if type.is_float and np.isnan(value):
            assert term.known is not None and np.isnan(from_codes(type, [term.known])[0]), index
        else:
            assert term.known == constant(type, value).known, (index, value, [a.reshape(-1)[index] for a in arguments])


@pytest.mark.parametrize("text", ARITHMETIC)
def test_operations_on_terms_are_those_of_the_interpreter(text: str) -> None:
    check_against_interpreter(*operation(text))


MOVES = [
    "ROOT r = f32[2] dynamic-slice(x, k), dynamic_slice_sizes={2}",
    "s = f32[2] slice(y), slice={[1:3]}; ROOT r = f32[4] dynamic-update-slice(x, s, k)",
    "ROOT r = f32[4,2] gather(x, i), offset_dims={1}, collapsed_slice_dims={}, start_index_map={0}, index_vector_dim=1, slice_sizes={2}",
    "ROOT r = f32[4] scatter(x, i, y), update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=largest",
    "ROOT r = f32[5] pad(x, zero), padding=-1_-1_1",
    "ROOT r = f32[2] reduce-window(x, zero), window={size=3 pad=1_1 stride=3}, to_apply=largest",
    "ROOT r = f32[4] sort(x), dimensions={0}, to_apply=less",
    "ROOT r = s32[4] reduce-window(i, s32[] constant(7)), window={size=2 pad=1_0}, to_apply=plus",
]  # fmt: skip
PLUS = "plus {\n  a = s32[] parameter(0)\n  b = s32[] parameter(1)\n  ROOT r = s32[] add(a, b)\n}\n"


@pytest.mark.parametrize("lines", MOVES)
def test_movements_and_reductions_of_terms_are_those_of_the_interpreter(lines: str) -> None:
    module = hl.parse(module_text(PARAMETERS + lines.replace("; ", "\n"), PLUS))
    for seed in range(8):
        random = np.random.default_rng(seed)
        arguments = [
            random.integers(-3, 6, shape.dimensions).astype(shape.element_type.dtype)
            for shape in module.entry.parameter_shapes
        ]
        check_against_interpreter(module, arguments)


def test_opaque_floats_move_as_they_are() -> None:
    module = program("ROOT r = f32[4] reverse(x), dimensions={0}")
    arguments = [np.zeros(s.dimensions, s.element_type.dtype) for s in module.entry.parameter_shapes]
    arguments[0] = np.array([1, np.nan, -0.0, np.inf], np.float32)
    terms = concrete(module, arguments)
    assert [term.known for term in terms] == arguments[0][::-1].view(np.uint32).tolist()


ADD_ZERO = "HloModule m\nENTRY e { x = f32[2] parameter(0)\n ROOT y = f32[2] add(x, f32[2] constant({0, 0})) }"


def test_the_command(tmp_path: Any) -> None:
    paths = [tmp_path / name for name in ("before.hlo", "after.hlo")]
    for path, operands in zip(paths, ("i, j", "j, i"), strict=True):
        path.write_text(program(f"ROOT r = s32[4] subtract({operands})").to_text())
    snapshot = tmp_path / "counterexample.pb"
    refuted = CliRunner().invoke(main, ["prove", *map(str, paths), "--output", str(snapshot)])
    assert refuted.exit_code == 1 and "refuted" in refuted.output and "%i = [" in refuted.output
    assert CliRunner().invoke(main, ["run", str(snapshot)]).exit_code == 0
    assert CliRunner().invoke(main, ["prove", str(paths[0]), str(paths[0])]).exit_code == 0


def test_passes_are_proved_on_a_module(tmp_path: Any) -> None:
    path = tmp_path / "module.hlo"
    path.write_text(program("n = s32[4] not(i); ROOT r = s32[4] add(n, one)").to_text())
    shown = CliRunner().invoke(main, ["opt", str(path), "--prove"])
    assert shown.exit_code == 0 and "proved" in shown.output and "add(" in shown.output


@pytest.mark.long
def test_the_module_that_xla_makes_is_compared(tmp_path: Any) -> None:
    """XLA's simplifier drops the addition of 0, which makes 0 of -0 (ADD-1)."""
    path = tmp_path / "module.hlo"
    path.write_text(ADD_ZERO)
    shown = CliRunner().invoke(main, ["prove", str(path), "--xla"])
    assert shown.exit_code == 1 and "differs at [0]: -0.0, before 0.0" in shown.output, shown.output


def test_mixed_precision_computes_in_the_widest_type() -> None:
    mixed = program("r = f16[4] add(h, x)")
    wide = program("a = f32[4] convert(h); s = f32[4] add(a, x); r = f16[4] convert(s)")
    narrow = program("a = f16[4] convert(x); r = f16[4] add(h, a)")
    assert isinstance(prove(mixed, wide), Proved)
    assert isinstance(prove(mixed, narrow), Refuted)


def test_combiners_of_another_precision_are_undecided() -> None:
    before = program("r = f16[2] reduce(m, zero), dimensions={1}, to_apply=sums")
    verdict = prove(before, before)
    assert isinstance(verdict, Undecided) and "floats other than f32" in verdict.reason, verdict
