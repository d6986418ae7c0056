"""Types of values: numbers and pointers, vectors of them, structures, and no value at all."""

from __future__ import annotations

import functools
from collections.abc import Sequence

_FLOAT_BITS = {"half": 16, "bfloat": 16, "float": 32, "double": 64}
_SUFFIX = {"half": "f16", "bfloat": "bf16", "float": "f32", "double": "f64", "ptr": "p0"}


class Type:
    """An element (`float`, `double`, `half`, `bfloat`, `i1` .. `i64`, `ptr`) and a width, 0 for scalars."""

    __slots__ = ("bits", "element", "is_float", "text", "width")

    def __init__(self, element: str, width: int) -> None:
        self.element = element
        self.width = width
        self.is_float = element in _FLOAT_BITS
        self.bits = _bits_of(element)
        self.text = f"<{width} x {element}>" if width else element

    def of(self, element: str) -> Type:
        """Returns the type of another element and the same width."""
        return type_of(element, self.width)

    @property
    def integer(self) -> Type:
        """Integer type of the same number of bits and the same width."""
        return type_of(f"i{self.bits}", self.width)

    @property
    def scalar(self) -> Type:
        """Type of the elements."""
        return type_of(self.element, 0)

    @property
    def suffix(self) -> str:
        """Suffix in the names of overloaded intrinsics: `v16f32`, `i64`."""
        element = _SUFFIX.get(self.element, self.element)
        return f"v{self.width}{element}" if self.width else element

    @property
    def byte_size(self) -> int:
        """Size in memory."""
        return max(self.bits, 8) // 8 * max(self.width, 1)

    def __str__(self) -> str:
        return self.text


class StructType(Type):
    """A structure of scalars, as functions return it: `{ float, float }`."""

    __slots__ = ("fields",)

    def __init__(self, fields: Sequence[Type]) -> None:
        super().__init__("void", 0)
        self.fields = tuple(fields)
        self.text = f"{{ {', '.join(field.text for field in fields)} }}"


_OTHER_BITS = {"ptr": 64, "void": 0, "metadata": 0}


def _bits_of(element: str) -> int:
    if element in _FLOAT_BITS:
        return _FLOAT_BITS[element]
    return _OTHER_BITS[element] if element in _OTHER_BITS else int(element[1:])


def type_of(element: str, width: int = 0) -> Type:
    """Returns the type of an element and a width; equal types are the same object."""
    return _type(element, width)


@functools.cache
def _type(element: str, width: int) -> Type:
    return Type(element, width)


@functools.cache
def struct_of(*fields: Type) -> StructType:
    """Returns the structure of some fields; equal types are the same object."""
    return StructType(fields)


VOID, I1, I8, I32, I64, F32, F64, PTR = (
    type_of(element) for element in ("void", "i1", "i8", "i32", "i64", "float", "double", "ptr")
)
