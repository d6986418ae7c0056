"""Readers of the custom assembly formats of Shardy ops that are not templates: `FORMS`.

Readers raise ParseError with the position.
"""

from __future__ import annotations

from collections.abc import Callable

from hloom.stablehlo.mlir.ir import Attribute, DialectAttribute, Number, Operation
from hloom.stablehlo.mlir.parser import Form, Parser, results_of
from hloom.stablehlo.mlir.types import I32


def _read_manual_computation(parser: Parser, name: str) -> Operation:
    """Reads `(%a) in_shardings=[<..>] out_shardings=[<..>] manual_axes={"x"} (%b: type) {..} : types`."""
    scanner, at = parser.scanner, parser.scanner.pos
    operands = parser.comma_separated("(", ")", parser.operand)
    attributes: dict[str, Attribute] = {}
    for word in ("in_shardings", "out_shardings"):
        scanner.expect_tokens(f"{word} =")
        bodies = parser.comma_separated("[", "]", scanner.angled)
        shardings = ", ".join(f"<{body}>" for body in bodies)
        attributes[word] = DialectAttribute("sdy.sharding_per_value", f"[{shardings}]")
    scanner.expect_tokens("manual_axes =")
    axes = ", ".join(f'"{axis}"' for axis in parser.comma_separated("{", "}", scanner.string))
    attributes["manual_axes"] = DialectAttribute("sdy.manual_axes", axes)
    region = parser.region(parser.comma_separated("(", ")", parser.named_argument))
    return parser.finish(name, operands, attributes, at, [region])


def _read_collective(parser: Parser, name: str) -> Operation:
    """Reads `sdy.all_gather [{"x"}, {}] %a out_sharding=<@mesh, [{}, {}]> : type`; the axes are redundant."""
    scanner = parser.scanner
    if not scanner.peek("%"):
        scanner.raw_value()
    operand = parser.operand()
    scanner.expect_tokens("out_sharding =")
    attributes = {"out_sharding": parser.attribute_or_body("sdy.sharding"), **parser.optional_attributes()}
    scanner.expect(":", "and the operation's type")
    return Operation(name, [operand], results_of([parser.type()]), attributes)


COLLECTIVES = (
    *("all_gather", "all_reduce", "all_slice", "all_to_all", "collective_permute", "reduce_scatter"),
    *("sharded_to_unreduced", "replicated_to_unreduced"),
)
_DIRECTIONS = ("NONE", "FORWARD", "BACKWARD", "BOTH")


def _read_direction(parser: Parser) -> Attribute:
    at = parser.scanner.pos
    word = parser.scanner.word("a direction")
    if word not in _DIRECTIONS:
        parser.scanner.fail(f"there is no direction {word}; there is: {', '.join(_DIRECTIONS)}", at)
    return Number(_DIRECTIONS.index(word), I32)


VALUES: dict[str, Callable[[Parser], Attribute]] = {
    "allowed_direction": _read_direction,
    "mesh": lambda parser: parser.attribute_or_body("sdy.mesh"),
    "sharding": lambda parser: parser.attribute_or_body("sdy.sharding"),
}
"""Readers of attributes in templates."""

FORMS: dict[str, Form] = {
    "sdy.manual_computation": _read_manual_computation,
    **{f"sdy.{name}": _read_collective for name in COLLECTIVES},
}
