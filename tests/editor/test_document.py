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


def test_hover_shows_documentation_and_definitions() -> None:
    document = Document(TEXT)
    assert document.hover(*at(TEXT, "reduce(")).startswith("### `reduce(operands.., init_values..)`")
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

    async def talk() -> tuple[Any, Any, Any]:
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
        await client.shutdown_async(None)
        client.exit(None)
        await client.stop()
        return hover, location, outline

    hover, location, outline = asyncio.run(talk())
    assert "no opcode" in seen[0][0].message
    assert "reduce(a, z)" in hover.contents.value
    assert location.range.start.line == at(TEXT, "%total =")[0]
    assert [symbol.name for symbol in outline] == ["sum", "main"]
