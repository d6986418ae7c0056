"""Instructions: operands, immediates, and a result, which is the instruction itself as a value.

The body of a function is a list of them; `control.py` has those that begin and end blocks and loops. The text of an
instruction is that of LLVM.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any

from hloom.lir.types import PTR, VOID, StructType, Type, type_of
from hloom.lir.values import Symbol, Value


class CallAttribute(Enum):
    """Properties of a call: it is always inlined, or it rarely runs, and perhaps touches no memory of the program."""

    ALWAYS_INLINE = "#1"
    COLD = "#2"
    RARE = "#4"


class Instruction(Value):
    """An instruction without a result, unless a subclass has one; the text of a result is its name."""

    __slots__ = ("operands",)
    operands: tuple[Value, ...]

    def __init__(self, *operands: Value) -> None:
        self.text, self.type, self.operands = "", VOID, operands

    def line(self) -> str:
        """Returns the text; brackets take several lines."""
        raise NotImplementedError

    def immediates(self) -> tuple[Any, ...]:
        """Returns everything that distinguishes two instructions besides their operands."""
        return (type(self), self.text, self.type, *[getattr(self, slot) for slot in self.__slots__])


# Arithmetic


class Binary(Instruction):
    """Binary operation of LLVM's name, with flags such as "nsw " or "reassoc nsz "."""

    __slots__ = ("flags", "opcode")

    def __init__(self, text: str, opcode: str, a: Value, b: Value, flags: str) -> None:
        self.text, self.type, self.operands = text, a.type, (a, b)
        self.opcode, self.flags = opcode, flags

    def line(self) -> str:
        a, b = self.operands
        return f"  {self.text} = {self.opcode} {self.flags}{a.type.text} {a.text}, {b.text}"


class Negate(Instruction):
    """Negation of floats."""

    __slots__ = ()

    def __init__(self, text: str, a: Value) -> None:
        self.text, self.type, self.operands = text, a.type, (a,)

    def line(self) -> str:
        return f"  {self.text} = fneg {self.operands[0]}"


class Compare(Instruction):
    """Comparison of floats or integers; predicates are LLVM's."""

    __slots__ = ("predicate",)

    def __init__(self, text: str, predicate: str, a: Value, b: Value) -> None:
        self.text, self.type, self.operands = text, type_of("i1", a.type.width), (a, b)
        self.predicate = predicate

    def line(self) -> str:
        a, b = self.operands
        opcode = "fcmp" if a.type.is_float else "icmp"
        return f"  {self.text} = {opcode} {self.predicate} {a.type.text} {a.text}, {b.text}"


class FirstLanes(Compare):
    """Mask of the lanes whose indices are below a count, which is an index and may exceed the lanes."""

    __slots__ = ("count",)

    def __init__(self, text: str, indices: Value, splat: Value, count: Value) -> None:
        super().__init__(text, "ult", indices, splat)
        self.count = count


class Select(Instruction):
    """The second operand where the first holds, else the third."""

    __slots__ = ()

    def __init__(self, text: str, condition: Value, a: Value, b: Value) -> None:
        self.text, self.type, self.operands = text, a.type, (condition, a, b)

    def line(self) -> str:
        condition, a, b = self.operands
        return f"  {self.text} = select {condition}, {a}, {b}"


class Convert(Instruction):
    """Conversion or bitcast to the type of the result."""

    __slots__ = ("opcode",)

    def __init__(self, text: str, opcode: str, a: Value, type: Type) -> None:
        self.text, self.type, self.operands = text, type, (a,)
        self.opcode = opcode

    def line(self) -> str:
        return f"  {self.text} = {self.opcode} {self.operands[0]} to {self.type.text}"


# Vectors and structures


class Shuffle(Instruction):
    """Lanes of two vectors; those of the second are numbered after those of the first."""

    __slots__ = ("lanes",)

    def __init__(self, text: str, a: Value, b: Value, lanes: tuple[int, ...]) -> None:
        self.text, self.type, self.operands = text, type_of(a.type.element, len(lanes)), (a, b)
        self.lanes = lanes

    def line(self) -> str:
        a, b = self.operands
        if any(self.lanes) or b.text != "poison":
            mask = "<" + ", ".join([f"i32 {lane}" for lane in self.lanes]) + ">"
        else:
            mask = "zeroinitializer"
        return f"  {self.text} = shufflevector {a}, {b}, <{len(self.lanes)} x i32> {mask}"


class Extract(Instruction):
    """The scalar in a lane of a vector."""

    __slots__ = ("lane",)

    def __init__(self, text: str, a: Value, lane: int) -> None:
        self.text, self.type, self.operands = text, a.type.scalar, (a,)
        self.lane = lane

    def line(self) -> str:
        return f"  {self.text} = extractelement {self.operands[0]}, i64 {self.lane}"


class Insert(Instruction):
    """A vector with another scalar in a lane."""

    __slots__ = ("lane",)

    def __init__(self, text: str, vector: Value, scalar: Value, lane: int) -> None:
        self.text, self.type, self.operands = text, vector.type, (vector, scalar)
        self.lane = lane

    def line(self) -> str:
        vector, scalar = self.operands
        return f"  {self.text} = insertelement {vector}, {scalar}, i64 {self.lane}"


class Field(Instruction):
    """A field of a structure."""

    __slots__ = ("position",)

    def __init__(self, text: str, structure: Value, position: int) -> None:
        assert isinstance(structure.type, StructType)
        self.text, self.type, self.operands = text, structure.type.fields[position], (structure,)
        self.position = position

    def line(self) -> str:
        return f"  {self.text} = extractvalue {self.operands[0]}, {self.position}"


# Memory


class Alloca(Instruction):
    """Stack memory for values, until the function returns; an array is one value of LLVM, which it may take apart."""

    __slots__ = ("align", "count", "element", "is_array")

    def __init__(self, text: str, element: Type, count: int, align: int, is_array: bool = True) -> None:
        self.text, self.type, self.operands = text, PTR, ()
        self.element, self.count, self.align, self.is_array = element, count, align, is_array

    def line(self) -> str:
        element = self.element.text
        memory = f"[{self.count} x {element}]" if self.is_array else f"{element}, i64 {self.count}"
        return f"  {self.text} = alloca {memory}, align {self.align}"


class DynamicAlloca(Instruction):
    """Stack memory for a number of words that is known when it runs."""

    __slots__ = ("align",)

    def __init__(self, text: str, words: Value, align: int) -> None:
        self.text, self.type, self.operands = text, PTR, (words,)
        self.align = align

    def line(self) -> str:
        return f"  {self.text} = alloca i64, {self.operands[0]}, align {self.align}"


class Address(Instruction):
    """Address of the element at an index; a vector of addresses for a vector of indices."""

    __slots__ = ("element",)

    def __init__(self, text: str, base: Value, index: Value, element: str) -> None:
        self.text, self.type, self.operands = text, type_of("ptr", index.type.width), (base, index)
        self.element = element

    def line(self) -> str:
        base, index = self.operands
        return f"  {self.text} = getelementptr {self.element}, ptr {base.text}, {index.type.text} {index.text}"


class Load(Instruction):
    """Load; atomic if it has an ordering. `align` is in bytes."""

    __slots__ = ("align", "order")

    def __init__(self, text: str, pointer: Value, type: Type, align: int, order: str = "") -> None:
        self.text, self.type, self.operands = text, type, (pointer,)
        self.align, self.order = align, order

    def line(self) -> str:
        text = f"{self.type.text}, ptr {self.operands[0].text}"
        if self.order:
            return f"  {self.text} = load atomic {text} {self.order}, align {self.align}"
        return f"  {self.text} = load {text}, align {self.align}"


class Store(Instruction):
    """Store, which may be non-temporal, or atomic: then it has an ordering. `align` is in bytes."""

    __slots__ = ("align", "is_nontemporal", "order")

    def __init__(self, value: Value, pointer: Value, align: int, is_nontemporal: bool = False, order: str = "") -> None:
        self.text, self.type, self.operands = "", VOID, (value, pointer)
        self.align, self.is_nontemporal, self.order = align, is_nontemporal, order

    def line(self) -> str:
        value, pointer = self.operands
        text = f"{value.type.text} {value.text}, ptr {pointer.text}"
        if self.order:
            return f"  store atomic {text} {self.order}, align {self.align}"
        return f"  store {text}, align {self.align}{', !nontemporal !0' if self.is_nontemporal else ''}"


class AtomicUpdate(Instruction):
    """Atomic change of a value in memory by LLVM's operations `add`, `sub`, `xchg`; the result is the old value."""

    __slots__ = ("opcode", "order")

    def __init__(self, text: str, opcode: str, pointer: Value, value: Value, order: str) -> None:
        self.text, self.type, self.operands = text, value.type, (pointer, value)
        self.opcode, self.order = opcode, order

    def line(self) -> str:
        pointer, value = self.operands
        return f"  {self.text} = atomicrmw {self.opcode} {pointer}, {value} {self.order}"


class CompareExchange(Instruction):
    """Atomic store of a value if memory has an expected one; the result is the old value and whether it was stored."""

    __slots__ = ("orders",)

    def __init__(self, text: str, type: Type, pointer: Value, expected: Value, value: Value, orders: str) -> None:
        self.text, self.type, self.operands = text, type, (pointer, expected, value)
        self.orders = orders

    def line(self) -> str:
        pointer, expected, value = self.operands
        return f"  {self.text} = cmpxchg {pointer}, {expected}, {value} {self.orders}"


class Call(Instruction):
    """Call of a function, by its symbol or through a pointer; the callee is the first operand."""

    __slots__ = ("attribute", "flags")

    def __init__(
        self,
        text: str,
        type: Type,
        callee: Value,
        arguments: Sequence[Value],
        flags: str = "",
        attribute: CallAttribute | None = None,
    ) -> None:
        self.text, self.type, self.operands = text, type, (callee, *arguments)
        self.flags, self.attribute = flags, attribute

    @property
    def inlines(self) -> str:
        """Name of the function that the call inlines, or ""."""
        callee = self.operands[0]
        return callee.name if self.attribute is CallAttribute.ALWAYS_INLINE and isinstance(callee, Symbol) else ""

    def line(self) -> str:
        callee, *arguments = self.operands
        operands = ", ".join([f"{a.type.text} {a.text}" for a in arguments])
        result = f"  {self.text} = call " if self.text else "  call "
        attribute = f" {self.attribute.value}" if self.attribute is not None else ""
        return f"{result}{self.flags}{self.type.text} {callee.text}({operands}){attribute}"
