"""Signatures of custom-call targets: their operands and results, with element types and sizes, and their attributes.

A signature is written as text:

    a: T[*, m, n], tau: T[*, k] -> q: T[*, m, n]

`T` stands for one element type of the target, `real(T)` and `complex(T)` for the corresponding real and complex types.
`*` stands for any number of dimensions, the same in all arrays that have it, `size: s32[]^rank` for as many scalars,
and `x: _^any` for any number of operands. A shape without brackets, `x: S -> x: S`, is an arbitrary shape, the same
wherever its letter occurs; `_` is any shape. Sizes are names, bound where they first occur, or Python expressions of
names and attributes; `largest` is the largest of all sizes.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, NoReturn

from hloom.errors import RuleError
from hloom.ops.rules import result_shapes
from hloom.shape import Shape
from hloom.system.lazy import cached_property
from hloom.system.records import record
from hloom.types import BY_NAME, PrimitiveType

CLAUSE = "CUSTOMCALL-7"
_ARRAY = re.compile(r"(\w+): ([\w()]+)(?:\[([^\]]*)\])?(\^\w+)?")
_FUNCTIONS = {"min": min, "max": max}
_PARTS = {PrimitiveType.C64: PrimitiveType.F32, PrimitiveType.C128: PrimitiveType.F64}
_COMPLEX = {real: whole for whole, real in _PARTS.items()}


@record(slots=True)
class Attribute:
    """An attribute of a call: a letter (itself or its code), a flag, a number, or an integer."""

    options: str | bool | float | range
    """The valid letters, the first being the default; the default of a flag or a number; or the valid integers."""

    def value(self, given: Any) -> Any:
        """Returns the value of the attribute as given in a call; None if it is not valid."""
        if isinstance(self.options, float):
            return float(given) if type(given) in (int, float) else None
        if isinstance(self.options, bool):
            return given if isinstance(given, bool) else bool(given) if given in (0, 1) else None
        if isinstance(self.options, str):
            letter = chr(given) if type(given) is int and 0 <= given < 128 else given
            return letter if isinstance(letter, str) and len(letter) == 1 and letter in self.options else None
        return given if type(given) is int and given in self.options else None

    @property
    def default(self) -> Any:
        """The value if a call does not name the attribute; None if the attribute is required."""
        if isinstance(self.options, range):
            return None
        return self.options[0] if isinstance(self.options, str) else self.options

    def __str__(self) -> str:
        if isinstance(self.options, float):
            return "a number"
        if isinstance(self.options, bool):
            return "true or false"
        if isinstance(self.options, range):
            return f"an integer from {self.options.start} to {self.options.stop - 1}"
        return " or ".join(f"'{letter}' ({ord(letter)})" for letter in self.options)


@record(slots=True)
class Pattern:
    """An operand or result in a signature."""

    name: str
    type: str
    sizes: tuple[str, ...] | None
    """The sizes of its dimensions; None for an arbitrary shape."""
    repeat: str | None
    """`rank` or `any`; None for one array."""

    def __str__(self) -> str:
        return f"{self.name}: {self.type}" + ("" if self.sizes is None else f"[{', '.join(self.sizes)}]")


@record
class Signature:
    """The operands, results and attributes of a target; `bind` checks a call against it."""

    text: str
    types: tuple[PrimitiveType, ...] = ()
    """The valid element types T."""
    where: Mapping[str, str] = field(default_factory=dict)
    """Sizes that are computed from others and from attributes."""
    relations: tuple[str, ...] = ()
    """Conditions on sizes, like `k <= n`."""
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    positional: tuple[str, ...] = ()
    """The attributes of a backend config that lists values without names, `1,1,100,1e-6`."""
    is_dynamic: bool = False
    """Whether arrays may have dynamic sizes."""

    @cached_property
    def operands(self) -> tuple[Pattern, ...]:
        """The patterns of the operands."""
        return _patterns(self.text.partition("->")[0])

    @cached_property
    def results(self) -> tuple[Pattern, ...]:
        """The patterns of the results."""
        return _patterns(self.text.partition("->")[2])

    @property
    def types_text(self) -> str:
        """The valid types as text, or the types that are not valid if these are fewer."""
        others = [kind for kind in PrimitiveType if kind.is_array and kind not in self.types]
        if len(self.types) <= len(others):
            return ", ".join(map(str, self.types))
        return f"all but {', '.join(map(str, others))}" if others else "all"

    def bind(self, target: str, operands: Sequence[Shape], result: Shape, config: str) -> Binding:
        """The sizes, type and attributes of a call; RuleError[CUSTOMCALL-7] if it does not match the signature."""
        return _Binder(self, target, config).bind(operands, result)

    def __str__(self) -> str:
        kinds = f" for T = {self.types_text}" if self.types else ""
        wheres = [f"{name} = {value}" for name, value in self.where.items()]
        clauses = ", ".join([*wheres, *self.relations])
        return f"({self.text}){kinds}" + (f" where {clauses}" if clauses else "")


@record(slots=True)
class Binding:
    """A call, bound to the names of its target's signature."""

    sizes: Mapping[str, int]
    batch: tuple[int, ...]
    """The dimensions that `*` stands for."""
    type: PrimitiveType | None
    attributes: Mapping[str, Any]
    operands: Mapping[str, tuple[int, Shape]]
    """The index and shape of each operand, by name."""
    results: Mapping[str, tuple[int, Shape]]
    config: str


def _patterns(text: str) -> tuple[Pattern, ...]:
    found = []
    for name, kind, sizes, repeat in (match.groups() for match in _ARRAY.finditer(text)):
        parts = None if sizes is None else tuple(re.findall(r"\w+\([^)]*\)|[^\s,][^,]*", sizes))
        found.append(Pattern(name, kind, parts, repeat and repeat[1:]))
    return tuple(found)


class _Binder:
    """Binds one call to a signature."""

    def __init__(self, signature: Signature, target: str, config: str) -> None:
        self.signature, self.target, self.config = signature, target, config
        self.batch: tuple[int, ...] | None = None
        self.type: PrimitiveType | None = None
        self.shapes: dict[str, Shape] = {}
        self.sizes: dict[str, int] = {}
        given = self._given()
        self.attributes = {name: self._attribute(name, each, given) for name, each in signature.attributes.items()}

    def bind(self, operands: Sequence[Shape], result: Shape) -> Binding:
        results = result_shapes(result)
        if len(self.signature.results) == 1 and self.signature.results[0].sizes is None:
            results = (result,)
        given: list[tuple[str, int, Pattern, Shape]] = []
        for role, patterns, shapes in (
            ("operand", self.signature.operands, operands),
            ("result", self.signature.results, results),
        ):
            pairs = self._pairs(role, patterns, shapes)
            for pair in pairs:
                self._bind_names(*pair)
            given += pairs
        for name, expression in self.signature.where.items():
            self.sizes[name] = self._evaluate(expression)
        for role, index, pattern, shape in given:
            self._check(role, index, pattern, shape)
        for relation in self.signature.relations:
            if not self._evaluate(relation):
                values = ", ".join(
                    f"{name} = {value}"
                    for name, value in self.sizes.items()
                    if re.search(rf"\b({name}|largest)\b", relation)
                )
                self._reject(f"{relation} must hold, got {values}")
        arrays_by_role = {
            role: {pattern.name: (index, shape) for r, index, pattern, shape in given if r == role}
            for role in ("operand", "result")
        }
        arrays = arrays_by_role["operand"], arrays_by_role["result"]
        return Binding(self.sizes, self.batch or (), self.type, self.attributes, *arrays, self.config)

    def _given(self) -> Mapping[str, Any]:
        """The attributes that the backend config names."""
        signature, config = self.signature, self.config.strip()
        if not signature.attributes or not config:
            return {}
        if signature.positional:
            values = [_attribute_value(text.strip()) for text in config.split(",")]
            if len(values) != len(signature.positional):
                self._reject(f"its backend_config is {','.join(signature.positional)}, got {config!r}")
            return dict(zip(signature.positional, values, strict=True))
        given = parse_attributes(config)
        # A JSON object holds configuration of an XLA backend.
        if not given and not re.match(r'\{\s*("|\})', config):
            self._reject(f"its backend_config is a dictionary, {{name = value : type, ..}}, got {config!r}")
        return given

    def _attribute(self, name: str, attribute: Attribute, given: Mapping[str, Any]) -> Any:
        value = attribute.value(given[name]) if name in given else attribute.default
        if value is None:
            self._reject(f"attribute {name} is {attribute}, got {given.get(name)!r}")
        return value

    def _pairs(
        self, role: str, patterns: tuple[Pattern, ...], shapes: Sequence[Shape]
    ) -> list[tuple[str, int, Pattern, Shape]]:
        """Pairs each shape with its pattern, as (role, index, pattern, shape)."""
        expected = [pattern for pattern in patterns if not pattern.repeat]
        repeated = patterns[len(expected) :]
        if repeated and repeated[0].repeat == "any":
            expected += repeated * (len(shapes) - len(expected))
        elif repeated and shapes:
            expected += repeated * (shapes[0].rank if self.batch is None else len(self.batch))
        if len(expected) != len(shapes):
            self._reject(f"{len(expected)} {role}s, got {len(shapes)}")
        return [
            (role, index, pattern, shape) for index, (pattern, shape) in enumerate(zip(expected, shapes, strict=True))
        ]

    def _bind_names(self, role: str, index: int, pattern: Pattern, shape: Shape) -> None:
        """Binds the names that first occur in this array."""
        if pattern.sizes is None:
            self.shapes.setdefault(pattern.type, shape)
            return
        if not shape.is_array or shape.is_unbounded or (shape.is_dynamic and not self.signature.is_dynamic):
            self._reject_shape(role, index, pattern, shape)
        start = pattern.sizes.index("*") if "*" in pattern.sizes else shape.rank
        explicit = [size for size in pattern.sizes if size != "*"]
        more = shape.rank - len(explicit)
        if "*" in pattern.sizes and self.batch is None and more >= 0:
            self.batch = shape.dimensions[start : start + more]
        if more != (len(self.batch or ()) if "*" in pattern.sizes else 0):
            self._reject_shape(role, index, pattern, shape)
        for name, size in zip(explicit, shape.dimensions[:start] + shape.dimensions[start + more :], strict=True):
            if name.isidentifier() and name not in self.signature.where:
                self.sizes.setdefault(name, size)
        if "T" in pattern.type and self.type is None and pattern.type == "T":
            self.type = shape.element_type
            if self.type not in self.signature.types:
                self._reject_shape(role, index, pattern, shape)

    def _check(self, role: str, index: int, pattern: Pattern, shape: Shape) -> None:
        if pattern.sizes is None:
            if pattern.type != "_" and not shape.compatible(self.shapes[pattern.type]):
                self._reject(f"{role} {index} ({pattern.name}) is {self.shapes[pattern.type]}, got {shape}")
            return
        expected = self._expected_shape(pattern, shape)
        if shape.element_type is not expected.element_type or shape.dimensions != expected.dimensions:
            self._reject_shape(role, index, pattern, shape, expected)

    def _expected_shape(self, pattern: Pattern, shape: Shape) -> Shape:
        """The shape of an array that the other arrays imply."""
        assert pattern.sizes is not None
        dimensions: list[int] = []
        for size in pattern.sizes:
            if size == "*":
                dimensions += self.batch or ()
            else:
                dimensions.append(max(0, self._evaluate(size)))
        return Shape.array(self._type_of(pattern, shape), dimensions)

    def _type_of(self, pattern: Pattern, shape: Shape) -> PrimitiveType:
        if pattern.type == "_":
            return shape.element_type
        if "T" not in pattern.type:
            return BY_NAME[pattern.type]
        assert self.type is not None
        if pattern.type == "T":
            return self.type
        return _PARTS.get(self.type, self.type) if pattern.type == "real(T)" else _COMPLEX.get(self.type, self.type)

    def _evaluate(self, expression: str) -> int:
        largest = max(self.sizes.values(), default=0)
        names = {**self.sizes, **self.attributes, "rank": len(self.batch or ()), "largest": largest, **_FUNCTIONS}
        return int(eval(_code(expression), {"__builtins__": {}}, names))

    def _reject_shape(
        self, role: str, index: int, pattern: Pattern, shape: Shape, expected: Shape | None = None
    ) -> NoReturn:
        exactly = "" if expected is None else f" = {expected}"
        static = " of static sizes" if shape.is_dynamic and not self.signature.is_dynamic else ""
        self._reject(f"{role} {index} is {pattern}{exactly}{static}, got {shape}")

    def _reject(self, message: str) -> NoReturn:
        raise RuleError("custom-call", CLAUSE, f"{self.target!r}: {message}; it is declared as {self.signature}")


@functools.cache
def _code(expression: str) -> Any:
    return compile(expression, expression, "eval")


def parse_attributes(text: str) -> dict[str, Any]:
    """Parses a dictionary like `{uplo = 76 : ui8, name = "x", flag = true}`; returns {} for any other text."""
    entry = re.compile(r'\s*([\w.]+)\s*=\s*("(?:[^"\\]|\\.)*"|[^,:{}<>\[\]]+)(?:\s*:\s*[\w<>]+)?\s*(,|\Z)')
    body = text.strip()
    if not (body.startswith("{") and body.endswith("}")):
        return {}
    body, position, attributes = body[1:-1], 0, {}
    while position < len(body.rstrip()):
        match = entry.match(body, position)
        if match is None:
            return {}
        attributes[match[1]] = _attribute_value(match[2].strip())
        position = match.end()
    return attributes


def _attribute_value(text: str) -> Any:
    if text.startswith('"'):
        return text[1:-1]
    if text in ("true", "false"):
        return text == "true"
    for parse in (int, float):
        try:
            return parse(text)
        except ValueError:
            continue
    return text
