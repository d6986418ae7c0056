"""The exceptions that hloom raises on bad input: all of them are an `HloomError`.

A message says which operation is concerned, which rule (clause of the specification) was broken, the offending
shapes or numbers and what would have been valid; layers further out add where it happened (`at`).
"""

from __future__ import annotations


class HloomError(Exception):
    """The root of everything that hloom raises on bad input (text, protos, arrays, files, arguments)."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message
        self.locations: list[str] = []

    def at(self, location: str) -> HloomError:
        """Adds a place (an instruction, a line of text, the user's line) and returns the error itself."""
        if location not in self.locations:
            self.locations.append(location)
        return self

    def __str__(self) -> str:
        return "\n  ".join([self.message, *(f"at {location}" for location in self.locations)])


class RuleError(HloomError):
    """A rule of the specification is broken: `pad[PAD-3]: interior padding must be >= 0, got -1`."""

    def __init__(self, subject: str, clause: str, message: str) -> None:
        super().__init__(f"{subject}[{clause}]: {message}")
        self.subject = subject
        self.clause = clause


class ParseError(HloomError):
    """Text that is not HLO: carries the 1-based line and column, and shows the line with a caret."""

    def __init__(self, message: str, line: int = 0, column: int = 0, source_line: str = "") -> None:
        self.line = line
        self.column = column
        if line:
            # Long lines (a constant's payload) would bury the caret: show a window around the column.
            start = max(0, column - 81)
            shown = source_line[start : start + 140].replace("\t", " ")
            message = f"{line}:{column}: {message}\n  {shown}\n  {' ' * (column - 1 - start)}^"
        super().__init__(message)


class ProtoError(HloomError):
    """Bytes or a message that do not hold a consistent HLO module."""


class VerifyError(HloomError):
    """A module whose graph breaks an invariant (see `hloom.verifier`)."""


class ArgumentError(HloomError):
    """An argument of a Python call, or an array handed to an executable, that does not fit."""


class RunError(HloomError):
    """A program that fails while it runs: a step limit, a time-out in a rendezvous, a dynamic size out of range."""


class ResourceExhaustedError(RunError):
    """Memory that a run needs and the system has not."""
