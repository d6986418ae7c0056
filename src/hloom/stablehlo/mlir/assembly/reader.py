"""Readers of the custom assembly formats of ops: `stablehlo.transpose %0, dims = [1, 0] : (..) -> ..`.

Most formats are templates (`assembly/formats.py`), and `_VALUES` reads the attributes in them; the others are
functions. Readers raise ParseError with the position.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NoReturn

import numpy as np

from hloom.stablehlo.mlir.assembly import regions, shardy
from hloom.stablehlo.mlir.assembly.formats import PLACEHOLDER, READ_FORMATS, WINDOW_WORDS
from hloom.stablehlo.mlir.ir import (
    Attribute,
    DenseArray,
    DenseElements,
    DialectAttribute,
    FunctionType,
    Number,
    Operation,
    ScalarType,
    Symbol,
    TensorType,
    Type,
)
from hloom.stablehlo.mlir.lexer import NUMBER
from hloom.stablehlo.mlir.parser import Form, Parser, results_of
from hloom.stablehlo.mlir.types import I1, I32, i64, i64_array, i64_table, type_text

# Attributes in custom formats

_INTEGER_TYPE = re.compile(r":\s*+i(?:64|32)(?!\w)")


def _integer(parser: Parser) -> Attribute:
    """Reads `1`, optionally followed by ` : i64`."""
    value = i64(parser.scanner.integer())
    parser.scanner.match(_INTEGER_TYPE)
    return value


def _short_integer(parser: Parser) -> Attribute:
    return Number(parser.scanner.integer(), I32)


def _boolean(parser: Parser) -> bool:
    """Reads `true`, `false`, `1` or `0`."""
    match = parser.scanner.match(NUMBER)
    return match[0] != "0" if match else parser.scanner.word("true or false") == "true"


def _enumeration(name: str) -> Callable[[Parser], Attribute]:
    def read(parser: Parser) -> Attribute:
        if parser.scanner.peek("#"):
            return parser.attribute()
        return DialectAttribute(f"stablehlo.{name}", parser.scanner.word(f"a {name}"))

    return read


_VALUES: dict[str, Callable[[Parser], Attribute]] = {
    **dict.fromkeys(("broadcast_dimensions", "broadcast_sizes", "slice_sizes", "fft_length"), Parser.array),
    **dict.fromkeys(("edge_padding_low", "edge_padding_high", "interior_padding"), Parser.array),
    **dict.fromkeys(("dimensions", "permutation"), Parser.array),
    **dict.fromkeys(("dimension", "iota_dimension", "k", "group_id"), _integer),
    **dict.fromkeys(("exponent_bits", "mantissa_bits", "index"), _short_integer),
    **dict.fromkeys(("lower", "largest"), _boolean),
    **dict.fromkeys(("einsum_config", "name"), lambda parser: parser.scanner.string()),
    **dict.fromkeys(("call_target_name", "sym_name"), lambda parser: parser.scanner.symbol()),
    **{name: _enumeration(name) for name in ("comparison_direction", "fft_type", "rng_distribution", "rng_algorithm")},
    "callee": lambda parser: Symbol(parser.scanner.symbol()),
    "compare_type": _enumeration("comparison_type"),
    **shardy.VALUES,
}


# Templates

_PIECE = re.compile(rf"{PLACEHOLDER.pattern}|(\w+|->|[^\s\w])")
_TOKEN = re.compile(r"\w+|,|=")


def template_form(text: str) -> Form:
    """Returns the reader of a template (`assembly/formats.py`)."""
    pieces = [(_TOKEN.findall(match[1] or ""), match[2], match[3]) for match in _PIECE.finditer(text)]

    def read(parser: Parser, name: str) -> Operation:
        scanner, operation = parser.scanner, Operation(name)
        at = scanner.pos
        types: list[Type] | None = None
        results: list[Type] = []
        for prefix, placeholder, literal in pieces:
            if literal:
                scanner.expect(literal, f"in {name}")
            elif placeholder == "operands":
                operation.operands = parser.operands()
            elif placeholder == "attributes":
                operation.attributes |= parser.optional_attributes()
            elif placeholder in _BOTH_TYPES:
                types, results = _BOTH_TYPES[placeholder](parser, len(operation.operands))
            elif placeholder == "operand_types":
                types = parser.type_list()
            elif placeholder == "results":
                results = list(parser.result_types()) if scanner.peek("(") else parser.type_list()
            elif not prefix or scanner.peek(","):
                for token in prefix:
                    scanner.expect(token, f"in {name}")
                operation.attributes[placeholder] = _VALUES[placeholder](parser)
        if types is not None:
            parser.check_types(operation.operands, types, at)
        operation.results = results_of(results)
        return operation

    return read


TypesReader = Callable[[Parser, int], tuple[list[Type] | None, list[Type]]]
"""Reads the types of a number of operands, None for types that the text omits, and of the results."""


def _function_type_or(read: Callable[[Type, Parser, int], tuple[list[Type] | None, list[Type]]]) -> TypesReader:
    """Returns a reader of a function type, or else of what follows another type, by `read`."""

    def read_types(parser: Parser, count: int) -> tuple[list[Type] | None, list[Type]]:
        first = parser.type()
        if isinstance(first, FunctionType):
            return list(first.inputs), list(first.results)
        return read(first, parser, count)

    return read_types


def _types(first: Type, parser: Parser, count: int) -> NoReturn:
    parser.scanner.fail(f"expected (types) -> types, got {type_text(first)}")


def _select_types(first: Type, parser: Parser, count: int) -> tuple[list[Type], list[Type]]:
    parser.scanner.expect(",")
    result = parser.type()
    return [first, result, result], [result]


_BOTH_TYPES: dict[str, TypesReader] = {
    "types": _function_type_or(_types),
    "same": _function_type_or(lambda first, parser, count: ([first] * count, [first])),
    "result": _function_type_or(lambda first, parser, count: (None, [first])),
    "select_types": _function_type_or(_select_types),
}


# Formats that are not templates


def _constant(parser: Parser, name: str) -> Operation:
    """Reads `stablehlo.constant {..} dense<..> : type` or `arith.constant 1 : i32`; older files have operands `()`."""
    scanner = parser.scanner
    if scanner.peek("()"):
        scanner.take("()")
        attributes = {}
        if scanner.take("<"):
            attributes = parser.dictionary()
            scanner.expect(">")
        return parser.finish(name, [], attributes, scanner.pos)
    attributes = parser.optional_attributes()
    at = scanner.pos
    value = parser.attribute()
    type_ = I1 if isinstance(value, bool) else getattr(value, "type", None)
    if not isinstance(type_, TensorType) and (name != "arith.constant" or type_ is None):
        scanner.fail("a constant holds dense<..> : tensor<..>", at)
    # A quantised constant has its own type after the type of its stored integers.
    results: list[Type] = [type_]
    if scanner.take("->") or scanner.take(":"):
        results = [parser.type()]
    return Operation(name, [], results_of(results), {"value": value, **attributes})


def _constant_shape(parser: Parser, name: str) -> Operation:
    """Reads `shape.const_shape [4, 32] : tensor<2xindex>`."""
    attributes = parser.optional_attributes()
    at = parser.scanner.pos
    sizes = np.array(parser.integers(), np.int64)
    parser.scanner.expect(":", "and a type")
    type_ = parser.tensor_type()
    if type_.dimensions != sizes.shape:
        parser.scanner.fail(f"{len(sizes)} sizes do not make a {type_text(type_)}", at)
    return Operation(name, [], results_of([type_]), {"value": DenseElements(type_, sizes), **attributes})


def _return(parser: Parser, name: str) -> Operation:
    """Reads `return %a {..} : type`; in func and Shardy, attributes come before the operands."""
    attributes = parser.optional_attributes()
    at = parser.scanner.pos
    operands = parser.operands()
    attributes |= parser.optional_attributes()
    if operands and parser.scanner.take(":"):
        types = parser.type_list()
        parser.check_types(operands, types, at)
    return Operation(name, operands, [], attributes)


def _optimization_barrier(parser: Parser, name: str) -> Operation:
    """Reads `{..} %a, %b : types`, or `()` without operands."""
    attributes = parser.optional_attributes()
    at = parser.scanner.pos
    if parser.scanner.take("()"):
        return Operation(name, attributes=attributes)
    operands = parser.operands()
    parser.scanner.expect(":", "and the operands' types")
    types = parser.type_list()
    parser.check_types(operands, types, at)
    return Operation(name, operands, results_of(types), attributes)


def _slice(parser: Parser, name: str) -> Operation:
    """Reads `%a [0:4, 1:9:2] : (..) -> ..`."""
    scanner, at = parser.scanner, parser.scanner.pos
    operand = parser.operand()
    rows: list[tuple[int, int, int]] = []

    def entry() -> None:
        start = scanner.integer()
        scanner.expect(":")
        limit = scanner.integer()
        rows.append((start, limit, scanner.integer() if scanner.take(":") else 1))

    parser.comma_separated("[", "]", entry)
    columns = list(zip(*rows, strict=True)) or [(), (), ()]
    names = ("start_indices", "limit_indices", "strides")
    return parser.finish(name, [operand], {n: i64_array(c) for n, c in zip(names, columns, strict=True)}, at)


def _pair(parser: Parser) -> tuple[list[Attribute], list[Attribute]]:
    """Reads `[0, 1] x [1, 0]`."""
    left: list[Attribute] = list(map(i64, parser.integers()))
    parser.scanner.expect("x")
    return left, list(map(i64, parser.integers()))


def _dot_general(parser: Parser, name: str) -> Operation:
    """Reads `%a, %b, batching_dims = [0] x [0], contracting_dims = [2] x [1], precision = [..], algorithm = <..>`."""
    scanner, at = parser.scanner, parser.scanner.pos
    operands = parser.operands()
    dimension_numbers: dict[str, Attribute] = {}
    attributes: dict[str, Attribute] = {}
    while scanner.take(","):
        word = scanner.word("a word like contracting_dims")
        scanner.expect("=")
        if word in ("batching_dims", "contracting_dims"):
            kind = word.removesuffix("_dims")
            dimension_numbers[f"lhs_{kind}_dimensions"], dimension_numbers[f"rhs_{kind}_dimensions"] = _pair(parser)
        elif word == "precision":
            attributes["precision_config"] = parser.comma_separated("[", "]", lambda: _enumeration("precision")(parser))
        elif word == "algorithm":
            attributes["algorithm"] = parser.attribute_or_body("stablehlo.dot_algorithm")
        else:
            scanner.fail(f"{name} has no {word}")
    if name == "stablehlo.dot_general":
        attributes["dot_dimension_numbers"] = DialectAttribute("stablehlo.dot", dimension_numbers)
    return parser.finish(name, operands, attributes, at)


_CONVOLUTION_DIMENSIONS = re.compile(r"\[[^\]]*+\]\s*+x\s*+\[[^\]]*+\]\s*+->\s*+\[[^\]]*+\]")


def _convolution(parser: Parser, name: str) -> Operation:
    """Reads `(%a, %b) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {stride = [1], ..} {..} : ..`."""
    scanner, at = parser.scanner, parser.scanner.pos
    operands = parser.comma_separated("(", ")", parser.operand)
    scanner.expect_tokens("dim_numbers =")
    match = scanner.expect_match(_CONVOLUTION_DIMENSIONS, "[b, 0, f]x[0, i, o]->[b, 0, f]")
    attributes: dict[str, Attribute] = {"dimension_numbers": DialectAttribute("stablehlo.conv", match[0])}
    scanner.expect_tokens(", window = {")

    def entry() -> None:
        word = scanner.word("a word like stride")
        if word not in WINDOW_WORDS:
            scanner.fail(f"a window has no {word}; it has: {', '.join(WINDOW_WORDS)}")
        scanner.expect("=")
        if word == "pad":
            rows = parser.comma_separated("[", "]", parser.integers)
            if any(len(row) != 2 for row in rows):
                scanner.fail("pad is a list of pairs [low, high]")
            attributes["padding"] = i64_table(rows)
        elif word == "reverse":
            attributes["window_reversal"] = DenseArray(
                I1, tuple(parser.comma_separated("[", "]", lambda: _boolean(parser)))
            )
        else:
            attributes[WINDOW_WORDS[word]] = parser.array()

    parser.fields("}", entry)
    return parser.finish(name, operands, attributes, at)


def _random_state(parser: Parser, name: str) -> Operation:
    """Reads `mhlo.xla.rng_get_and_update_state {delta = 1 : i64}`."""
    attributes = parser.optional_attributes()
    return Operation(name, [], results_of([TensorType((2,), ScalarType("ui64"))]), attributes)


FORMS: dict[str, Form] = {
    **{name: template_form(template) for name, template in READ_FORMATS.items()},
    "builtin.module": Parser.module,
    "func.func": Parser.function,
    **dict.fromkeys(("func.return", "stablehlo.return", "sdy.return"), _return),
    **dict.fromkeys(("stablehlo.constant", "chlo.constant", "arith.constant", "sdy.constant"), _constant),
    **dict.fromkeys(("stablehlo.dot", "stablehlo.dot_general"), _dot_general),
    "stablehlo.optimization_barrier": _optimization_barrier,
    "stablehlo.slice": _slice,
    "stablehlo.convolution": _convolution,
    "shape.const_shape": _constant_shape,
    "mhlo.xla.rng_get_and_update_state": _random_state,
    **regions.FORMS,
    **shardy.FORMS,
}
# MHLO, StableHLO's predecessor, has the same formats.
FORMS |= {name.replace("stablehlo.", "mhlo."): form for name, form in FORMS.items() if name.startswith("stablehlo.")}
