"""Types of native Python: integers, and references to structures, arrays and atomics in memory.

In the Python interpreter they work on the same memory, through ctypes: values are Python integers, which wrap around
when they are stored or converted.
"""

from __future__ import annotations

import ctypes
import dataclasses
import typing
from collections.abc import Callable
from types import NoneType
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from hloom.system.records import record
from hloom.target import align_up

LINE = 128
"""Upper bound in bytes of cache lines of today's CPUs, with those that they prefetch in pairs."""


@record
class Integer:
    """Integer type; calling it converts a value."""

    bits: int
    signed: bool
    is_address: bool = dataclasses.field(default=False, compare=False)
    """Whether it is a pointer where it is passed to a function or returned."""

    @property
    def size(self) -> int:
        """Size in bytes."""
        return max(self.bits // 8, 1)

    def __call__(self, value: Any) -> int:
        wrapped = int(getattr(value, "address", value)) & ((1 << self.bits) - 1)
        return wrapped - (1 << self.bits) if self.signed and wrapped >> (self.bits - 1) else wrapped

    def read(self, address: int) -> int:
        """Reads an integer at an address."""
        return int.from_bytes(ctypes.string_at(address, self.size), "little", signed=self.signed)

    def write(self, address: int, value: Any) -> None:
        """Writes an integer to an address."""
        ctypes.memmove(address, self(value).to_bytes(self.size, "little", signed=self.signed), self.size)


WORD = Integer(64, signed=False)

if TYPE_CHECKING:
    i8: TypeAlias = int
    i32: TypeAlias = int
    i64: TypeAlias = int
    u8: TypeAlias = int
    u32: TypeAlias = int
    u64: TypeAlias = int
    Address: TypeAlias = int
    boolean: TypeAlias = bool
else:
    i8, i32, i64 = (Integer(bits, signed=True) for bits in (8, 32, 64))
    u8, u32, u64 = (Integer(bits, signed=False) for bits in (8, 32, 64))
    Address = Integer(64, signed=False, is_address=True)
    boolean = Integer(1, signed=False)

T = TypeVar("T")


@record
class Field:
    """Position of a field in a structure: after the previous one, on a new cache line (`line`), or at an
    offset (`at`)."""

    line: bool = False
    at: int | None = None
    inline: tuple[Any, int] | None = None
    """Element type and count of an array inside the structure."""


def field(*, line: bool = False, at: int | None = None, inline: tuple[Any, int] | None = None) -> Any:
    """Declares the position of a field of a structure; see `Field`."""
    return Field(line, at, inline)


class Structure:
    """Base class of structures in memory: annotated fields lie one after another, each aligned to its size.

    A value of a structure type is a reference; in the Python interpreter it is constructed from an address.
    """

    layout: typing.ClassVar[dict[str, tuple[int, Any]]] = {}
    """Offset and type of each field, by name."""
    byte_size: typing.ClassVar[int] = 0
    symbol: str = ""
    """Symbol of a static structure; "" for others."""

    def __init_subclass__(cls) -> None:
        declared = {name: vars(cls).get(name, Field()) for name in cls.__annotations__}
        types = typing.get_type_hints(cls)
        end, cls.layout = 0, {}
        for name, field in declared.items():
            type, size, align = _field_type(types[name], field)
            step = LINE if field.line else align
            offset = field.at if field.at is not None else align_up(end, step)
            cls.layout[name] = offset, type
            setattr(cls, name, _Access(offset, type))
            end = max(end, offset + size)
        cls.byte_size = align_up(end, 8)

    def __init__(self, address: int) -> None:
        self.address = address


def _field_type(type: Any, field: Field) -> tuple[Any, int, int]:
    """Returns the type, size and alignment of a field, in bytes."""
    if field.inline is not None:
        element, count = field.inline
        return Inline(element), size_of(element) * count, size_of(element)
    size = size_of(type)
    return type, size, size


@record
class Inline:
    """Type of an array inside a structure; its value is a reference to the array."""

    element: Any


class _Access:
    """Descriptor that reads and writes a field in the Python interpreter."""

    def __init__(self, offset: int, type: Any) -> None:
        self.offset, self.type = offset, type

    def __get__(self, structure: Structure | None, owner: type) -> Any:
        return self if structure is None else read(self.type, structure.address + self.offset)

    def __set__(self, structure: Structure, value: Any) -> None:
        write(self.type, structure.address + self.offset, value)


class Array(Generic[T]):
    """Reference to consecutive elements in memory."""

    def __init__(self, address: int, element: Any) -> None:
        self.address, self.element = address, element

    def __getitem__(self, index: int) -> T:
        return typing.cast(T, read(self.element, self.address + index * size_of(self.element)))

    def __setitem__(self, index: int, value: T) -> None:
        write(self.element, self.address + index * size_of(self.element), value)

    def at(self, index: int) -> Array[T]:
        """Returns the array that begins at an element."""
        return Array(self.address + index * size_of(self.element), self.element)


class Atomic(Generic[T]):
    """Integer that several threads read and write; each access names its memory ordering."""

    def __init__(self, address: int, element: Any) -> None:
        self.address, self.element = address, element

    def load(self, order: str) -> T:
        """Returns the value."""
        return typing.cast(T, self.element.read(self.address))

    def store(self, value: T, order: str) -> None:
        """Writes a value."""
        self.element.write(self.address, value)

    def exchange(self, value: T, order: str) -> T:
        """Writes a value, and returns the previous one."""
        return self._update(lambda old: value)

    def add(self, value: T, order: str) -> T:
        """Adds a value, and returns the previous one."""
        return self._update(lambda old: old + value)

    def subtract(self, value: T, order: str) -> T:
        """Subtracts a value, and returns the previous one."""
        return self._update(lambda old: old - value)

    def compare_exchange(self, expected: T, value: T, order: str, failure: str) -> T:
        """Writes a value if the previous one is as expected; returns the previous one."""
        return self._update(lambda old: value if old == expected else old)

    def _update(self, change: Callable[[Any], Any]) -> T:
        old = self.element.read(self.address)
        self.element.write(self.address, change(old))
        return typing.cast(T, old)


def size_of(type: Any) -> int:
    """Returns the size in bytes of a value in memory; references take 8."""
    if isinstance(type, Integer):
        return type.size
    if typing.get_origin(type) is Atomic:
        return size_of(typing.get_args(type)[0])
    return 8


def read(type: Any, address: int) -> Any:
    """Returns the value of a type at an address."""
    origin = typing.get_origin(type)
    if isinstance(type, Integer):
        return type.read(address)
    if isinstance(type, Inline):
        return Array(address, type.element)
    if origin is Atomic:
        return Atomic(address, typing.get_args(type)[0])
    return reference(type, WORD.read(address))


def reference(type: Any, address: int) -> Any:
    """Returns a reference to a structure, an array or a function at an address."""
    origin = typing.get_origin(type)
    if origin is Array:
        return Array(address, typing.get_args(type)[0])
    if origin is not None:  # Callable
        arguments, result = typing.get_args(type)
        c_result = None if result in (None, NoneType) else ctypes.c_int64 if result.signed else ctypes.c_uint64
        return ctypes.CFUNCTYPE(c_result, *[ctypes.c_uint64] * len(arguments))(address)
    return type(address)


def write(type: Any, address: int, value: Any) -> None:
    """Writes a value of a type to an address."""
    integer = type if isinstance(type, Integer) else WORD
    integer.write(address, value)
