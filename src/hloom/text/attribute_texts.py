"""Attributes of instructions as text: names, values and offsets; the fields of operations say how to read values."""

from __future__ import annotations

import re

from hloom.text.scanner import FLAT_VALUE, Scanner
from hloom.text.shapes import scan_shape

AttributeTexts = dict[str, tuple[str, int]]
"""Texts and offsets of the values of attributes by name."""

_NAME = r"[A-Za-z_][\w\-.]*+"
ATTRIBUTE = re.compile(rf"\s*+,\s*+({_NAME})\s*+=\s*+")
_ATTRIBUTE_AND_VALUE = re.compile(rf"{ATTRIBUTE.pattern}({FLAT_VALUE.pattern})?+")
FLAT_ATTRIBUTES = rf"(?:\s*+,\s*+(?!metadata\b){_NAME}\s*+=\s*+(?:{FLAT_VALUE.pattern}))*+"
"""Pattern of attributes whose values do not nest, but metadata."""
_PECULIAR = {"replica_groups", "literal", "padding"}
_MESH_GROUPS = re.compile(r"mesh\[[^\[\]{}\n]*+\](?:\s*+,\s*+device_ids=\([^{}\n]*\))?\s*+\{[^{}\n]+\}")


def scan_attributes(scanner: Scanner) -> AttributeTexts:
    """Reads attributes, `, name=value` each; raises ParseError for malformed values."""
    texts: AttributeTexts = {}
    while match := _ATTRIBUTE_AND_VALUE.match(scanner.text, scanner.pos):
        name, value = match[1], match[2]
        if name in texts:
            scanner.fail(f"attribute {name} is given twice", match.start(1))
        if value is None or name in _PECULIAR:
            texts[name] = _peculiar_value(scanner, name)
        else:
            texts[name] = (value, match.start(2))
            scanner.pos = match.end()
    return texts


def _peculiar_value(scanner: Scanner, name: str) -> tuple[str, int]:
    """Reads an attribute whose value nests, or is not one value: its text and offset."""
    match = scanner.expect_match(ATTRIBUTE, "an attribute")
    position = match.end()
    mesh = _MESH_GROUPS.match(scanner.text, position) if name == "replica_groups" else None
    if mesh:
        scanner.pos = mesh.end()
        return mesh[0], position
    if name == "literal":
        # This value consists of a shape and its constant.
        scan_shape(scanner)
    if not (name == "padding" and _is_empty(match)):
        scanner.raw_value()
    return scanner.text[position : scanner.pos], position


def _is_empty(attribute: re.Match[str]) -> bool:
    """Whether an attribute has no value, as the padding of a scalar: it ends the line, or another one follows."""
    return "\n" in attribute[0].rpartition("=")[2] or attribute.string[attribute.end() :][:1] in ("", ",", "}")
