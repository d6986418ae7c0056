"""Translates names, arithmetic and conditions of native Python to the low-level IR."""

from __future__ import annotations

import ast
import operator
import typing
from collections.abc import Callable
from typing import Any

from hloom.backends.cpu.llvm.native.types import Integer, boolean
from hloom.backends.cpu.llvm.native.writer import Known, Typed, Writer, shown
from hloom.lir import I1, constant

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

    def expression(self, node: ast.expr) -> Typed | Known:
        """Translates an expression."""
        return typing.cast("Typed | Known", getattr(self, f"_{type(node).__name__}", self.unknown)(node))

    def condition(self, node: ast.expr) -> Typed | bool:
        """Translates a condition; returns a bool if it is known."""
        value = self.expression(node)
        if isinstance(value, Known):
            return bool(value.value)
        if value.type != boolean:
            self.fail(f"a condition is a comparison, this is {shown(value.type)}")
        return value

    def _Constant(self, node: ast.Constant) -> Known:
        return Known(node.value)

    def _Name(self, node: ast.Name) -> Typed | Known:
        if node.id in self.locals:
            return self.read(self.locals[node.id])
        if node.id in self.known:
            return Known(self.known[node.id])
        if node.id not in self.around:
            self.fail(f"there is no {node.id} here")
        return Known(self.around[node.id])

    def _BinOp(self, node: ast.BinOp) -> Typed | Known:
        if type(node.op) not in OPERATORS:
            self.fail(f"native Python has no {type(node.op).__name__}")
        return self.binary(OPERATORS[type(node.op)], self.expression(node.left), self.expression(node.right))

    def binary(self, opcode: str, left: Typed | Known, right: Typed | Known) -> Typed | Known:
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
        return Typed(self.b.binary(opcode, left.value, right.value), left.type)

    def alike(self, left: Typed | Known, right: Typed | Known) -> tuple[Typed, Typed]:
        """Converts a known operand to the type of the other one."""
        if isinstance(left, Typed):
            return left, self.convert(right, left.type)
        assert isinstance(right, Typed)
        return self.convert(left, right.type), right

    def _Compare(self, node: ast.Compare) -> Typed | Known:
        if len(node.ops) != 1 or type(node.ops[0]) not in _COMPARISONS:
            self.fail("a comparison has two sides, and is one of == != < <= > >=")
        left, right = self.expression(node.left), self.expression(node.comparators[0])
        predicate = _COMPARISONS[type(node.ops[0])]
        if isinstance(left, Known) and isinstance(right, Known):
            return Known(_PYTHON_OPERATORS[predicate](left.value, right.value))
        return self.compare(predicate, *self.alike(left, right))

    def compare(self, predicate: str, left: Typed, right: Typed) -> Typed:
        """Compares two operands of the same type."""
        signed = isinstance(left.type, Integer) and left.type.signed
        prefix = "" if predicate in ("eq", "ne") else "s" if signed else "u"
        return Typed(self.b.compare(prefix + predicate, left.value, right.value), boolean)

    def _UnaryOp(self, node: ast.UnaryOp) -> Typed | Known:
        value = self.expression(node.operand)
        if isinstance(value, Known):
            return Known(eval(ast.unparse(ast.UnaryOp(node.op, ast.Constant(value.value)))))
        if isinstance(node.op, ast.Not):
            if value.type != boolean:
                self.fail(f"not is for conditions, this is {shown(value.type)}")
            return Typed(self.b.binary("xor", value.value, constant(I1, True)), boolean)
        zero = Known(0 if isinstance(node.op, ast.USub) else -1)
        return self.binary("sub" if isinstance(node.op, ast.USub) else "xor", zero, value)

    def _BoolOp(self, node: ast.BoolOp) -> Typed:
        """Evaluates operands only until the result is decided."""
        slot, end = self.slot(boolean), self.b.label("decided")
        for i, part in enumerate(node.values):
            value = self.condition(part)
            decided = self.materialise(Known(value)) if isinstance(value, bool) else value
            self.write(slot, decided)
            if i + 1 < len(node.values):
                more = self.b.label("more")
                both = (more, end) if isinstance(node.op, ast.And) else (end, more)
                self.b.branch_if(decided.value, *both)
                self.start(more)
        self.start(end)
        return self.read(slot)

    def _IfExp(self, node: ast.IfExp) -> Typed | Known:
        condition = self.condition(node.test)
        if isinstance(condition, bool):
            return self.expression(node.body if condition else node.orelse)
        then, otherwise, end = (self.b.label(name) for name in ("then", "else", "end"))
        self.b.branch_if(condition.value, then, otherwise)
        self.start(then)
        first = self.materialise(self.expression(node.body))
        slot = self.slot(first.type)
        self.write(slot, first)
        self.b.branch(end)
        self.start(otherwise)
        self.write(slot, self.convert(self.expression(node.orelse), slot.type))
        self.start(end)
        return self.read(slot)
