"""Sphinx extension: clauses, worked examples and files of the project become links, wherever a page names them.

Text such as `PAD-2` links to the clause, on the same page if it is there; `ex/pad-interior` in code to the example;
`src/hloom/ops/pad.py` in code to the source, of which the site has a page, and `docs/glossary.md` to the page.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docutils import nodes
from pygments.lexer import RegexLexer
from pygments.token import Comment, Keyword, Name, Number, Operator, String, Text
from sphinx.application import Sphinx

from handbook import source_pages, specification

PAGES = {"SL": "shapes-and-layout", "BC": "broadcasting"}
"""The pages of the specification by family; other families are on the page of operations."""
_CITATION = re.compile(r"\b([A-Z]+[A-Z0-9]*-\d+)\b")
_PLOTS = ("accuracy", "compile_families", "compile_time", "real_programs", "users_issues", "xla_benchmarks")


class HloLexer(RegexLexer):
    """HLO and MLIR text."""

    name = "HLO"
    aliases = ("hlo", "mlir")
    tokens = {
        "root": [
            (r"//.*|/\*.*?\*/", Comment),
            (r'"[^"]*"', String),
            (r"\b(HloModule|ENTRY|ROOT|module|func\.func|return|public|private|cond|do)\b", Keyword),
            (r"[%@#^][\w.$-]+", Name.Variable),
            (
                r"\b(?:pred|[sufc]\d+|bf16|f8\w+|f4\w+|token|tensor|tuple|i\d+|ui\d+|index|x[fsiu]\d+)\b(?=[\[<>,)\s{]|$)",
                Keyword.Type,
            ),
            (r"(?:stablehlo|chlo|mhlo)\.\w+", Name.Function),
            (r"\b[a-z][\w-]*(?=\()", Name.Function),
            (r"\b[a-z_]\w*(?==)", Name.Attribute),
            (r"-?\b\d+(?:\.\d+)?(?:e[+-]?\d+)?", Number),
            (r"->|[=<>:]", Operator),
            (r"\w+|\s+|.", Text),
        ]
    }


def setup(app: Sphinx) -> dict[str, Any]:
    """Registers the extension."""
    app.add_lexer("hlo", HloLexer)
    app.add_lexer("mlir", HloLexer)
    app.connect("doctree-read", _add_targets)
    app.connect("doctree-resolved", _add_links)
    app.connect("build-finished", lambda app, error: error or source_pages.write(Path(app.outdir)))
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _add_targets(app: Sphinx, doctree: nodes.document) -> None:
    """Gives the clauses of a page their anchors, where they are listed first, and plots their class."""
    known: set[str] = set()
    for item in doctree.findall(nodes.list_item):
        match = _CITATION.match(item.astext())
        if match and match[1] in specification.clauses():
            if match[1] not in known:
                item["ids"].append(match[1].lower())
                known.add(match[1])
            text = next(item.findall(nodes.Text))
            rest = nodes.Text(text.astext()[match.end() :])
            text.parent.replace(text, [nodes.strong("", match[1], classes=["number"]), rest])
    for image in doctree.findall(nodes.image):
        if Path(image["uri"]).stem in _PLOTS:
            image["classes"].append("plot")


def _add_links(app: Sphinx, doctree: nodes.document, page: str) -> None:
    local = {identifier for item in doctree.findall(nodes.list_item) for identifier in item["ids"]}
    for text in [*doctree.findall(nodes.Text)]:
        if not _inside(text, nodes.reference, nodes.literal, nodes.literal_block, nodes.title, nodes.strong, nodes.raw):
            parts = [*_linked(app, page, text.astext(), local)]
            if len(parts) > 1:
                text.parent.replace(text, parts)
    for number in [*doctree.findall(nodes.strong)]:
        if "number" in number["classes"] and not page.startswith("specification/"):
            link = nodes.reference("", "", refuri=_home(app, page, number.astext()), internal=True, classes=["clause"])
            number.parent.replace(number, link)
            link += number
    for literal in [*doctree.findall(nodes.literal)]:
        uri = "" if _inside(literal, nodes.reference, nodes.title) else _uri_of_code(app, page, literal.astext())
        if uri:
            link = nodes.reference("", "", refuri=uri, internal=True, classes=["source"])
            literal.parent.replace(literal, link)
            link += nodes.Text(literal.astext()[3:]) if "/examples.html#" in uri else literal


def _inside(node: nodes.Node, *kinds: type[nodes.Node]) -> bool:
    parent = node.parent
    while parent is not None:
        if isinstance(parent, kinds):
            return True
        parent = parent.parent
    return False


def _linked(app: Sphinx, page: str, text: str, local: set[str]) -> Iterator[nodes.Node]:
    """The parts of a text, with links in place of the clauses that it cites."""
    position = 0
    for match in _CITATION.finditer(text):
        if match[1] not in specification.clauses():
            continue
        yield nodes.Text(text[position : match.start()])
        anchor = match[1].lower()
        uri = f"#{anchor}" if anchor in local else _home(app, page, match[1])
        yield nodes.reference("", match[1], refuri=uri, internal=True, classes=["clause"])
        position = match.end()
    yield nodes.Text(text[position:])


def _home(app: Sphinx, page: str, clause: str) -> str:
    """The address of a clause in the specification."""
    home = f"specification/{PAGES.get(clause.rpartition('-')[0], 'operation-semantics')}"
    return f"{app.builder.get_relative_uri(page, home)}#{clause.lower()}"


def _uri_of_code(app: Sphinx, page: str, text: str) -> str:
    """The address of what a piece of code names: a worked example or a file; "" if neither."""
    if text.startswith("ex/") and text[3:] in {example["id"] for example in specification.examples()}:
        return f"{app.builder.get_relative_uri(page, 'specification/examples')}#{text[3:]}"
    if text.startswith("docs/") and text.endswith(".md") and text[5:-3] in app.builder.env.found_docs:
        return app.builder.get_relative_uri(page, text[5:-3])
    name, _, line = text.partition(":")
    path = source_pages.path_of(name)
    anchor = f"#L-{line}" if line else ""
    return f"{'../' * page.count('/')}{source_pages.address(path)}{anchor}" if path else ""
