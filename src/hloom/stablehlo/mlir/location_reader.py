"""Reads the locations of MLIR text: names and file positions, call sites, several in one."""

from __future__ import annotations

import re

from hloom.stablehlo.mlir.lexer import ALIAS, unquote_mlir
from hloom.stablehlo.mlir.reader import Reader
from hloom.text.scanner import STRING

_SOURCE = re.compile(r'("(?:[^"\\]|\\.)*+")\s*+:\s*+(\d{1,9}+)\s*+:\s*+(\d{1,9}+)(?:\s+to\s+(?:\d++)?\s*:\s*\d++)?')

Location = tuple[str, str]
"""The name of a location, and its position `"file":line:column`; "" for missing ones."""


class LocationReader(Reader):
    """Recursive-descent reader of locations; of several locations in one, the first name and position count."""

    def trailing_location(self) -> str:
        """Reads `loc(..)` if it follows, as text, else ""."""
        scanner = self.scanner
        scanner.skip()
        if not scanner.text.startswith("loc(", scanner.pos):
            return ""
        scanner.pos += 3
        return self.location_attribute()

    def location_attribute(self) -> str:
        """Reads `(..)`, after the word `loc`, as text."""
        name, position = self._in_parentheses()
        if not name:
            return position
        quoted = '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'
        return f"{quoted}({position})" if position else quoted

    def _in_parentheses(self) -> Location:
        self.scanner.expect("(")
        location = self.location()
        self.scanner.expect(")")
        return location

    def location(self) -> Location:
        """Reads a location or an alias of one."""
        scanner = self.scanner
        if not scanner.peek("#"):
            return self.nested(self._location)
        match = scanner.match(ALIAS)
        if match is None or match[0] not in self.definitions:
            scanner.fail("the location alias is not defined", match.start() if match else None)
        return self.alias(match[0], match.start(), self._defined_location)

    def _defined_location(self) -> Location:
        scanner = self.scanner
        if not scanner.peek("loc("):
            scanner.fail(f"expected loc(..), got {scanner.preview()}")
        scanner.pos += 3
        return self._in_parentheses()

    def _location(self) -> Location:
        scanner = self.scanner
        source = scanner.match(_SOURCE)
        if source:
            return "", f"{source[1]}:{source[2]}:{source[3]}"
        if scanner.peek('"'):
            name = scanner.string()
            return name, self._in_parentheses()[1] if scanner.peek("(") else ""
        word = scanner.word("a location")
        if word == "callsite":
            return self._innermost()
        if word == "fused":
            if scanner.peek("<"):
                scanner.angled()
            parts = self.comma_separated("[", "]", self.location)
            return next((n for n, _ in parts if n), ""), next((p for _, p in parts if p), "")
        if word != "unknown":
            scanner.fail(f"there is no location {word!r}")
        return "", ""

    def _innermost(self) -> Location:
        """Reads the callee of `callsite(callee at caller)`; skips callers, which may nest as deep as a call stack."""
        scanner = self.scanner
        callees: list[Location] = []
        while not callees or scanner.take_word("callsite"):
            scanner.expect("(")
            callees.append(self.location())
            scanner.expect_word("at")
        if not scanner.match(ALIAS):
            self.location()
        for _ in callees:
            scanner.expect(")")
        return callees[0]


def location_parts(location: str) -> tuple[str, str, int]:
    """The name, file and line of a location in the form of `Operation.location`; "" and 0 for missing ones.

    A colon and anything after it are not part of the name.
    """
    match = STRING.match(location)
    if not match:
        return "", "", 0
    source = _SOURCE.match(location)
    if source:
        return "", unquote_mlir(source[1]), int(source[2])
    source = _SOURCE.match(location, match.end() + 1)
    name = unquote_mlir(match[0]).partition(":")[0]
    return (name, unquote_mlir(source[1]), int(source[2])) if source else (name, "", 0)
