"""The specification as data: its sections, one for each function of the builder, its clauses and worked examples."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "specification"

Example = dict[str, Any]
"""A worked example, as `docs/specification/README.md` describes it."""

_NAMES = {"And": "and_", "Or": "or_", "Not": "not_", "While": "while_", "TopK": "top_k"}
_CLAUSE = re.compile(r"^- ([A-Z]+[A-Z0-9]*-\d+) (.*(?:\n  .*|\n(?=\n  ))*)", re.MULTILINE)


@dataclass(frozen=True)
class Section:
    """A builder function: its name, its signature, the opcode that it makes, and the numbers of its clauses."""

    name: str
    signature: str
    opcode: str
    clauses: tuple[str, ...]

    @property
    def method(self) -> str:
        """The method of `XlaBuilder`."""
        return method_name(self.name)

    @property
    def argument_types(self) -> dict[str, str]:
        """The types of the arguments that the signature states: `scale, mean: vectors` gives both names theirs."""
        types: dict[str, str] = {}
        untyped: list[str] = []
        for part in _split(self.signature):
            name, colon, kind = part.partition(": ")
            if not colon and "->" in part:  # the rest of `select: T, T -> PRED`
                types[[*types][-1]] += f", {part}"
                continue
            untyped.append(name.partition(" = ")[0].removesuffix("..."))
            if colon:
                types |= dict.fromkeys(untyped, kind.partition(" = ")[0])
                untyped = []
        return types

    @property
    def result_type(self) -> str:
        """The type of the result, in words."""
        return self.signature[len(_arguments(self.signature)) :].partition(" -> ")[2]


def _arguments(signature: str) -> str:
    """The text up to the parenthesis that closes the arguments."""
    depth = 0
    for position, character in enumerate(signature):
        depth += (character in "([{") - (character in ")]}")
        if character == ")" and not depth:
            return signature[:position]
    return signature


def _split(signature: str) -> list[str]:
    """The arguments of a signature: commas inside brackets do not separate."""
    parts, depth = [""], 0
    for character in _arguments(signature).partition("(")[2]:
        depth += (character in "([{") - (character in ")]}")
        if character == "," and not depth:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts if part.strip()]


@functools.cache
def sections() -> tuple[Section, ...]:
    """Returns the sections of `operation-semantics.md`, in order; those of a group have its clauses after their own."""
    pages = (FOLDER / "operation-semantics.md").read_text()
    found = []
    shared: tuple[str, ...] = ()
    for level, number, title, text in re.findall(r"^(##+) (\d+\. )?(\w+).*\n((?:(?!##).*\n?)*)", pages, re.MULTILINE):
        clauses = tuple(match[1] for match in _CLAUSE.finditer(text))
        if level == "##":
            shared = () if number else clauses
        if not number:
            continue
        written = re.search(r"^`(\w+\(.*?)`", text, re.MULTILINE)
        opcode = re.search(r"HLO:? `([a-z0-9-]+)", text)
        signature = written[1] if written else ""
        name = signature.partition("(")[0] or title
        found.append(
            Section(name, signature, opcode[1] if opcode else "", (*clauses, *(shared if level == "###" else ())))
        )
    return tuple(found)


@functools.cache
def clauses() -> dict[str, str]:
    """Returns the Markdown of each clause."""
    found: dict[str, str] = {}
    for page in sorted(FOLDER.glob("*.md")):
        for match in _CLAUSE.finditer(page.read_text()):
            found.setdefault(match[1], match[2].rstrip())
    return found


@dataclass(frozen=True)
class Clause:
    """A clause in parts, as Markdown: its statement, and each thing that it says is invalid."""

    statement: str
    invalid: tuple[str, ...]


@functools.cache
def parts(number: str) -> Clause:
    """Returns the parts of a clause, with the worked examples of each.

    What is invalid are the parts, between semicolons, of the sentence that `*Invalid:*` begins.
    """
    head, mark, rest = clauses()[number].partition("*Invalid:*")
    if not mark:
        return Clause(head, ())
    cited = re.search(r"(?:\s*`ex/[\w-]+`,?)*$", rest)
    names = re.findall(r"ex/([\w-]+)", cited[0]) if cited else []
    rest = rest[: cited.start()] if cited else rest
    invalid, *more = re.split(r"(?<=[^.\s])\.\s+", rest.strip(), maxsplit=1)
    items = [item.strip() for item in re.findall(r"(?:\([^()]*\)|[^;(])+", invalid.rstrip("."))]
    statement = " ".join(filter(None, (head.strip(), *more)))
    refused = [name for name in names if name in _errors() or not statement]
    items[-1] += _references(refused)
    return Clause(
        statement + _references(name for name in names if name not in refused),
        tuple(" ".join(item.split()) for item in items),
    )


@functools.cache
def _errors() -> frozenset[str]:
    """The worked examples that are errors."""
    return frozenset(example["id"] for example in examples() if example.get("expected_error"))


def _references(names: Iterable[str]) -> str:
    joined = ", ".join(f"`ex/{name}`" for name in names)
    return f" {joined}" if joined else ""


@functools.cache
def examples() -> tuple[Example, ...]:
    """Returns the worked examples, in order."""
    return tuple(json.loads((FOLDER / "examples.json").read_text()))


def method_name(function: str) -> str:
    """Returns the name of a builder function in Python: `concat_in_dim` for `ConcatInDim`."""
    return _NAMES.get(function) or re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", function).lower()
