"""A file of HLO text, or StableHLO (errors only), in an editor. It may be incomplete: each line is parsed alone."""

from __future__ import annotations

import re

from hloom.api import parse
from hloom.errors import HloomError, ParseError
from hloom.ops.operation import OPERATIONS
from hloom.ops.reference import section
from hloom.system.lazy import cached_property
from hloom.system.records import record

_DEFINITION = re.compile(r"^\s*(?:ROOT\s+)?%?(?P<name>[\w.\-]+)\s*=\s*(?P<rest>.*)$")
_COMPUTATION = re.compile(r"^(?:ENTRY\s+)?%?(?P<name>[\w.\-]+)\s*(?:\(.*)?\{\s*$")
_OPCODE = re.compile(r"(?<![\w.%\-])([a-z][a-z0-9\-]*)\(")
_LOCATION = re.compile(r"line (\d+), column (\d+)")
WORD = re.compile(r"%?[\w.\-]+")


MAX_PROBLEMS = 20
"""Maximum number of errors that a document reports."""
_STAND_IN = 'custom-call(), custom_call_target="stand_in"'


@record
class Span:
    """Part of a line; columns are counted from 0, the last one exclusive."""

    line: int
    start: int
    end: int


@record
class Problem:
    """An error at a line and column, counted from 0."""

    message: str
    line: int
    column: int


@record
class Fix:
    """A change that an error suggests."""

    title: str
    span: Span
    text: str


@record
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
        """The errors of the text, at most MAX_PROBLEMS.

        After an error the instruction is replaced by one of its declared shape, and the text is parsed again; an error
        elsewhere is the last one.
        """
        lines, found = [*self.lines], list[Problem]()
        while len(found) < MAX_PROBLEMS and (problem := _first_problem("\n".join(lines))) is not None:
            found.append(problem)
            line = lines[problem.line]
            stand_in = _STAND_IN_OF.match(line)
            if stand_in is None or _STAND_IN in line:
                break
            # The computation may end on this line, too.
            lines[problem.line] = stand_in[0] + _STAND_IN + " }" * (line.count("}") - line.count("{"))
        return sorted(found, key=lambda problem: (problem.line, problem.column))

    def fixes(self, problem: Problem) -> list[Fix]:
        """The changes that an error suggests: a name close to an unknown one, or the shape that operands give."""
        line = self.lines[problem.line]
        if match := re.match(r"there is no \w+ '([^']+)'.*?; close are (.+)", problem.message):
            start = line.find(match[1], problem.column)
            names = match[2].split(", ") if start >= 0 else []
            span = Span(problem.line, start, start + len(match[1]))
            return [Fix(f"replace {match[1]} by {name}", span, name) for name in names]
        if match := re.search(r"declared as (\S+), but the operands give (\S+)$", problem.message):
            start = line.find(match[1])
            span = Span(problem.line, start, start + len(match[1]))
            return [Fix(f"declare the result as {match[2]}", span, match[2])] if start >= 0 else []
        return []

    def references(self, name: str, line: int) -> list[Span]:
        """The definition and all uses of the instruction or computation that a line calls by a name."""
        found = self.definition_of(name, line)
        if found is None:
            return []
        spans = [Span(found.line, found.column, found.column + len(name))]
        lines = range(len(self.lines)) if not found.scope else self._lines_of(found.scope)
        return sorted(
            [*spans, *(span for k in lines for span in self._uses(k, name, is_computation=not found.scope))],
            key=lambda span: (span.line, span.start),
        )

    def _uses(self, number: int, name: str, is_computation: bool) -> list[Span]:
        """The uses of a name in the operands, or for a computation in the attributes, of an instruction."""
        line = self.lines[number]
        opcode = _OPCODE.search(line) if _DEFINITION.match(line) else None
        if opcode is None:
            return []
        end = closing(line, opcode.end() - 1)
        first, last = (end, len(line)) if is_computation else (opcode.end(), end)
        words = WORD.finditer(_without_strings(line), first, last)
        starts = [word.end() - len(name) for word in words if word[0].lstrip("%") == name]
        return [Span(number, start, start + len(name)) for start in starts if line[start + len(name) :][:1] != "="]

    def _lines_of(self, computation: str) -> range:
        first = next(d.line for d in self.definitions if d.name == computation and not d.scope)
        later = [d.line for d in self.definitions if not d.scope and d.line > first]
        return range(first, later[0] if later else len(self.lines))

    def ranges(self) -> list[tuple[int, int]]:
        """The first and last line of each computation."""
        found = []
        for definition in self.definitions:
            if not definition.scope:
                lines = self._lines_of(definition.name)
                ends = [k for k in lines if self.lines[k].rstrip().endswith("}") and k > definition.line]
                found.append((definition.line, ends[-1] if ends else lines[-1]))
        return found

    def formatted(self) -> str:
        """The text with instructions indented by two spaces and an empty line between computations.

        Everything else is kept, comments included.
        """
        lines = [self._indented(line) for line in self.lines]
        text = re.sub(r"\n+((?:ENTRY +)?[%\w.\-]+[^\n=]*\{\n)", r"\n\n\1", "\n".join(lines))
        return text.rstrip("\n") + "\n"

    def _indented(self, line: str) -> str:
        content = line.strip()
        inside = _DEFINITION.match(content) is not None and not content.startswith("HloModule")
        return f"  {content}" if inside else content

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


_STAND_IN_OF = re.compile(
    r"\s*(?:ROOT\s+)?%?[\w.\-]+\s*=\s*(?:\([^=]*?\)|[\w<=]+\[[^\]]*\](?:\{[^}]*\})?)\s+(?=[a-z\-]+\()"
)


def _first_problem(text: str) -> Problem | None:
    try:
        parse(text)
    except ParseError as error:
        return Problem(_first_line(error), max(0, error.line - 1), max(0, error.column - 1))
    except HloomError as error:
        locations = _LOCATION.findall(str(error))
        line, column = map(int, locations[0]) if locations else (1, 1)
        return Problem(_first_line(error), line - 1, column - 1)
    return None


def _without_strings(line: str) -> str:
    """Replaces what is quoted by spaces, so that columns stay."""
    return re.sub(r'"[^"]*"', lambda quoted: " " * len(quoted[0]), line)


def closing(line: str, start: int) -> int:
    """Returns the position of the parenthesis that closes the one at `start`, or the end of the line."""
    depth = 0
    for position, letter in enumerate(_without_strings(line)[start:], start):
        depth += (letter == "(") - (letter == ")")
        if not depth:
            return position
    return len(line)


def _first_line(error: HloomError) -> str:
    """First line of an error, without its position, which the editor shows."""
    return re.sub(r"^\d+:\d+: ", "", str(error).split("\n")[0])
