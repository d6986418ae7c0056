"""Hand-written text: everything that XLA's parser accepts gives the same graph."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
from compare_graphs import difference
from hloom.bench.peer_process import XlaPeer
from hloom.text import fingerprint

ADD = "add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] add(a, b) }\n"

FORMS = {
    "computations without a module line": "e {\n  p = f32[2] parameter(0)\n  ROOT r = f32[2] negate(p)\n}",
    "an instruction alone": '%r = f32[2]{0} add(f32[2] %x, f32[2] %y), metadata={op_name="a"}',
    "an instruction alone without a name": "f32[2] fusion(f32[2] x, f32[2] x), kind=kLoop, calls={\n"
    "  p = f32[2] parameter(0)\n  q = f32[2] parameter(1)\n  ROOT n = f32[2] add(p, q)\n}",
    "the last computation is the entry": ADD + "f {\n  p = f32[2] parameter(0)\n  z = f32[] constant(0)\n"
    "  ROOT s = f32[] reduce(p, z), dimensions={0}, to_apply=add\n}",
    "result shapes left out": "HloModule m\nENTRY e {\n  p = f32[2,3] parameter(0)\n  t = exponential(p)\n"
    "  d = dot(p, t), lhs_contracting_dims={1}, rhs_contracting_dims={1}\n  ROOT r = tuple(d, t)\n}",
    "operands written in place": "HloModule m\nENTRY e {\n"
    "  ROOT r = f32[2] add(f32[2] negate(f32[2] parameter(0)), f32[2] broadcast(f32[] constant(2)))\n}",
    "operands in place without shapes": "HloModule m\nENTRY e {\n"
    "  ROOT r = f32[2] multiply(add(f32[2] parameter(0), f32[2] parameter(1)), f32[2] constant({1, 2}))\n}",
    "a scalar for an array": "HloModule m\nENTRY e {\n  ROOT c = s32[3] constant(7)\n}",
    "no commas between elements": "HloModule m\nENTRY e {\n  ROOT c = s32[2,2] constant({{1 2} {3 4}})\n}",
    "no space after =": "HloModule m\nENTRY e {\n  p =f32[2]{0}parameter(0)\n  ROOT r =f32[2]{0}negate(p)\n}",
    "a layout after a blank": "HloModule m\nENTRY e {\n  p = f32[2,3] {0,1} parameter(0)\n"
    "  ROOT r = f32[2,3] {0,1} negate(p)\n}",
    "comments anywhere": "// head\nHloModule /* name */ m // after\nENTRY /*a*/ e { // b\n  p = /* type */ f32[/*n*/2] parameter("
    "/*number*/0)\n  ROOT r = f32[2] negate(/*x=*/p) // last\n}\n// end",
    "a broadcast without dimensions": "HloModule m\nENTRY e {\n  p = f32[] parameter(0)\n  ROOT b = f32[4] broadcast(p)\n}",
    "a map without dimensions": "HloModule m\n" + ADD + "ENTRY e {\n  p = f32[4] parameter(0)\n"
    "  ROOT r = f32[4] map(p, p), to_apply=add\n}",
    "a computation written in place": "HloModule m\nENTRY e {\n  p = f32[4] parameter(0)\n  z = f32[] constant(0)\n"
    "  ROOT r = f32[] reduce(p, z), dimensions={0}, to_apply={\n    a = f32[] parameter(0)\n    b = f32[] parameter(1)\n"
    "    ROOT s = f32[] add(a, b)\n  }\n}",
    "tiles on a shape of lower rank": "HloModule m\nENTRY e {\n  p = f32[8]{0:T(8,128)} parameter(0)\n"
    "  ROOT r = f32[8]{0:T(8,128)} negate(p)\n}",
    "unbounded sizes": "HloModule m\nENTRY e {\n  p = f32[?,3] parameter(0)\n  ROOT r = f32[?,3] negate(p)\n}",
    "the root last without a mark": "HloModule m\nENTRY e {\n  p = f32[2] parameter(0)\n  r = f32[2] negate(p)\n}",
    "signatures": "HloModule m\nENTRY e (p: f32[2]) -> f32[2] {\n  p = f32[2] parameter(0)\n  ROOT r = f32[2] negate(p)\n}",
    "an outfeed without its shape": "HloModule m\nENTRY e {\n  p = f32[2] parameter(0)\n  t = token[] after-all()\n"
    "  ROOT r = token[] outfeed(p, t)\n}",
    "devices in more parts than needed": "HloModule m\nENTRY e {\n"
    "  p = f32[8,8] parameter(0), sharding={devices=[2,4]<=[2,1,4]T(1,0,2)}\n"
    "  ROOT r = f32[8,8] negate(p), sharding={devices=[4,2]<=[2,2,2]T(1,2,0)}\n}",
    "an alias of a call that is started": "HloModule m\nENTRY e {\n  p = f32[4] parameter(0)\n"
    '  s = ((f32[4]), f32[4], u32[]) custom-call-start(p), custom_call_target="f", '
    "output_to_operand_aliasing={{}: (0, {})}\n  ROOT d = f32[4] custom-call-done(s)\n}",
    "an all-reduce that is started": "HloModule m\n" + ADD + "f {\n  p = f32[4] parameter(0)\n"
    "  ROOT r = f32[4] all-reduce(p), replica_groups={}, to_apply=add\n}\nENTRY e {\n  p = f32[4] parameter(0)\n"
    "  s = ((f32[4]), f32[4], u32[]) async-start(p), calls=f\n  ROOT d = f32[4] async-done(s), calls=f\n}",
    "commas between attributes of metadata": 'HloModule m\nENTRY e {\n  ROOT p = f32[2] parameter(0), metadata={op_type="a", '
    'op_name="b"}\n}',
}


@pytest.mark.parametrize("form", FORMS)
def test_forms_that_people_write_are_the_graph_that_xla_reads(form: str, peer: XlaPeer) -> None:
    module = hl.parse(FORMS[form])
    assert fingerprint(hl.parse(peer.parse(FORMS[form]))) == fingerprint(module)
    assert difference(module, hl.parse(module.to_text())) is None


def test_an_element_of_a_tuple_by_its_index() -> None:
    entry = "HloModule m\nENTRY e {\n  p = f32[4] parameter(0)\n  n = f32[4] negate(p)\n  t = tuple(p, n)\n"
    short = hl.parse(entry + "  ROOT r = f32[4] exponential(%t#1)\n}")
    long = hl.parse(entry + "  g = f32[4] get-tuple-element(t), index=1\n  ROOT r = f32[4] exponential(g)\n}")
    assert fingerprint(short) == fingerprint(long)


def test_no_space_around_the_equals_sign() -> None:
    module = hl.parse("HloModule m\nENTRY e {\n  p=f32[2]{0}parameter(0)\n  ROOT r=f32[2]{0}negate(p)\n}")
    assert fingerprint(module) == fingerprint(hl.parse(FORMS["no space after ="]))


def test_printed_text_is_canonical() -> None:
    module = hl.parse(FORMS["operands written in place"])
    text = module.to_text()
    assert "broadcast(constant" in text and text.startswith("HloModule m")
    assert hl.parse(text).to_text() == text


ERRORS = {
    "too many elements": ("ROOT c = f32[2,2] constant({1, 2, 3, 4, 5})", "3:30: .*braces do not nest as 2 x 2"),
    "a name in place that is not there": (
        "p = f32[2] parameter(0)\n  ROOT r = f32[2] add(p, negate(q))",
        "4:33: there is no instruction 'q'",
    ),
    "a shape that cannot be inferred": ("ROOT p = infeed()", "3:12: the shape of infeed does not follow"),
    "attributes of an instruction in place": (
        "ROOT r = f32[2] negate(f32[2] broadcast(f32[] parameter(0), dimensions={}))",
        "3:73: expected ',' or '\\)' after the operand",
    ),
}


@pytest.mark.parametrize("case", ERRORS)
def test_errors_keep_their_position(case: str) -> None:
    text, message = ERRORS[case]
    with pytest.raises(hl.ParseError, match=message) as error:
        hl.parse(f"HloModule m\nENTRY e {{\n  {text}\n}}")
    assert error.value.args and "^" in str(error.value)


def test_an_error_in_a_long_line_shows_the_part_around_the_caret() -> None:
    elements = ", ".join(["1"] * 50_000)
    with pytest.raises(hl.ParseError) as error:
        hl.parse(f"HloModule m\nENTRY e {{\n  ROOT c = f32[50000] constant({{{elements}, x}})\n}}")
    shown = str(error.value)
    assert "^" in shown and max(map(len, shown.splitlines())) < 300


def test_the_size_of_a_constant_written_as_a_scalar_is_kept(backend: str) -> None:
    got = hl.compile(hl.parse(FORMS["a scalar for an array"]), backend=backend)()
    np.testing.assert_array_equal(got, [7, 0, 0])  # as XLA fills it


CALLS = """HloModule m
f {
  p = f32[] parameter(0)
  ROOT n = f32[] negate(p)
}
g {
  p = f32[] parameter(0)
  ROOT e = f32[] abs(p)
}
ENTRY e {
  x = f32[] parameter(0)
CALLS
  ROOT r = f32[] subtract(a, b)
}"""


def test_fingerprints_do_not_depend_on_the_order_of_calls() -> None:
    """Computations are named by their position in the canonical order, not by the order of the two calls."""
    calls = [" a = f32[] call(x), to_apply=f", " b = f32[] call(x), to_apply=g"]
    texts = [CALLS.replace("CALLS", "\n".join(order)) for order in (calls, calls[::-1])]
    assert fingerprint(hl.parse(texts[0])) == fingerprint(hl.parse(texts[1]))
    assert fingerprint(hl.parse(texts[0])) != fingerprint(
        hl.parse(texts[0].replace("subtract(a, b)", "subtract(b, a)"))
    )


@pytest.mark.parametrize("operands", ["f32[] a, f32[], b", "a, , b", "f32[], a, b", "a, b, f32[2]"])
def test_a_shape_without_a_name_is_no_operand(operands: str) -> None:
    """XLA's parser ignores such shapes, too; an unknown name is an error."""
    text = f"HloModule m\nENTRY e {{\n a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT r = f32[] add({operands})\n}}"
    assert [operand.name for operand in hl.parse(text).entry.root.operands] == ["a", "b"]


def test_operands_without_names_are_parameters_of_a_single_instruction() -> None:
    module = hl.parse("r = f32[2] add(f32[2], f32[2])")
    assert [p.shape.to_text(False) for p in module.entry.parameters] == ["f32[2]", "f32[2]"]


def test_surplus_reversals_of_a_window_are_ignored() -> None:
    """WIN-1: surplus entries of the list are ignored and missing ones are 0, as in XLA."""
    text = """HloModule m
ENTRY e {{
  x = f32[1,4,4,1] parameter(0)
  k = f32[1,1,1,1] parameter(1)
  ROOT r = f32[1,4,4,1] convolution(x, k), window={{size=1x1 {reversal}}}, dim_labels=b01f_01io->b01f
}}"""
    windows = [hl.parse(text.format(reversal=f"rhs_reversal={r}")).entry.root.op for r in ("1", "1x0", "1x0x1")]
    assert windows[0] == windows[1] == windows[2]
    with pytest.raises(hl.ParseError, match="an entry for each dimension"):
        hl.parse(text.format(reversal="stride=1"))


COPIES = """HloModule m
copied {
  p = f32[2] parameter(0)
  ROOT c = f32[2] copy(p)
}
ENTRY e {
  x = f32[2] parameter(0)
  s = ((f32[2]), f32[2], u32[]) async-start(x), calls=copied
  ROOT d = f32[2] async-done(s)
}"""


def test_an_asynchronous_copy_has_another_context_than_a_copy_start(peer: XlaPeer) -> None:
    """XLA prints the async-start of a copy as a copy-start whose result begins with the tuple of operands."""
    printed = peer.parse(COPIES)
    assert "copy-start" in printed
    assert fingerprint(hl.parse(printed)) == fingerprint(hl.parse(COPIES))
    plain = "HloModule m\nENTRY e {\n x = f32[2] parameter(0)\n s = (f32[2], f32[2], u32[]) copy-start(x)\n"
    module = hl.parse(plain + " ROOT d = f32[2] copy-done(s)\n}")
    assert [i.opcode for i in module.entry.instructions] == ["parameter", "copy-start", "copy-done"]
