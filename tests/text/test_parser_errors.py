"""Damaged HLO text: every error says line and column, shows the line with a caret, and says what was expected (GEN-3).

A case is a text with the mark `@` where the error must point; the mark is taken out before the text is parsed.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hloom as hl

GOOD = """HloModule m, replica_count=1

sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}

ENTRY main (x: f32[4,3]) -> f32[4] {
  x = f32[4,3]{1,0} parameter(0), metadata={op_name="x"}
  zero = f32[] constant(0)  // the initial value
  n = f32[4,3] negate(x)
  /* over
     the rows */
  ROOT r = f32[4] reduce(n, zero), dimensions={1}, to_apply=sum
}
"""


def check(marked: str, message: str) -> None:
    """Parses the text without its mark; the ParseError must point at the mark and say the message."""
    position = marked.index("@")
    text = marked.replace("@", "", 1)
    line = text.count("\n", 0, position) + 1
    column = position - (text.rfind("\n", 0, position) + 1) + 1
    with pytest.raises(hl.ParseError) as error:
        hl.parse(text)
    assert message in error.value.message
    assert (error.value.line, error.value.column) == (line, column)
    first, shown, caret, *_ = error.value.message.split("\n")
    assert first.startswith(f"{line}:{column}: ")
    at = caret.index("^") - 2
    assert caret.strip() == "^"
    assert text.split("\n")[line - 1].replace("\t", " ")[column - 1 : column + 20].startswith(shown[2:][at : at + 20])


def test_the_text_that_is_damaged_below_is_valid() -> None:
    module = hl.parse(GOOD)
    assert [i.name for i in module.entry.instructions] == ["x", "zero", "n", "r"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        # The header
        ("HloModule m, replica_count=1", "@Module m", "HLO text starts with 'HloModule name' or with a computation, got 'Module'"),
        ("count=1", "count=@x", "expected an integer, got 'x'"),
        ("count=1", "count=1, @replica_count=2", "attribute replica_count is given twice"),
        ("count=1", "count=@99999999999999999999", "does not fit 64 bits"),
        ("count=1", "count=1, is_scheduled=@maybe", "expected true or false"),
        ("count=1", "count=1, input_output_alias={ {0}: (0, {}, @may) }", "expected must-alias or may-alias, got 'may'"),
        ("count=1", "count=1, buffer_donor={ (@a, {}) }", "expected a parameter number, got 'a, {})"),
        ("count=1", "count=1, entry_computation_layout={(f32[4,3])@f32[4]}", "expected '->', got 'f32[4]}'"),
        ("count=1", "count=1, entry_computation_layout={(f32[4,3]{1,0})->@}", "expected a shape, got '}'"),
        ("count=1", "count=1, frontend_attributes={@=1}", "expected name=value"),
        # Computations
        ("sum {", "@= {", "expected a computation, got '= {'"),
        ("sum {", "sum @a = f32[] parameter(0)", "expected '{' at the start of a computation"),
        ("sum {", "sum (a: f32[]) @f32[] {", "expected '->', got 'f32[] {'"),
        ("sum {", "sum (a: f32[]) -> @float {", "expected a shape, got 'float {"),
        ("main (x: f32[4,3]) ->", "main @(x: f32[4,3] ->", "the '(' is not closed"),
        ("-> f32[4] {", "-> @{", "expected a shape"),
        ("ENTRY main (x: f32[4,3]) -> f32[4] {", "@sum {", "computation 'sum' is defined twice"),
        ("sum {", "sum { @}\nignored {", "computation 'sum' has no instructions"),
        ("  ROOT s = f32[] add(a, b)", "  ROOT s = f32[] add(a, b)\n  @ROOT t = f32[] add(b, a)", "a computation has one ROOT"),
        # Instructions
        ("  n = ", "  @9 = ", "expected an instruction 'name = shape opcode(..)' or '}', got '9 = f32[4,3] negate('"),
        ("  n = ", "  @n ", "expected an instruction 'name = shape opcode(..)' or '}', got 'n f32[4,3] negate(x)'"),
        ("  n = ", "  @x = ", "instruction 'x' is defined twice"),
        ("n = f32[4,3] neg", "n = @f33[4,3] neg", "expected a shape, got 'f33[4,3] negate(x)"),
        ("n = f32[4,3] neg", "n = f32[4 @3] neg", "expected ',' between sizes, got"),
        ("n = f32[4,3] neg", "n = f32[4,@] neg", "expected a size, got '] negate(x)'"),
        ("n = f32[4,3] neg", "n = @f32[4,3]{0} neg", "SL-9"),
        ("n = f32[4,3] neg", "n = f32[4,3]{1,0:@Z(1)} neg", "expected a layout field"),
        ("n = f32[4,3] neg", "n = f32[4,3] @(neg", "expected an opcode, got '(negate(x)'"),
        ("n = f32[4,3] neg", "n = (f32[4,3] @neg", "expected ',' between tuple elements, got 'negate(x)'"),
        ("negate(x)", "@negat(x)", "there is no opcode 'negat'; close are negate"),
        ("negate(x)", "@Negate(x)", "expected an opcode, got 'Negate(x)'"),
        ("negate(x)", "@qqqqqq(x)", "there is no opcode 'qqqqqq'"),
        ("negate(x)", "negate @x", "expected '(' before the operands, got 'x'"),
        ("negate(x)", "negate(@y)", "there is no instruction 'y' before this one"),
        ("negate(x)", "negate(@n)", "there is no instruction 'n' before this one"),
        ("negate(x)", "negate(@zer)", "there is no instruction 'zer' before this one; close are zero"),
        ("negate(x)", "negate(x@ zero)", "expected ',' or ')' after the operand 'x', got ' zero)'"),
        ("negate(x)", "negate(x,@)", "expected an operand's name, got ')'"),
        ("negate(x)", "negate(f32[4,3] @=)", "expected an operand's name, got '=)'"),
        ("negate(x)", "negate(f32[4,@y] x)", "expected a size, got 'y] x)'"),
        ("negate(x)", "negate(x)@)", "expected an instruction"),
        # Constants
        ("constant(0)", "constant(@zero)", "constant of f32[]: 'zero' is not a number"),
        ("constant(0)", "constant(@{0})", "constant of f32[]: a scalar is one number, got '{0}'"),
        ("constant(0)", "constant(0@}", "unexpected '}'"),
        ("constant(0)", "constant(@\"0", "the string is not closed"),
        ("constant(0)", "constant @0", "expected '(', got '0'"),
        ("parameter(0), metadata", "parameter(@x), metadata", "expected an integer, got 'x'"),
        ("parameter(0), metadata", "parameter(0 @1), metadata", "expected an integer"),
        # Attributes
        ("dimensions={1}", "dimensions=@1", "expected '{', got '1'"),
        ("dimensions={1}", "dimensions={@one}", "expected an integer, got 'one}'"),
        ("dimensions={1}", "dimensions={1 @2}", "expected ',' between elements, got '2}'"),
        ("dimensions={1}", "dimensions={1,@}", "expected an integer, got '}'"),
        ("dimensions={1}, to_apply", "dimensions={1, @to_apply", "expected an integer, got 'to_apply=sum'"),
        ("dimensions={1}, to_apply=sum\n}", "dimensions=@{1, 2", "the '{' is not closed"),
        ("dimensions={1}", "dimensions={1}, @dimensions={1}", "attribute dimensions is given twice"),
        ("  ROOT r = f32[4] reduce(n, zero), dimensions={1}", "  @ROOT r = f32[4] reduce(n, zero)", "reduce needs the attribute dimensions=.."),
        (", to_apply=sum", ", to_apply=@plus", "there is no computation 'plus'"),
        (", to_apply=sum", ", to_apply=@{}", "expected a computation's name"),
        (", to_apply=sum", ", to_apply=@, x=1", "expected a value, got ', x=1'"),
        (", to_apply=sum", ", to_apply=@7", "expected a computation name, got '7'"),
        ('metadata={op_name="x"}', "metadata=@x", "metadata is written in braces"),
        ('metadata={op_name="x"}', "metadata={@op_name}", "cannot read the metadata: expected name=value"),
        ('metadata={op_name="x"}', 'metadata={op_name=@"x}', "the string is not closed"),
        ('metadata={op_name="x"}', "sharding={@nonsense}", "expected replicated, maximal"),
        ('metadata={op_name="x"}', "frontend_attributes={a=1 @b=2}", "expected ',' between attributes"),
        ('metadata={op_name="x"}', "control-predecessors=@{w}", "there is no instruction 'w' before this one"),
    ],
)  # fmt: skip
def test_damage(old: str, new: str, message: str) -> None:
    assert GOOD.count(old) == 1
    check(GOOD.replace(old, new), message)


def test_the_end_of_the_text() -> None:
    """Text that stops early: the error points behind its last character."""
    check("HloModule@", "expected the module's name, got the end of the text")
    check("HloModule m\n@", "the module has no computations")
    check(
        "HloModule m\nENTRY e {\n  x = f32[] parameter(0)\n@",
        "expected an instruction 'name = shape opcode(..)' or '}'",
    )
    check("HloModule m\nENTRY e {\n  x = f32[]@", "expected an opcode, got the end of the text")
    check("HloModule m\nENTRY e {\n  x = f32[2] add(@", "expected an operand's name, got the end of the text")


def test_a_bracket_that_another_one_closes() -> None:
    check(GOOD.replace("constant(0)", "constant(0")[:-2] + "@}\n", "unexpected '}'")
    check("HloModule m, later=[1,2@}\nENTRY e { ROOT x = f32[] parameter(0) }", "unexpected '}'")


def test_the_caret_of_a_long_line_stands_in_a_window() -> None:
    elements = ", ".join(["1"] * 2000)
    line = f"  ROOT c = f32[2000] constant({{{elements}}}), dimensions={{}}, metadata=@x"
    check(f"HloModule m\nENTRY e {{\n{line}\n}}", "metadata is written in braces")
    with pytest.raises(hl.ParseError) as error:
        hl.parse(f"HloModule m\nENTRY e {{\n{line.replace('@', '')}\n}}")
    assert max(map(len, error.value.message.split("\n"))) <= 150


def test_tabs_count_as_one_column_and_show_as_blanks() -> None:
    text = "HloModule m\nENTRY e {\n\tx = f32[2] parameter(0)\n\tROOT\ty = f32[2]\t@negat(x)\n}"
    check(text, "there is no opcode 'negat'")


def test_lines_may_end_as_on_windows() -> None:
    check(
        "HloModule m\r\nENTRY e {\r\n  x = f32[] parameter(0)\r\n  ROOT y = f32[] sine(@z)\r\n}", "no instruction 'z'"
    )


@pytest.mark.parametrize("value", [None, 7, b"HloModule m", ["HloModule"]])
def test_only_strings_are_text(value: object) -> None:
    with pytest.raises(hl.ParseError, match="HLO text is a str, got"):
        hl.parse(value)  # type: ignore[arg-type]


@pytest.mark.parametrize("opening", ["(", "{", "["])
def test_deep_nesting_is_an_error_and_no_crash(opening: str) -> None:
    text = f"HloModule m\nENTRY e {{ ROOT x = f32[] constant(0), unknown={opening * 100_000} }}"
    with pytest.raises(hl.ParseError, match="nest more than 400 deep"):
        hl.parse(text)


def test_the_deepest_tuples_are_read_again() -> None:
    text = hl.parse(f"HloModule m\nENTRY e {{ ROOT x = {'(' * 200}f32[]{')' * 200} parameter(0) }}").to_text()
    assert hl.parse(text).to_text() == text


@pytest.mark.parametrize(
    ("old", "new", "clause", "line"),
    [
        ("n = f32[4,3] negate(x)", "n = f32[3,4] negate(x)", "GEN-2", 12),
        ("n = f32[4,3] negate(x)", "n = f32[4,3] add(x, zero)", "BINARY-1", 12),
        ("n = f32[4,3] negate(x)", "n = f32[4,3] not(x)", "UNARY-1", 12),
        ("dimensions={1}", "dimensions={2}", "REDUCE-9", 15),
        ("dimensions={1}", "dimensions={1,1}", "REDUCE-9", 15),
        ("reduce(n, zero)", "reduce(n, n)", "REDUCE-9", 15),
    ],
)
def test_rules_that_are_broken_name_the_clause_and_the_line(old: str, new: str, clause: str, line: int) -> None:
    """GEN-2, GEN-3."""
    assert GOOD.count(old) == 1
    with pytest.raises(hl.RuleError) as error:
        hl.parse(GOOD.replace(old, new))
    assert error.value.clause == clause
    assert f"line {line}, column 3" in str(error.value)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("HloModule m", "HloModulem"),
    ],
)
def test_texts_that_xla_refuses(old: str, new: str) -> None:
    with pytest.raises(hl.ParseError):
        hl.parse(GOOD.replace(old, new))


@given(st.integers(0, len(GOOD) - 1), st.integers(0, 8), st.text('{}()[]=,"%x0 \n@*/', max_size=3))
def test_removed_and_inserted_text_gives_a_module_or_a_located_error(position: int, removed: int, splice: str) -> None:
    """GEN-3: no other exception; a ParseError lies inside the text."""
    text = GOOD[:position] + splice + GOOD[position + removed :]
    try:
        hl.parse(text)
    except hl.ParseError as error:
        lines = text.split("\n")
        assert 1 <= error.line <= len(lines) and 1 <= error.column <= len(lines[error.line - 1]) + 1
        assert error.message.rstrip().endswith("^")
    except hl.HloomError as error:
        assert str(error)
