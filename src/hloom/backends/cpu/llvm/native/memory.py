"""Translates fields, elements and atomics of native Python to the low-level IR."""

from __future__ import annotations

import ast
import typing
from typing import Any

from hloom.backends.cpu.llvm.native.arithmetic import Arithmetic
from hloom.backends.cpu.llvm.native.types import Array, Atomic, Inline, Structure, boolean, i64, size_of, u64
from hloom.backends.cpu.llvm.native.vocabulary import Table
from hloom.backends.cpu.llvm.native.writer import Known, Typed, register_type, shown
from hloom.lir import type_of

_ATOMIC = {"exchange": "xchg", "add": "add", "subtract": "sub"}


class Memory(Arithmetic):
    """Translates memory accesses. Addresses are 64-bit words that become pointers where memory is accessed."""

    def _Attribute(self, node: ast.Attribute) -> Typed | Known:
        base = self.expression(node.value)
        if isinstance(base, Known) and not (isinstance(base.value, Structure) and base.value.symbol):
            return Known(getattr(base.value, node.attr))
        return self.load(*self.field(base, node.attr))

    def field(self, base: Typed | Known, name: str) -> tuple[Typed, Any]:
        """Returns the address and the type of a field."""
        base = self.materialise(base)
        layout = getattr(base.type, "layout", {})
        if name not in layout:
            self.fail(f"{shown(base.type)} has no field {name}; it has: {', '.join(layout) or 'none'}")
        offset, type = layout[name]
        return self.offset(base, Known(offset)), type

    def _Subscript(self, node: ast.Subscript) -> Typed | Known:
        base = self.expression(node.value)
        if isinstance(base, Known) and not isinstance(base.value, Table):
            index = self.expression(node.slice)
            if isinstance(index, Known):
                return Known(base.value[index.value])
        return self.load(*self.element(base, node.slice))

    def element(self, base: Typed | Known, subscript: ast.expr) -> tuple[Typed, Any]:
        """Returns the address and the type of an array element."""
        base = self.materialise(base)
        if typing.get_origin(base.type) is not Array:
            self.fail(f"only arrays have elements, this is {shown(base.type)}")
        (element,) = typing.get_args(base.type)
        index = self.expression(subscript)
        if isinstance(index, Typed) and index.type not in (i64, u64):
            self.fail(f"an index has 64 bits, this is {shown(index.type)}")
        scaled = self.binary(
            "mul", Typed(index.value, u64) if isinstance(index, Typed) else index, Known(size_of(element))
        )
        return self.offset(base, scaled), element

    def offset(self, base: Typed, bytes: Typed | Known) -> Typed:
        """Adds a number of bytes to an address."""
        return self.materialise(self.binary("add", Typed(base.value, u64), bytes))

    def location(self, node: ast.expr) -> tuple[Typed, Any]:
        """Returns the address and the type of a field or an array element."""
        if isinstance(node, ast.Attribute):
            return self.field(self.expression(node.value), node.attr)
        if isinstance(node, ast.Subscript):
            return self.element(self.expression(node.value), node.slice)
        self.fail(f"{ast.unparse(node)} is not a location in memory")

    def load(self, address: Typed, type: Any) -> Typed:
        """Loads a field or an element; for an inline array or an atomic, returns a reference."""
        if isinstance(type, Inline):
            return Typed(address.value, Array[type.element])
        if typing.get_origin(type) is Atomic:
            return Typed(address.value, type)
        size = size_of(type)
        value = self.b.load(self.pointer(address), type_of(f"i{8 * size}"), size)
        return Typed(self.b.convert("trunc", value, "i1") if type == boolean else value, type)

    def store(self, address: Typed, type: Any, value: Typed | Known) -> None:
        """Stores a value, converted to the type of the field or element."""
        if isinstance(type, Inline) or typing.get_origin(type) is Atomic:
            self.fail("this cannot be assigned: an atomic is changed by its methods, an array by its elements")
        converted, size = self.convert(value, type).value, size_of(type)
        if type == boolean:
            converted = self.b.convert("zext", converted, "i8")
        self.b.store(converted, self.pointer(address), size)

    def atomic(self, location: Typed, method: str, arguments: list[Typed | Known]) -> Typed | Known:
        """Translates a method of an atomic."""
        (type,) = typing.get_args(location.type)
        pointer = self.pointer(location)
        orders = [a.value for a in arguments if isinstance(a, Known) and isinstance(a.value, str)]
        operands = [a for a in arguments if not (isinstance(a, Known) and isinstance(a.value, str))]
        order, values = " ".join(orders), [self.convert(operand, type).value for operand in operands]
        if method == "load":
            return Typed(self.b.load(pointer, register_type(type), size_of(type), order), type)
        if method == "store":
            self.b.store(values[0], pointer, size_of(type), order=order)
            return Known(None)
        if method == "compare_exchange":
            return Typed(self.b.compare_exchange(pointer, values[0], values[1], order), type)
        if method not in _ATOMIC:
            self.fail(f"an atomic has no {method}; it has: load, store, {', '.join(_ATOMIC)}, compare_exchange")
        return Typed(self.b.atomic_update(_ATOMIC[method], pointer, values[0], order), type)
