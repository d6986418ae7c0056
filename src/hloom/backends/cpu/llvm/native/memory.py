"""Translates fields, elements and atomics of native Python to LLVM IR."""

from __future__ import annotations

import ast
import typing
from typing import Any

from hloom.backends.cpu.llvm.native.arithmetic import Arithmetic
from hloom.backends.cpu.llvm.native.types import Array, Atomic, Inline, Structure, boolean, i64, size_of, u64
from hloom.backends.cpu.llvm.native.vocabulary import Table
from hloom.backends.cpu.llvm.native.writer import Known, Value, llvm_type, shown

_ATOMIC = {"exchange": "xchg", "add": "add", "subtract": "sub"}


class Memory(Arithmetic):
    """Translates memory accesses. Addresses are 64-bit words that become pointers where memory is accessed."""

    def _Attribute(self, node: ast.Attribute) -> Value | Known:
        base = self.expression(node.value)
        if isinstance(base, Known) and not (isinstance(base.value, Structure) and base.value.symbol):
            return Known(getattr(base.value, node.attr))
        return self.load(*self.field(base, node.attr))

    def field(self, base: Value | Known, name: str) -> tuple[Value, Any]:
        """Returns the address and the type of a field."""
        base = self.materialise(base)
        layout = getattr(base.type, "layout", {})
        if name not in layout:
            self.fail(f"{shown(base.type)} has no field {name}; it has: {', '.join(layout) or 'none'}")
        offset, type = layout[name]
        return self.offset(base, Known(offset)), type

    def _Subscript(self, node: ast.Subscript) -> Value | Known:
        base = self.expression(node.value)
        if isinstance(base, Known) and not isinstance(base.value, Table):
            index = self.expression(node.slice)
            if isinstance(index, Known):
                return Known(base.value[index.value])
        return self.load(*self.element(base, node.slice))

    def element(self, base: Value | Known, subscript: ast.expr) -> tuple[Value, Any]:
        """Returns the address and the type of an array element."""
        base = self.materialise(base)
        if typing.get_origin(base.type) is not Array:
            self.fail(f"only arrays have elements, this is {shown(base.type)}")
        (element,) = typing.get_args(base.type)
        index = self.expression(subscript)
        if isinstance(index, Value) and index.type not in (i64, u64):
            self.fail(f"an index has 64 bits, this is {shown(index.type)}")
        scaled = self.binary(
            "mul", Value(index.text, u64) if isinstance(index, Value) else index, Known(size_of(element))
        )
        return self.offset(base, scaled), element

    def offset(self, base: Value, bytes: Value | Known) -> Value:
        """Adds a number of bytes to an address."""
        return self.materialise(self.binary("add", Value(base.text, u64), bytes))

    def location(self, node: ast.expr) -> tuple[Value, Any]:
        """Returns the address and the type of a field or an array element."""
        if isinstance(node, ast.Attribute):
            return self.field(self.expression(node.value), node.attr)
        if isinstance(node, ast.Subscript):
            return self.element(self.expression(node.value), node.slice)
        self.fail(f"{ast.unparse(node)} is not a location in memory")

    def load(self, address: Value, type: Any) -> Value:
        """Loads a field or an element; for an inline array or an atomic, returns a reference."""
        if isinstance(type, Inline):
            return Value(address.text, Array[type.element])
        if typing.get_origin(type) is Atomic:
            return Value(address.text, type)
        memory = f"i{8 * size_of(type)}"
        value = self.emit(f"load {memory}, ptr {self.pointer(address)}, align {size_of(type)}", type)
        return self.emit(f"trunc i8 {value.text} to i1", boolean) if type == boolean else value

    def store(self, address: Value, type: Any, value: Value | Known) -> None:
        """Stores a value, converted to the type of the field or element."""
        if isinstance(type, Inline) or typing.get_origin(type) is Atomic:
            self.fail("this cannot be assigned: an atomic is changed by its methods, an array by its elements")
        converted = self.convert(value, type)
        if type == boolean:
            converted = self.emit(f"zext i1 {converted.text} to i8", boolean)
        size = size_of(type)
        self.line(f"store i{8 * size} {converted.text}, ptr {self.pointer(address)}, align {size}")

    def atomic(self, location: Value, method: str, arguments: list[Value | Known]) -> Value | Known:
        """Translates a method of an atomic."""
        (type,) = typing.get_args(location.type)
        text, pointer = llvm_type(type), self.pointer(location)
        orders = [a.value for a in arguments if isinstance(a, Known) and isinstance(a.value, str)]
        operands = [a for a in arguments if not (isinstance(a, Known) and isinstance(a.value, str))]
        order = " ".join(orders)
        if method == "load":
            return self.emit(f"load atomic {text}, ptr {pointer} {order}, align {size_of(type)}", type)
        if method == "store":
            value = self.convert(operands[0], type)
            self.line(f"store atomic {text} {value.text}, ptr {pointer} {order}, align {size_of(type)}")
            return Known(None)
        if method == "compare_exchange":
            expected, new = (self.convert(value, type).text for value in operands[:2])
            pair = self.emit(f"cmpxchg ptr {pointer}, {text} {expected}, {text} {new} {order}", type)
            return self.emit(f"extractvalue {{ {text}, i1 }} {pair.text}, 0", type)
        if method not in _ATOMIC:
            self.fail(f"an atomic has no {method}; it has: load, store, {', '.join(_ATOMIC)}, compare_exchange")
        return self.emit(
            f"atomicrmw {_ATOMIC[method]} ptr {pointer}, {text} {self.convert(operands[0], type).text} {order}", type
        )
