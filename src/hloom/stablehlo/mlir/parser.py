"""Parser of MLIR text: operations in generic form, regions, blocks, functions and modules.

The caller supplies custom assembly formats of operations (`assembly/` has StableHLO's); `attribute_reader.py` reads
types and attributes. The result is a `builtin.module` operation, whose operations are functions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeAlias

from hloom.errors import close_names
from hloom.stablehlo.mlir.attribute_reader import AttributeReader
from hloom.stablehlo.mlir.ir import Attribute, Block, FunctionType, Operation, Region, Type, Value
from hloom.stablehlo.mlir.lexer import VALUE
from hloom.stablehlo.mlir.types import type_text

Form: TypeAlias = "Callable[[Parser, str], Operation]"
"""Reads an operation in its custom assembly format, from after its name."""

MAX_REGION_DEPTH = 64
_RESULTS = re.compile(r"%([\w$.\-]++)(?:\s*+:\s*+(\d{1,6}))?\s*+(,|=)")
_ALIAS_DEFINITION = re.compile(r"[#!][A-Za-z_][\w$.\-]*+[ \t]*+=")
_BLOCK = re.compile(r"\^[\w$.\-]++")
_SHORT_NAMES = {"module": "builtin.module", "return": "func.return", "call": "func.call", "func": "func.func"}


def parse_attribute(text: str) -> Attribute:
    """Reads the text of an attribute; raises ParseError for anything else."""
    reader = AttributeReader(text)
    attribute = reader.attribute()
    reader.scanner.expect_end("attribute")
    return attribute


class Parser(AttributeReader):
    """Parser of one text; `values` has the values in scope, `forms` custom assembly formats by operation name.

    All methods that read raise ParseError with line, column and caret.
    """

    def __init__(self, text: str, forms: dict[str, Form]) -> None:
        super().__init__(text)
        self.forms = forms
        self.values: dict[str, Value] = {}
        self.scope_names: list[str] = []
        self.region_depth = 0
        self.line = 1
        self.counted_to = 0
        self.result_names: list[str] = []

    def parse(self) -> Operation:
        """Reads a module; operations outside of a module are wrapped in one."""
        operations: list[Operation] = []
        while not self._at_end():
            operations.append(self.operation())
        if len(operations) == 1 and operations[0].name == "builtin.module":
            return operations[0]
        return Operation("builtin.module", regions=[Region([Block([], operations)])], line=1, column=1)

    def _at_end(self) -> bool:
        """Skips definitions of aliases and resources, which are read at their uses; returns whether the text ends."""
        scanner = self.scanner
        while not scanner.at_end():
            character = scanner.text[scanner.pos]
            if character in "#!":
                scanner.expect_match(_ALIAS_DEFINITION, "an operation")
                self._skip_definition()
            elif scanner.text.startswith("{-#", scanner.pos):
                end = scanner.text.find("#-}", scanner.pos)
                if end < 0:
                    scanner.fail("the resources are not closed by '#-}'")
                scanner.pos = end + 3
            else:
                return False
        return True

    def _skip_definition(self) -> None:
        if self.scanner.peek("loc("):
            self.trailing_location()
        else:
            self.attribute()

    # Operations

    def operation(self) -> Operation:
        """Reads an operation in generic or custom form."""
        scanner = self.scanner
        scanner.skip()
        start = scanner.pos
        names = self._result_names()
        scanner.skip()
        name_at = scanner.pos
        self.result_names = names
        if scanner.peek('"'):
            operation = self._generic(scanner.string())
        else:
            word = scanner.word("an operation")
            operation = self._custom_form(_SHORT_NAMES.get(word, word), name_at)
        self.set_position(operation, start)
        if scanner.text.startswith("loc(", scanner.pos) or scanner.peek("loc("):
            operation.location = self.trailing_location()
        if len(names) != len(operation.results) and names:
            count = len(operation.results)
            scanner.fail(f"{operation.name} has {count} result{'s' * (count != 1)}, got {len(names)} names", start)
        for name, result in zip(names, operation.results, strict=False):
            self.define(name, result, start)
        return operation

    def _result_names(self) -> list[str]:
        """Reads `%a, %b:2 =` and returns the names a, b#0 and b#1."""
        scanner, names = self.scanner, list[str]()
        while match := scanner.match(_RESULTS):
            count = int(match[2] or 1)
            names += [match[1]] if match[2] is None else [f"{match[1]}#{i}" for i in range(count)]
            if match[3] == "=":
                return names
        if names or scanner.peek("%"):
            scanner.fail(f"expected '%name =', got {scanner.preview()}")
        return names

    def set_position(self, operation: Operation, position: int) -> None:
        """Sets the line and column of an operation that begins at an offset; counts newlines incrementally."""
        self.line += self.scanner.text.count("\n", self.counted_to, position) if position >= self.counted_to else 0
        if position < self.counted_to:
            # An operation with regions begins before the operations in them, which were counted already.
            operation.line = self.line - self.scanner.text.count("\n", position, self.counted_to)
        else:
            operation.line, self.counted_to = self.line, position
        operation.column = position - self.scanner.text.rfind("\n", 0, position)

    def _generic(self, name: str) -> Operation:
        scanner = self.scanner
        operands_at = scanner.pos
        operands = self.comma_separated("(", ")", self.operand)
        if scanner.peek("["):
            scanner.fail(f"{name} jumps to blocks: only structured control flow can be read")
        attributes: dict[str, Attribute] = {}
        if scanner.take("<"):
            attributes |= self.dictionary()
            scanner.expect(">")
        regions = self.comma_separated("(", ")", self.region) if scanner.peek("(") else []
        return self.finish(name, operands, attributes, operands_at, regions)

    def _custom_form(self, name: str, at: int) -> Operation:
        form = self.forms.get(name)
        if form is None:
            hint = close_names(name, self.forms)
            self.scanner.fail(f"there is no operation {name!r} with a custom assembly format{hint}", at)
        return form(self, name)

    # Values

    def operand(self) -> Value:
        """Reads a value that is in scope."""
        scanner = self.scanner
        match = scanner.expect_match(VALUE, "a value %name")
        name = match[1].removesuffix("#0") if match[1].endswith("#0") and match[1] not in self.values else match[1]
        value = self.values.get(name) or self.values.get(f"{name}#0")
        if value is None:
            hint = close_names(f"%{name}", (f"%{each}" for each in self.values))
            scanner.fail(f"there is no value %{name} before this{hint}", match.start())
        return value

    def operands(self) -> list[Value]:
        """Reads any number of values, separated by commas."""
        scanner = self.scanner
        values: list[Value] = []
        while scanner.peek("%"):
            values.append(self.operand())
            before = scanner.pos
            if not (scanner.take(",") and scanner.peek("%")):
                scanner.pos = before
                break
        return values

    def define(self, name: str, value: Value, at: int) -> None:
        """Adds a value to the scope under a name, which must be new."""
        if name in self.values:
            self.scanner.fail(f"the value %{name} is defined twice", at)
        value.name = name
        self.values[name] = value
        self.scope_names.append(name)

    def check_types(self, operands: Sequence[Value], types: Sequence[Type], at: int) -> None:
        """Fails unless the operands have the types that their user declares."""
        if len(operands) != len(types):
            self.scanner.fail(f"got {len(operands)} operands and {len(types)} types for them", at)
        for operand, type_ in zip(operands, types, strict=True):
            if operand.type is not type_ and operand.type != type_:
                self.scanner.fail(f"%{operand.name} is a {type_text(operand.type)}, here {type_text(type_)}", at)

    # Regions

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Names defined inside go out of scope at the end."""
        mark = len(self.scope_names)
        if self.region_depth >= MAX_REGION_DEPTH:
            self.scanner.fail(f"regions nest more than {MAX_REGION_DEPTH} deep")
        self.region_depth += 1
        yield
        self.region_depth -= 1
        for name in self.scope_names[mark:]:
            del self.values[name]
        del self.scope_names[mark:]

    def region(self, arguments: Sequence[tuple[str, Value]] = ()) -> Region:
        """Reads `{ operations }`, optionally with a header `^bb0(%a: type):`, or with arguments read before."""
        scanner = self.scanner
        with self.scope():
            scanner.expect("{", "at the start of a region")
            block = Block([value for _, value in arguments])
            for name, value in arguments:
                self.define(name, value, scanner.pos)
            scanner.skip()
            at = scanner.pos
            if scanner.match(_BLOCK):
                if arguments:
                    scanner.fail("a region has no label if its arguments have names already", at)
                if scanner.peek("("):
                    block.arguments = self.comma_separated("(", ")", self.argument)
                scanner.expect(":", "after the block's arguments")
            while not scanner.take("}"):
                if scanner.peek("^"):
                    scanner.fail("a region has one block: only structured control flow can be read")
                block.operations.append(self.operation())
        return Region([block])

    def _typed_name(self, what: str) -> tuple[str, Value]:
        """Reads `%name: type`, where `what` is defined."""
        name = self.scanner.expect_match(VALUE, f"{what} %name")[1]
        self.scanner.expect(":", f"and the type of {what}")
        return name, Value(self.type())

    def named_argument(self) -> tuple[str, Value]:
        """Reads `%name: type loc(..)`, an argument of a region that follows."""
        name, value = self._typed_name("an argument")
        value.location = self.trailing_location()
        return name, value

    def argument(self) -> Value:
        """Reads `%name: type loc(..)` and adds the value to the scope."""
        self.scanner.skip()
        at = self.scanner.pos
        name, value = self.named_argument()
        self.define(name, value, at)
        return value

    # Modules and functions

    def module(self, name: str) -> Operation:
        """Reads `module @name attributes {..} { .. }`, after the word `module`."""
        scanner = self.scanner
        attributes: dict[str, Attribute] = {}
        if scanner.peek("@"):
            attributes["sym_name"] = scanner.symbol()
        if scanner.take_word("attributes"):
            attributes |= self.dictionary()
        return Operation(name, attributes=attributes, regions=[self.region()])

    def function(self, name: str) -> Operation:
        """Reads `public @name(%a: type {..}) -> (type {..}) attributes {..} { .. }`, after `func.func`."""
        scanner = self.scanner
        visibility = next((word for word in ("public", "private", "nested") if scanner.take_word(word)), None)
        attributes: dict[str, Attribute] = {"sym_name": scanner.symbol()}
        if visibility:
            attributes["sym_visibility"] = visibility
        # Functions are isolated from above: outer values are not visible.
        outer, self.values, scope_names, self.scope_names = self.values, {}, self.scope_names, []
        with self.scope():
            arguments, entries = self._parameters()
            results, result_entries = self._results() if scanner.take("->") else ([], [])
            attributes["function_type"] = FunctionType(tuple(a.type for a in arguments), tuple(results))
            attributes |= {"arg_attrs": entries} if any(entries) else {}
            attributes |= {"res_attrs": result_entries} if any(result_entries) else {}
            if scanner.take_word("attributes"):
                attributes |= self.dictionary()
            regions: list[Region] = []
            if scanner.peek("{"):
                names = list(self.scope_names)
                self.values, self.scope_names = {}, []
                regions = [self._body(names, arguments)]
        self.values, self.scope_names = outer, scope_names
        return Operation(name, attributes=attributes, regions=regions)

    def _body(self, names: Sequence[str], parameters: Sequence[Value]) -> Region:
        """Reads the body of a function; if its parameters have types only, its block names them."""
        at = self.scanner.pos
        body = self.region(list(zip(names, parameters, strict=False)))
        found, wanted = ([type_text(v.type) for v in values] for values in (body.blocks[0].arguments, parameters))
        if found != wanted:
            self.scanner.fail(f"the arguments of the block are ({', '.join(found)}), here ({', '.join(wanted)})", at)
        return body

    def _parameters(self) -> tuple[list[Value], list[Attribute]]:
        entries: list[Attribute] = []

        def parameter() -> Value:
            self.scanner.skip()
            at = self.scanner.pos
            if self.scanner.peek("%"):
                name, value = self._typed_name("a parameter")
                self.define(name, value, at)
            else:
                value = Value(self.type())
            entries.append(self.optional_attributes())
            value.location = self.trailing_location()
            return value

        return self.comma_separated("(", ")", parameter), entries

    def _results(self) -> tuple[list[Type], list[Attribute]]:
        if not self.scanner.peek("("):
            return [self.type()], [{}]
        entries: list[Attribute] = []

        def result() -> Type:
            type_ = self.type()
            entries.append(self.optional_attributes())
            return type_

        return self.comma_separated("(", ")", result), entries

    def finish(
        self,
        name: str,
        operands: list[Value],
        attributes: dict[str, Attribute],
        at: int,
        regions: Sequence[Region] = (),
    ) -> Operation:
        """Reads `{..} : (types) -> types`, after the op's own syntax; `at` is the offset of the operands."""
        attributes |= self.optional_attributes()
        self.scanner.expect(":", "and the operation's type")
        types = self.function_type()
        self.check_types(operands, types.inputs, at)
        return Operation(name, operands, results_of(types.results), attributes, list(regions))


def results_of(types: Sequence[Type]) -> list[Value]:
    """Values of these types, for the results of an operation."""
    return [Value(type_) for type_ in types]
