"""The language server: diagnostics with fixes, hover, definitions, references, renaming, formatting, completion."""

from __future__ import annotations

from typing import Any

from lsprotocol import types
from pygls.lsp.server import LanguageServer

import hloom.ops  # noqa: F401
from hloom.editor.document import WORD, Definition, Document


def make_server() -> LanguageServer:
    """Makes a language server for HLO text."""
    server = LanguageServer("hloom", "1")

    def document(uri: str) -> Document:
        return Document(server.workspace.get_text_document(uri).source)

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

    def spans(uri: str, position: types.Position) -> list[types.Range]:
        source = document(uri)
        word = source.word_at(position.line, position.character)
        return [_range_at(s.line, s.start, s.end - s.start) for s in source.references(word, position.line)]

    @server.feature(types.TEXT_DOCUMENT_REFERENCES)
    def references(parameters: types.ReferenceParams) -> list[types.Location]:
        uri = parameters.text_document.uri
        return [types.Location(uri, where) for where in spans(uri, parameters.position)]

    @server.feature(types.TEXT_DOCUMENT_RENAME)
    def rename(parameters: types.RenameParams) -> types.WorkspaceEdit | None:
        uri, name = parameters.text_document.uri, parameters.new_name.lstrip("%")
        if WORD.fullmatch(name) is None:
            return None
        return types.WorkspaceEdit({uri: [types.TextEdit(where, name) for where in spans(uri, parameters.position)]})

    @server.feature(types.TEXT_DOCUMENT_FORMATTING)
    def formatting(parameters: types.DocumentFormattingParams) -> list[types.TextEdit]:
        source = document(parameters.text_document.uri)
        whole = types.Range(types.Position(0, 0), types.Position(len(source.lines), 0))
        return [types.TextEdit(whole, source.formatted())]

    @server.feature(types.TEXT_DOCUMENT_FOLDING_RANGE)
    def folding(parameters: types.FoldingRangeParams) -> list[types.FoldingRange]:
        return [types.FoldingRange(first, last) for first, last in document(parameters.text_document.uri).ranges()]

    @server.feature(types.TEXT_DOCUMENT_CODE_ACTION)
    def actions(parameters: types.CodeActionParams) -> list[types.CodeAction]:
        uri, source = parameters.text_document.uri, document(parameters.text_document.uri)
        return [
            types.CodeAction(
                fix.title,
                kind=types.CodeActionKind.QuickFix,
                edit=types.WorkspaceEdit(
                    {
                        uri: [
                            types.TextEdit(
                                _range_at(fix.span.line, fix.span.start, fix.span.end - fix.span.start), fix.text
                            )
                        ]
                    }
                ),
            )
            for problem in source.problems()
            if parameters.range.start.line <= problem.line <= parameters.range.end.line
            for fix in source.fixes(problem)
        ]

    @server.feature(types.TEXT_DOCUMENT_COMPLETION, types.CompletionOptions(trigger_characters=["%"]))
    def complete(parameters: types.CompletionParams) -> list[types.CompletionItem]:
        found = document(parameters.text_document.uri).completions(parameters.position.line)
        return [types.CompletionItem(label=label, detail=detail) for label, detail in found]

    @server.feature(types.TEXT_DOCUMENT_DOCUMENT_SYMBOL)
    def outline(parameters: types.DocumentSymbolParams) -> list[types.DocumentSymbol]:
        found = document(parameters.text_document.uri).definitions
        return [_symbol(each, found) for each in found if not each.scope]

    return server


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
