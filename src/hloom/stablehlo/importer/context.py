"""State of an import: the functions of the module, their computations so far, and errors with positions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from hloom.errors import HloomError, ParseError
from hloom.ir import Computation
from hloom.stablehlo.mlir.ir import FunctionType, Operation, Value
from hloom.stablehlo.mlir.types import type_text

RuleOf = Callable[[Operation], Callable[..., Any] | None]
"""Finds the rule of an op (see `body.Rule`), or None."""


class ImportContext:
    """State that the computations of one module share during the import.

    `computations` holds the computations of functions, by name, shapes of the parameters and their known values;
    `free_values` holds the outer values that each region uses, by its id.
    """

    def __init__(self, text: str, rule_of: RuleOf) -> None:
        self.text = text
        self.rule_of = rule_of
        self.meshes: dict[str, str] = {}
        self.functions: dict[str, Operation] = {}
        self.computations: dict[tuple[Any, ...], Computation] = {}
        self.names: dict[str, int] = {}
        self.call_depth = 0
        self.known_results: dict[int, list[Any]] = {}
        """The results of computations, by id, that are sizes made of constants; None for other results."""
        self.is_specialized = False
        """Whether the sizes of main's parameters are those of a call; functions are then imported per known values."""
        self.is_bounded = False
        """Whether parameters of main have sizes below bounds; functions are then inlined."""
        self.free_values: dict[int, tuple[Value, ...]] = {}
        self.elided_count = 0  # constants so far whose elements the text omits

    def error(self, operation: Operation, message: str) -> NoReturn:
        """Raises ParseError at the position of an op."""
        lines = self.text.split("\n", operation.line) if operation.line else [""]
        source = lines[operation.line - 1] if 0 < operation.line <= len(lines) else ""
        raise ParseError(f"{operation.name}: {message}", operation.line, operation.column, source)

    @contextmanager
    def errors_at(self, operation: Operation, what: str = "") -> Iterator[None]:
        """Gives errors of the body that have no position that of an op; `what` begins their messages."""
        try:
            yield
        except HloomError as error:
            if isinstance(error, ParseError) and error.line:
                raise
            self.error(operation, f"{what}{error.message}")

    def unique(self, name: str) -> str:
        """A name for a computation that no other one has."""
        name = re.sub(r"[^\w.\-]", "_", name) or "computation"
        name = name if re.match(r"[A-Za-z_]", name) else f"_{name}"
        count = self.names[name] = self.names.get(name, -1) + 1
        return name if count == 0 else self.unique(f"{name}.{count}")

    def defined(self, function: Operation) -> Operation:
        """Returns a function; raises ParseError if it is only declared."""
        if not function.regions:
            self.error(function, f"the function @{function.attributes['sym_name']} has no body")
        return function

    def function(self, caller: Operation, name: str) -> Operation:
        """The function of a name; raises ParseError, at the caller, if there is none."""
        if name not in self.functions:
            self.error(caller, f"there is no function @{name}")
        return self.defined(self.functions[name])

    def function_type(self, function: Operation) -> FunctionType:
        """The type of a function; raises ParseError if it is missing or does not match the arguments and the return."""
        type_ = function.attributes.get("function_type")
        block = function.regions[0].block
        if not isinstance(type_, FunctionType) or len(type_.inputs) != len(block.arguments):
            self.error(function, "function_type is missing, or does not fit the arguments")
        returned = tuple(operand.type for operand in block.operations[-1].operands) if block.operations else ()
        if returned != type_.results:
            shown = ["(" + ", ".join(map(type_text, types)) + ")" for types in (type_.results, returned)]
            self.error(function, f"the function is declared to return {shown[0]}, but returns {shown[1]}")
        return type_
