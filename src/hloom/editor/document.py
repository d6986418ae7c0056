"""A file of HLO text in an editor; since it may be incomplete, lines are parsed individually."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from hloom.errors import HloomError, ParseError
from hloom.ops.operation import OPERATIONS
from hloom.ops.reference import section
from hloom.text import parse_module

_DEFINITION = re.compile(r"^\s*(?:ROOT\s+)?%?(?P<name>[\w.\-]+)\s*=\s*(?P<rest>.*)$")
_COMPUTATION = re.compile(r"^(?:ENTRY\s+)?%?(?P<name>[\w.\-]+)\s*(?:\(.*)?\{\s*$")
_OPCODE = re.compile(r"(?<![\w.%\-])([a-z][a-z0-9\-]*)\(")
_LOCATION = re.compile(r"line (\d+), column (\d+)")
WORD = re.compile(r"%?[\w.\-]+")


@dataclass(frozen=True)
class Problem:
    """An error at a line and column, counted from 0."""

    message: str
    line: int
    column: int


@dataclass(frozen=True)
class Definition:
    """Definition of an instruction or a computation: its name, position and text."""

    name: str
    line: int
    column: int
    text: str
    scope: str
    """Name of the computation that contains the instruction; "" for computations."""


class Document:
    """The text of a file, with queries on it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.lines = text.split("\n")

    @cached_property
    def definitions(self) -> list[Definition]:
        """Definitions in order; names may recur in other computations."""
        found: list[Definition] = []
        scope = ""
        for index, line in enumerate(self.lines):
            head = None if line.startswith((" ", "\t")) else _COMPUTATION.match(line)
            if head is not None and not line.startswith("HloModule"):
                scope = head["name"]
                found.append(Definition(scope, index, head.start("name"), line.strip(), ""))
            elif match := _DEFINITION.match(line):
                found.append(Definition(match["name"], index, match.start("name"), line.strip(), scope))
        return found

    def problems(self) -> list[Problem]:
        """The first error of the text, if any."""
        try:
            parse_module(self.text)
        except ParseError as error:
            return [Problem(_first_line(error), max(0, error.line - 1), max(0, error.column - 1))]
        except HloomError as error:
            locations = _LOCATION.findall(str(error))
            line, column = map(int, locations[0]) if locations else (1, 1)
            return [Problem(_first_line(error), line - 1, column - 1)]
        return []

    def word_at(self, line: int, column: int) -> str:
        """The name or opcode at a position; "" if there is none."""
        if line >= len(self.lines):
            return ""
        for match in WORD.finditer(self.lines[line]):
            if match.start() <= column <= match.end():
                return match[0].lstrip("%").strip(".-")
        return ""

    def definition_of(self, name: str, line: int) -> Definition | None:
        """Definition of a name that a line uses, preferably in the line's computation."""
        scope = self._scope_at(line)
        fitting = [d for d in self.definitions if d.name == name]
        own = [d for d in fitting if d.scope == scope]
        return next(iter(own or fitting), None)

    def _scope_at(self, line: int) -> str:
        above = [d for d in self.definitions if d.line <= line and not d.scope]
        return above[-1].name if above else ""

    def hover(self, line: int, column: int) -> str:
        """Markdown for a position: documentation of an operation, or the definition of a name."""
        word = self.word_at(line, column)
        if self._is_opcode(word, line):
            return section(OPERATIONS[word])
        found = self.definition_of(word, line)
        return "" if found is None else f"```hlo\n{found.text}\n```\nline {found.line + 1}"

    def _is_opcode(self, word: str, line: int) -> bool:
        return word in OPERATIONS and word in _OPCODE.findall(self.lines[line])

    def completions(self, line: int) -> list[tuple[str, str]]:
        """Completions with their details: names with their definitions, and opcodes with a summary."""
        scope = self._scope_at(line)
        names = [(d.name, d.text) for d in self.definitions if d.scope == scope and d.line < line]
        computations = [(d.name, d.text) for d in self.definitions if not d.scope]
        opcodes = [(opcode, (op.__doc__ or "").strip().split("\n")[0]) for opcode, op in OPERATIONS.items()]
        return [*names, *computations, *opcodes]


def _first_line(error: HloomError) -> str:
    """First line of an error, without its position, which the editor shows."""
    return re.sub(r"^\d+:\d+: ", "", str(error).split("\n")[0])
