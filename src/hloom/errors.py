"""The exceptions that hloom raises on invalid input, all of them subclasses of `HloomError`.

A message names the operation, the violated rule (a clause of the specification), the offending shapes or values, and
what would have been valid. Outer layers add the location of the error with `HloomError.at`.
"""

from __future__ import annotations

import copyreg
import difflib
from collections.abc import Iterable
from typing import Any


class HloomError(Exception):
    """Base class of all errors about invalid input: text, protos, arrays, files, arguments.

    `message` is the text without locations; `locations` holds the locations that `at` added, the innermost first.

    >>> try:
    ...     hl.load("missing.hlo")
    ... except hl.HloomError as error:
    ...     print(error)
    cannot read missing.hlo: No such file or directory
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message
        self.locations: list[str] = []

    def at(self, location: str) -> HloomError:
        """Appends a location (an instruction, a line of text, the user's source line) unless it is there, and returns
        self.
        """
        if location not in self.locations:
            self.locations.append(location)
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """Errors cross processes whatever their constructors take."""
        return copyreg.__newobj__, (type(self), self.message), self.__dict__  # type: ignore[attr-defined]

    def __str__(self) -> str:
        return "\n  ".join([self.message, *(f"at {location}" for location in self.locations)])


class RuleError(HloomError):
    """A violated rule of the specification: `pad[PAD-3]: interior padding must be >= 0, got -1`.

    `subject` is the opcode (or "shape", "literal", "index"), `clause` the identifier of the rule.

    >>> builder = hl.XlaBuilder("f")
    >>> builder.iota(hl.f32[2], 1)
    Traceback (most recent call last):
    hloom.errors.RuleError: iota[IOTA-3]: ...
    """

    def __init__(self, subject: str, clause: str, message: str) -> None:
        super().__init__(f"{subject}[{clause}]: {message}")
        self.subject = subject
        self.clause = clause


class ParseError(HloomError):
    """A syntax error: `line` and `column` are 1-based, and the message shows the line with a caret. `line` is 0 if
    unknown.

    >>> hl.parse_shape("f32[2")
    Traceback (most recent call last):
    hloom.errors.ParseError: 1:6: expected ',' between sizes, got the end of the text
      f32[2
           ^
    """

    def __init__(self, message: str, line: int = 0, column: int = 0, source_line: str = "") -> None:
        self.line = line
        self.column = column
        if line:
            # Long lines (a constant's payload) would move the caret off the screen: show a window around the column.
            start = max(0, column - 81)
            shown = source_line[start : start + 140].replace("\t", " ")
            message = f"{line}:{column}: {message}\n  {shown}\n  {' ' * (column - 1 - start)}^"
        super().__init__(message)


class ProtoError(HloomError):
    """Bytes, or a protobuf message, that do not encode a consistent HLO module.

    >>> hl.Snapshot.from_bytes(b"not a snapshot")
    Traceback (most recent call last):
    hloom.errors.ProtoError: the bytes hold no HloModuleProto and no HloProto, ...
    """


class VerifyError(HloomError):
    """A module that violates an invariant of the graph, as `hloom.verifier.module` lists them.

    >>> from hloom.verifier import verify_module
    >>> verify_module(hl.Module("empty"))
    Traceback (most recent call last):
    hloom.errors.VerifyError: ...
    """


class ArgumentError(HloomError):
    """An invalid argument of a Python call, or an array that does not match a parameter of an executable.

    >>> hl.compile("HloModule m  ENTRY e { ROOT x = f32[2] parameter(0) }")(np.float32([1]))
    Traceback (most recent call last):
    hloom.errors.ArgumentError: argument 0 (%x) has shape f32[2], got float32[1]
    """


class RunError(HloomError):
    """A failure while a program runs: a step limit, a time-out in a rendezvous, a dynamic size out of range.

    >>> device, builder = hl.Device(timeout=0.01), hl.XlaBuilder("read")
    >>> hl.compile(builder.build(builder.infeed(hl.f32[2])), devices=[device])()
    Traceback (most recent call last):
    hloom.errors.RunError: INFEED-4: no item of shape f32[2] ...
    """


class ResourceExhaustedError(RunError):
    """A failure to allocate the memory or the threads that a run needs."""


def close_names(name: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown name, with those known names that are similar: `; close are add, and`."""
    close = difflib.get_close_matches(name, list(known))
    return f"; close are {', '.join(close)}" if close else ""


def counted(count: int, noun: str) -> str:
    """A count with its noun in the singular or plural: `1 element`, `2 elements`, `1,000 elements`."""
    return f"{count:,} {noun if count == 1 else noun + 's'}"
