"""Writers of the custom assembly formats that are not templates (`assembly/formats.py`): `SYNTAX`, by operation."""

from __future__ import annotations

from hloom.ops.elementwise_binary import Monoid
from hloom.stablehlo.mlir.assembly.formats import WINDOW_WORDS
from hloom.stablehlo.mlir.attribute_text import attribute_text, bare_text
from hloom.stablehlo.mlir.ir import Attribute, DenseArray, DenseElements, DialectAttribute, Operation, Region
from hloom.stablehlo.mlir.printer import (
    Printer,
    Syntax,
    attribute_suffix,
    function_types,
    symbol_of,
    type_list,
    typed,
)


def _others(operation: Operation, *names: str) -> str:
    """The dictionary of attributes that the custom format does not include."""
    return attribute_suffix({key: value for key, value in operation.attributes.items() if key not in names})


def _constant(printer: Printer, operation: Operation) -> str:
    return f"stablehlo.constant{_others(operation, 'value')} {attribute_text(operation.attributes['value'])}"


def _return(printer: Printer, operation: Operation) -> str:
    name = "return" if operation.name == "func.return" else operation.name
    if not operation.operands:
        return name
    return f"{name} {printer.operands(operation.operands)} : {type_list(operation.operands)}"


def _optimization_barrier(printer: Printer, operation: Operation) -> str:
    """Writes the attributes before the operands."""
    shown = f"{printer.operands(operation.operands)} : {type_list(operation.operands)}" if operation.operands else "()"
    return f"stablehlo.optimization_barrier{_others(operation)} {shown}"


def _call(printer: Printer, operation: Operation) -> str:
    # In the body of a function, and only there, func is the default dialect.
    name = "call" if printer.in_function_body else "func.call"
    callee, arguments = symbol_of(operation, "callee"), printer.operands(operation.operands)
    return f"{name} {callee}({arguments}){_others(operation, 'callee')} : {function_types(operation)}"


def _composite(printer: Printer, operation: Operation) -> str:
    arguments = "".join(f" {printer.operands(operation.operands)}" if operation.operands else "")
    name = attribute_text(operation.attributes["name"])
    return f"stablehlo.composite {name}{arguments}{_others(operation, 'name')} : {function_types(operation)}"


def _slice(printer: Printer, operation: Operation) -> str:
    names = ("start_indices", "limit_indices", "strides")
    columns = [value.values for name in names if isinstance(value := operation.attributes[name], DenseArray)]
    ranges = [
        f"{start}:{limit}" + (f":{stride}" if stride != 1 else "")
        for start, limit, stride in zip(*columns, strict=True)
    ]
    operand = printer.operands(operation.operands)
    shown = f"[{', '.join(ranges)}]{_others(operation, *names)}"
    return f"stablehlo.slice {operand} {shown} : {function_types(operation)}"


def _precision(operation: Operation) -> str:
    """`, precision = [DEFAULT, HIGHEST], algorithm = <..>`, or ""."""
    shown, entries = "", operation.attributes.get("precision_config")
    if isinstance(entries, list):
        words = [str(entry.body) for entry in entries if isinstance(entry, DialectAttribute)]
        shown += f", precision = [{', '.join(words)}]"
    if "algorithm" in operation.attributes:
        shown += f", algorithm = <{attribute_text(operation.attributes['algorithm']).partition('<')[2]}"
    return shown


def _dot_general(printer: Printer, operation: Operation) -> str:
    dimension_numbers = operation.attributes["dot_dimension_numbers"]
    assert isinstance(dimension_numbers, DialectAttribute) and isinstance(dimension_numbers.body, dict)
    shown = printer.operands(operation.operands)
    for kind in ("batching", "contracting"):
        left, right = (
            bare_text(dimension_numbers.body.get(f"{side}_{kind}_dimensions", [])) for side in ("lhs", "rhs")
        )
        if kind == "contracting" or left != "[]":
            shown += f", {kind}_dims = {left} x {right}"
    others = _others(operation, "dot_dimension_numbers", "precision_config", "algorithm")
    return f"stablehlo.dot_general {shown}{_precision(operation)}{others} : {function_types(operation)}"


def _convolution(printer: Printer, operation: Operation) -> str:
    dimension_numbers = operation.attributes["dimension_numbers"]
    assert isinstance(dimension_numbers, DialectAttribute)
    window = ", ".join(
        f"{short} = {_table(operation.attributes[name])}"
        for short, name in WINDOW_WORDS.items()
        if name in operation.attributes
    )
    shown = f"({printer.operands(operation.operands)}) dim_numbers = {dimension_numbers.body}, window = {{{window}}}"
    others = _others(operation, "dimension_numbers", *WINDOW_WORDS.values())
    return f"stablehlo.convolution{shown}{others} : {function_types(operation)}"


def _table(value: Attribute) -> str:
    return bare_text(value.values.tolist()) if isinstance(value, DenseElements) else bare_text(value)


# Operations with regions: a NUL separates the first line from the text after the last brace; the lines between are
# printed already.

_COMMUTATIVE = frozenset(f"stablehlo.{monoid.opcode}" for monoid in Monoid.__subclasses__())
"""The operations that `applies` may name."""


def _reduce(printer: Printer, operation: Operation) -> str:
    count = len(operation.operands) // 2
    names = [printer.names[value] for value in operation.operands]
    pairs = ", ".join(f"({names[i]} init: {names[count + i]})" for i in range(count))
    across = f"across dimensions = {bare_text(operation.attributes['dimensions'])}"
    types = f"{_others(operation, 'dimensions')} : {function_types(operation)}"
    body = operation.regions[0].block
    if _applies(operation.regions[0]):
        return f"stablehlo.reduce{pairs} applies {body.operations[0].name} {across}{types}"
    with printer.scope():
        inner = printer.arguments(body.arguments)
        shown = [typed(inner[i::count], body.arguments[i::count]) for i in range(count)]
        printer.indent -= 1
        printer.line(f" reducer{' '.join(f'({pair})' for pair in shown)}  {{")
        printer.indent += 1
        printer.body(body)
    printer.line("}")
    return f"stablehlo.reduce{pairs} {across}{types}\0"


def _applies(region: Region) -> bool:
    """Whether a body is one commutative operation on its two arguments, in their order and of their type."""
    body = region.block
    inner = body.operations[0]
    return (
        len(body.operations) == 2
        and inner.name in _COMMUTATIVE
        and not inner.attributes
        and inner.operands == body.arguments
        and len({type_list([value]) for value in (*inner.operands, *inner.results)}) == 1
        and body.operations[1].operands == inner.results
    )


def _while(printer: Printer, operation: Operation) -> str:
    """Writes `stablehlo.while(%iterArg = %0, ..) : types`, then `cond {..} do {..}` with the same argument names."""
    condition, body = operation.regions
    used, counters = set(printer.used), dict(printer.counters)
    names = printer.arguments(condition.block.arguments, "iterArg")
    printer.names |= dict(zip(body.block.arguments, names, strict=True))
    initial = [f"{name} = {printer.names[value]}" for name, value in zip(names, operation.operands, strict=True)]
    types = f" : {type_list(operation.operands)}" if operation.operands else ""
    shown = f"stablehlo.while({', '.join(initial)}){types}"
    attributes = _others(operation)
    printer.line(f"{f'attributes{attributes} ' if attributes else ''}cond {{")
    for region, after in ((condition, "} do {"), (body, "}")):
        with printer.scope():
            printer.body(region.block)
        printer.line(after)
    printer.used, printer.counters = used, counters
    return f"{shown}\0"


SYNTAX: Syntax = {
    "func.call": _call,
    "func.return": _return,
    "stablehlo.composite": _composite,
    "stablehlo.constant": _constant,
    "stablehlo.convolution": _convolution,
    "stablehlo.dot_general": _dot_general,
    "stablehlo.optimization_barrier": _optimization_barrier,
    "stablehlo.reduce": _reduce,
    "stablehlo.return": _return,
    "stablehlo.slice": _slice,
    "stablehlo.while": _while,
}
