"""Translates statements and whole functions of native Python to the low-level IR."""

from __future__ import annotations

import ast
import builtins
import inspect
import typing
from typing import Any

from hloom.backends.cpu.llvm.native.arithmetic import OPERATORS
from hloom.backends.cpu.llvm.native.calls import Calls
from hloom.backends.cpu.llvm.native.types import i64
from hloom.backends.cpu.llvm.native.vocabulary import Native
from hloom.backends.cpu.llvm.native.writer import Known, Required, Typed
from hloom.lir import Function


class FunctionTranslator(Calls):
    """Translator of one function."""

    def __init__(self, required: Required, function: Native, source: list[str], tree: ast.FunctionDef) -> None:
        super().__init__(required, function, source, tree)
        inner = function.function
        self.around = vars(builtins) | inner.__globals__ | dict(inspect.getclosurevars(inner).nonlocals)
        self.loops: list[tuple[str, str] | None] = []
        """Labels for `continue` and `break` of the enclosing loops; None for an unrolled loop."""
        self.left: set[str] = set()
        """End labels that a break jumps to."""

    def translated(self) -> Function:
        """Returns the function in the low-level IR."""
        for (name, type), value in zip(self.parameters.items(), self.b.function.parameters, strict=True):
            self.local(name, type)
            self.write(self.locals[name], self.received(value, type))
        self.block(self.tree.body)
        if self.is_open and self.result is not None:
            self.fail("the function ends without a result")
        return self.b.finish()

    def block(self, statements: list[ast.stmt]) -> None:
        """Translates a list of statements."""
        for statement in statements:
            self.node = statement
            if not self.is_open:
                self.fail("unreachable statement")
            getattr(self, f"_{type(statement).__name__}", self.unknown)(statement)

    def _Pass(self, node: ast.Pass) -> None:
        pass

    def _Expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):
            self.expression(node.value)

    def _Return(self, node: ast.Return) -> None:
        if self.result is None:
            if node.value is not None:
                self.fail("the function returns no value")
            self.b.ret()
        else:
            if node.value is None:
                self.fail("the result is missing")
            self.b.ret(self.passed(self.expression(node.value), self.result))

    def _Assign(self, node: ast.Assign) -> None:
        (target,) = node.targets
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            values = [self.expression(part) for part in node.value.elts]
            for part, value in zip(target.elts, values, strict=True):
                self._assign(part, value)
        else:
            self._assign(target, self.expression(node.value))

    def _AnnAssign(self, node: ast.AnnAssign) -> None:
        assert isinstance(node.target, ast.Name) and node.value is not None
        type = eval(ast.unparse(node.annotation), self.around)
        self._assign(node.target, self.convert(self.expression(node.value), type))

    def _AugAssign(self, node: ast.AugAssign) -> None:
        target = ast.unparse(node.target)
        old = self.expression(ast.parse(target, mode="eval").body)
        self._assign(node.target, self.binary(OPERATORS[type(node.op)], old, self.expression(node.value)))

    def _assign(self, target: ast.expr, value: Typed | Known) -> None:
        if isinstance(target, ast.Name):
            if target.id not in self.locals:
                value = self.materialise(value)
                self.local(target.id, value.type)
            slot = self.locals[target.id]
            self.write(slot, self.convert(value, slot.type))
        else:
            self.store(*self.location(target), value)

    def _If(self, node: ast.If) -> None:
        then, otherwise, end = (self.b.label(name) for name in ("then", "else", "end"))
        condition = self.condition(node.test)
        if isinstance(condition, bool):
            self.block(node.body if condition else node.orelse)
            return
        self.b.branch_if(condition.value, then, otherwise if node.orelse else end)
        open_ends = not node.orelse
        for label, body in ((then, node.body), (otherwise, node.orelse)):
            if body:
                self.start(label)
                self.block(body)
                if self.is_open:
                    self.b.branch(end)
                    open_ends = True
        if open_ends:
            self.start(end)

    def _While(self, node: ast.While) -> None:
        again, body, end = (self.b.label(name) for name in ("while", "do", "end"))
        self.start(again)
        condition = self.condition(node.test)
        if condition is False:
            self.fail("the loop never runs")
        if isinstance(condition, Typed):
            self.b.branch_if(condition.value, body, end)
        self._loop(body, again, end, node.body)
        if self.is_open:
            self.b.branch(again)
        if condition is not True or end in self.left:
            self.start(end)

    def _loop(self, label: str, again: str, end: str, body: list[ast.stmt]) -> None:
        self.start(label)
        self.loops.append((again, end))
        self.block(body)
        self.loops.pop()

    def _For(self, node: ast.For) -> None:
        if isinstance(node.iter, ast.Call) and ast.unparse(node.iter.func) == "range":
            self._counted(node, [self.expression(a) for a in node.iter.args])
        else:
            known = self.expression(node.iter)
            if not isinstance(known, Known):
                self.fail("a loop is over a range, or over a known sequence, for which it is unrolled")
            self.loops.append(None)
            for item in known.value:
                self._bind(node.target, item)
                self.block(node.body)
            self.loops.pop()

    def _counted(self, node: ast.For, bounds: list[Typed | Known]) -> None:
        first, last = (Known(0), bounds[0]) if len(bounds) == 1 else (bounds[0], bounds[1])
        type = next((b.type for b in (last, first) if isinstance(b, Typed)), i64)
        assert isinstance(node.target, ast.Name)
        self._assign(node.target, self.convert(first, type))
        limit = self.slot(type)
        self.write(limit, self.convert(last, type))
        test, body, following, end = (self.b.label(name) for name in ("for", "do", "next", "end"))
        self.start(test)
        counter = self.locals[node.target.id]
        last = self.read(limit)
        self.b.branch_if(self.compare("lt", self.read(counter), last).value, body, end)
        self._loop(body, following, end, node.body)
        self.start(following)
        self.write(counter, self.convert(self.binary("add", self.read(counter), Known(1)), type))
        self.b.branch(test)
        self.start(end)

    def _bind(self, target: ast.expr, item: Any) -> None:
        if isinstance(target, ast.Name):
            self.known[target.id] = item
        else:
            for part, value in zip(typing.cast(ast.Tuple, target).elts, item, strict=True):
                self._bind(part, value)

    def _Break(self, node: ast.Break) -> None:
        again, end = self._loop_around()
        self.left.add(end)
        self.b.branch(end)

    def _Continue(self, node: ast.Continue) -> None:
        again, end = self._loop_around()
        self.b.branch(again)

    def _loop_around(self) -> tuple[str, str]:
        loop = self.loops[-1]
        if loop is None:
            self.fail("an unrolled loop has no break and no continue")
        return loop
