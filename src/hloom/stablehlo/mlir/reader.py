"""Base of the readers of MLIR text: aliases, nesting, lists. `type_reader.py`, `attribute_reader.py` .. extend it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from hloom.errors import HloomError, ParseError
from hloom.stablehlo.mlir.lexer import MlirScanner
from hloom.text.scanner import MAX_NESTING, scan_list

T = TypeVar("T")

_IN_PROGRESS = object()


class Reader:
    """A position in MLIR text, and the aliases that the text defines, which may be used before their definition.

    Methods of readers raise ParseError with line, column and caret.
    """

    def __init__(self, text: str) -> None:
        self.scanner = MlirScanner(text)
        self.definitions = self.scanner.definitions() if "#" in text or "!" in text else {}
        self.aliases: dict[str, Any] = {}
        self.depth = 0

    def nested(self, read: Callable[[], T]) -> T:
        """Calls `read` one nesting level deeper; fails at a depth that Python's stack does not allow."""
        if self.depth >= MAX_NESTING // 4:
            self.scanner.fail(f"types and attributes nest more than {MAX_NESTING // 4} deep")
        self.depth += 1
        try:
            return read()
        finally:
            self.depth -= 1

    def alias(self, name: str, at: int, read: Callable[[], T]) -> T:
        """Returns the value of an alias that is used at offset `at`; `read` reads it at its definition."""
        if name not in self.aliases:
            scanner, here = self.scanner, self.scanner.pos
            self.aliases[name] = _IN_PROGRESS
            scanner.pos = self.definitions[name]
            self.aliases[name] = self.nested(read)
            scanner.pos = here
        value: T = self.aliases[name]
        if value is _IN_PROGRESS:
            self.scanner.fail(f"the alias {name} is defined by itself", at)
        return value

    def comma_separated(self, opening: str, closing: str, read: Callable[[], T]) -> list[T]:
        """Reads entries between brackets, separated by commas."""
        return scan_list(self.scanner, lambda _: read(), opening, closing, f"or {closing!r}")

    def fields(self, closing: str, read: Callable[[], None]) -> None:
        """Reads fields up to a closing bracket, separated by commas; StableHLO also allows a trailing comma."""
        scanner = self.scanner
        while not scanner.take(closing):
            read()
            if not scanner.take(","):
                scanner.expect(closing, "or ','")
                return

    def checked(self, at: int, compute: Callable[[], T]) -> T:
        """Returns the result of `compute`; an HloomError becomes a ParseError at offset `at`."""
        try:
            return compute()
        except ParseError:
            raise
        except HloomError as error:
            self.scanner.fail(error.message, at)
