"""Readers of the custom assembly formats of Shardy ops: `FORMS`. They raise ParseError with the position."""

from __future__ import annotations

from hloom.stablehlo.mlir.ir import Attribute, DialectAttribute, Number, Operation
from hloom.stablehlo.mlir.parser import Form, Parser, results_of
from hloom.stablehlo.mlir.types import I32, i64


def _read_mesh(parser: Parser, name: str) -> Operation:
    """Reads `sdy.mesh @mesh = <["x"=2]>`."""
    symbol = parser.scanner.symbol()
    parser.scanner.expect("=")
    mesh = _attribute(parser, "sdy.mesh")
    return Operation(name, attributes={"sym_name": symbol, "mesh": mesh, **parser.optional_attributes()})


def _attribute(parser: Parser, name: str) -> Attribute:
    """Reads `<..>` or, with the attribute's name, `#sdy.mesh<..>`."""
    return parser.attribute() if parser.scanner.peek("#") else DialectAttribute(name, parser.scanner.angled())


def _read_sharding_constraint(parser: Parser, name: str) -> Operation:
    """Reads `sdy.sharding_constraint %a <@mesh, [{"x"}]> : type`."""
    operand = parser.operand()
    sharding = _attribute(parser, "sdy.sharding")
    attributes = parser.optional_attributes()
    parser.scanner.expect(":", "and the operation's type")
    return Operation(name, [operand], results_of([parser.type()]), {"sharding": sharding, **attributes})


def _read_manual_computation(parser: Parser, name: str) -> Operation:
    """Reads `(%a) in_shardings=[<..>] out_shardings=[<..>] manual_axes={"x"} (%b: type) {..} : types`."""
    scanner, at = parser.scanner, parser.scanner.pos
    operands = parser.comma_separated("(", ")", parser.operand)
    attributes: dict[str, Attribute] = {}
    for word in ("in_shardings", "out_shardings"):
        scanner.expect(word)
        scanner.expect("=")
        bodies = parser.comma_separated("[", "]", scanner.angled)
        shardings = ", ".join(f"<{body}>" for body in bodies)
        attributes[word] = DialectAttribute("sdy.sharding_per_value", f"[{shardings}]")
    scanner.expect("manual_axes")
    scanner.expect("=")
    axes = ", ".join(f'"{axis}"' for axis in parser.comma_separated("{", "}", scanner.string))
    attributes["manual_axes"] = DialectAttribute("sdy.manual_axes", axes)
    region = parser.region(parser.comma_separated("(", ")", parser.named_argument))
    operation = parser.finish(name, operands, attributes, at)
    operation.regions = [region]
    return operation


def _read_collective(parser: Parser, name: str) -> Operation:
    """Reads `sdy.all_gather [{"x"}, {}] %a out_sharding=<@mesh, [{}, {}]> : type`; the axes are redundant."""
    scanner = parser.scanner
    if not scanner.peek("%"):
        scanner.raw_value()
    operand = parser.operand()
    scanner.expect("out_sharding")
    scanner.expect("=")
    sharding = _attribute(parser, "sdy.sharding")
    attributes = {"out_sharding": sharding, **parser.optional_attributes()}
    scanner.expect(":", "and the operation's type")
    return Operation(name, [operand], results_of([parser.type()]), attributes)


COLLECTIVES = (
    *("all_gather", "all_reduce", "all_slice", "all_to_all", "collective_permute", "reduce_scatter"),
    *("sharded_to_unreduced", "replicated_to_unreduced"),
)
_DIRECTIONS = ("NONE", "FORWARD", "BACKWARD", "BOTH")


def _read_propagation_barrier(parser: Parser, name: str) -> Operation:
    """Reads `sdy.propagation_barrier %a allowed_direction=FORWARD : type`."""
    scanner = parser.scanner
    operand = parser.operand()
    scanner.expect("allowed_direction")
    scanner.expect("=")
    at = scanner.pos
    word = scanner.word("a direction")
    if word not in _DIRECTIONS:
        scanner.fail(f"there is no direction {word}; there is: {', '.join(_DIRECTIONS)}", at)
    attributes = {"allowed_direction": Number(_DIRECTIONS.index(word), I32), **parser.optional_attributes()}
    scanner.expect(":", "and the operation's type")
    return Operation(name, [operand], results_of([parser.type()]), attributes)


def _read_sharding_group(parser: Parser, name: str) -> Operation:
    """Reads `sdy.sharding_group %a group_id=21 : type`."""
    scanner = parser.scanner
    operand = parser.operand()
    scanner.expect("group_id")
    scanner.expect("=")
    attributes = {"group_id": i64(scanner.integer()), **parser.optional_attributes()}
    scanner.expect(":", "and the operand's type")
    parser.type()
    return Operation(name, [operand], [], attributes)


FORMS: dict[str, Form] = {
    "sdy.mesh": _read_mesh,
    "sdy.sharding_constraint": _read_sharding_constraint,
    "sdy.reshard": _read_sharding_constraint,
    "sdy.manual_computation": _read_manual_computation,
    "sdy.propagation_barrier": _read_propagation_barrier,
    "sdy.sharding_group": _read_sharding_group,
    **{f"sdy.{name}": _read_collective for name in COLLECTIVES},
}
