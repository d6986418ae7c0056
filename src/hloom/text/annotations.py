"""Annotations of instructions in HLO text: metadata, shardings, frontend attributes and others that do not compute."""

from __future__ import annotations

import functools
import re
from typing import Any

from hloom.errors import ParseError
from hloom.ir import Instruction
from hloom.text.scanner import QUOTES, STRING, Scanner, scan_list, unquote, unquoted
from hloom.text.sharding import scan_sharding

_ENTRY = rf"""([A-Za-z_]\w*+)\s*+=\s*+({STRING.pattern}|\{{[^{{}}]*+\}}|[^\s{{}},"']++)"""
_ENTRIES = re.compile(_ENTRY)
_METADATA = re.compile(rf"\{{[\s,]*+(?:{_ENTRY}[\s,]*+)*+")
_NUMBER = re.compile(r"-?\d{1,18}")
_FRONTEND = re.compile(rf"""({STRING.pattern}|[^\s={{}},"']++)\s*+=\s*+""")


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
    try:
        return dict(_cached_metadata(scanner.text))
    except ParseError:
        return _read_metadata(scanner)  # again, for the position of the error in the full text


@functools.lru_cache(maxsize=4096)
def _cached_metadata(text: str) -> dict[str, Any]:
    return _read_metadata(Scanner(text))


def _read_metadata(scanner: Scanner) -> dict[str, Any]:
    text = scanner.text
    match = _METADATA.match(text)
    if not match:
        scanner.fail("metadata is written in braces")
    if text[match.end() :].rstrip() != "}":
        scanner.fail("cannot read the metadata: expected name=value", match.end())
    return {name: _plain_value(value) for name, value in _ENTRIES.findall(text)}


def _plain_value(text: str) -> Any:
    """The value of a metadata entry: a string, integer, boolean, or text in braces."""
    if text.startswith(QUOTES):
        return unquote(text)
    if text in ("true", "false"):
        return text == "true"
    return int(text) if _NUMBER.fullmatch(text) else text


def read_frontend_attributes(scanner: Scanner) -> dict[str, str]:
    """Reads frontend attributes, `{a="1", b={x=2}}`; raises ParseError for anything else."""
    return dict(scan_list(scanner, _frontend_attribute, what="between attributes"))


def _frontend_attribute(scanner: Scanner) -> tuple[str, str]:
    match = scanner.expect_match(_FRONTEND, "name=value")
    value = scanner.raw_value()
    return unquoted(match[1]), unquote(value) if STRING.fullmatch(value) else value
