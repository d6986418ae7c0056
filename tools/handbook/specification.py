"""The specification as data: its sections, one for each function of the builder, its clauses and worked examples."""

from __future__ import annotations

import functools
import json
import re
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
    """Returns the sections of `operation-semantics.md`, in order."""
    text = (FOLDER / "operation-semantics.md").read_text()
    found = []
    for heading in re.finditer(r"^#{2,3} \d+\. (\w+).*\n((?:(?!##).*\n?)*)", text, re.MULTILINE):
        signature = re.search(r"^`(\w+\(.*?)`", heading[2], re.MULTILINE)
        opcode = re.search(r"HLO:? `([a-z0-9-]+)", heading[2])
        clauses = tuple(match[1] for match in _CLAUSE.finditer(heading[2]))
        text = signature[1] if signature else ""
        name = text.partition("(")[0] or heading[1]
        found.append(Section(name, text, opcode[1] if opcode else "", clauses))
    return tuple(found)


@functools.cache
def clauses() -> dict[str, str]:
    """Returns the Markdown of each clause."""
    found: dict[str, str] = {}
    for page in sorted(FOLDER.glob("*.md")):
        for match in _CLAUSE.finditer(page.read_text()):
            found.setdefault(match[1], match[2].rstrip())
    return found


@functools.cache
def examples() -> tuple[Example, ...]:
    """Returns the worked examples, in order."""
    return tuple(json.loads((FOLDER / "examples.json").read_text()))


def method_name(function: str) -> str:
    """Returns the name of a builder function in Python: `concat_in_dim` for `ConcatInDim`."""
    return _NAMES.get(function) or re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", function).lower()
