"""Reads the attributes of MLIR text: numbers, strings, lists, constants, attributes of dialects."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from hloom.stablehlo.mlir.dense import dense_values, from_bytes, static_sizes
from hloom.stablehlo.mlir.ir import (
    ELIDED_RESOURCE,
    Attribute,
    DenseArray,
    DenseElements,
    DialectAttribute,
    ElidedElements,
    Number,
    ScalarType,
    Symbol,
    TensorType,
    Type,
)
from hloom.stablehlo.mlir.lexer import ALIAS, NUMBER, WORD
from hloom.stablehlo.mlir.location_reader import LocationReader
from hloom.stablehlo.mlir.type_reader import TypeReader
from hloom.stablehlo.mlir.types import F64, I1, I64, element_type_of, i64_array, type_text

_STRUCT = re.compile(r"\s*+(?:raw\s++)?[A-Za-z_]\w*+\s*+=")
_STRUCT_DIALECTS = ("stablehlo.", "mhlo.", "chlo.")
_RESOURCES = re.compile(r"\{-#.*?#-\}", re.DOTALL)
_RESOURCE = re.compile(r'([\w$.\-]++)\s*+:\s*+"0x((?:[0-9a-fA-F]{2})*+)"')
_AXIS_PART = re.compile(r"\(\d++\)\d++")
_LIST_OF_BODIES = re.compile(r"\[\s*+<")


class AttributeReader(TypeReader, LocationReader):
    """Recursive-descent reader of attributes, types and locations; resources are read at first use."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._resources: dict[str, str] | None = None

    def attribute(self) -> Attribute:
        """Reads an attribute, with its type if one follows."""
        return self.nested(self._attribute)

    def _attribute(self) -> Attribute:
        scanner = self.scanner
        scanner.skip()
        first = scanner.text[scanner.pos : scanner.pos + 1]
        if first == '"':
            value = scanner.string()
            if scanner.take(":"):
                self.type()
            return value
        if first == "[":
            return self.comma_separated("[", "]", self.attribute)
        if first == "{":
            return self.dictionary()
        if first == "@":
            return Symbol(scanner.symbol())
        if first == "#":
            return self._dialect_attribute()
        if first == "-" or first.isdigit():
            return self._number()
        word = WORD.match(scanner.text, scanner.pos)
        if word and word[0] in _WORDS:
            scanner.pos = word.end()
            return _WORDS[word[0]](self)
        return self.type()

    def attribute_or_body(self, name: str) -> Attribute:
        """Reads `#name<..>`, or only its body `<..>`."""
        return self.attribute() if self.scanner.peek("#") else DialectAttribute(name, self.body(name))

    def integers(self) -> list[int]:
        """Reads `[1, 2]`."""
        return self.comma_separated("[", "]", self.scanner.integer)

    def array(self) -> DenseArray:
        """Reads `[1, 2]` or `array<i64: 1, 2>`."""
        if self.scanner.peek("["):
            return i64_array(self.integers())
        value = self.attribute()
        return value if isinstance(value, DenseArray) else self.scanner.fail("expected [numbers]")

    def optional_attributes(self) -> dict[str, Attribute]:
        """Reads `{..}` if it comes next."""
        return self.dictionary() if self.scanner.peek("{") else {}

    def dictionary(self) -> dict[str, Attribute]:
        """Reads `{name = value, unit, "quoted.name" = value}`."""
        entries: dict[str, Attribute] = {}
        scanner = self.scanner

        def entry() -> None:
            scanner.skip()
            at = scanner.pos
            name = scanner.string() if scanner.peek('"') else scanner.word("an attribute's name")
            if name in entries:
                scanner.fail(f"the attribute {name} is given twice", at)
            entries[name] = self.attribute() if scanner.take("=") else None

        self.comma_separated("{", "}", entry)
        return entries

    def _number(self, type_: Type | None = None) -> Number:
        """Reads a number of the given type, or else of the type that follows it."""
        scanner = self.scanner
        match = scanner.expect_match(NUMBER, "a number")
        text = match[0]
        is_integer = "x" in text or text.lstrip("-").isdigit()
        if type_ is None:
            type_ = self.type() if scanner.take(":") else I64 if is_integer else F64
        if not isinstance(type_, ScalarType):
            scanner.fail(f"a number has a scalar type, got {type_text(type_)}", match.start())
        if len(text) > 200:
            scanner.fail("the number has too many digits", match.start())
        if "f" in type_.name and "x" in text:
            return Number(self.checked(match.start(), lambda: _float_of_bits(text, type_)), type_)
        if is_integer and "f" not in type_.name:
            return Number(int(text, 16 if "x" in text else 10), type_)
        return Number(float(text), type_)

    def dense(self) -> DenseElements:
        """Reads `<[1, 2]> : tensor<2xi32>`, after the word `dense`."""
        scanner = self.scanner
        at = scanner.pos
        body = scanner.angled()
        scanner.expect(":", "and a type")
        type_ = self.tensor_type()
        return DenseElements(type_, self.checked(at, lambda: dense_values(body, type_)))

    def dense_resource(self) -> DenseElements | ElidedElements:
        """Reads `<name> : tensor<2xf32>`, after `dense_resource`; the resources are at the end of the text."""
        scanner = self.scanner
        at = scanner.pos
        name = scanner.angled().strip()
        scanner.expect(":", "and a type")
        type_ = self.tensor_type()
        if name == ELIDED_RESOURCE:
            return ElidedElements(type_)
        if self._resources is None:
            sections = "".join(_RESOURCES.findall(scanner.text))
            self._resources = {match[1]: match[2] for match in _RESOURCE.finditer(sections)}
        blob = self._resources.get(name)
        if blob is None:
            scanner.fail(f"the resource {name!r} is not in this text: only resources given at its end can be read", at)
        # The first four bytes are the alignment of the data.
        raw = bytes.fromhex(blob)[4:]
        values = self.checked(at, lambda: from_bytes(raw, element_type_of(type_.element_type), static_sizes(type_)))
        return DenseElements(type_, values)

    def dense_array(self) -> DenseArray:
        """Reads `<i64: 1, 2>`, after the word `array`."""
        scanner = self.scanner
        scanner.expect("<")
        at = scanner.pos
        element = self.type()
        if not isinstance(element, ScalarType):
            scanner.fail(f"an array has a scalar type, got {type_text(element)}", at)
        values: list[int | float] = []
        if scanner.take(":"):
            while True:
                values.append(self._array_entry(element))
                if not scanner.take(","):
                    break
        scanner.expect(">")
        return DenseArray(element, tuple(values))

    def _array_entry(self, element: ScalarType) -> int | float:
        scanner = self.scanner
        if element == I1 and (scanner.peek("true") or scanner.peek("false")):
            return scanner.word() == "true"
        at = scanner.pos
        value = self._number(element).value
        if isinstance(value, float) and "f" not in element.name:
            scanner.fail(f"an array of {element.name} holds integers, got {value}", at)
        return value

    def _dialect_attribute(self) -> Attribute:
        """Reads `#dialect.name<..>`, `#dialect<name ..>`, or an alias."""
        scanner = self.scanner
        match = scanner.expect_match(ALIAS, "an attribute")
        if match[0] in self.definitions:
            return self.alias(match[0], match.start(), self.attribute)
        name = match[2]
        if not scanner.peek("<"):
            if "." not in name:
                scanner.fail(f"the attribute alias #{name} is not defined", match.start())
            return DialectAttribute(name, "")
        if "." in name:
            return DialectAttribute(name, self.body(name))
        start = scanner.pos
        scanner.expect("<")
        word = scanner.word("the attribute's name")
        scanner.skip()
        if scanner.peek("<"):
            body = self.body(f"{name}.{word}")
            scanner.expect(">")
        else:
            inside = scanner.pos
            scanner.pos = start
            body = scanner.angled()[inside - start - 1 :].strip()
        return DialectAttribute(f"{name}.{word}", body)

    def body(self, name: str) -> dict[str, Attribute] | str:
        """Reads the body in angle brackets of attribute `name`: a dictionary if it has fields, otherwise text."""
        scanner = self.scanner
        scanner.skip()
        is_struct = name.startswith(_STRUCT_DIALECTS) and not name.endswith(".type_extensions")
        if not is_struct or not _STRUCT.match(scanner.text, scanner.pos + 1):
            return scanner.angled().strip()
        scanner.expect("<")
        scanner.take_word("raw")
        entries: dict[str, Attribute] = {}

        def entry() -> None:
            field = scanner.word("a field's name")
            if not scanner.take("="):
                entries[field] = True
                return
            inner = f"{name.partition('.')[0]}.{field}"
            part = scanner.match(_AXIS_PART)
            if part:
                entries[field] = part[0]
            elif _LIST_OF_BODIES.match(scanner.text, scanner.pos):
                entries[field] = self.comma_separated("[", "]", lambda: DialectAttribute(inner, self.body(inner)))
            elif scanner.peek("<"):
                entries[field] = DialectAttribute(_FIELD_NAMES.get(inner, inner), self.body(inner))
            else:
                entries[field] = self.attribute()

        self.fields(">", entry)
        return entries


def _raw(reader: AttributeReader, name: str) -> DialectAttribute:
    """An attribute of MLIR itself that HLO ignores, as text."""
    return DialectAttribute(f"builtin.{name}", reader.scanner.angled() if reader.scanner.peek("<") else "")


_WORDS: dict[str, Callable[[AttributeReader], Attribute]] = {
    "true": lambda reader: True,
    "false": lambda reader: False,
    "unit": lambda reader: None,
    "dense": AttributeReader.dense,
    "dense_resource": AttributeReader.dense_resource,
    "array": AttributeReader.dense_array,
    "affine_map": lambda reader: _raw(reader, "affine_map"),
    "strided": lambda reader: _raw(reader, "strided"),
    "opaque": lambda reader: _raw(reader, "opaque"),
    "loc": AttributeReader.location_attribute,
}
_FIELD_NAMES = {"stablehlo.mode": "stablehlo.result_accuracy_mode"}


def _float_of_bits(text: str, type_: ScalarType) -> float:
    return float(dense_values(text, TensorType((), type_)).astype(np.float64))
