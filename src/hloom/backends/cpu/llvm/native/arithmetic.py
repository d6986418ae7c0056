"""Translates names, arithmetic and conditions of native Python to LLVM IR."""

from __future__ import annotations

import ast
import operator
import typing
from collections.abc import Callable
from typing import Any

from hloom.backends.cpu.llvm.native.types import Integer, boolean
from hloom.backends.cpu.llvm.native.writer import Known, Value, Writer, llvm_type, shown

OPERATORS: dict[type, str] = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.FloorDiv: "udiv", ast.Mod: "urem",
    ast.BitAnd: "and", ast.BitOr: "or", ast.BitXor: "xor", ast.LShift: "shl", ast.RShift: "shr",
}  # fmt: skip
_COMPARISONS: dict[type, str] = {
    ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge",
}  # fmt: skip
_PYTHON_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "udiv": operator.floordiv, "urem": operator.mod,
    "and": operator.and_, "or": operator.or_, "xor": operator.xor, "shl": operator.lshift, "shr": operator.rshift,
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
}  # fmt: skip


class Arithmetic(Writer):
    """Translates expressions, with one method for each kind; operations on known values are evaluated at once."""

    around: dict[str, Any]
    """Globals, builtins and closure variables of the function."""

    def unknown(self, node: ast.AST) -> typing.NoReturn:
        """Fails with the kind of a node outside the subset."""
        self.fail(f"native Python has no {type(node).__name__}")

    def expression(self, node: ast.expr) -> Value | Known:
        """Translates an expression."""
        return typing.cast("Value | Known", getattr(self, f"_{type(node).__name__}", self.unknown)(node))

    def condition(self, node: ast.expr) -> Value | bool:
        """Translates a condition; returns a bool if it is known."""
        value = self.expression(node)
        if isinstance(value, Known):
            return bool(value.value)
        if value.type != boolean:
            self.fail(f"a condition is a comparison, this is {shown(value.type)}")
        return value

    def _Constant(self, node: ast.Constant) -> Known:
        return Known(node.value)

    def _Name(self, node: ast.Name) -> Value | Known:
        if node.id in self.locals:
            return self.read(self.locals[node.id])
        if node.id in self.known:
            return Known(self.known[node.id])
        if node.id not in self.around:
            self.fail(f"there is no {node.id} here")
        return Known(self.around[node.id])

    def _BinOp(self, node: ast.BinOp) -> Value | Known:
        if type(node.op) not in OPERATORS:
            self.fail(f"native Python has no {type(node.op).__name__}")
        return self.binary(OPERATORS[type(node.op)], self.expression(node.left), self.expression(node.right))

    def binary(self, opcode: str, left: Value | Known, right: Value | Known) -> Value | Known:
        """Applies an operation to two operands of the same integer type."""
        if isinstance(left, Known) and isinstance(right, Known):
            return Known(_PYTHON_OPERATORS[opcode](left.value, right.value))
        left, right = self.alike(left, right)
        if not isinstance(left.type, Integer):
            self.fail(f"arithmetic is for integers, this is {shown(left.type)}")
        if left.type.signed and opcode in ("udiv", "urem"):
            self.fail("// and % are for unsigned integers")
        if opcode == "shr":
            opcode = "ashr" if left.type.signed else "lshr"
        return self.emit(f"{opcode} {llvm_type(left.type)} {left.text}, {right.text}", left.type)

    def alike(self, left: Value | Known, right: Value | Known) -> tuple[Value, Value]:
        """Converts a known operand to the type of the other one."""
        if isinstance(left, Value):
            return left, self.convert(right, left.type)
        assert isinstance(right, Value)
        return self.convert(left, right.type), right

    def _Compare(self, node: ast.Compare) -> Value | Known:
        if len(node.ops) != 1 or type(node.ops[0]) not in _COMPARISONS:
            self.fail("a comparison has two sides, and is one of == != < <= > >=")
        left, right = self.expression(node.left), self.expression(node.comparators[0])
        predicate = _COMPARISONS[type(node.ops[0])]
        if isinstance(left, Known) and isinstance(right, Known):
            return Known(_PYTHON_OPERATORS[predicate](left.value, right.value))
        return self.compare(predicate, *self.alike(left, right))

    def compare(self, predicate: str, left: Value, right: Value) -> Value:
        """Compares two operands of the same type."""
        signed = isinstance(left.type, Integer) and left.type.signed
        prefix = "" if predicate in ("eq", "ne") else "s" if signed else "u"
        return self.emit(f"icmp {prefix}{predicate} {llvm_type(left.type)} {left.text}, {right.text}", boolean)

    def _UnaryOp(self, node: ast.UnaryOp) -> Value | Known:
        value = self.expression(node.operand)
        if isinstance(value, Known):
            return Known(eval(ast.unparse(ast.UnaryOp(node.op, ast.Constant(value.value)))))
        if isinstance(node.op, ast.Not):
            if value.type != boolean:
                self.fail(f"not is for conditions, this is {shown(value.type)}")
            return self.emit(f"xor i1 {value.text}, true", boolean)
        zero = Known(0 if isinstance(node.op, ast.USub) else -1)
        return self.binary("sub" if isinstance(node.op, ast.USub) else "xor", zero, value)

    def _BoolOp(self, node: ast.BoolOp) -> Value:
        """Evaluates operands only until the result is decided."""
        slot, end = Value(self.slot(boolean), boolean), self.label("decided")
        for i, part in enumerate(node.values):
            value = self.condition(part)
            text = str(value).lower() if isinstance(value, bool) else value.text
            self.line(f"store i1 {text}, ptr {slot.text}")
            if i + 1 < len(node.values):
                more = self.label("more")
                both = (more, end) if isinstance(node.op, ast.And) else (end, more)
                self.branch(Value(text, boolean), *both)
                self.start(more)
        self.start(end)
        return self.read(slot)

    def _IfExp(self, node: ast.IfExp) -> Value | Known:
        condition = self.condition(node.test)
        if isinstance(condition, bool):
            return self.expression(node.body if condition else node.orelse)
        then, otherwise, end = self.label("then"), self.label("else"), self.label("end")
        self.branch(condition, then, otherwise)
        self.start(then)
        first = self.materialise(self.expression(node.body))
        slot = Value(self.slot(first.type), first.type)
        self.line(f"store {llvm_type(slot.type)} {first.text}, ptr {slot.text}")
        self.jump(end)
        self.start(otherwise)
        second = self.convert(self.expression(node.orelse), slot.type)
        self.line(f"store {llvm_type(slot.type)} {second.text}, ptr {slot.text}")
        self.start(end)
        return self.read(slot)
