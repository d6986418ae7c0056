"""Readers of the custom assembly formats of ops: `stablehlo.transpose %0, dims = [1, 0] : (..) -> ..`.

Most formats are templates (`printer.FORMATS` explains the placeholders), which the printer shares; `_VALUES` reads the
attributes in them. The others are functions. The formats are those of StableHLO's TableGen files (StablehloOps.td,
AssemblyFormat.cpp). Readers raise ParseError with the position.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np

from hloom.stablehlo.mlir import shardy_forms
from hloom.stablehlo.mlir.ir import (
    Attribute,
    Block,
    DenseArray,
    DenseElements,
    DialectAttribute,
    FunctionType,
    Number,
    Operation,
    Region,
    ScalarType,
    Symbol,
    TensorType,
    TupleType,
    Type,
    Value,
)
from hloom.stablehlo.mlir.lexer import NUMBER
from hloom.stablehlo.mlir.parser import Form, Parser, results_of
from hloom.stablehlo.mlir.printer import FORMATS
from hloom.stablehlo.mlir.types import I1, I32, i64, i64_array, i64_table, type_text

_SAME = "{operands}{attributes} : {same}"
_TYPES = "{operands}{attributes} : {types}"
_ARROW = "{operands}{attributes} : {operand_types} -> {results}"
_BROADCASTING = "{operands}{attributes} : ({operand_types}) -> {results}"

# Templates of ops that are only read, beyond the printer's.
_BY_TEMPLATE = {
    _SAME: "uniform_quantize uniform_dequantize",
    _TYPES: "real_dynamic_slice dynamic_pad",
    "{operands}, dims = {broadcast_dimensions}{attributes} : {types}": "dynamic_broadcast_in_dim",
    "{operands}, sizes = {broadcast_sizes}{attributes} : {types}": "broadcast",
    "{operands}, dim = {iota_dimension}{attributes} : {types}": "dynamic_iota",
    "{operands}, config = {einsum_config}{attributes} : {types}": "einsum unary_einsum",
}
_CHLO = {
    _ARROW: "atan bessel_i1e conj tan constant_like digamma erf_inv erfc is_inf is_neg_inf is_pos_inf lgamma square "
    "next_after polygamma zeta",
    _BROADCASTING: "broadcast_add broadcast_atan2 broadcast_divide broadcast_maximum broadcast_minimum "
    "broadcast_multiply broadcast_next_after broadcast_polygamma broadcast_power broadcast_remainder "
    "broadcast_shift_left broadcast_shift_right_arithmetic broadcast_shift_right_logical broadcast_subtract "
    "broadcast_zeta broadcast_compare broadcast_and broadcast_or broadcast_xor broadcast_complex broadcast_select",
}

TEMPLATES: dict[str, str] = {
    **FORMATS,
    **{f"stablehlo.{name}": template for template, names in _BY_TEMPLATE.items() for name in names.split()},
    **{f"chlo.{name}": template for template, names in _CHLO.items() for name in names.split()},
}


# Attributes in custom formats


def _array(parser: Parser) -> DenseArray:
    """Reads `[1, 2]`, `array<i64: 1, 2>` or `dense<..>`."""
    if not parser.scanner.peek("["):
        value = parser.attribute()
        return value if isinstance(value, DenseArray) else parser.scanner.fail("expected [numbers]")
    return i64_array(parser.comma_separated("[", "]", parser.scanner.integer))


def _integer(parser: Parser) -> Attribute:
    """Reads `1`, optionally followed by ` : i64`."""
    value = i64(parser.scanner.integer())
    before = parser.scanner.pos
    if parser.scanner.take(":") and parser.word_ahead() in ("i64", "i32"):
        parser.type()
    else:
        parser.scanner.pos = before
    return value


def _enumeration(name: str) -> Callable[[Parser], Attribute]:
    def read(parser: Parser) -> Attribute:
        if parser.scanner.peek("#"):
            return parser.attribute()
        return DialectAttribute(f"stablehlo.{name}", parser.scanner.word(f"a {name}"))

    return read


_VALUES: dict[str, Callable[[Parser], Attribute]] = {
    **dict.fromkeys(("broadcast_dimensions", "broadcast_sizes", "slice_sizes", "fft_length"), _array),
    **dict.fromkeys(("edge_padding_low", "edge_padding_high", "interior_padding"), _array),
    **dict.fromkeys(("dimensions", "permutation"), _array),
    "dimension": _integer,
    "iota_dimension": _integer,
    "fft_type": _enumeration("fft_type"),
    "rng_distribution": _enumeration("rng_distribution"),
    "rng_algorithm": _enumeration("rng_algorithm"),
    "einsum_config": lambda parser: parser.scanner.string(),
}


# Templates

_PIECE = re.compile(r"\{(\w+)\}|(\w+|->|[^\s\w])")


def _template(text: str) -> Form:
    """Makes the reader of a template."""
    pieces = [(match[1] or "", match[2] or "") for match in _PIECE.finditer(text)]

    def read(parser: Parser, name: str) -> Operation:
        operation = Operation(name)
        at = parser.scanner.pos
        types: list[Type] | None = None
        results: list[Type] | None = None
        for placeholder, literal in pieces:
            if literal:
                parser.scanner.expect(literal, f"in {name}")
            elif placeholder == "operands":
                operation.operands = parser.operands()
            elif placeholder == "attributes":
                operation.attributes |= parser.optional_attributes()
            elif placeholder in ("same", "types"):
                types, results = _types(parser, placeholder, len(operation.operands))
            elif placeholder == "operand_types":
                types = _type_list(parser)
            elif placeholder == "results":
                results = list(parser.result_types()) if parser.scanner.peek("(") else _type_list(parser)
            else:
                operation.attributes[placeholder] = _VALUES[placeholder](parser)
        results = types if results is None else results
        if types is not None:
            parser.check_types(operation.operands, types, at)
        operation.results = results_of(results or [])
        return operation

    return read


def _types(parser: Parser, kind: str, operands: int) -> tuple[list[Type], list[Type]]:
    """Reads the types of operands and results: a function type, or one type for all."""
    type_ = parser.type()
    if isinstance(type_, FunctionType):
        return list(type_.inputs), list(type_.results)
    if kind == "types":
        parser.scanner.fail(f"expected (types) -> types, got {type_text(type_)}")
    return [type_] * operands, [type_]


def _type_list(parser: Parser) -> list[Type]:
    """Reads types separated by commas, or `()` for none."""
    if parser.scanner.take("()"):
        return []
    types = [parser.type()]
    while parser.scanner.take(","):
        types.append(parser.type())
    return types


# Formats that are no templates


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
    sizes = np.array(parser.comma_separated("[", "]", parser.scanner.integer), np.int64)
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
        types = _type_list(parser)
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
    types = _type_list(parser)
    parser.check_types(operands, types, at)
    return Operation(name, operands, results_of(types), attributes)


def _call(parser: Parser, name: str) -> Operation:
    callee = Symbol(parser.scanner.symbol())
    at = parser.scanner.pos
    operands = parser.comma_separated("(", ")", parser.operand)
    return parser.finish(name, operands, {"callee": callee}, at)


def _composite(parser: Parser, name: str) -> Operation:
    label = parser.scanner.string("the composite's name")
    at = parser.scanner.pos
    operands = parser.operands()
    return parser.finish(name, operands, {"name": label}, at)


def _custom_call(parser: Parser, name: str) -> Operation:
    target = parser.scanner.symbol()
    at = parser.scanner.pos
    operands = parser.comma_separated("(", ")", parser.operand)
    return parser.finish(name, operands, {"call_target_name": target}, at)


def _compare(parser: Parser, name: str) -> Operation:
    """Reads `LT, %a, %b, FLOAT : (..) -> ..`."""
    attributes: dict[str, Attribute] = {"comparison_direction": _enumeration("comparison_direction")(parser)}
    parser.scanner.expect(",")
    at = parser.scanner.pos
    operands = parser.operands()
    if parser.scanner.take(","):
        attributes["compare_type"] = _enumeration("comparison_type")(parser)
    return parser.finish(name, operands, attributes, at)


def _select(parser: Parser, name: str) -> Operation:
    """Reads `%p, %a, %b : tensor<i1>, tensor<f32>` or a function type."""
    at = parser.scanner.pos
    operands = parser.operands()
    attributes = parser.optional_attributes()
    parser.scanner.expect(":", "and the operation's type")
    types: Sequence[Type] = [parser.type()]
    if isinstance(types[0], FunctionType):
        inputs, results = list(types[0].inputs), list(types[0].results)
    else:
        parser.scanner.expect(",")
        result = parser.type()
        inputs, results = [types[0], result, result], [result]
    parser.check_types(operands, inputs, at)
    return Operation(name, operands, results_of(results), attributes)


def _complex(parser: Parser, name: str) -> Operation:
    """Reads `%re, %im : tensor<complex<f32>>` or a function type."""
    at = parser.scanner.pos
    operands = parser.operands()
    attributes = parser.optional_attributes()
    parser.scanner.expect(":", "and the operation's type")
    type_ = parser.type()
    if isinstance(type_, FunctionType):
        parser.check_types(operands, type_.inputs, at)
        return Operation(name, operands, results_of(type_.results), attributes)
    return Operation(name, operands, results_of([type_]), attributes)


def _tuple(parser: Parser, name: str) -> Operation:
    at = parser.scanner.pos
    operands = parser.operands()
    attributes = parser.optional_attributes()
    parser.scanner.expect(":", "and the operation's type")
    type_ = parser.type()
    if isinstance(type_, FunctionType):
        parser.check_types(operands, type_.inputs, at)
        (type_,) = type_.results or (TupleType(()),)
    elif not isinstance(type_, TupleType):
        parser.scanner.fail(f"expected a tuple type, got {type_text(type_)}")
    elif len(type_.elements) == len(operands):
        parser.check_types(operands, type_.elements, at)
    return Operation(name, operands, results_of([type_]), attributes)


def _get_tuple_element(parser: Parser, name: str) -> Operation:
    at = parser.scanner.pos
    operand = parser.operand()
    parser.scanner.expect("[")
    index = parser.scanner.integer()
    parser.scanner.expect("]")
    return parser.finish(name, [operand], {"index": Number(index, I32)}, at)


def _cholesky(parser: Parser, name: str) -> Operation:
    operand = parser.operand()
    attributes: dict[str, Attribute] = {}
    if parser.scanner.take(","):
        parser.scanner.expect("lower")
        parser.scanner.expect("=")
        attributes["lower"] = parser.scanner.word("true or false") == "true"
    attributes |= parser.optional_attributes()
    parser.scanner.expect(":", "and the operation's type")
    _, results = _types(parser, "same", 1)
    return Operation(name, [operand], results_of(results), attributes)


def _reduce_precision(parser: Parser, name: str) -> Operation:
    """Reads `%a, format = e5m2 : type`."""
    scanner = parser.scanner
    operand = parser.operand()
    for token in (",", "format", "="):
        scanner.expect(token)
    match = scanner.match(re.compile(r"e(\d{1,4})m(\d{1,4})"))
    if not match:
        scanner.fail(f"expected a format like e5m2, got {scanner.preview()}")
    attributes: dict[str, Attribute] = {
        "exponent_bits": Number(int(match[1]), I32),
        "mantissa_bits": Number(int(match[2]), I32),
    }
    attributes |= parser.optional_attributes()
    scanner.expect(":", "and the operation's type")
    _, results = _types(parser, "same", 1)
    return Operation(name, [operand], results_of(results), attributes)


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
    left: list[Attribute] = [i64(v) for v in parser.comma_separated("[", "]", parser.scanner.integer)]
    parser.scanner.expect("x")
    return left, [i64(v) for v in parser.comma_separated("[", "]", parser.scanner.integer)]


def _precisions(parser: Parser) -> list[Attribute]:
    return parser.comma_separated("[", "]", lambda: _enumeration("precision")(parser))


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
            attributes["precision_config"] = _precisions(parser)
        elif word == "algorithm":
            attributes["algorithm"] = (
                parser.attribute()
                if scanner.peek("#")
                else DialectAttribute("stablehlo.dot_algorithm", parser.body("stablehlo.dot_algorithm"))
            )
        else:
            scanner.fail(f"{name} has no {word}")
    if name == "stablehlo.dot_general":
        attributes["dot_dimension_numbers"] = DialectAttribute("stablehlo.dot", dimension_numbers)
    return parser.finish(name, operands, attributes, at)


_WINDOW = {
    "stride": "window_strides",
    "lhs_dilate": "lhs_dilation",
    "rhs_dilate": "rhs_dilation",
    "pad": "padding",
    "reverse": "window_reversal",
}
_CONVOLUTION_DIMENSIONS = re.compile(r"\[[^\]]*+\]\s*+x\s*+\[[^\]]*+\]\s*+->\s*+\[[^\]]*+\]")


def _convolution(parser: Parser, name: str) -> Operation:
    """Reads `(%a, %b) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {stride = [1], ..} {..} : ..`."""
    scanner, at = parser.scanner, parser.scanner.pos
    operands = parser.comma_separated("(", ")", parser.operand)
    scanner.expect("dim_numbers")
    scanner.expect("=")
    match = scanner.match(_CONVOLUTION_DIMENSIONS)
    if not match:
        scanner.fail(f"expected [b, 0, f]x[0, i, o]->[b, 0, f], got {scanner.preview()}")
    attributes: dict[str, Attribute] = {"dimension_numbers": DialectAttribute("stablehlo.conv", match[0])}
    for token in (",", "window", "="):
        scanner.expect(token)

    def entry() -> None:
        word = scanner.word("a word like stride")
        if word not in _WINDOW:
            scanner.fail(f"a window has no {word}; it has: {', '.join(_WINDOW)}")
        scanner.expect("=")
        if word == "pad":
            rows = parser.comma_separated("[", "]", lambda: parser.comma_separated("[", "]", scanner.integer))
            if any(len(row) != 2 for row in rows):
                scanner.fail("pad is a list of pairs [low, high]")
            attributes["padding"] = i64_table(rows)
        elif word == "reverse":
            attributes["window_reversal"] = DenseArray(
                I1, tuple(parser.comma_separated("[", "]", lambda: _flag(parser)))
            )
        else:
            attributes[_WINDOW[word]] = _array(parser)

    scanner.expect("{")
    parser.fields("}", entry)
    return parser.finish(name, operands, attributes, at)


def _flag(parser: Parser) -> bool:
    """Reads `true`, `false`, `1` or `0`."""
    match = parser.scanner.match(NUMBER)
    return match[0] != "0" if match else parser.scanner.word("true or false") == "true"


def _while(parser: Parser, name: str) -> Operation:
    """Reads `(%it = %init, ..) : types attributes {..} cond {..} do {..}`."""
    scanner, at = parser.scanner, parser.scanner.pos
    names: list[str] = []

    def entry() -> Value:
        match = scanner.match(re.compile(r"%([\w$.\-]++)\s*+="))
        if not match:
            scanner.fail(f"expected %name = %value, got {scanner.preview()}")
        names.append(match[1])
        return parser.operand()

    operands = parser.comma_separated("(", ")", entry)
    types = _type_list(parser) if scanner.take(":") else []
    parser.check_types(operands, types, at)
    attributes = parser.dictionary() if scanner.take_word("attributes") else {}
    regions = []
    for word in ("cond", "do"):
        if not scanner.take_word(word):
            scanner.fail(f"expected {word!r} and a region, got {scanner.preview()}")
        regions.append(parser.region([(n, Value(t)) for n, t in zip(names, types, strict=True)]))
    return Operation(name, operands, results_of(types), attributes, regions)


def _reduce(parser: Parser, name: str) -> Operation:
    """Reads `(%a init: %b), (..) applies stablehlo.add across dimensions = [0] : ..`, or the form with a region."""
    scanner, at = parser.scanner, parser.scanner.pos
    inputs: list[Value] = []
    inits: list[Value] = []
    while scanner.take("("):
        inputs.append(parser.operand())
        scanner.expect("init")
        scanner.expect(":")
        inits.append(parser.operand())
        scanner.expect(")")
        scanner.take(",")
    applied = scanner.word("an operation") if scanner.take_word("applies") else ""
    for token in ("across", "dimensions", "="):
        scanner.expect(token)
    attributes: dict[str, Attribute] = {"dimensions": _array(parser)}
    operation = parser.finish(name, inputs + inits, attributes, at)
    if applied:
        operation.regions = [_applied(parser, applied, inits[0].type)]
        return operation
    if not scanner.take_word("reducer"):
        scanner.fail(f"expected 'reducer' and a region, got {scanner.preview()}")
    operation.regions = [_reducer(parser)]
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
    """Reads `(%a: T, %b: T) (%c: T, %d: T) {..}`; the region takes the first of each pair, then the second."""
    pairs: list[list[tuple[str, Value]]] = []

    while parser.scanner.peek("("):
        at = parser.scanner.pos
        pairs.append(parser.comma_separated("(", ")", parser.named_argument))
        if len(pairs[-1]) != 2:
            parser.scanner.fail(f"a reducer's arguments come in pairs, got {len(pairs[-1])}", at)
    return parser.region([pair[0] for pair in pairs] + [pair[1] for pair in pairs])


def _top_k(parser: Parser, name: str) -> Operation:
    """Reads `(%a, k = 8) : type -> (type, type)`."""
    scanner, at = parser.scanner, parser.scanner.pos
    scanner.expect("(")
    operand = parser.operand()
    attributes: dict[str, Attribute] = {}
    while scanner.take(","):
        word = scanner.word("k")
        scanner.expect("=")
        attributes[word] = _integer(parser) if word == "k" else scanner.word() == "true"
    scanner.expect(")")
    attributes |= parser.optional_attributes()
    scanner.expect(":", "and the operation's type")
    types = [parser.type()]
    scanner.expect("->")
    parser.check_types([operand], types, at)
    return Operation(name, [operand], results_of(parser.result_types()), attributes)


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
    operation = parser.finish(name, inputs + inits, attributes, at)
    operation.regions = [region]
    return operation


def _random_state(parser: Parser, name: str) -> Operation:
    """Reads `mhlo.xla.rng_get_and_update_state {delta = 1 : i64}`."""
    attributes = parser.optional_attributes()
    return Operation(name, [], results_of([TensorType((2,), ScalarType("ui64"))]), attributes)


FORMS: dict[str, Form] = {
    **{name: _template(template) for name, template in TEMPLATES.items()},
    "builtin.module": Parser.module,
    "func.func": Parser.function,
    "func.return": _return,
    "func.call": _call,
    "stablehlo.return": _return,
    "stablehlo.constant": _constant,
    "stablehlo.composite": _composite,
    "stablehlo.optimization_barrier": _optimization_barrier,
    "stablehlo.custom_call": _custom_call,
    "stablehlo.compare": _compare,
    "stablehlo.select": _select,
    "stablehlo.complex": _complex,
    "stablehlo.tuple": _tuple,
    "stablehlo.get_tuple_element": _get_tuple_element,
    "stablehlo.cholesky": _cholesky,
    "stablehlo.reduce_precision": _reduce_precision,
    "stablehlo.slice": _slice,
    "stablehlo.dot": _dot_general,
    "stablehlo.dot_general": _dot_general,
    "stablehlo.convolution": _convolution,
    "stablehlo.while": _while,
    "stablehlo.reduce": _reduce,
    "chlo.top_k": _top_k,
    "chlo.constant": _constant,
    "arith.constant": _constant,
    "sdy.constant": _constant,
    "shape.const_shape": _constant_shape,
    "chlo.scan": _scan,
}
FORMS |= shardy_forms.FORMS | {"sdy.return": _return}
# MHLO, StableHLO's predecessor, has the same formats.
FORMS |= {name.replace("stablehlo.", "mhlo."): form for name, form in FORMS.items() if name.startswith("stablehlo.")}
FORMS |= {"mhlo.bitcast": _template(_TYPES), "mhlo.add_dependency": _template(_TYPES), "mhlo.topk": _top_k}
FORMS |= {f"mhlo.{name}": _template(_SAME) for name in ("copy", "erf", "acos", "acosh", "asin", "asinh", "atanh")}
FORMS |= {f"mhlo.{name}": _template(_SAME) for name in ("cosh", "sinh")}
FORMS["mhlo.xla.rng_get_and_update_state"] = _random_state
