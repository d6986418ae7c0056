"""How ops of the Shardy dialect stand in MLIR text: `FORMS`."""

from __future__ import annotations

from hloom.stablehlo.mlir.ir import Attribute, DialectAttribute, Operation
from hloom.stablehlo.mlir.parser import Form, Parser, results_of


def _read_mesh(parser: Parser, name: str) -> Operation:
    """`sdy.mesh @mesh = <["x"=2]>`."""
    symbol = parser.scanner.symbol()
    parser.scanner.expect("=")
    mesh = DialectAttribute("sdy.mesh", parser.scanner.angled())
    return Operation(name, attributes={"sym_name": symbol, "mesh": mesh, **parser.optional_attributes()})


def _read_sharding_constraint(parser: Parser, name: str) -> Operation:
    """`sdy.sharding_constraint %a <@mesh, [{"x"}]> : type`."""
    operand = parser.operand()
    sharding = DialectAttribute("sdy.sharding", parser.scanner.angled())
    attributes = parser.optional_attributes()
    parser.scanner.expect(":", "and the operation's type")
    return Operation(name, [operand], results_of([parser.type()]), {"sharding": sharding, **attributes})


def _read_manual_computation(parser: Parser, name: str) -> Operation:
    """`(%a) in_shardings=[<..>] out_shardings=[<..>] manual_axes={"x"} (%b: type) {..} : types`."""
    scanner, at = parser.scanner, parser.scanner.pos
    operands = parser.listed("(", ")", parser.operand)
    attributes: dict[str, Attribute] = {}
    for word in ("in_shardings", "out_shardings"):
        scanner.expect(word)
        scanner.expect("=")
        bodies = parser.listed("[", "]", scanner.angled)
        shardings = ", ".join(f"<{body}>" for body in bodies)
        attributes[word] = DialectAttribute("sdy.sharding_per_value", f"[{shardings}]")
    scanner.expect("manual_axes")
    scanner.expect("=")
    axes = ", ".join(f'"{axis}"' for axis in parser.listed("{", "}", scanner.string))
    attributes["manual_axes"] = DialectAttribute("sdy.manual_axes", axes)
    region = parser.region(parser.listed("(", ")", parser.named_argument))
    operation = parser.finish(name, operands, attributes, at)
    operation.regions = [region]
    return operation


FORMS: dict[str, Form] = {
    "sdy.mesh": _read_mesh,
    "sdy.sharding_constraint": _read_sharding_constraint,
    "sdy.reshard": _read_sharding_constraint,
    "sdy.manual_computation": _read_manual_computation,
}
