"""Reads types, attributes and locations of MLIR text (MLIR Language Reference; quant and StableHLO dialects)."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from hloom.errors import HloomError, ParseError
from hloom.stablehlo.mlir.dense import dense_values, from_bytes, static_sizes
from hloom.stablehlo.mlir.ir import (
    ELIDED_RESOURCE,
    Attribute,
    DenseArray,
    DenseElements,
    DialectAttribute,
    DialectType,
    ElidedElements,
    FunctionType,
    Number,
    QuantizedType,
    ScalarType,
    Symbol,
    TensorType,
    TupleType,
    Type,
)
from hloom.stablehlo.mlir.lexer import ALIAS, NUMBER, WORD, MlirScanner, unquote_mlir
from hloom.stablehlo.mlir.types import I1, I64, element_type_of, type_text
from hloom.text.scanner import MAX_NESTING, STRING

T = TypeVar("T")

_TENSOR = re.compile(r"tensor<((?:(?:\d{1,19}+|\?)x)*+)([a-z]\w*+)>")
_SIZE = re.compile(r"(\d{1,19}+|\?)\s*+x\s*+")
_SCALAR = re.compile(r"(?:[su]?i\d++|tf32|b?f\d++\w*+|index|none)(?![\w.])")
_SOURCE = re.compile(r'("(?:[^"\\]|\\.)*+")\s*+:\s*+(\d{1,9}+)\s*+:\s*+(\d{1,9}+)(?:\s+to\s+(?:\d++)?\s*:\s*\d++)?')
_STRUCT = re.compile(r"\s*+(?:raw\s++)?[A-Za-z_]\w*+\s*+=")
_STRUCT_DIALECTS = ("stablehlo.", "mhlo.", "chlo.")
_RESOURCES = re.compile(r"\{-#.*?#-\}", re.DOTALL)
_RESOURCE = re.compile(r'([\w$.\-]++)\s*+:\s*+"0x((?:[0-9a-fA-F]{2})*+)"')
_AXIS_PART = re.compile(r"\(\d++\)\d++")
_LIST_OF_BODIES = re.compile(r"\[\s*+<")
F32, F64 = ScalarType("f32"), ScalarType("f64")


class AttributeReader:
    """Recursive-descent reader of types, attributes and locations.

    Aliases may be used before their definition, resources are read at first use, and tensor types are cached by their
    text. All methods that read raise ParseError with line, column and caret.
    """

    def __init__(self, text: str) -> None:
        self.scanner = MlirScanner(text)
        self.definitions = self.scanner.definitions() if "#" in text or "!" in text else {}
        self.aliases: dict[str, Any] = {}
        self.types: dict[str, TensorType] = {}
        self.depth = 0
        self._resources: dict[str, str] | None = None

    # Types

    def type(self) -> Type:
        """Reads a type; function types are in parentheses."""
        scanner = self.scanner
        scanner.skip()
        match = _TENSOR.match(scanner.text, scanner.pos)
        if match:
            scanner.pos = match.end()
            known = self.types.get(match[0])
            if known is None:
                known = self.types[match[0]] = TensorType(_sizes(match[1]), ScalarType(match[2]))
            return known
        return self.nested(self._type)

    def nested(self, read: Callable[[], T]) -> T:
        """Calls `read` one nesting level deeper; fails at a depth that Python's stack does not allow."""
        if self.depth >= MAX_NESTING // 4:
            self.scanner.fail(f"types and attributes nest more than {MAX_NESTING // 4} deep")
        self.depth += 1
        try:
            return read()
        finally:
            self.depth -= 1

    def _type(self) -> Type:
        scanner = self.scanner
        if scanner.peek("("):
            return self._function_type()
        if scanner.peek("!"):
            return self._dialect_type()
        match = scanner.match(_SCALAR)
        if match:
            return ScalarType(match[0])
        start = scanner.pos
        word = scanner.word("a type")
        if word == "tensor":
            return self._tensor()
        if word == "tuple":
            return TupleType(tuple(self._comma_separated("<", ">", self.type)))
        if word == "complex":
            scanner.expect("<")
            part = self.type()
            scanner.expect(">")
            return ScalarType(f"complex<{type_text(part)}>")
        scanner.fail(f"there is no type {word!r} here; there is tensor, tuple, complex, i32, f32 and the like", start)

    def _function_type(self) -> FunctionType:
        inputs = tuple(self._comma_separated("(", ")", self.type))
        self.scanner.expect("->")
        return FunctionType(inputs, self.result_types())

    def result_types(self) -> tuple[Type, ...]:
        """Reads a type, or several in parentheses."""
        if not self.scanner.peek("("):
            return (self.type(),)
        return tuple(self._comma_separated("(", ")", self.type))

    def _tensor(self) -> TensorType:
        scanner = self.scanner
        scanner.expect("<")
        if scanner.take("*"):
            scanner.fail("a tensor needs a rank: tensor<*x..> is not supported")
        sizes: list[int | None] = []
        while match := scanner.match(_SIZE):
            sizes.append(None if match[1] == "?" else int(match[1]))
        at = scanner.pos
        element = self.type()
        if not isinstance(element, (ScalarType, QuantizedType)):
            scanner.fail(f"a tensor has elements of a scalar type, got {type_text(element)}", at)
        bounds: tuple[int | None, ...] | None = None
        if scanner.take(","):
            bounds = self._bounds(len(sizes))
        scanner.expect(">")
        return TensorType(tuple(sizes), element, bounds)

    def _bounds(self, rank: int) -> tuple[int | None, ...] | None:
        """Reads `#stablehlo.bounds<?, 4>` or `#stablehlo.type_extensions<bounds = [?, 4]>`; None for others."""
        at = self.scanner.pos
        encoding = self.attribute()
        if not isinstance(encoding, DialectAttribute) or not isinstance(encoding.body, str):
            return None
        if encoding.name.partition(".")[2] not in ("bounds", "type_extensions"):
            return None
        entries = re.findall(r"\?|\d{1,19}", encoding.body)
        if len(entries) != rank:
            self.scanner.fail(f"bounds need an entry for each of the {rank} dimensions, got {len(entries)}", at)
        return tuple(None if entry == "?" else int(entry) for entry in entries)

    def _dialect_type(self) -> Any:
        scanner = self.scanner
        match = scanner.match(ALIAS)
        if not match:
            scanner.fail(f"expected a type, got {scanner.preview()}")
        name = match[2]
        if name == "quant.uniform":
            return self._quantized()
        if match[0] in self.definitions:
            return self._alias(match[0], match.start(), self.type)
        if "." not in name:
            scanner.fail(f"the type alias !{name} is not defined", match.start())
        return DialectType(f"{name}<{scanner.angled()}>" if scanner.peek("<") else name)

    def _quantized(self) -> Any:
        """Reads `<i8<-127:127>:f32:0, {0.1:3, 0.2}>`."""
        scanner = self.scanner
        scanner.expect("<")
        storage = scanner.word("the storage type, like i8").replace("u", "ui", 1)
        storage_range = None
        if scanner.take("<"):
            low = scanner.integer()
            scanner.expect(":")
            storage_range = (low, scanner.integer())
            scanner.expect(">")
        scanner.expect(":")
        expressed = ScalarType(scanner.word("the expressed type, like f32"))
        axis = scanner.integer("an axis") if scanner.take(":") else None
        scanner.expect(",")
        if axis is not None:
            entries = self._comma_separated("{", "}", self._scale)
        else:
            entries = [self._scale()]
        scanner.expect(">")
        scales, zeros = zip(*entries, strict=True) if entries else ((), ())
        return QuantizedType(ScalarType(storage), expressed, scales, zeros, axis, storage_range)

    def _scale(self) -> tuple[float, int]:
        scanner = self.scanner
        match = scanner.match(NUMBER)
        if not match:
            scanner.fail(f"expected a scale, got {scanner.preview()}")
        zero = scanner.integer("a zero point") if scanner.take(":") else 0
        return float(match[0]), zero

    def _alias(self, name: str, at: int, read: Callable[[], T]) -> T:
        """The value of an alias, read at its definition."""
        if name not in self.aliases:
            scanner, here = self.scanner, self.scanner.pos
            self.aliases[name] = _IN_PROGRESS
            scanner.pos = self.definitions[name]
            self.aliases[name] = self.nested(read)
            scanner.pos = here
        if self.aliases[name] is _IN_PROGRESS:
            self.scanner.fail(f"the alias {name} is defined by itself", at)
        return self.aliases[name]

    def _comma_separated(self, opening: str, closing: str, read: Callable[[], T]) -> list[T]:
        """Reads entries between brackets, separated by commas."""
        scanner = self.scanner
        scanner.expect(opening)
        entries: list[T] = []
        while not scanner.take(closing):
            if entries:
                scanner.expect(",", f"or {closing!r}")
            entries.append(read())
        return entries

    def fields(self, closing: str, read: Callable[[], None]) -> None:
        """Reads fields up to a closing bracket, separated by commas; StableHLO also allows a trailing comma."""
        scanner = self.scanner
        while not scanner.take(closing):
            read()
            if not scanner.take(","):
                scanner.expect(closing, "or ','")
                return

    # Attributes

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
            return self._comma_separated("[", "]", self.attribute)
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

        self._comma_separated("{", "}", entry)
        return entries

    def _number(self, type_: Type | None = None) -> Number:
        """Reads a number of the given type, or else of the type that follows it."""
        scanner = self.scanner
        match = scanner.match(NUMBER)
        if not match:
            scanner.fail(f"expected a number, got {scanner.preview()}")
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
        return Number(
            int(text, 16 if "x" in text else 10) if is_integer and "f" not in type_.name else float(text), type_
        )

    def checked(self, at: int, compute: Callable[[], T]) -> T:
        """The result of `compute`; an HloomError becomes a ParseError at offset `at`."""
        try:
            return compute()
        except ParseError:
            raise
        except HloomError as error:
            self.scanner.fail(error.message, at)

    def tensor_type(self) -> TensorType:
        """Reads a tensor type."""
        at = self.scanner.pos
        type_ = self.type()
        if not isinstance(type_, TensorType):
            self.scanner.fail(f"expected a tensor type, got {type_text(type_)}", at)
        return type_

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
        values: list[Any] = []
        if scanner.take(":"):
            while True:
                values.append(self._array_entry(element))
                if not scanner.take(","):
                    break
        scanner.expect(">")
        return DenseArray(element, tuple(values))

    def _array_entry(self, element: ScalarType) -> Any:
        scanner = self.scanner
        if element == I1 and (scanner.peek("true") or scanner.peek("false")):
            return scanner.word() == "true"
        at = scanner.pos
        value = self._number(element).value
        if isinstance(value, float) and "f" not in element.name:
            scanner.fail(f"an array of {element.name} holds integers, got {value}", at)
        return value

    def _dialect_attribute(self) -> Any:
        """Reads `#dialect.name<..>`, `#dialect<name ..>`, or an alias."""
        scanner = self.scanner
        match = scanner.match(ALIAS)
        if not match:
            scanner.fail(f"expected an attribute, got {scanner.preview()}")
        if match[0] in self.definitions:
            return self._alias(match[0], match.start(), self.attribute)
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
            body: Any = self.body(f"{name}.{word}")
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
        if not name.startswith(_STRUCT_DIALECTS) or name.endswith(".type_extensions"):
            return scanner.angled().strip()
        if not _STRUCT.match(scanner.text, scanner.pos + 1):
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
                entries[field] = self._comma_separated("[", "]", lambda: DialectAttribute(inner, self.body(inner)))
            elif scanner.peek("<"):
                entries[field] = DialectAttribute(_FIELD_NAMES.get(inner, inner), self.body(inner))
            else:
                entries[field] = self.attribute()

        self.fields(">", entry)
        return entries

    # Locations

    def trailing_location(self) -> str:
        """Reads `loc(..)` if it follows, else ""."""
        scanner = self.scanner
        scanner.skip()
        if not scanner.text.startswith("loc(", scanner.pos):
            return ""
        scanner.pos += 4
        name, position = self.location()
        scanner.expect(")")
        return _location_text(name, position)

    def location_attribute(self) -> str:
        """Reads `(..)`, after the word `loc`, as text."""
        self.scanner.expect("(")
        name, position = self.location()
        self.scanner.expect(")")
        return _location_text(name, position)

    def location(self) -> tuple[str, str]:
        """Reads a location: its name and its position `"file":line:column`, the first of each if there are several."""
        scanner = self.scanner
        if scanner.peek("#"):
            match = scanner.match(ALIAS)
            if match is None or match[0] not in self.definitions:
                scanner.fail("the location alias is not defined", match.start() if match else None)
            return self._alias(match[0], match.start(), self._defined_location)
        return self.nested(self._location)

    def _defined_location(self) -> tuple[str, str]:
        scanner = self.scanner
        if not scanner.take("loc("):
            scanner.fail(f"expected loc(..), got {scanner.preview()}")
        location = self.location()
        scanner.expect(")")
        return location

    def _location(self) -> tuple[str, str]:
        scanner = self.scanner
        source = scanner.match(_SOURCE)
        if source:
            return "", f"{source[1]}:{source[2]}:{source[3]}"
        if scanner.peek('"'):
            name = scanner.string()
            if not scanner.take("("):
                return name, ""
            _, position = self.location()
            scanner.expect(")")
            return name, position
        word = scanner.word("a location")
        if word == "callsite":
            return self._innermost()
        if word == "fused":
            if scanner.peek("<"):
                scanner.angled()
            parts = self._comma_separated("[", "]", self.location)
            return next((n for n, _ in parts if n), ""), next((p for _, p in parts if p), "")
        if word != "unknown":
            scanner.fail(f"there is no location {word!r}")
        return "", ""

    def _innermost(self) -> tuple[str, str]:
        """Reads the callee of `callsite(callee at caller)`; skips callers, which may nest as deep as a call stack."""
        scanner = self.scanner
        callees: list[tuple[str, str]] = []
        while not callees or scanner.take_word("callsite"):
            scanner.expect("(")
            callees.append(self.location())
            if not scanner.take_word("at"):
                scanner.fail(f"expected 'at', got {scanner.preview()}")
        if not scanner.match(ALIAS):
            self.location()
        for _ in callees:
            scanner.expect(")")
        return callees[0]


_IN_PROGRESS = object()


def _raw(reader: AttributeReader, name: str) -> DialectAttribute:
    """An attribute of MLIR itself that HLO ignores, as text."""
    return DialectAttribute(f"builtin.{name}", reader.scanner.angled() if reader.scanner.peek("<") else "")


_WORDS: dict[str, Callable[[AttributeReader], Any]] = {
    "true": lambda reader: True,
    "false": lambda reader: False,
    "unit": lambda reader: None,
    "dense": AttributeReader.dense,
    "dense_resource": AttributeReader.dense_resource,
    "array": AttributeReader.dense_array,
    "affine_map": lambda reader: _raw(reader, "affine_map"),
    "strided": lambda reader: _raw(reader, "strided"),
    "opaque": lambda reader: _raw(reader, "opaque"),
    "loc": lambda reader: reader.location_attribute(),
}
_FIELD_NAMES = {"stablehlo.mode": "stablehlo.result_accuracy_mode"}


def _float_of_bits(text: str, type_: ScalarType) -> float:
    return float(dense_values(text, TensorType((), type_)).astype(np.float64))


def _sizes(text: str) -> tuple[int | None, ...]:
    return tuple(None if size == "?" else int(size) for size in text.split("x")[:-1])


def _location_text(name: str, position: str) -> str:
    if not name:
        return position
    quoted = '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return f"{quoted}({position})" if position else quoted


def location_parts(location: str) -> tuple[str, str, int]:
    """The name, file and line of a location in the form of `Operation.location`; "" and 0 for missing ones.

    A colon and anything after it are not part of the name.
    """
    match = STRING.match(location)
    if not match:
        return "", "", 0
    source = _SOURCE.match(location)
    if source:
        return "", unquote_mlir(source[1]), int(source[2])
    source = _SOURCE.match(location, match.end() + 1)
    name = unquote_mlir(match[0]).partition(":")[0]
    return (name, unquote_mlir(source[1]), int(source[2])) if source else (name, "", 0)
