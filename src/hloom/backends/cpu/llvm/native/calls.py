"""Translates calls of native Python to LLVM IR: of native and C functions, through pointers, and of the vocabulary."""

from __future__ import annotations

import ast
import inspect
import types
import typing
from collections.abc import Callable
from typing import Any

from hloom.backends.cpu.llvm.native import vocabulary
from hloom.backends.cpu.llvm.native.memory import Memory
from hloom.backends.cpu.llvm.native.types import WORD, Array, Atomic, Integer, u64
from hloom.backends.cpu.llvm.native.vocabulary import External, Native, Table
from hloom.backends.cpu.llvm.native.writer import Known, Value, llvm_type


def signature(function: Native) -> tuple[dict[str, Any], Any]:
    """Returns the types of the parameters and of the result; annotations may refer to closure variables."""
    inner = function.function
    hints = typing.get_type_hints(inner, localns=dict(inspect.getclosurevars(inner).nonlocals))
    result = hints.pop("return", None)
    return hints, None if result is types.NoneType else result


class Calls(Memory):
    """Translates calls, and so completes the translation of expressions."""

    def _Call(self, node: ast.Call) -> Value | Known:
        if node.keywords:
            self.fail("arguments are given by position")
        if isinstance(node.func, ast.Attribute):
            base = self.expression(node.func.value)
            if isinstance(base, Known) and isinstance(base.value, Table):
                base = self.materialise(base)
            origin = typing.get_origin(base.type) if isinstance(base, Value) else None
            if isinstance(base, Value) and origin is Atomic:
                return self.atomic(base, node.func.attr, [self.expression(a) for a in node.args])
            if isinstance(base, Value) and origin is Array and node.func.attr == "at":
                return Value(self.element(base, node.args[0])[0].text, base.type)
        function = self.expression(node.func)
        if isinstance(function, Known):
            special = _SPECIAL.get(id(function.value))
            if special is not None:
                return special(self, *[self.expression(a) for a in node.args])
        return self._call(function, [self.expression(a) for a in node.args])

    def _call(self, function: Value | Known, arguments: list[Value | Known]) -> Value | Known:
        if isinstance(function, Value):
            parameters, result = typing.get_args(function.type)
            result = None if result is types.NoneType else result
            return self._invoke(self.pointer(function), parameters, result, arguments)
        callee = function.value
        if isinstance(callee, Native):
            self.module.require(callee)
            hints, result = signature(callee)
            return self._invoke(f"@{callee.name}", tuple(hints.values()), result, arguments)
        if isinstance(callee, External):
            types_ = ", ".join(map(llvm_type, callee.arguments))
            self.module.declare(callee.name, f"declare {llvm_type(callee.result)} @{callee.name}({types_})")
            return self._invoke(f"@{callee.name}", callee.arguments, callee.result, arguments)
        if isinstance(callee, Integer):
            return self._to_integer(callee, arguments[0])
        if all(isinstance(argument, Known) for argument in arguments):
            return Known(callee(*(argument.value for argument in arguments if isinstance(argument, Known))))
        self.fail(f"{getattr(callee, '__name__', callee)!r} is no native function")

    def _invoke(self, callee: str, parameters: Any, result: Any, arguments: list[Value | Known]) -> Value | Known:
        if len(parameters) != len(arguments):
            self.fail(f"takes {len(parameters)} arguments, got {len(arguments)}")
        values = [self.convert(a, p) for a, p in zip(arguments, parameters, strict=True)]
        operands = ", ".join(f"{llvm_type(value.type)} {value.text}" for value in values)
        text = f"call {llvm_type(result)} {callee}({operands})"
        if result is None:
            self.line(text)
            return Known(None)
        return self.emit(text, result)

    def _to_integer(self, type: Integer, value: Value | Known) -> Value | Known:
        if isinstance(value, Known) and isinstance(value.value, int):
            return Value(str(type(value.value)), type)
        value = self.materialise(value)
        source = value.type if isinstance(value.type, Integer) else WORD
        if source.bits == type.bits:
            return Value(value.text, type)
        opcode = "trunc" if source.bits > type.bits else "sext" if source.signed else "zext"
        return self.emit(f"{opcode} {llvm_type(source)} {value.text} to {llvm_type(type)}", type)

    # Vocabulary without syntax of its own

    def address_of(self, operand: Value | Known) -> Value:
        """Translates `address_of`."""
        if isinstance(operand, Known) and isinstance(operand.value, Native):
            self.module.require(operand.value)
            return Value(f"ptrtoint (ptr @{operand.value.name} to i64)", u64)
        return Value(self.materialise(operand).text, u64)

    def to(self, type: Known, address: Value | Known) -> Value:
        """Translates `to`."""
        return Value(self.convert(address, u64).text, type.value)

    def elements(self, type: Known, address: Value | Known) -> Value:
        """Translates `elements`."""
        element: Any = type.value
        return Value(self.convert(address, u64).text, Array[element])

    def load_at(self, type: Known, address: Value | Known) -> Value:
        """Translates `load`."""
        return self.load(self.convert(address, u64), type.value)

    def store_at(self, type: Known, address: Value | Known, value: Value | Known) -> Known:
        """Translates `store`."""
        self.store(self.convert(address, u64), type.value, value)
        return Known(None)

    def stack(self, words: Value | Known) -> Value:
        """Translates `stack`."""
        memory = self.emit(f"alloca i64, i64 {self.convert(words, u64).text}, align 16", u64)
        return self.emit(f"ptrtoint ptr {memory.text} to i64", Array[u64])

    def copy_memory(self, target: Value | Known, source: Value | Known, size: Value | Known) -> Known:
        """Translates `copy_memory`."""
        self.module.declare("memcpy", "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)")
        to, origin = (self.pointer(self.convert(address, u64)) for address in (target, source))
        self.line(
            f"call void @llvm.memcpy.p0.p0.i64(ptr {to}, ptr {origin}, i64 {self.convert(size, u64).text}, i1 false)"
        )
        return Known(None)

    def pause(self) -> Known:
        """Translates `pause`."""
        self.line(self.module.pause())
        return Known(None)

    def leading_zeros(self, word: Value | Known) -> Value:
        """Translates `leading_zeros`."""
        self.module.declare("ctlz", "declare i64 @llvm.ctlz.i64(i64, i1)")
        return self.emit(f"call i64 @llvm.ctlz.i64(i64 {self.convert(word, u64).text}, i1 true)", u64)

    def extreme(self, name: str, left: Value | Known, right: Value | Known) -> Value | Known:
        """Translates `min` and `max`."""
        if isinstance(left, Known) and isinstance(right, Known):
            return Known((min if name == "min" else max)(left.value, right.value))
        left, right = self.alike(left, right)
        intrinsic = f"llvm.{'s' if left.type.signed else 'u'}{name}.{llvm_type(left.type)}"
        type = llvm_type(left.type)
        self.module.declare(intrinsic, f"declare {type} @{intrinsic}({type}, {type})")
        return self.emit(f"call {type} @{intrinsic}({type} {left.text}, {type} {right.text})", left.type)


_SPECIAL: dict[int, Callable[..., Value | Known]] = {
    id(vocabulary.address_of): Calls.address_of,
    id(vocabulary.to): Calls.to,
    id(vocabulary.elements): Calls.elements,
    id(vocabulary.load): Calls.load_at,
    id(vocabulary.store): Calls.store_at,
    id(vocabulary.stack): Calls.stack,
    id(vocabulary.copy_memory): Calls.copy_memory,
    id(vocabulary.pause): Calls.pause,
    id(vocabulary.leading_zeros): Calls.leading_zeros,
    id(min): lambda f, *args: f.extreme("min", *args),
    id(max): lambda f, *args: f.extreme("max", *args),
}
