"""Reads the types of MLIR text (MLIR Language Reference; quant and StableHLO dialects)."""

from __future__ import annotations

import re

from hloom.stablehlo.mlir.ir import (
    Attribute,
    DialectAttribute,
    DialectType,
    FunctionType,
    QuantizedType,
    ScalarType,
    TensorType,
    TupleType,
    Type,
)
from hloom.stablehlo.mlir.lexer import ALIAS, NUMBER
from hloom.stablehlo.mlir.reader import Reader
from hloom.stablehlo.mlir.types import type_text

_TENSOR = re.compile(r"tensor<((?:(?:\d{1,19}+|\?)x)*+)([a-z]\w*+)>")
_SIZE = re.compile(r"(\d{1,19}+|\?)\s*+x\s*+")
_SCALAR = re.compile(r"(?:[su]?i\d++|tf32|b?f\d++\w*+|index|none)(?![\w.])")
_BOUND = re.compile(r"\?|\d{1,19}")


class TypeReader(Reader):
    """Recursive-descent reader of types; tensor types are cached by their text."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.types: dict[str, TensorType] = {}

    def attribute(self) -> Attribute:
        """Reads an attribute, which may be the encoding of a tensor type; given by `AttributeReader`."""
        raise NotImplementedError

    def type(self) -> Type:
        """Reads a type; function types are in parentheses."""
        scanner = self.scanner
        scanner.skip()
        match = _TENSOR.match(scanner.text, scanner.pos)
        if match:
            scanner.pos = match.end()
            known = self.types.get(match[0])
            if known is None:
                sizes = tuple(map(_size, match[1].split("x")[:-1]))
                known = self.types[match[0]] = TensorType(sizes, ScalarType(match[2]))
            return known
        return self.nested(self._type)

    def _type(self) -> Type:
        scanner = self.scanner
        if scanner.peek("("):
            inputs = tuple(self.comma_separated("(", ")", self.type))
            scanner.expect("->")
            return FunctionType(inputs, self.result_types())
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
            return TupleType(tuple(self.comma_separated("<", ">", self.type)))
        if word == "complex":
            scanner.expect("<")
            part = self.type()
            scanner.expect(">")
            return ScalarType(f"complex<{type_text(part)}>")
        scanner.fail(f"there is no type {word!r} here; there is tensor, tuple, complex, i32, f32 and the like", start)

    def result_types(self) -> tuple[Type, ...]:
        """Reads a type, or several in parentheses."""
        if not self.scanner.peek("("):
            return (self.type(),)
        return tuple(self.comma_separated("(", ")", self.type))

    def type_list(self) -> list[Type]:
        """Reads types separated by commas, or `()` for none."""
        if self.scanner.take("()"):
            return []
        types = [self.type()]
        while self.scanner.take(","):
            types.append(self.type())
        return types

    def tensor_type(self) -> TensorType:
        """Reads a tensor type."""
        at = self.scanner.pos
        type_ = self.type()
        if not isinstance(type_, TensorType):
            self.scanner.fail(f"expected a tensor type, got {type_text(type_)}", at)
        return type_

    def function_type(self) -> FunctionType:
        """Reads a function type."""
        at = self.scanner.pos
        type_ = self.type()
        if not isinstance(type_, FunctionType):
            self.scanner.fail(f"expected (types) -> types, got {type_text(type_)}", at)
        return type_

    def _tensor(self) -> TensorType:
        scanner = self.scanner
        scanner.expect("<")
        if scanner.take("*"):
            scanner.fail("a tensor needs a rank: tensor<*x..> is not supported")
        sizes: list[int | None] = []
        while match := scanner.match(_SIZE):
            sizes.append(_size(match[1]))
        at = scanner.pos
        element = self.type()
        if not isinstance(element, (ScalarType, QuantizedType)):
            scanner.fail(f"a tensor has elements of a scalar type, got {type_text(element)}", at)
        bounds = self._bounds(len(sizes)) if scanner.take(",") else None
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
        entries = _BOUND.findall(encoding.body)
        if len(entries) != rank:
            self.scanner.fail(f"bounds need an entry for each of the {rank} dimensions, got {len(entries)}", at)
        return tuple(map(_size, entries))

    def _dialect_type(self) -> Type:
        scanner = self.scanner
        match = scanner.expect_match(ALIAS, "a type")
        name = match[2]
        if name == "quant.uniform":
            return self._quantized()
        if match[0] in self.definitions:
            return self.alias(match[0], match.start(), self.type)
        if "." not in name:
            scanner.fail(f"the type alias !{name} is not defined", match.start())
        return DialectType(f"{name}<{scanner.angled()}>" if scanner.peek("<") else name)

    def _quantized(self) -> QuantizedType:
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
        entries = [self._scale()] if axis is None else self.comma_separated("{", "}", self._scale)
        scanner.expect(">")
        scales, zeros = zip(*entries, strict=True) if entries else ((), ())
        return QuantizedType(ScalarType(storage), expressed, scales, zeros, axis, storage_range)

    def _scale(self) -> tuple[float, int]:
        scale = float(self.scanner.expect_match(NUMBER, "a scale")[0])
        return scale, self.scanner.integer("a zero point") if self.scanner.take(":") else 0


def _size(text: str) -> int | None:
    return None if text == "?" else int(text)
