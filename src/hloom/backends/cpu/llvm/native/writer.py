"""The text of one native function while it is written: lines, blocks, slots of locals; and what operands are."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Any, NoReturn

from hloom.backends.cpu.llvm.native.types import Array, Integer, Structure, boolean, i64, u64
from hloom.backends.cpu.llvm.native.vocabulary import Native, Table
from hloom.errors import ArgumentError

_PAUSE = {
    "x86_64": ("@llvm.x86.sse2.pause()", "@llvm.x86.sse2.pause()"),
    "aarch64": ("@llvm.aarch64.hint(i32)", "@llvm.aarch64.hint(i32 1)"),
}


class NativeError(ArgumentError):
    """A native function that the subset does not allow, at its line."""


@dataclass(frozen=True)
class Value:
    """An operand: its text, and an integer type or the type of a reference."""

    text: str
    type: Any


@dataclass(frozen=True)
class Known:
    """Something of Python that is known when the function is translated."""

    value: Any


class Module:
    """What functions declare and call: `parts` are declarations and globals, `required` functions by name."""

    def __init__(self, machine: str) -> None:
        self.machine = machine
        self.parts: dict[str, str] = {}
        self.required: dict[str, Native] = {}

    def require(self, function: Native) -> None:
        """A function is called: it is translated after its callers."""
        if self.required.setdefault(function.name, function) is not function:
            raise NativeError(f"two native functions are called {function.name}")

    def declare(self, name: str, text: str) -> None:
        self.parts.setdefault(name, text)

    def pause(self) -> str:
        """The instruction of a waiting thread."""
        declaration, call = _PAUSE[self.machine]
        self.declare("pause", f"declare void {declaration}")
        return f"call void {call}"


def llvm_type(type: Any) -> str:
    """The type of a value in a register: all references are words."""
    return "void" if type is None else f"i{type.bits}" if isinstance(type, Integer) else "i64"


def shown(type: Any) -> str:
    """A type as users write it."""
    if isinstance(type, Integer):
        return "a condition" if type == boolean else f"{'i' if type.signed else 'u'}{type.bits}"
    return getattr(type, "__name__", str(type))


class Writer:
    """Lines and blocks; `node` is the statement being translated, at which errors point."""

    def __init__(self, module: Module, function: Native, source: list[str], tree: ast.FunctionDef) -> None:
        self.module, self.native, self.source, self.tree = module, function, source, tree
        self.node: ast.AST = tree
        self.slots: list[str] = []
        self.lines: list[str] = []
        self.locals: dict[str, Value] = {}
        self.known: dict[str, Any] = {}
        self.count = 0
        self.open = True
        """Whether the block that is written may still go on."""

    def fail(self, message: str) -> NoReturn:
        line = getattr(self.node, "lineno", 1)
        location = f"{self.native.function.__code__.co_filename}:{line}"
        raise NativeError(f"{self.native.name}: {message}").at(f"{self.source[line - 1].strip()}  ({location})")

    # Lines and blocks

    def line(self, text: str) -> None:
        self.lines.append(f"  {text}")

    def emit(self, text: str, type: Any) -> Value:
        self.count += 1
        self.line(f"%v{self.count} = {text}")
        return Value(f"%v{self.count}", type)

    def label(self, name: str) -> str:
        self.count += 1
        return f"{name}.{self.count}"

    def start(self, label: str) -> None:
        """A block begins; the one before goes on to it, if it is open."""
        if self.open:
            self.line(f"br label %{label}")
        self.lines.append(f"{label}:")
        self.open = True

    def jump(self, label: str) -> None:
        self.line(f"br label %{label}")
        self.open = False

    def branch(self, condition: Value, then: str, otherwise: str) -> None:
        self.line(f"br i1 {condition.text}, label %{then}, label %{otherwise}")
        self.open = False

    def slot(self, type: Any) -> str:
        self.count += 1
        self.slots.append(f"  %s{self.count} = alloca {llvm_type(type)}")
        return f"%s{self.count}"

    def local(self, name: str, type: Any) -> None:
        self.locals[name] = Value(self.slot(type), type)

    # Operands

    def materialise(self, value: Value | Known) -> Value:
        """What is known as an operand: numbers are of type i64 where nothing says otherwise."""
        if isinstance(value, Value):
            return value
        thing = value.value
        if isinstance(thing, bool):
            return Value(str(thing).lower(), boolean)
        if isinstance(thing, int):
            return Value(str(thing), i64)
        if isinstance(thing, Structure) and thing.symbol:
            self.module.declare(thing.symbol, _global(thing.symbol, thing.byte_size))
            return Value(f"ptrtoint (ptr @{thing.symbol} to i64)", type(thing))
        if isinstance(thing, Table):
            words = ", ".join(f"i64 {u64(value)}" for value in thing.values)
            self.module.declare(
                thing.symbol, f"@{thing.symbol} = internal constant [{len(thing.values)} x i64] [{words}]"
            )
            return Value(f"ptrtoint (ptr @{thing.symbol} to i64)", Array[u64])
        self.fail(f"{thing!r} is no value")

    def convert(self, value: Value | Known, type: Any) -> Value:
        """A value where one of a type is wanted."""
        if isinstance(value, Known) and isinstance(value.value, int) and not isinstance(value.value, bool):
            number = type(value.value) if isinstance(type, Integer) else value.value
            return Value(str(number), type)
        value = self.materialise(value)
        if value.type != type:
            self.fail(f"{shown(type)} is wanted, this is {shown(value.type)}: convert it, as in u64(..)")
        return value

    def read(self, slot: Value) -> Value:
        return self.emit(f"load {llvm_type(slot.type)}, ptr {slot.text}", slot.type)

    def pointer(self, address: Value) -> str:
        return self.emit(f"inttoptr i64 {address.text} to ptr", u64).text


def _global(symbol: str, size: int) -> str:
    return f"@{symbol} = global [{size} x i8] zeroinitializer, align 16"
