"""Shapes in HLO text: `f32[2,<=3]{1,0:T(8,128)}`, `(f32[2], token[])` (SL-24, SL-26, SL-29).

`Shape.to_text` prints them.
"""

from __future__ import annotations

import functools
import re
from typing import Any

from hloom.errors import ParseError, RuleError
from hloom.layout import Layout, SplitConfig, Tile
from hloom.shape import TOKEN, UNBOUNDED, Shape
from hloom.text.scanner import MAX_NESTING, Scanner, scan_list, without_comments
from hloom.types import BY_NAME, PrimitiveType

_ARRAY = r"[a-z]\w*+\[[^\[\]{}()]*+\](?:\{(?:[\d:][^{}]*+)?\}|(?!\s*+\{))"
USUAL_SHAPE = re.compile(rf"{_ARRAY}|\((?:[^()]++|\([^()]*+\))*+\)")
"""Texts of arrays, and of tuples that do not nest deeply, which modules repeat."""
_LAYOUT = re.compile(r"\s*+\{(?=\s*+[\d:])|\{\}")
_ELEMENT_TYPE = re.compile(r"[a-z]\w*+")
_BUFFER = re.compile(r"b\s*+\(")
_SIZE = re.compile(r"(<=)?\s*(\?|\d++)")
_DIM_LEVEL_TYPES = re.compile(r"D\((?:\s*+[DCSH]\s*+\+?\s*+~?\s*+(?:,|(?=\))))*+\s*+\)\s*+")
"""Storage formats of the dimensions of sparse arrays, which XLA reads and ignores."""
_OPAQUE = Shape(PrimitiveType.OPAQUE)


def parse_shape(text: str) -> Shape:
    """Parses the text of a shape; raises ParseError, with line, column and caret, for anything else.

    >>> hl.parse_shape("f32[2,3]{0,1}")
    Shape(f32[2,3]{0,1})
    """
    scanner = Scanner(without_comments(text), text)
    shape = _scan(scanner, 0)
    scanner.expect_end("shape")
    return shape


@functools.lru_cache(maxsize=16384)
def usual_shape(text: str) -> Shape | None:
    """The shape of a text that `USUAL_SHAPE` matches; None if it is malformed."""
    try:
        return parse_shape(text)
    except ParseError:
        return None


def scan_shape(scanner: Scanner, depth: int = 0) -> Shape:
    """Reads a shape inside of `depth` tuples; raises ParseError for anything else."""
    scanner.skip()
    match = USUAL_SHAPE.match(scanner.text, scanner.pos)
    shape = usual_shape(match[0]) if match else None
    if match and shape:
        scanner.pos = match.end()
        return shape
    # A malformed shape is read in place, for the position of the error in the full text.
    return _scan(scanner, depth)


def _scan(scanner: Scanner, depth: int) -> Shape:
    if depth > MAX_NESTING:
        scanner.fail(f"tuples nest more than {MAX_NESTING} deep")
    if scanner.peek("("):
        return Shape.tuple_of(
            scan_list(scanner, lambda s: scan_shape(s, depth + 1), "(", ")", "between tuple elements")
        )
    if scanner.match(_BUFFER):
        buffer = Shape.buffer_of(_scan(scanner, depth + 1))
        scanner.expect(")", "at the end of a buffer")
        return buffer
    return _scan_array(scanner)


def _scan_array(scanner: Scanner) -> Shape:
    """Reads the shape of an array, or of a token or an opaque value, which have no dimensions."""
    start = scanner.pos
    match = scanner.match(_ELEMENT_TYPE)
    if not match or match[0] not in BY_NAME or match[0] in ("tuple", "buffer"):
        scanner.fail(f"expected a shape, got {scanner.text[start : start + 20]!r}", start)
    element_type = BY_NAME[match[0]]
    if not scanner.peek("["):
        scanner.fail(f"expected '[' with the sizes of a shape, got {scanner.preview()}")
    sizes = scan_list(scanner, _scan_size, "[", "]", "between sizes")
    dimensions, dynamic = [size for size, _ in sizes], [is_dynamic for _, is_dynamic in sizes]
    if not element_type.is_array:
        if dimensions:
            scanner.fail(f"{element_type} has no dimensions", start)
        if scanner.text.startswith("{}", scanner.pos):
            scanner.pos += 2
        return TOKEN if element_type is PrimitiveType.TOKEN else _OPAQUE
    # A brace may also open a computation: it opens a layout only before an integer or a colon.
    layout = scan_layout(scanner, len(dimensions)) if _LAYOUT.match(scanner.text, scanner.pos) else None
    try:
        return Shape.array(element_type, dimensions, dynamic, layout)
    except RuleError as error:
        scanner.fail(error.message, start)


def _scan_size(scanner: Scanner) -> tuple[int, bool]:
    """Reads the size of a dimension; returns it, and whether the dimension is dynamic."""
    match = scanner.expect_match(_SIZE, "a size")
    if match[2] == "?":
        if match[1]:
            scanner.fail("a size is '?', or has a bound as in <=10", match.start())
        return UNBOUNDED, True
    if len(match[2]) > 19 or int(match[2]) >= 2**63:
        scanner.fail(f"size {match[2][:30]} does not fit 64 bits", match.start())
    return int(match[2]), bool(match[1])


def scan_layout(scanner: Scanner, rank: int) -> Layout:
    """Reads a layout, `{1,0:T(8,128)E(4)S(1)}`; without dimension numbers it has the default order for the rank.

    Raises ParseError for anything else.
    """
    scanner.expect("{")
    order: list[int] = []
    while not (scanner.text.startswith((":", "}"), scanner.pos) or scanner.at_end()):
        if order:
            scanner.expect(",", "between dimension numbers")
        order.append(scanner.integer("a dimension number"))
        scanner.skip()
    if not order:
        order = list(range(rank - 1, -1, -1))
    fields = _scan_layout_fields(scanner) if scanner.take(":") else {}
    scanner.expect("}", "at the end of a layout")
    return Layout(tuple(order), **fields)


def _scan_layout_fields(scanner: Scanner) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    scanner.match(_DIM_LEVEL_TYPES)
    while not scanner.text.startswith("}", scanner.pos):
        if scanner.take("T"):
            tiles = []
            while scanner.peek("("):
                tiles.append(_scan_tile(scanner))
            fields["tiles"] = tuple(tiles)
        elif scanner.take("SC("):
            fields["split_configs"] = (*fields.get("split_configs", ()), _scan_split_config(scanner))
        elif scanner.take("P("):
            fields["physical_shape"] = _scan(scanner, 1)
            scanner.expect(")")
        elif scanner.take("#("):
            fields["index_primitive_type"] = _scan_type(scanner)
        elif scanner.take("*("):
            fields["pointer_primitive_type"] = _scan_type(scanner)
        else:
            prefix = next((prefix for prefix in _NUMBER_FIELDS if scanner.take(prefix + "(")), None)
            if prefix is None:
                scanner.fail(f"expected a layout field T, L, #, *, E, S, SC, P or M, got {scanner.preview()}")
            fields[_NUMBER_FIELDS[prefix]] = scanner.integer()
            scanner.expect(")")
        scanner.skip()
    return fields


def _scan_split_config(scanner: Scanner) -> SplitConfig:
    """Reads a split configuration, whose opening parenthesis is read."""
    dimension = scanner.integer()
    scanner.expect(":")
    splits = [scanner.integer()]
    while scanner.take(","):
        splits.append(scanner.integer())
    scanner.expect(")")
    return SplitConfig(dimension, tuple(splits))


_NUMBER_FIELDS = {
    "L": "tail_padding_alignment_in_elements",
    "E": "element_size_in_bits",
    "S": "memory_space",
    "M": "dynamic_shape_metadata_prefix_bytes",
}


def _scan_tile(scanner: Scanner) -> Tile:
    return Tile(tuple(scan_list(scanner, _scan_tile_size, "(", ")", "between tile sizes")))


def _scan_tile_size(scanner: Scanner) -> int:
    return Tile.COMBINE if scanner.take("*") else scanner.integer("a tile size")


def _scan_type(scanner: Scanner) -> PrimitiveType:
    start = scanner.pos
    name = scanner.name("an element type")
    if name not in BY_NAME:
        scanner.fail(f"there is no element type {name!r}", start)
    scanner.expect(")")
    return BY_NAME[name]
