"""An LLVM function under construction: parameters, index arithmetic, and elements of XLA's types."""

from __future__ import annotations

from typing import Self

from hloom.backends.cpu.llvm.text import (
    PTR,
    Builder,
    IndexValue,
    Type,
    Value,
    constant,
    lane_indices,
    mask_constant,
    type_of,
)

ELEMENTS = {  # LLVM types of XLA element types in memory; bf16 is only converted, so its bits are enough
    "f32": "float", "f64": "double", "f16": "half", "bf16": "i16",
    "s8": "i8", "s16": "i16", "s32": "i32", "s64": "i64", "u8": "i8", "u16": "i16", "u32": "i32", "u64": "i64",
}  # fmt: skip
CALL_ONLY_ATTRIBUTE = "#3"
"""Attribute group of call-only functions (`codegen/modules.py`)."""
_BYTES = {"half": 2, "float": 4, "double": 8, "ptr": 8}


def size_of(element: str) -> int:
    """Returns the size of an LLVM scalar type in bytes."""
    return _BYTES[element] if element in _BYTES else int(element[1:]) // 8


def call_only_attribute(is_call_only: bool) -> str:
    """Returns the suffix of the attributes in a function's head."""
    return f" {CALL_ONLY_ATTRIBUTE}" if is_call_only else ""


class Function(Builder):
    """Builder of `internal void @name(..)`; index arithmetic on Python integers is evaluated at once."""

    def __init__(self, name: str, **parameters: Type) -> None:
        super().__init__()
        self.symbol = name
        self.is_call_only = False
        """Whether it only calls others, so that its own instructions need no optimisation."""
        self.parameters = [Value(f"%{key}", type) for key, type in parameters.items()]
        self._slots: list[str] = []

    def as_call_only(self) -> Self:
        """Marks the function call-only, and returns it."""
        self.is_call_only = True
        return self

    def text(self) -> str:
        """Returns the definition of the function."""
        parameters = ", ".join(map(str, self.parameters))
        attribute = call_only_attribute(self.is_call_only)
        head = f"define internal void @{self.symbol}({parameters}) nounwind{attribute} {{\nentry:\n"
        return head + "\n".join([*self._slots, *self.lines, "  ret void", "}"]) + "\n"

    def slot(self, type: Type, count: int, align: int = 64) -> Value:
        """Allocates stack memory for `count` values, valid in the whole function; `align` is in bytes."""
        slot = Value(self.name(), PTR)
        self._slots.append(f"  {slot.text} = alloca {type}, i64 {count}, align {align}")
        return slot

    # Index arithmetic

    def add(self, a: IndexValue, b: IndexValue) -> IndexValue:
        """Adds indices without overflow."""
        if isinstance(a, int) and isinstance(b, int):
            return a + b
        if b == 0 or a == 0:
            return a if b == 0 else b
        return self.binary("add", self.index(a), self.index(b), "nuw nsw")

    def subtract(self, a: IndexValue, b: IndexValue) -> IndexValue:
        """Subtracts indices."""
        if isinstance(a, int) and isinstance(b, int):
            return a - b
        return self.binary("sub", self.index(a), self.index(b), "nsw")

    def left(self, count: IndexValue, start: IndexValue) -> IndexValue:
        """Returns max(count - start, 0), how many of `count` items are left from `start` on."""
        if isinstance(count, int) and isinstance(start, int):
            return max(count - start, 0)
        return self.intrinsic("usub.sat", self.index(count), self.index(start)) if start != 0 else count

    def multiply(self, a: IndexValue, b: IndexValue) -> IndexValue:
        """Multiplies indices without overflow."""
        if isinstance(a, int) and isinstance(b, int):
            return a * b
        if a == 0 or b == 0:
            return 0
        if a == 1 or b == 1:
            return b if a == 1 else a
        return self.binary("mul", self.index(a), self.index(b), "nuw nsw")

    def divide(self, a: IndexValue, b: int) -> IndexValue:
        """Divides an index, rounding down."""
        if isinstance(a, int):
            return a // b
        return a if b == 1 else self.binary("udiv", a, self.index(b))

    def ceil_divide(self, a: IndexValue, b: int) -> IndexValue:
        """Divides an index, rounding up."""
        return self.divide(self.add(a, b - 1), b)

    def remainder(self, a: IndexValue, b: int) -> IndexValue:
        """Returns an index modulo a constant."""
        if isinstance(a, int):
            return a % b
        return 0 if b == 1 else self.binary("urem", a, self.index(b))

    def minimum(self, a: IndexValue, b: IndexValue) -> IndexValue:
        """Returns the smaller index."""
        if isinstance(a, int) and isinstance(b, int):
            return min(a, b)
        return self.intrinsic("umin", self.index(a), self.index(b))

    def share(self, total: IndexValue, unit: int, shares: int, share: IndexValue) -> tuple[IndexValue, IndexValue]:
        """Returns start and length of one of `shares` even shares of `total`, in multiples of `unit` except
        the last."""
        if shares == 1:
            return 0, total
        units = self.ceil_divide(total, unit)
        first = self.multiply(self.divide(self.multiply(units, share), shares), unit)
        end = self.multiply(self.divide(self.multiply(units, self.add(share, 1)), shares), unit)
        return first, self.subtract(self.minimum(end, total), first)

    def invoke(self, function: str, *args: Value) -> None:
        """Calls a function defined in the same text."""
        self.line(f"call void @{function}({', '.join(map(str, args))})")

    # Elements in memory

    def at(self, base: Value, offset: IndexValue, element: str) -> Value:
        """Returns the address of the element at an offset, in elements."""
        return base if offset == 0 else self.element_pointer(base, self.index(offset), element)

    def first_lanes(self, count: IndexValue, width: int) -> Value:
        """Returns the mask of the lanes below `count`."""
        if isinstance(count, int):
            return mask_constant(count, width)
        count = self.convert("trunc", count, "i32")
        return self.compare("ult", lane_indices(type_of("i32", width)), self.splat(count, width))

    def load_as(self, pointer: Value, source: str, type: Type, mask: Value | None = None) -> Value:
        """Loads elements of the XLA type `source`, converted to `type`; inactive lanes are not read, and zero."""
        memory = type.of(ELEMENTS[source])
        return self.widen(self.load_masked(pointer, memory, size_of(memory.element), mask), source, type)

    def widen(self, raw: Value, source: str, type: Type) -> Value:
        """Converts elements of the XLA type `source`, as loaded, to a type at least as wide, or modulo 2^n."""
        if source == "bf16":
            bits = self.binary("shl", self.convert("zext", raw, "i32"), constant(type.of("i32"), 16))
            raw = self.bitcast(bits, type.of("float"))
        if raw.type is type:
            return raw
        if type.is_float:
            return self.convert("fpext", raw, type.element)
        opcode = "trunc" if raw.type.bits > type.bits else "sext" if source.startswith("s") else "zext"
        return self.convert(opcode, raw, type.element)

    def narrow(self, value: Value, target: str) -> Value:
        """Converts a value to the XLA type `target` as stored in memory, rounding to nearest even."""
        if target == "bf16":
            return self._to_bf16(value)
        element = ELEMENTS[target]
        if element == value.type.element:
            return value
        return self.convert("fptrunc" if value.type.is_float else "trunc", value, element)

    def _to_bf16(self, value: Value) -> Value:
        word = value.type.of("i32")
        bits = self.bitcast(value, word)
        high = self.binary("lshr", bits, constant(word, 16))
        odd = self.binary("and", high, constant(word, 1))
        rounded = self.binary("add", self.binary("add", bits, constant(word, 0x7FFF)), odd)
        quiet = self.binary("or", high, constant(word, 0x40))
        is_nan = self.compare("uno", value, value)
        result = self.select(is_nan, quiet, self.binary("lshr", rounded, constant(word, 16)))
        return self.convert("trunc", result, "i16")

    def store_as(self, value: Value, pointer: Value, target: str, mask: Value | None = None) -> None:
        """Stores a value as the XLA type `target`, under an optional mask."""
        raw = self.narrow(value, target)
        self.store_masked(raw, pointer, size_of(raw.type.element), mask)

    def store_first(self, value: Value, pointer: Value, target: str, left: IndexValue) -> None:
        """Stores the lanes below `left` as the XLA type `target`; unmasked, which is faster, if these are all."""
        width = value.type.width
        if isinstance(left, int):
            self.store_as(value, pointer, target, self.first_lanes(left, width) if left < width else None)
            return
        is_whole = self.compare("uge", left, self.index(width))
        with self.when(is_whole):
            self.store_as(value, pointer, target)
        with self.unless(is_whole):
            self.store_as(value, pointer, target, self.first_lanes(left, width))

    def multiply_add(self, a: Value, b: Value, c: Value) -> Value:
        """Returns a * b + c: fused for floats, modulo 2^n for integers."""
        return self.fma(a, b, c) if a.type.is_float else self.binary("add", self.binary("mul", a, b), c)
