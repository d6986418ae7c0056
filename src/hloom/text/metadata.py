"""Metadata and frontend attributes in HLO text: names with plain values, in braces."""

from __future__ import annotations

import re
from typing import Any

from hloom.text.scanner import STRING, Scanner, unquote

_METADATA = re.compile(r'([A-Za-z_]\w*+)\s*+=\s*+("(?:[^"\\]|\\.)*+"|\{[^{}]*+\}|[^\s{},"]++)')
_FRONTEND = re.compile(r'\s*+("(?:[^"\\]|\\.)*+"|[^\s={},"]++)\s*+=\s*+')
_SEPARATOR = re.compile(r"[\s,]*+")


def read_metadata(scanner: Scanner) -> dict[str, Any]:
    """Reads OpMetadata, `{op_name="f" source_line=3}`; raises ParseError for anything else."""
    text = scanner.text
    if not text.startswith("{"):
        scanner.fail("metadata is written in braces")
    metadata: dict[str, Any] = {}
    at = _after_separators(text, 1)
    end = len(text.rstrip()) - 1
    while at < end:
        match = _METADATA.match(text, at)
        if not match:
            scanner.fail("cannot read the metadata: expected name=value", at)
        metadata[match[1]] = _plain_value(match[2])
        at = _after_separators(text, match.end())
    return metadata


def _after_separators(text: str, position: int) -> int:
    match = _SEPARATOR.match(text, position)
    return match.end() if match else position


def _plain_value(text: str) -> Any:
    """The value of a metadata entry: a string, integer, boolean, or text in braces."""
    if text.startswith('"'):
        return unquote(text)
    if text in ("true", "false"):
        return text == "true"
    return int(text) if re.fullmatch(r"-?\d{1,18}", text) else text


def read_frontend_attributes(scanner: Scanner) -> dict[str, str]:
    """Reads frontend attributes, `{a="1", b={x=2}}`; raises ParseError for anything else."""
    scanner.expect("{")
    entries: dict[str, str] = {}
    while not scanner.take("}"):
        if entries:
            scanner.expect(",", "between attributes")
        match = _FRONTEND.match(scanner.text, scanner.pos)
        if not match:
            scanner.fail(f"expected name=value, got {scanner.preview()}")
        scanner.pos = match.end()
        value = scanner.raw_value()
        key = unquote(match[1]) if match[1].startswith('"') else match[1]
        entries[key] = unquote(value) if STRING.fullmatch(value) else value
    return entries
