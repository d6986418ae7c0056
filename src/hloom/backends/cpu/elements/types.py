"""Representation of element types in memory and in registers.

In registers, narrow floats are f32 that hold representable values: every operation on them ends with `rounded`. 2- and
4-bit integers are sign- or zero-extended to bytes; predicates are bits in registers and bytes in memory. A complex
number is a pair of registers.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from hloom.backends.cpu.elements import narrow_floats
from hloom.backends.cpu.llvm.processor import processor
from hloom.lir import Builder, Type, Value, constant, type_of
from hloom.lir.instructions import Binary, Convert
from hloom.types import PrimitiveType

Element = Value | tuple[Value, Value]
"""The register of an element, or those of the real and imaginary part of a complex one."""

_NATIVE_FLOATS = {PrimitiveType.F32: "float", PrimitiveType.F64: "double"}


def is_native(type: PrimitiveType) -> bool:
    """Whether registers can hold elements of the type: all types of arrays."""
    return type.is_array


_UPPER_HALF = 0xFFFF0000
_REGISTER_LANES = 16
"""The number of elements of f32 in a register of AVX-512."""


def register_element(type: PrimitiveType) -> str:
    """The LLVM element type of a value, or of each part of a complex one, in registers."""
    if type.is_pred:
        return "i1"
    if type.is_complex:
        return _NATIVE_FLOATS[type.real]
    if type.is_float:
        return _NATIVE_FLOATS.get(type, "float")
    return f"i{max(8, type.bits)}"


def _is_coded(type: PrimitiveType) -> bool:
    """Whether elements are integers in memory: narrow floats, and f16 on processors that do not convert it.

    There LLVM would call a function for each element; for WebAssembly it does not end on vectors of f16.
    """
    return narrow_floats.is_narrow(type) or (type is PrimitiveType.F16 and not processor().converts_f16)


def memory_element(type: PrimitiveType) -> str:
    """The LLVM element type of a value, or of each part of a complex one, in memory."""
    if type.is_pred or type is PrimitiveType.BF16 or _is_coded(type):
        return f"i{max(8, type.bits)}"
    return "half" if type is PrimitiveType.F16 else register_element(type)


def load_element(b: Builder, raw: Value, type: PrimitiveType) -> Value:
    """Converts a loaded value to its representation in registers."""
    if type.is_pred:
        return b.compare("ne", raw, constant(raw.type, 0))
    if _is_coded(type):
        return narrow_floats.decode(b, raw, type)
    if type is PrimitiveType.F16:
        return b.convert("fpext", raw, "float")
    if type is PrimitiveType.BF16:
        wide = b.convert("zext", raw, "i32")
        return b.bitcast(b.binary("shl", wide, constant(wide.type, 16)), wide.type.of("float"))
    # The high bits of the byte of a narrow integer are undefined.
    return rounded(b, raw, type) if type.is_integer else raw


def store_element(b: Builder, value: Value, type: PrimitiveType) -> Value:
    """Converts a value to its representation in memory."""
    if type.is_pred:
        return b.convert("zext", value, "i8")
    if _is_coded(type):
        return narrow_floats.encode(b, value, type)
    if type is PrimitiveType.F16:
        return b.convert("fptrunc", value, "half")
    if type is PrimitiveType.BF16:
        if (loaded := _loaded_bf16(value)) is not None:
            return loaded
        registers, rest = divmod(value.type.width, _REGISTER_LANES)
        if registers > 1 and registers.bit_count() == 1 and not rest and processor().vector_bytes >= 64:
            return _upper_halves(b, value)
        bits = b.bitcast(value, value.type.integer)
        return b.convert("trunc", b.binary("lshr", bits, constant(bits.type, 16)), "i16")
    return value


def _loaded_bf16(value: Value) -> Value | None:
    """Returns the bits that `load_element` made a value of; None for other values."""
    match value:
        case Convert(opcode="bitcast", operands=[Binary(opcode="shl", operands=[Convert(opcode="zext") as wide, by])]):
            bits = wide.operands[0]
            is_loaded = bits.type.element == "i16" and by.text == constant(wide.type, 16).text
            return bits if is_loaded and value.type.element == "float" else None
    return None


def _upper_halves(b: Builder, value: Value) -> Value:
    """Truncates several registers of f32 to bf16: a permutation of two replaces a shift and a truncation of each.

    The registers are apart, because LLVM takes a permutation from wider vectors for one of single lanes at first.
    """
    firsts = range(0, value.type.width, _REGISTER_LANES)
    registers = [b.shuffle(value, None, range(first, first + _REGISTER_LANES)) for first in firsts]
    words = [b.bitcast(register, type_of("i16", 2 * _REGISTER_LANES)) for register in registers]
    odd = range(1, 4 * _REGISTER_LANES, 2)
    pairs = zip(words[::2], words[1::2], strict=True)
    return b.concatenated([b.shuffle(low, high, odd) for low, high in pairs])


def rounded(b: Builder, value: Value, type: PrimitiveType) -> Value:
    """Rounds a float, or wraps an integer, to a value that the type can represent."""
    if _is_coded(type):
        return narrow_floats.rounded(b, value, type)
    if type is PrimitiveType.F16:
        return b.convert("fpext", b.convert("fptrunc", value, "half"), "float")
    if type is PrimitiveType.BF16:
        return _rounded_to_bfloat16(b, value)
    if type.is_integer and type.bits < 8:
        amount = constant(value.type, 8 - type.bits)
        return b.binary("ashr" if type.is_signed else "lshr", b.binary("shl", value, amount), amount)
    return value


def resized(b: Builder, value: Value, element: str, is_signed: bool = False) -> Value:
    """Truncates or extends an integer to another width."""
    bits = type_of(element).bits
    if bits == value.type.bits:
        return value
    return b.convert("trunc" if bits < value.type.bits else "sext" if is_signed else "zext", value, element)


def clamped(b: Builder, value: Value, is_signed: bool, low: int, high: int) -> Value:
    """Clamps an integer to bounds, the lower of which is not negative, in its own type."""
    bits = value.type.bits
    if is_signed:
        value = b.intrinsic("smax", value, constant(value.type, low))
    if high >= 1 << (bits - is_signed):
        return value
    return b.intrinsic("smin" if is_signed else "umin", value, constant(value.type, high))


def rounded_arithmetic(b: Builder, value: Value, type: PrimitiveType) -> Value:
    """Rounds the result of one arithmetic instruction on values of the type, whose NaNs are representable."""
    if type is not PrimitiveType.BF16:
        return rounded(b, value, type)
    return b.bitcast(_upper_half(b, _with_half(b, b.bitcast(value, value.type.integer))), value.type)


def _rounded_to_bfloat16(b: Builder, value: Value) -> Value:
    """Rounds f32 to nearest, ties to even, with integer operations: the conversion in hardware flushes subnormals."""
    bits = b.bitcast(value, value.type.integer)
    quiet = b.binary("or", bits, constant(bits.type, 0x400000))
    chosen = b.select(b.compare("uno", value, value), quiet, _with_half(b, bits))
    return b.bitcast(_upper_half(b, chosen), value.type)


def _with_half(b: Builder, bits: Value) -> Value:
    """Adds half of the last unit of bf16 to the bits of f32, or just less if the upper half is even: truncated, they
    are then rounded to nearest, ties to even.
    """
    if not bits.type.width:  # LLVM takes less time for it, while vectors need an instruction less with a selection
        odd = b.binary("and", b.binary("lshr", bits, constant(bits.type, 16)), constant(bits.type, 1))
        return b.binary("add", bits, b.binary("add", odd, constant(bits.type, 0x7FFF)))
    is_even = b.compare("eq", b.binary("and", bits, constant(bits.type, 0x10000)), constant(bits.type, 0))
    almost_half = b.select(is_even, constant(bits.type, 0x7FFF), constant(bits.type, 0x8000))
    return b.binary("add", bits, almost_half)


def _upper_half(b: Builder, bits: Value) -> Value:
    return b.binary("and", bits, constant(bits.type, _UPPER_HALF))


def register_type(type: PrimitiveType, lanes: int) -> Type:
    """The LLVM type of registers with elements of the type; a scalar for 0 lanes."""
    return type_of(register_element(type), lanes)


def parts(element: Element) -> tuple[Value, ...]:
    """The registers of an element: one, or those of the real and imaginary part."""
    return element if isinstance(element, tuple) else (element,)


def element_of(registers: Sequence[Value]) -> Element:
    """The element of one register, or of those of the real and imaginary part."""
    return (registers[0], registers[1]) if len(registers) == 2 else registers[0]


def map_parts(function: Callable[..., Value], *elements: Element) -> Element:
    """Applies a function to the registers of elements, part by part."""
    return element_of([function(*registers) for registers in zip(*map(parts, elements), strict=True)])


def width_of(element: Element) -> int:
    """The number of lanes of an element; 0 for a scalar."""
    return parts(element)[0].type.width


def constant_element(type: PrimitiveType, value: Any, lanes: int = 0) -> Element:
    """A constant of the type in registers, in all lanes of a vector."""
    register = register_type(type, lanes)
    if type.is_complex:
        return constant(register, float(value.real)), constant(register, float(value.imag))
    return constant(register, float(value) if type.is_float else int(value))


def select_element(b: Builder, condition: Value, x: Element, y: Element) -> Element:
    """Selects x where the condition holds, else y."""
    return map_parts(functools.partial(b.select, condition), x, y)
