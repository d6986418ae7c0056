"""The language server: diagnostics with fixes, hover, definitions, references, renaming, formatting, completion."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lsprotocol import types
from pygls.lsp.server import LanguageServer

import hloom.ops  # noqa: F401
from hloom.editor.document import WORD, Definition, Document, Fix, Span

Documents = Callable[[str], Document]
"""The document with a URI."""


def make_server() -> LanguageServer:
    """Makes a language server for HLO text."""
    server = LanguageServer("hloom", "1")

    def document(uri: str) -> Document:
        return Document(server.workspace.get_text_document(uri).source)

    for add in (_add_diagnostics, _add_queries, _add_outlines, _add_edits):
        add(server, document)
    return server


def _add_diagnostics(server: LanguageServer, document: Documents) -> None:
    """Adds errors, and fixes for them."""

    def check(uri: str) -> None:
        found = [
            types.Diagnostic(_range_at(p.line, p.column, 1), p.message, types.DiagnosticSeverity.Error, source="hloom")
            for p in document(uri).problems()
        ]
        server.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, found))

    @server.feature(types.TEXT_DOCUMENT_DID_OPEN)
    def opened(parameters: types.DidOpenTextDocumentParams) -> None:
        check(parameters.text_document.uri)

    @server.feature(types.TEXT_DOCUMENT_DID_CHANGE)
    def changed(parameters: types.DidChangeTextDocumentParams) -> None:
        check(parameters.text_document.uri)

    @server.feature(types.TEXT_DOCUMENT_CODE_ACTION)
    def actions(parameters: types.CodeActionParams) -> list[types.CodeAction]:
        uri, lines = parameters.text_document.uri, parameters.range
        source = document(uri)
        chosen = [p for p in source.problems() if lines.start.line <= p.line <= lines.end.line]
        return [_action(uri, fix) for problem in chosen for fix in source.fixes(problem)]


def _add_queries(server: LanguageServer, document: Documents) -> None:
    """Adds hover texts, definitions and completion."""

    @server.feature(types.TEXT_DOCUMENT_HOVER)
    def hover(parameters: types.HoverParams) -> types.Hover | None:
        position = parameters.position
        text = document(parameters.text_document.uri).hover(position.line, position.character)
        return types.Hover(types.MarkupContent(types.MarkupKind.Markdown, text)) if text else None

    @server.feature(types.TEXT_DOCUMENT_DEFINITION)
    def definition(parameters: types.DefinitionParams) -> types.Location | None:
        position, source = parameters.position, document(parameters.text_document.uri)
        found = source.definition_of(source.word_at(position.line, position.character), position.line)
        return None if found is None else types.Location(parameters.text_document.uri, _range(found))

    @server.feature(types.TEXT_DOCUMENT_COMPLETION, types.CompletionOptions(trigger_characters=["%"]))
    def complete(parameters: types.CompletionParams) -> list[types.CompletionItem]:
        found = document(parameters.text_document.uri).completions(parameters.position.line)
        return [types.CompletionItem(label=label, detail=detail) for label, detail in found]


def _add_outlines(server: LanguageServer, document: Documents) -> None:
    """Adds the outline of a document, and the lines of its computations."""

    @server.feature(types.TEXT_DOCUMENT_DOCUMENT_SYMBOL)
    def outline(parameters: types.DocumentSymbolParams) -> list[types.DocumentSymbol]:
        found = document(parameters.text_document.uri).definitions
        return [_symbol(each, found) for each in found if not each.scope]

    @server.feature(types.TEXT_DOCUMENT_FOLDING_RANGE)
    def regions(parameters: types.FoldingRangeParams) -> list[types.FoldingRange]:
        return [types.FoldingRange(first, last) for first, last in document(parameters.text_document.uri).ranges()]


def _add_edits(server: LanguageServer, document: Documents) -> None:
    """Adds references, renaming and formatting."""

    def uses(uri: str, position: types.Position) -> list[types.Range]:
        source = document(uri)
        word = source.word_at(position.line, position.character)
        return [_range_of(span) for span in source.references(word, position.line)]

    @server.feature(types.TEXT_DOCUMENT_REFERENCES)
    def references(parameters: types.ReferenceParams) -> list[types.Location]:
        uri = parameters.text_document.uri
        return [types.Location(uri, where) for where in uses(uri, parameters.position)]

    @server.feature(types.TEXT_DOCUMENT_RENAME)
    def rename(parameters: types.RenameParams) -> types.WorkspaceEdit | None:
        uri, name = parameters.text_document.uri, parameters.new_name.lstrip("%")
        if WORD.fullmatch(name) is None:
            return None
        return types.WorkspaceEdit({uri: [types.TextEdit(where, name) for where in uses(uri, parameters.position)]})

    @server.feature(types.TEXT_DOCUMENT_FORMATTING)
    def formatting(parameters: types.DocumentFormattingParams) -> list[types.TextEdit]:
        source = document(parameters.text_document.uri)
        whole = types.Range(types.Position(0, 0), types.Position(len(source.lines), 0))
        return [types.TextEdit(whole, source.formatted())]


def _action(uri: str, fix: Fix) -> types.CodeAction:
    edit = types.WorkspaceEdit({uri: [types.TextEdit(_range_of(fix.span), fix.text)]})
    return types.CodeAction(fix.title, kind=types.CodeActionKind.QuickFix, edit=edit)


def _range_of(span: Span) -> types.Range:
    return _range_at(span.line, span.start, span.end - span.start)


def _symbol(computation: Definition, definitions: list[Definition]) -> types.DocumentSymbol:
    inner: Any = [
        types.DocumentSymbol(d.name, types.SymbolKind.Variable, _range(d), _range(d))
        for d in definitions
        if d.scope == computation.name
    ]
    where = _range(computation)
    return types.DocumentSymbol(computation.name, types.SymbolKind.Function, where, where, children=inner)


def _range(definition: Definition) -> types.Range:
    return _range_at(definition.line, definition.column, len(definition.name))


def _range_at(line: int, column: int, length: int) -> types.Range:
    return types.Range(types.Position(line, column), types.Position(line, column + length))
