"""HLO text in editors: diagnostics, hover, definitions and completion, in complete and incomplete files."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

import hloom as hl  # noqa: F401
from hloom.editor.document import Document

TEXT = """HloModule m

sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}

ENTRY main {
  a = f32[4]{0} parameter(0)
  z = f32[] constant(0)
  %total = f32[] reduce(a, z), dimensions={0}, to_apply=sum
  ROOT r = f32[] negate(%total)
}
"""


def at(text: str, part: str, occurrence: int = 0) -> tuple[int, int]:
    """Line and column of a part of the text."""
    start = -1
    for _ in range(occurrence + 1):
        start = text.index(part, start + 1)
    return text.count("\n", 0, start), start - (text.rfind("\n", 0, start) + 1)


def test_text_that_is_right_has_no_problems() -> None:
    assert Document(TEXT).problems() == []


@pytest.mark.parametrize(
    ("old", "new", "part", "message"),
    [
        ("negate(%total)", "negat(%total)", "negat(", "no opcode 'negat'"),
        ("f32[] negate", "f32[5] negate", "ROOT r", "declared as f32[5]"),
        ("reduce(a, z)", "reduce(a, q)", "q)", "q"),
    ],
)
def test_problems_have_positions(old: str, new: str, part: str, message: str) -> None:
    text = TEXT.replace(old, new)
    (problem,) = Document(text).problems()
    assert message in problem.message
    assert problem.line == at(text, part)[0]


def test_all_problems_are_found_at_once() -> None:
    """Each wrong instruction is one of its declared shape to the others, which use it."""
    text = (
        TEXT.replace("negate(%total)", "negat(%total)")
        .replace("to_apply=sum", "to_apply=sun")
        .replace("add(a, b)", "add(a, c)")
    )
    problems = Document(text).problems()
    assert [(p.line, p.message.split(";")[0]) for p in problems] == [
        (5, "there is no instruction 'c' before this one"),
        (11, "there is no computation 'sun'"),
        (12, "there is no opcode 'negat'"),
    ]


@pytest.mark.parametrize(
    ("old", "new", "fixed"),
    [("negate(%total)", "negat(%total)", "negate(%total)"), ("f32[] negate", "f32[5] negate", "f32[] negate")],
)
def test_errors_suggest_fixes(old: str, new: str, fixed: str) -> None:
    document = Document(TEXT.replace(old, new))
    (problem,) = document.problems()
    (fix, *_) = document.fixes(problem)
    line = document.lines[fix.span.line]
    assert fixed in line[: fix.span.start] + fix.text + line[fix.span.end :]


def test_references_are_those_of_the_computation() -> None:
    document = Document(TEXT)
    for name, line, wanted in (("a", 5, [3, 5]), ("a", 11, [9, 11]), ("total", 12, [11, 12]), ("sum", 11, [2, 11])):
        spans = document.references(name, line)
        assert [span.line for span in spans] == wanted
        assert all(document.lines[span.line][span.start : span.end] == name for span in spans)
    assert document.references("nothing", 1) == []


def test_references_are_not_opcodes_attributes_or_text() -> None:
    text = """HloModule m
ENTRY e {
  dimensions = f32[4] parameter(0)
  add = f32[4] add(dimensions, dimensions), metadata={op_name="dimensions"}
  ROOT r = (f32[4], f32[4]) tuple(add, %dimensions), frontend_attributes={dimensions="(add"}
}
"""
    document = Document(text)
    assert [(s.line, s.start) for s in document.references("dimensions", 3)] == [(2, 2), (3, 19), (3, 31), (4, 40)]
    assert [(s.line, s.start) for s in document.references("add", 4)] == [(3, 2), (4, 34)]


def test_computations_have_ranges_and_formatting_keeps_all_text() -> None:
    assert Document(TEXT).ranges() == [(2, 6), (8, 13)]
    assert Document(TEXT).formatted() == TEXT
    untidy = TEXT.replace("\n\nENTRY", "\n// a comment\nENTRY").replace("  a =", "\t\ta =").replace("b)\n", "b)   \n")
    formatted = Document(untidy).formatted()
    assert formatted == TEXT.replace("\n\nENTRY", "\n// a comment\n\nENTRY")
    assert Document(formatted).formatted() == formatted


def test_stablehlo_has_problems_and_fixes() -> None:
    text = """module @m {
  func.func public @main(%arg0: tensor<4xf32>) -> tensor<4xf32> {
    %0 = stablehlo.negat %arg0 : tensor<4xf32>
    return %0 : tensor<4xf32>
  }
}
"""
    document = Document(text)
    (problem,) = document.problems()
    assert (problem.line, problem.column) == at(text, "stablehlo.negat")
    assert [fix.text for fix in document.fixes(problem)][0] == "stablehlo.negate"
    assert Document(text.replace("negat ", "negate ")).problems() == []


def test_hover_shows_documentation_and_definitions() -> None:
    document = Document(TEXT)
    assert document.hover(*at(TEXT, "reduce(")).startswith("### `reduce(operands.., init_values..)`")
    assert "- `init_values`: scalar for each operand" in document.hover(*at(TEXT, "reduce("))
    assert "f32[] reduce(a, z)" in document.hover(*at(TEXT, "%total)"))
    assert document.hover(0, 0) == ""
    assert document.hover(99, 0) == ""


def test_definitions_are_those_of_the_computation() -> None:
    document = Document(TEXT)
    inner, outer = document.definition_of("a", 5), document.definition_of("a", 11)
    assert inner is not None and outer is not None
    assert (inner.line, outer.line) == (3, 9)
    called = document.definition_of("sum", 11)
    assert called is not None and called.line == 2
    assert document.definition_of("nothing", 1) is None


def test_completion_offers_earlier_names() -> None:
    found = dict(Document(TEXT).completions(11))
    assert {"a", "z", "sum", "reduce", "add"} <= found.keys()
    assert "total" not in found and "s" not in found


def test_half_written_text_still_has_definitions() -> None:
    document = Document("ENTRY main {\n  x = f32[4] parameter(0)\n  y = f32[4] add(x,")
    assert [d.name for d in document.definitions] == ["main", "x", "y"]
    assert document.problems()


def test_the_server_handles_requests(tmp_path: Path) -> None:
    pytest.importorskip("pygls")
    from lsprotocol import types
    from pygls.lsp.client import LanguageClient

    uri = (tmp_path / "m.hlo").as_uri()
    seen: list[Any] = []

    async def talk() -> tuple[Any, ...]:
        client = LanguageClient("test", "1")
        arrived = asyncio.Event()

        @client.feature(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
        def diagnostics(parameters: Any) -> None:
            seen.append(parameters.diagnostics)
            arrived.set()

        await client.start_io(sys.executable, "-m", "hloom", "lsp")
        await client.initialize_async(types.InitializeParams(types.ClientCapabilities()))
        text = TEXT.replace("negate", "negat")
        client.text_document_did_open(types.DidOpenTextDocumentParams(types.TextDocumentItem(uri, "hlo", 1, text)))
        await asyncio.wait_for(arrived.wait(), 60)
        identifier = types.TextDocumentIdentifier(uri)
        position = types.Position(*at(TEXT, "%total)"))
        hover = await client.text_document_hover_async(types.HoverParams(identifier, position))
        location = await client.text_document_definition_async(types.DefinitionParams(identifier, position))
        outline = await client.text_document_document_symbol_async(types.DocumentSymbolParams(identifier))
        whole = types.Range(types.Position(0, 0), types.Position(99, 0))
        context = types.CodeActionContext([])
        actions = await client.text_document_code_action_async(types.CodeActionParams(identifier, whole, context))
        renamed = await client.text_document_rename_async(types.RenameParams(identifier, position, "%whole"))
        regions = await client.text_document_folding_range_async(types.FoldingRangeParams(identifier))
        await client.shutdown_async(None)
        client.exit(None)
        await client.stop()
        return hover, location, outline, actions, renamed, regions

    hover, location, outline, actions, renamed, regions = asyncio.run(talk())
    assert actions[0].title == "replace negat by negate"
    assert [edit.new_text for edit in renamed.changes[uri]] == ["whole", "whole"]
    assert [(each.start_line, each.end_line) for each in regions] == [(2, 6), (8, 13)]
    assert "no opcode" in seen[0][0].message
    assert "reduce(a, z)" in hover.contents.value
    assert location.range.start.line == at(TEXT, "%total =")[0]
    assert [symbol.name for symbol in outline] == ["sum", "main"]
