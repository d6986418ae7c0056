"""Annotations of instructions in HLO text: metadata, shardings, frontend attributes and others that do not compute."""

from __future__ import annotations

import re
from typing import Any

from hloom.ir import Instruction
from hloom.text.scanner import STRING, Scanner, scan_list, unquote, unquoted
from hloom.text.sharding import scan_sharding

_METADATA = re.compile(r'([A-Za-z_]\w*+)\s*+=\s*+("(?:[^"\\]|\\.)*+"|\{[^{}]*+\}|[^\s{},"]++)')
_FRONTEND = re.compile(r'("(?:[^"\\]|\\.)*+"|[^\s={},"]++)\s*+=\s*+')
_SEPARATOR = re.compile(r"[\s,]*+")


def read_annotation(instruction: Instruction, name: str, scanner: Scanner) -> None:
    """Reads the value of an annotation of an instruction, unknown ones as raw text; raises ParseError if it is
    malformed.
    """
    if name == "metadata":
        instruction.metadata = read_metadata(scanner)
    elif name == "sharding":
        instruction.sharding = scan_sharding(scanner)
        scanner.expect_end("sharding")
    elif name == "frontend_attributes":
        instruction.frontend_attributes = read_frontend_attributes(scanner)
    elif name == "backend_config":
        instruction.backend_config = unquoted(scanner.text)
    else:
        instruction.extra_attributes[name] = scanner.text


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
    return dict(scan_list(scanner, _frontend_attribute, what="between attributes"))


def _frontend_attribute(scanner: Scanner) -> tuple[str, str]:
    match = scanner.expect_match(_FRONTEND, "name=value")
    value = scanner.raw_value()
    return unquoted(match[1]), unquote(value) if STRING.fullmatch(value) else value
