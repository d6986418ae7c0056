"""Parser of HLO text: the whole syntax, and errors with line, column and caret."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
from compare_graphs import difference
from hloom.ops.attributes import IotaReplicaGroups
from hloom.text import PrintOptions, parse_shape, print_instruction, print_module

EVERYTHING = """HloModule everything, is_scheduled=true, input_output_alias={ {0}: (0, {}, must-alias), {1}: (1, {}) },
  entry_computation_layout={(f32[2,3]{1,0}, s32[])->(f32[2,3]{0,1}, s32[])}, frontend_attributes={a="1",b={x={1}}}, later=[1,2]

FileNames
1 "a.py"

%sum.1 (a: f32[], b: f32[]) -> f32[] {  // a comment
  %a = f32[] parameter(0), parameter_replication={true}
  %b = f32[] parameter(1)
  ROOT %r = f32[] add(f32[] %a, f32[] %b) /* another */
}, execution_thread="side"

ENTRY %main (x: f32[2,3], n: s32[]) -> (f32[2,3], s32[]) {
  %x = f32[2,3]{1,0} parameter(0), sharding={devices=[2,1,2]<=[4] last_tile_dim_replicate}
  %n = s32[] parameter(1), sharding={maximal device=0}
  %c = f32[2,3]{1,0} constant({ { 1, nan, -inf }, { -nan, nan(0x1), 2.5e-3 } }), metadata={op_name="jit(f)/c" source_line=7}
  %t = (f32[2]{0}, /*index=1*/s32[]) constant(({1, 2}, 3))
  %i = s64[2,2]{1,0} constant({{-9223372036854775808, 1}, {2, 9223372036854775807}})
  %z = c64[2]{0} constant({(1, -2), (0, nan)})
  %p = pred[3]{0} constant({true, 0, 1})
  %y = f32[2,3]{0,1:T(2,128)S(1)} copy(%x), control-predecessors={%c}, backend_config={"k":[1,{"x":"}"}]}
  %w = f32[2,3]{1,0} reduce-window(%x, %s), window={size=1x3 stride=1x1 pad=0_0x1_1}, to_apply=%sum.1
  ROOT %out = (f32[2,3]{0,1}, s32[]) tuple(%v, %n), frontend_attributes={k="a \\"b\\"",r={{0,1}}}, unknown_thing={3}
}
"""
EVERYTHING = EVERYTHING.replace("  %w = ", "  %s = f32[] constant(0)\n  %v = f32[2,3]{0,1} add(%x, %c)\n  %w = ")


def test_printing_and_parsing_keep_everything() -> None:
    module = hl.parse(EVERYTHING)
    text = module.to_text()
    assert difference(module, hl.parse(text)) is None
    assert hl.parse(text).to_text() == text
    by_name = {i.name: i for i in module.entry.instructions}
    assert module.is_scheduled and module.extra_attributes == {"later": "[1,2]"}
    assert module.frontend_attributes == {"a": "1", "b": "{x={1}}"}
    assert [(a.output_index, a.parameter_number, a.must_alias) for a in module.input_output_alias] == [
        ((0,), 0, True),
        ((1,), 1, False),
    ]
    assert by_name["c"].metadata == {"op_name": "jit(f)/c", "source_line": 7}
    assert by_name["out"].frontend_attributes == {"k": 'a "b"', "r": "{{0,1}}"}
    assert by_name["out"].extra_attributes == {"unknown_thing": "{3}"}
    assert by_name["y"].backend_config == '{"k":[1,{"x":"}"}]}'
    assert by_name["y"].control_predecessors == [by_name["c"]]
    assert module.computations[0].execution_thread == "side"
    bits = by_name["c"].op.literal.value.view(np.uint32)  # type: ignore[attr-defined]
    assert bits.tolist()[0][1] == 0x7FC00000 and bits.tolist()[1][:2] == [0xFFC00000, 0x7F800001]


def test_print_options() -> None:
    module = hl.parse(EVERYTHING)
    short = print_module(module, short=True)
    assert "metadata" not in short and "{1,0}" not in short and "backend_config" not in short
    assert "constant({...})" in print_module(module, elide=3)
    assert "f32[2,3] %x" in print_module(module, operand_shapes=True, percent=True, layouts=False)
    add = module.computations[0].root
    assert print_instruction(add, PrintOptions(percent=True)) == "%r = f32[] add(%a, %b)"


def test_canonical_text_does_not_depend_on_names_and_order() -> None:
    a = "HloModule a\nENTRY e { x = f32[] parameter(0)\n y = f32[] parameter(1)\n p = f32[] negate(x)\n q = f32[] sine(y)\n ROOT r = f32[] add(p, q) }"
    b = "HloModule b\nENTRY f { y = f32[] parameter(1)\n x = f32[] parameter(0)\n s = f32[] sine(y)\n n = f32[] negate(x)\n ROOT r = f32[] add(n, s) }"
    texts = [print_module(hl.parse(text), canonical=True) for text in (a, b)]
    assert texts[0] == texts[1]


def test_padded_layouts_have_no_text_form_and_the_printer_says_so() -> None:
    """SL-24."""
    shape = hl.f32[2].with_layout(hl.Layout((0,), (4,), hl.PaddingValue.ZERO_PAD))
    b = hl.XlaBuilder()
    text = b.build(b.neg(b.parameter(0, shape))).to_text()
    assert "// padded_dimensions and padding_value of layouts have no text form" in text
    assert hl.parse(text).entry.parameters[0].shape == hl.f32[2]


def test_forms_of_attributes() -> None:
    text = """HloModule m, replica_count=8
b0 { ROOT x = f32[] parameter(0) }
b1 { y = f32[] parameter(0)
  ROOT n = f32[] negate(y) }
ENTRY e {
  x = f32[] parameter(0)
  p = pred[] constant(true)
  c = f32[] conditional(p, x, x), true_computation=b0, false_computation=b1
  i = s32[] constant(1)
  d = f32[] conditional(i, x, x), branch_computations={b0, b1}
  a = f32[] add(c, d)
  v = f32[4] broadcast(a), dimensions={}
  k = f32[4,1] reshape(v)
  dt = f32[4,4] dot(k, k), lhs_contracting_dims={1}, rhs_contracting_dims={1}, operand_precision={highest,default}, algorithm=dot_bf16_bf16_f32
  z = f32[] constant(0)
  pd = f32[5,9] pad(dt, z), padding=0_1x1_1_1
  sl = f32[2,4] slice(pd), slice={[0:5:3], [1:5]}
  g = f32[2,8] all-gather(sl), replica_groups=[4,2]<=[2,4]T(1,0), dimensions={1}
  cv = f32[1,1,3,3] convolution(l, r), window={size=2x2 pad=0_0x0_0 rhs_reversal=1x1}, dim_labels=bf01_oi01->bf01
  cs = ((f32[]), f32[], s32[]) negate-start(z)
  cu = ((f32[]), f32[], s32[]) negate-update(cs)
  ROOT cd = f32[] negate-done(cu)
}"""
    text = text.replace(
        "  cv =",
        "  l = f32[1,1,4,4] reshape(dt)\n  o = f32[] constant(1)\n  r = f32[1,1,2,2] broadcast(o), dimensions={}\n  cv =",
    )
    module = hl.parse(text)
    again = hl.parse(module.to_text())
    assert difference(module, again) is None
    by_name = {i.name: i for i in module.entry.instructions}
    assert isinstance(by_name["g"].op.replica_groups, IotaReplicaGroups)  # type: ignore[attr-defined]
    assert by_name["g"].op.replica_groups.groups == ((0, 4), (1, 5), (2, 6), (3, 7))  # type: ignore[attr-defined]
    assert by_name["cs"].opcode == "async-start" and by_name["cd"].opcode == "async-done"
    assert "true_computation=b0, false_computation=b1" in module.to_text()


LINES = "HloModule m\nENTRY e {\n  x = f32[2] parameter(0)\n  %s\n}\n"


@pytest.mark.parametrize(
    ("line", "column", "message"),
    [
        ("ROOT y = f32[2] negat(x)", 19, "there is no opcode 'negat'; close are negate"),
        ("ROOT y = f32[2] negate(z)", 26, "there is no instruction 'z' before this one"),
        ("ROOT y = f32[2] negate(x", 27, "expected ',' or ')' after the operand 'x'"),
        ("ROOT y = f32[2] negate(x,)", 28, "expected an operand's name"),
        ("ROOT y = f33[2] negate(x)", 12, "expected a shape"),
        ("ROOT y = f32[2]{1} negate(x)", 12, "minor_to_major must be a permutation"),
        ("ROOT y f32[2] negate(x)", 3, "expected an instruction"),
        ("x = f32[2] negate(x)", 3, "instruction 'x' is defined twice"),
        ("ROOT y = f32[2] constant({1, 2, 3})", 28, "the braces do not nest as 2 numbers do"),
        ("ROOT y = f32[2] constant({1, b})", 28, "'b' is not a number"),
        ("ROOT y = s8[2] constant({1, 200})", 27, "200 does not fit s8, which holds -128 .. 127"),
        ("ROOT y = pred[] constant(2.5)", 28, "'2.5' is neither true nor false"),
        ("ROOT y = f32[] constant(nan(0x800000))", 27, "the payload must be in"),
        ("ROOT y = f32[2] reverse(x)", 3, "reverse needs the attribute dimensions"),
        ("ROOT y = f32[2] reverse(x), dimensions={a}", 43, "expected an integer"),
        ("ROOT y = f32[2] reverse(x), dimensions={0}, dimensions={0}", 47, "attribute dimensions is given twice"),
        ("ROOT y = f32[2] call(x), to_apply=g", 37, "there is no computation 'g'"),
        ('ROOT y = f32[2] negate(x), metadata={op_name="a}', 48, "the string is not closed"),
        ("ROOT y = f32[2] negate(x), metadata={op_name=}", 40, "cannot read the metadata"),
        ("ROOT y = f32[2] negate(x), sharding={wrong}", 40, "expected replicated, maximal"),
        ("ROOT y = f32[2] negate(x), sharding={devices=[2]<=[2]T(3)}", 53, "T must permute"),
        ("ROOT y = f32[2] compare(x, x), direction=XX", 44, "expected one of EQ"),
        ("ROOT y = f32[] dot(x, x), operand_precision={low}", 51, "expected default, high or highest"),
        ("ROOT y = f32[2] reduce-window(x, x), window={size=1 stride=x}", 55, "cannot read the window's stride=x"),
        ("ROOT y = f32[2] parameter(99999999999999999999)", 29, "does not fit 64 bits"),
        ("ROOT y = f32[2] negate(x), control-predecessors={q}", 51, "there is no instruction 'q'"),
    ],
)
def test_parse_errors_point_at_line_and_column(line: str, column: int, message: str) -> None:
    with pytest.raises(hl.ParseError) as error:
        hl.parse(LINES % line)
    assert message in str(error.value)
    assert error.value.line == 4
    assert error.value.column == column
    caret = str(error.value).split("\n")[2]
    assert caret.index("^") == 2 + column - 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "HLO text starts with 'HloModule name'"),
        ("HloModule", "expected the module's name"),
        ("HloModule m", "the module has no computations"),
        ("HloModule m\nENTRY e { }", "has no instructions"),
        ("HloModule m, replica_count=x\nENTRY e { ROOT x = f32[] parameter(0) }", "1:28: expected an integer"),
        ("HloModule m\nENTRY e { ROOT x = f32[] parameter(0) }\nENTRY f { ROOT x = f32[] parameter(0) }", "one ENTRY"),
        ("HloModule m\ne { ROOT x = f32[] parameter(0) }\ne { ROOT x = f32[] parameter(0) }", "is defined twice"),
        ("HloModule m\nENTRY e { ROOT x = f32[] parameter(0)", "expected an instruction"),
        ("HloModule m\nENTRY e { ROOT x = " + "(" * 5000, "nest more than 200 deep"),
        ("HloModule m\nENTRY e { ROOT x = f32[] parameter(1) }", "GEN-12"),
        ("HloModule m\nENTRY e { ROOT x = f32[] call(), to_apply=e }", "calls itself"),
        ("HloModule m, input_output_alias={ {0}: (5, {}) }\nENTRY e { ROOT x = f32[] parameter(0) }", "alias or donor"),
    ],
)
def test_errors_of_whole_modules(text: str, message: str) -> None:
    with pytest.raises(hl.HloomError) as error:
        hl.parse(text)
    assert message in str(error.value)


def test_rule_errors_of_text_name_the_line() -> None:
    with pytest.raises(hl.RuleError) as error:
        hl.parse(LINES % "ROOT y = f32[3] negate(x)")
    assert "line 4, column 3" in str(error.value) and "GEN-2" in str(error.value)


@pytest.mark.parametrize(
    "text",
    ["f32[2,3]{1,0}", "f32[]", "(f32[2]{0}, (s32[], token[]), ())", "f32[<=10,3]{0,1}", "bf16[8,8]{1,0:T(2,4)(2,1,1,1)}",
     "s4[8]{0:E(4)}", "f32[4,4]{1,0:T(*,2)L(2)S(3)SC(0:2,3)M(5)}", "u8[4]{0:#(u32)*(u16)}", "pred[0,3]{1,0}"],
)  # fmt: skip
def test_shape_text_and_back(text: str) -> None:
    """SL-24."""
    assert parse_shape(text).to_text() == text
