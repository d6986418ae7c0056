"""Readers of the custom assembly formats of ops with regions: while, reduce, scan. They raise ParseError."""

from __future__ import annotations

import re

from hloom.stablehlo.mlir.ir import Attribute, Block, Operation, Region, TensorType, Type, Value
from hloom.stablehlo.mlir.parser import Form, Parser, results_of
from hloom.stablehlo.mlir.types import i64_array

_INITIALISED = re.compile(r"%([\w$.\-]++)\s*+=")


def _while(parser: Parser, name: str) -> Operation:
    """Reads `(%it = %init, ..) : types attributes {..} cond {..} do {..}`."""
    scanner, at = parser.scanner, parser.scanner.pos
    names: list[str] = []

    def entry() -> Value:
        names.append(scanner.expect_match(_INITIALISED, "%name = %value")[1])
        return parser.operand()

    operands = parser.comma_separated("(", ")", entry)
    types = parser.type_list() if scanner.take(":") else []
    parser.check_types(operands, types, at)
    attributes = parser.dictionary() if scanner.take_word("attributes") else {}
    regions = []
    for word in ("cond", "do"):
        scanner.expect_word(word, "and a region")
        regions.append(parser.region([(n, Value(t)) for n, t in zip(names, types, strict=True)]))
    return Operation(name, operands, results_of(types), attributes, regions)


def _reduce(parser: Parser, name: str) -> Operation:
    """Reads `(%a init: %b), (..) applies stablehlo.add across dimensions = [0] : ..`, or the form with a region."""
    scanner, at = parser.scanner, parser.scanner.pos
    inputs: list[Value] = []
    inits: list[Value] = []
    while scanner.take("("):
        inputs.append(parser.operand())
        scanner.expect_tokens("init :")
        inits.append(parser.operand())
        scanner.expect(")")
        scanner.take(",")
    applied = scanner.word("an operation") if scanner.take_word("applies") else ""
    scanner.expect_tokens("across dimensions =")
    attributes: dict[str, Attribute] = {"dimensions": parser.array()}
    operation = parser.finish(name, inputs + inits, attributes, at)
    operation.regions = [_applied(parser, applied, inits[0].type) if applied else _reducer(parser)]
    return operation


def _applied(parser: Parser, applied: str, type_: Type) -> Region:
    """Builds the region that applies a binary operation to its arguments."""
    if applied not in parser.forms:
        parser.scanner.fail(f"there is no operation {applied!r} to apply")
    element: Type = TensorType((), type_.element_type) if isinstance(type_, TensorType) else type_
    left, right, result = Value(element, "lhs"), Value(element, "rhs"), Value(element, "result")
    dialect = applied.partition(".")[0]
    body = [Operation(applied, [left, right], [result]), Operation(f"{dialect}.return", [result])]
    for operation in body:
        parser.set_position(operation, parser.scanner.pos)
    return Region([Block([left, right], body)])


def _reducer(parser: Parser) -> Region:
    """Reads `reducer(%a: T, %b: T) (%c: T, %d: T) {..}`; the region takes the first of each pair, then the second."""
    parser.scanner.expect_word("reducer", "and a region")
    pairs: list[list[tuple[str, Value]]] = []
    while parser.scanner.peek("("):
        at = parser.scanner.pos
        pairs.append(parser.comma_separated("(", ")", parser.named_argument))
        if len(pairs[-1]) != 2:
            parser.scanner.fail(f"a reducer's arguments come in pairs, got {len(pairs[-1])}", at)
    return parser.region([pair[0] for pair in pairs] + [pair[1] for pair in pairs])


def _scan(parser: Parser, name: str) -> Operation:
    """Reads `(%inputs) inits (%inits) dimension = 0 attributes {..} {region} : types`."""
    scanner, at = parser.scanner, parser.scanner.pos
    inputs = parser.comma_separated("(", ")", parser.operand)
    scanner.expect("inits")
    inits = parser.comma_separated("(", ")", parser.operand)
    attributes: dict[str, Attribute] = {}
    while not scanner.peek("{"):
        word = scanner.word("an attribute or the region")
        if word == "attributes":
            attributes |= parser.dictionary()
            continue
        scanner.expect("=")
        attributes[word] = parser.attribute()
    region = parser.region()
    attributes["operandSegmentSizes"] = i64_array([len(inputs), len(inits)])
    return parser.finish(name, inputs + inits, attributes, at, [region])


FORMS: dict[str, Form] = {
    "stablehlo.while": _while,
    "stablehlo.reduce": _reduce,
    "chlo.scan": _scan,
    "mhlo.scan": _scan,
}
