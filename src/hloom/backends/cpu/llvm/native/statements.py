"""Translates statements and whole functions of native Python to LLVM IR."""

from __future__ import annotations

import ast
import builtins
import inspect
import typing
from typing import Any

from hloom.backends.cpu.llvm.native.arithmetic import OPERATORS
from hloom.backends.cpu.llvm.native.calls import Calls, signature
from hloom.backends.cpu.llvm.native.types import i64
from hloom.backends.cpu.llvm.native.vocabulary import Native
from hloom.backends.cpu.llvm.native.writer import Known, Module, Value, llvm_type


class Function(Calls):
    """Translator of one function."""

    def __init__(self, module: Module, function: Native, source: list[str], tree: ast.FunctionDef) -> None:
        super().__init__(module, function, source, tree)
        inner = function.function
        self.around = vars(builtins) | inner.__globals__ | dict(inspect.getclosurevars(inner).nonlocals)
        self.parameters, self.result = signature(function)
        self.loops: list[tuple[str, str] | None] = []
        """Labels for `continue` and `break` of the enclosing loops; None for an unrolled loop."""
        self.left: set[str] = set()
        """End labels that a break jumps to."""

    def text(self, exported: bool) -> str:
        """Returns the definition of the function."""
        for name, type in self.parameters.items():
            self.local(name, type)
            self.line(f"store {llvm_type(type)} %{name}, ptr {self.locals[name].text}")
        self.block(self.tree.body)
        if self.open:
            if self.result is not None:
                self.fail("the function ends without a result")
            self.line("ret void")
        parameters = ", ".join(f"{llvm_type(type)} %{name}" for name, type in self.parameters.items())
        linkage, attributes = "" if exported else "internal ", " alwaysinline" * self.native.inline
        head = f"define {linkage}{llvm_type(self.result)} @{self.native.name}({parameters}) nounwind{attributes} {{"
        return "\n".join([head, "entry:", *self.slots, *self.lines, "}\n"])

    def block(self, statements: list[ast.stmt]) -> None:
        """Translates a list of statements."""
        for statement in statements:
            self.node = statement
            if not self.open:
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
            self.line("ret void")
        else:
            if node.value is None:
                self.fail("the result is missing")
            value = self.convert(self.expression(node.value), self.result)
            self.line(f"ret {llvm_type(self.result)} {value.text}")
        self.open = False

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

    def _assign(self, target: ast.expr, value: Value | Known) -> None:
        if isinstance(target, ast.Name):
            if target.id not in self.locals:
                value = self.materialise(value)
                self.local(target.id, value.type)
            slot = self.locals[target.id]
            self.line(f"store {llvm_type(slot.type)} {self.convert(value, slot.type).text}, ptr {slot.text}")
        else:
            self.store(*self.location(target), value)

    def _If(self, node: ast.If) -> None:
        then, otherwise, end = self.label("then"), self.label("else"), self.label("end")
        condition = self.condition(node.test)
        if isinstance(condition, bool):
            self.block(node.body if condition else node.orelse)
            return
        self.branch(condition, then, otherwise if node.orelse else end)
        open_ends = not node.orelse
        for label, body in ((then, node.body), (otherwise, node.orelse)):
            if body:
                self.start(label)
                self.block(body)
                if self.open:
                    self.jump(end)
                    open_ends = True
        if open_ends:
            self.start(end)

    def _While(self, node: ast.While) -> None:
        again, body, end = self.label("while"), self.label("do"), self.label("end")
        self.start(again)
        condition = self.condition(node.test)
        if condition is False:
            self.fail("the loop never runs")
        if isinstance(condition, Value):
            self.branch(condition, body, end)
        self._loop(body, again, end, node.body)
        if self.open:
            self.jump(again)
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

    def _counted(self, node: ast.For, bounds: list[Value | Known]) -> None:
        first, last = (Known(0), bounds[0]) if len(bounds) == 1 else (bounds[0], bounds[1])
        type = next((b.type for b in (last, first) if isinstance(b, Value)), i64)
        assert isinstance(node.target, ast.Name)
        self._assign(node.target, self.convert(first, type))
        end_slot = self.slot(type)
        self.line(f"store {llvm_type(type)} {self.convert(last, type).text}, ptr {end_slot}")
        test, body, following, end = (self.label(name) for name in ("for", "do", "next", "end"))
        self.start(test)
        counter = self.locals[node.target.id]
        limit = self.emit(f"load {llvm_type(type)}, ptr {end_slot}", type)
        self.branch(self.compare("lt", self.read(counter), limit), body, end)
        self._loop(body, following, end, node.body)
        self.start(following)
        more = self.binary("add", self.read(counter), Known(1))
        self.line(f"store {llvm_type(type)} {self.convert(more, type).text}, ptr {counter.text}")
        self.jump(test)
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
        self.jump(end)

    def _Continue(self, node: ast.Continue) -> None:
        again, end = self._loop_around()
        self.jump(again)

    def _loop_around(self) -> tuple[str, str]:
        loop = self.loops[-1]
        if loop is None:
            self.fail("an unrolled loop has no break and no continue")
        return loop
