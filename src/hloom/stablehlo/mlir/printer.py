"""Writes MLIR text, in StableHLO's custom assembly formats where they exist, else in generic form.

`assembly/formats.py` has the formats that are templates; those with regions or pairs of lists are functions in
`assembly/writer.py`. The generic form is `"name"(operands) <{attributes}> : types`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeAlias

from hloom.stablehlo.mlir.assembly.formats import FORMATS, PLACEHOLDER
from hloom.stablehlo.mlir.attribute_text import attribute_text, bare_text, dictionary_text, symbol_text
from hloom.stablehlo.mlir.ir import (
    Attribute,
    Block,
    DialectAttribute,
    Operation,
    Region,
    ScalarType,
    Symbol,
    TensorType,
    Type,
    Value,
)
from hloom.stablehlo.mlir.types import type_text

# Names that StableHLO's printer gives to results; other results are numbered.
_RESULT_NAMES = {
    "chlo.top_k": ("values", "indices"),
    "stablehlo.batch_norm_grad": ("grad_operand", "grad_scale", "grad_offset"),
    "stablehlo.batch_norm_training": ("output", "batch_mean", "batch_var"),
    "stablehlo.rng_bit_generator": ("output_state", "output"),
}

Syntax: TypeAlias = "dict[str, Callable[[Printer, Operation], str]]"
"""Functions that write the custom assembly formats which are not templates, by operation name."""


class Printer:
    """State of printing: the lines so far, and the names of values in scope."""

    def __init__(self, syntax: Syntax) -> None:
        self.syntax = syntax
        self.lines: list[str] = []
        self.indent = 0
        self.names: dict[Value, str] = {}
        self.used: set[str] = set()
        self.counters = {"": 0, "arg": 0, "conflict": 0}
        self.in_function_body = False
        self.locations: dict[str, int] = {}

    # Lines and scopes

    def line(self, text: str) -> None:
        """Appends an indented line."""
        self.lines.append("  " * self.indent + text if text else "")

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Indents; names defined inside are free again at the end."""
        used, counters = set(self.used), dict(self.counters)
        self.indent += 1
        yield
        self.indent -= 1
        self.used, self.counters = used, counters

    def next_name(self, kind: str) -> str:
        """The next of `%0`, `%1` .., or `%arg0`, `%arg1` .."""
        self.counters[kind] += 1
        return f"%{kind}{self.counters[kind] - 1}"

    def unique_name(self, base: str) -> str:
        """`%base`, or `%base_0` and so on if that is taken."""
        name = base
        while name in self.used:
            name = f"{base}_{self.counters['conflict']}"
            self.counters["conflict"] += 1
        self.used.add(name)
        return f"%{name}"

    def arguments(self, values: Sequence[Value], base: str = "") -> list[str]:
        """Names the arguments of a block and returns the names."""
        for value in values:
            self.names[value] = self.unique_name(base) if base else self.next_name("arg")
        return [self.names[value] for value in values]

    # Modules and functions

    def module(self, module: Operation) -> str:
        """The text of a `builtin.module` operation, with aliases of locations before it."""
        name = module.attributes.get("sym_name")
        attributes = {key: value for key, value in module.attributes.items() if key != "sym_name"}
        shown = f" attributes {dictionary_text(attributes)}" if attributes else ""
        self.line(f"module {symbol_text(name)}{shown} {{" if isinstance(name, str) else f"module{shown} {{")
        self.indent += 1
        for function in module.regions[0].block.operations:
            self.function(function)
        self.indent -= 1
        self.line("}")
        aliases = [f"#loc{index} = loc({location})" for location, index in self.locations.items()]
        return "\n".join([*aliases, *self.lines]) + "\n"

    def function(self, function: Operation) -> None:
        """Prints a `func.func` operation."""
        attributes, block = function.attributes, function.regions[0].block
        entries, results = attributes.get("arg_attrs"), attributes.get("res_attrs")
        with self.scope():
            names = self.arguments(block.arguments)
            parameters = [
                f"{name}: {type_text(value.type)}{_entry_of(entries, i)}{self.location(value.location)}"
                for i, (name, value) in enumerate(zip(names, block.arguments, strict=True))
            ]
            returned = block.operations[-1].operands
            types = [f"{type_text(value.type)}{_entry_of(results, i)}" for i, value in enumerate(returned)]
            arrow = "" if not types else f" -> {types[0]}" if types == [type_text(returned[0].type)] else ""
            arrow = arrow or (f" -> ({', '.join(types)})" if types else "")
            visibility = attributes.get("sym_visibility") or "public"
            symbol = symbol_text(str(attributes["sym_name"]))
            self.indent -= 1
            self.line(f"func.func {visibility} {symbol}({', '.join(parameters)}){arrow} {{")
            self.indent += 1
            self.body(block, in_function=True)
        self.line("}")

    def body(self, block: Block, in_function: bool = False) -> None:
        """Prints the operations of a block."""
        for operation in block.operations:
            self.in_function_body = in_function
            self.operation(operation)

    # Operations

    def operation(self, operation: Operation) -> None:
        """Prints an operation."""
        start, results = len(self.lines), self.result_names(operation)
        if operation.name in self.syntax:
            text = self.syntax[operation.name](self, operation)
        elif operation.name in FORMATS:
            text = f"{operation.name}{self.fill(FORMATS[operation.name], operation)}"
        else:
            text = self.generic(operation)
        # The lines of regions are printed already: the first line goes before them, the rest after them.
        head, mark, tail = text.partition("\0")
        self.lines.insert(start, "  " * self.indent + results + head)
        location = self.location(operation.location)
        self.lines[-1 if mark else start] += tail + location

    def result_names(self, operation: Operation) -> str:
        """Names the results and returns `%0 = `, `%1:2 = `, `%values, %indices = `, or ""."""
        results, bases = operation.results, _RESULT_NAMES.get(operation.name)
        if not results:
            return ""
        if operation.name == "stablehlo.constant":
            bases = ("c" if _holds_integers(results[0].type) else "cst",)
        if bases:
            names = [self.unique_name(base) for base in bases]
            self.names |= dict(zip(results, names, strict=True))
            return f"{', '.join(names)} = "
        name = self.next_name("")
        if len(results) == 1:
            self.names[results[0]] = name
            return f"{name} = "
        self.names |= {result: f"{name}#{i}" for i, result in enumerate(results)}
        return f"{name}:{len(results)} = "

    def operands(self, values: Sequence[Value]) -> str:
        """Names of values, separated by commas."""
        return ", ".join(self.names[value] for value in values)

    def location(self, location: str) -> str:
        """` loc(#loc3)`: the text of a location appears once, as an alias above the module."""
        if not location:
            return ""
        return f" loc(#loc{self.locations.setdefault(location, len(self.locations) + 1)})"

    def fill(self, template: str, operation: Operation) -> str:
        """Fills in a template, for the text after the operation's name."""
        pieces, names = _pieces(template)
        others = {key: value for key, value in operation.attributes.items() if key not in names}
        shown = []
        for literal, prefix, word in pieces:
            part = _PARTS.get(word)
            text = _word(word, operation.attributes.get(word)) if part is None else part(self, operation, others)
            shown.append(f"{literal}{prefix}{text}" if text else literal)
        filled = "".join(shown)
        return filled if filled.startswith(("(", " ")) else f" {filled}"

    def generic(self, operation: Operation) -> str:
        """`"name"(operands) <{inherent}> ({regions}) {discardable} : types`, with a NUL for the lines of regions."""
        inherent = {key: value for key, value in operation.attributes.items() if "." not in key}
        others = {key: value for key, value in operation.attributes.items() if "." in key}
        text = f'"{operation.name}"({self.operands(operation.operands)})'
        if inherent:
            text += f" <{dictionary_text(inherent)}>"
        types = f"{attribute_suffix(others)} : {function_types(operation)}"
        if not operation.regions:
            return text + types
        for i, region in enumerate(operation.regions):
            self.region(region)
            self.line("}, {" if i < len(operation.regions) - 1 else "})")
        return f"{text} ({{\0{types}"

    def region(self, region: Region, base: str = "", header: bool = True) -> None:
        """Prints the lines of a region, with its arguments in a block header if `header`."""
        with self.scope():
            names = self.arguments(region.block.arguments, base)
            if names and header:
                self.indent -= 1
                self.line(f"^bb0({typed(names, region.block.arguments)}):")
                self.indent += 1
            self.body(region.block)


@functools.cache
def _pieces(template: str) -> tuple[list[tuple[str, str, str]], set[str]]:
    """The pieces of a template: a text, then the prefix and name of a placeholder; and the attributes that it names."""
    texts = PLACEHOLDER.split(template)
    pieces = [(texts[i], texts[i + 1] or "", texts[i + 2]) for i in range(0, len(texts) - 1, 3)]
    return [*pieces, (texts[-1], "", "")], {word for _, _, word in pieces if word not in _PARTS}


def typed(names: Sequence[str], values: Sequence[Value]) -> str:
    """`%arg0: tensor<f32>, %arg1: tensor<f32>`."""
    return ", ".join(f"{name}: {type_text(value.type)}" for name, value in zip(names, values, strict=True))


def attribute_suffix(attributes: dict[str, Attribute]) -> str:
    """` {a = 1 : i64}`, or "" without attributes."""
    return f" {dictionary_text(attributes)}" if attributes else ""


def _word(name: str, value: Attribute) -> str:
    """An enumeration by its case alone, any other attribute without its type; "" for a missing one."""
    if name == "call_target_name":
        return symbol_text(str(value))
    if isinstance(value, DialectAttribute) and isinstance(value.body, str):
        return value.body
    return "" if value is None else bare_text(value)


def _holds_integers(type_: Type) -> bool:
    return (
        isinstance(type_, TensorType)
        and isinstance(type_.element_type, ScalarType)
        and type_.element_type.name[0] in "iu"
    )


def _entry_of(attributes: Attribute, position: int) -> str:
    """The dictionary of an argument or result, or "" if it is empty."""
    entry = attributes[position] if isinstance(attributes, list) else None
    return f" {attribute_text(entry)}" if entry else ""


def type_list(values: Sequence[Value]) -> str:
    """Types of values, separated by commas."""
    return ", ".join(type_text(value.type) for value in values)


def same_types(operation: Operation) -> str:
    """A single type if all operands and results have it, else the function type."""
    first = operation.results[0].type
    same = all(value.type == first for value in (*operation.operands, *operation.results))
    return type_text(first) if same else function_types(operation)


def function_types(operation: Operation) -> str:
    """`(operands) -> results`."""
    return f"({type_list(operation.operands)}) -> {result_types([value.type for value in operation.results])}"


def result_types(types: Sequence[Type]) -> str:
    """A single type, or several in parentheses."""
    shown = ", ".join(map(type_text, types))
    return shown if len(types) == 1 else f"({shown})"


def symbol_of(operation: Operation, name: str) -> str:
    """The text of the symbol in an attribute."""
    value = operation.attributes[name]
    return symbol_text(value.name if isinstance(value, Symbol) else str(value))


def select_types(operation: Operation) -> str:
    """The types of predicate and result if the choices have the result's type, else the function type."""
    predicate, *choices = operation.operands
    same = {type_list([value]) for value in (*choices, *operation.results)}
    return f"{type_list([predicate])}, {same.pop()}" if len(same) == 1 else function_types(operation)


_PARTS: dict[str, Callable[[Printer, Operation, dict[str, Attribute]], str]] = {
    "": lambda printer, operation, others: "",
    "operands": lambda printer, operation, others: printer.operands(operation.operands),
    "attributes": lambda printer, operation, others: attribute_suffix(others),
    "same": lambda printer, operation, others: same_types(operation),
    "types": lambda printer, operation, others: function_types(operation),
    "result": lambda printer, operation, others: type_list(operation.results),
    "results": lambda printer, operation, others: type_list(operation.results),
    "operand_types": lambda printer, operation, others: type_list(operation.operands),
    "select_types": lambda printer, operation, others: select_types(operation),
}
"""Placeholders of templates that are not attributes."""
