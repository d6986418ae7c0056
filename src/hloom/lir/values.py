"""Operands of instructions: parameters, constants and addresses of symbols; results are the instructions themselves."""

from __future__ import annotations

import functools
import struct
from collections.abc import Sequence

from hloom.lir.types import I64, PTR, Type, type_of

Number = float | int | bool


class Value:
    """Operand: its text (`%12`, `splat (i32 3)`) and its type."""

    __slots__ = ("text", "type")

    def __init__(self, text: str, type: Type) -> None:
        self.text = text
        self.type = type

    def __str__(self) -> str:
        return f"{self.type.text} {self.text}"


class Parameter(Value):
    """Parameter of a function; memory behind a read-only pointer is not written while the function runs."""

    __slots__ = ("is_read_only",)

    def __init__(self, name: str, type: Type, is_read_only: bool = False) -> None:
        super().__init__(f"%{name}", type)
        self.is_read_only = is_read_only

    @property
    def declaration(self) -> str:
        """The parameter in the head of its function."""
        return f"{self.type.text} {'readonly ' if self.is_read_only else ''}{self.text}"


class Constant(Value):
    """Constant; `lanes` has a number for each lane of a vector, and one for scalars. None stands for any number."""

    __slots__ = ("lanes",)

    def __init__(self, text: str, type: Type, lanes: Sequence[Number | None]) -> None:
        super().__init__(text, type)
        self.lanes = lanes

    @property
    def number(self) -> Number:
        """Value of all lanes."""
        number = self.lanes[0]
        assert number is not None
        return number


class Symbol(Value):
    """Address of a function or a global variable."""

    __slots__ = ("name",)

    def __init__(self, name: str, type: Type = PTR) -> None:
        super().__init__(f"@{name}" if type is PTR else f"ptrtoint (ptr @{name} to {type.text})", type)
        self.name = name


IndexValue = Value | int
"""An i64, or a number known when the code is written."""


def constant(type: Type, value: Number) -> Value:
    """Returns a constant, splat to all lanes of a vector; floats are rounded to the type."""
    if type is I64:
        return _index(int(value))
    if type.is_float:
        text = _float_text(type, value)
    elif type.element == "i1":
        text = "true" if value else "false"
    elif type.element == "ptr":
        text = "null" if not value else f"inttoptr (i64 {int(value)} to ptr)"
    else:
        wrapped = int(value) & ((1 << type.bits) - 1)
        text = str(wrapped - (1 << type.bits) if wrapped >> (type.bits - 1) else wrapped)
    if type.width:
        return Constant(f"splat ({type.element} {text})", type, (value,) * type.width)
    return Constant(text, type, (value,))


@functools.lru_cache(maxsize=4096)
def _index(value: int) -> Constant:
    wrapped = (value + (1 << 63)) % (1 << 64) - (1 << 63)
    return Constant(str(wrapped), I64, (wrapped,))


def _float_text(type: Type, value: Number) -> str:
    if type.element == "half":
        return f"0xH{_half_bits(value):04X}"
    if type.element == "double":
        return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"
    return f"0x{_double_bits_of_float(value):016X}"


def _double_bits_of_float(value: float) -> int:
    """Returns the bits of the double equal to a float, as LLVM writes floats; NaNs keep sign and payload."""
    try:
        packed = struct.pack("<f", value)
    except OverflowError:
        packed = struct.pack("<f", float("inf") if value > 0 else float("-inf"))
    return int(struct.unpack("<Q", struct.pack("<d", struct.unpack("<f", packed)[0]))[0])


def _half_bits(value: float) -> int:
    return int(struct.unpack("<H", struct.pack("<e", value))[0])


def is_constant_below(value: Value, limit: int) -> bool:
    """Whether a value is a constant of which all lanes are in 0 .. limit - 1."""
    return isinstance(value, Constant) and all(lane is not None and 0 <= lane < limit for lane in value.lanes)


def zero(type: Type) -> Constant:
    """Returns zero in all lanes and fields."""
    return Constant("zeroinitializer", type, (0,) * max(type.width, 1))


def poison(type: Type) -> Constant:
    """Returns a value that must not be used."""
    return Constant("poison", type, (None,) * max(type.width, 1))


def vector_constant(element: str, lanes: Sequence[int]) -> Constant:
    """Returns a vector of integers."""
    scalar = type_of(element)
    text = ", ".join(f"{element} {constant(scalar, lane).text}" for lane in lanes)
    return Constant(f"<{text}>", type_of(element, len(lanes)), tuple(lanes))


def lane_indices(type: Type) -> Value:
    """Returns the vector 0, 1, .., width - 1."""
    return vector_constant(type.element, range(type.width))


def mask_constant(active: int, lanes: int) -> Value:
    """Returns the mask of the first `active` lanes."""
    return vector_constant("i1", [lane < active for lane in range(lanes)])


def shuffled_constant(a: Value, b: Value | None, order: Sequence[int]) -> Constant | None:
    """Returns the constant that lanes of two masks, zeros or values not to be used are; None for other values."""
    operands = [a] if b is None else [a, b]
    for make in (zero, poison):
        if all(isinstance(each, Constant) and each.text == make(a.type).text for each in operands):
            return make(type_of(a.type.element, len(order)))
    known = [lane for each in operands if isinstance(each, Constant) for lane in each.lanes]
    if a.type.element != "i1" or len(known) != len(operands) * a.type.width or None in known:
        return None
    return vector_constant("i1", [bool(known[lane]) for lane in order])


def index_value(index: IndexValue) -> Value:
    """Returns an index as an i64 value."""
    return index if isinstance(index, Value) else constant(I64, index)
