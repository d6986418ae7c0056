"""Translates calls of native Python to the low-level IR: of functions, through pointers, and of the vocabulary."""

from __future__ import annotations

import ast
import types
import typing
from collections.abc import Callable
from typing import Any

from hloom.backends.cpu.llvm.native import vocabulary
from hloom.backends.cpu.llvm.native.memory import Memory
from hloom.backends.cpu.llvm.native.types import WORD, Array, Atomic, Integer, u64
from hloom.backends.cpu.llvm.native.vocabulary import External, Native, Table
from hloom.backends.cpu.llvm.native.writer import Known, Typed, declaration, passed_type, register_type, signature
from hloom.lir import I1, I64, Value, constant
from hloom.lir.instructions import DynamicAlloca


class Calls(Memory):
    """Translates calls, and so completes the translation of expressions."""

    def _Call(self, node: ast.Call) -> Typed | Known:
        if node.keywords:
            self.fail("arguments are given by position")
        if isinstance(node.func, ast.Attribute):
            base = self.expression(node.func.value)
            if isinstance(base, Known) and isinstance(base.value, Table):
                base = self.materialise(base)
            origin = typing.get_origin(base.type) if isinstance(base, Typed) else None
            if isinstance(base, Typed) and origin is Atomic:
                return self.atomic(base, node.func.attr, [self.expression(a) for a in node.args])
            if isinstance(base, Typed) and origin is Array and node.func.attr == "at":
                return Typed(self.element(base, node.args[0])[0].value, base.type)
        function = self.expression(node.func)
        if isinstance(function, Known):
            special = _SPECIAL.get(id(function.value))
            if special is not None:
                return special(self, *[self.expression(a) for a in node.args])
        return self._call(function, [self.expression(a) for a in node.args])

    def _call(self, function: Typed | Known, arguments: list[Typed | Known]) -> Typed | Known:
        if isinstance(function, Typed):
            parameters, result = typing.get_args(function.type)
            result = None if result is types.NoneType else result
            values = self._arguments(parameters, arguments)
            return self._result(self.b.call_pointer(self.pointer(function), passed_type(result), *values), result)
        callee = function.value
        if isinstance(callee, Native):
            self.required.add(callee)
            hints, result = signature(callee)
            values = self._arguments(tuple(hints.values()), arguments)
            return self._result(self.b.call(callee.name, passed_type(result), *values), result)
        if isinstance(callee, External):
            values = self._arguments(callee.arguments, arguments)
            return self._result(self.b.call(callee.name, passed_type(callee.result), *values), callee.result)
        if isinstance(callee, Integer):
            return self._to_integer(callee, arguments[0])
        if all(isinstance(argument, Known) for argument in arguments):
            return Known(callee(*(argument.value for argument in arguments if isinstance(argument, Known))))
        self.fail(f"{getattr(callee, '__name__', callee)!r} is no native function")

    def _arguments(self, parameters: Any, arguments: list[Typed | Known]) -> list[Value]:
        if len(parameters) != len(arguments):
            self.fail(f"takes {len(parameters)} arguments, got {len(arguments)}")
        return [self.passed(a, p) for a, p in zip(arguments, parameters, strict=True)]

    def _result(self, value: Value, type: Any) -> Typed | Known:
        return Known(None) if type is None else self.received(value, type)

    def _to_integer(self, type: Integer, value: Typed | Known) -> Typed | Known:
        if isinstance(value, Known) and isinstance(value.value, int):
            return Typed(constant(register_type(type), type(value.value)), type)
        value = self.materialise(value)
        source = value.type if isinstance(value.type, Integer) else WORD
        if source.bits == type.bits:
            return Typed(value.value, type)
        opcode = "trunc" if source.bits > type.bits else "sext" if source.signed else "zext"
        return Typed(self.b.convert(opcode, value.value, f"i{type.bits}"), type)

    # Vocabulary without syntax of its own

    def address_of(self, operand: Typed | Known) -> Typed:
        """Translates `address_of`."""
        if isinstance(operand, Known) and isinstance(operand.value, Native):
            self.required.add(operand.value)
            return self.address(declaration(operand.value), u64)
        return Typed(self.materialise(operand).value, u64)

    def to(self, type: Known, address: Typed | Known) -> Typed:
        """Translates `to`."""
        return Typed(self.word(address), type.value)

    def elements(self, type: Known, address: Typed | Known) -> Typed:
        """Translates `elements`."""
        element: Any = type.value
        return Typed(self.word(address), Array[element])

    def load_at(self, type: Known, address: Typed | Known) -> Typed:
        """Translates `load`."""
        return self.load(self.convert(address, u64), type.value)

    def store_at(self, type: Known, address: Typed | Known, value: Typed | Known) -> Known:
        """Translates `store`."""
        self.store(self.convert(address, u64), type.value, value)
        return Known(None)

    def stack(self, words: Typed | Known) -> Typed:
        """Translates `stack`."""
        memory = self.b.append(DynamicAlloca(self.b.name(), self.word(words), 16))
        return Typed(self.b.convert("ptrtoint", memory, "i64"), Array[u64])

    def copy_memory(self, target: Typed | Known, source: Typed | Known, size: Typed | Known) -> Known:
        """Translates `copy_memory`."""
        to, origin = (self.pointer(self.convert(address, u64)) for address in (target, source))
        self.b.copy(to, origin, self.word(size))
        return Known(None)

    def leading_zeros(self, word: Typed | Known) -> Typed:
        """Translates `leading_zeros`."""
        return Typed(self.b.call("llvm.ctlz.i64", I64, self.word(word), constant(I1, True)), u64)

    def extreme(self, name: str, left: Typed | Known, right: Typed | Known) -> Typed | Known:
        """Translates `min` and `max`."""
        if isinstance(left, Known) and isinstance(right, Known):
            return Known((min if name == "min" else max)(left.value, right.value))
        left, right = self.alike(left, right)
        intrinsic = f"{'s' if left.type.signed else 'u'}{name}"
        return Typed(self.b.intrinsic(intrinsic, left.value, right.value), left.type)


_SPECIAL: dict[int, Callable[..., Typed | Known]] = {
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
