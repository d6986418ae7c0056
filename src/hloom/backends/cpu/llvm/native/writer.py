"""Emits the text of one native function: lines, blocks, stack slots of locals, and operands."""

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
    """Error in a native function, with its line: the subset of Python does not allow a construct."""


@dataclass(frozen=True)
class Value:
    """Operand: its text, and an integer type or the type of a reference."""

    text: str
    type: Any


@dataclass(frozen=True)
class Known:
    """Python value known at translation time."""

    value: Any


class Module:
    """Declarations and globals in `parts`, and the functions to translate, by name, in `required`."""

    def __init__(self, machine: str) -> None:
        self.machine = machine
        self.parts: dict[str, str] = {}
        self.required: dict[str, Native] = {}

    def require(self, function: Native) -> None:
        """Adds a called function, which is translated after its callers."""
        if self.required.setdefault(function.name, function) is not function:
            raise NativeError(f"two native functions are called {function.name}")

    def declare(self, name: str, text: str) -> None:
        """Adds a declaration or global, unless it is there."""
        self.parts.setdefault(name, text)

    def pause(self) -> str:
        """Returns the instruction of a spin loop."""
        declaration, call = _PAUSE[self.machine]
        self.declare("pause", f"declare void {declaration}")
        return f"call void {call}"


def llvm_type(type: Any) -> str:
    """Returns the type of a value in a register; references are 64-bit words."""
    return "void" if type is None else f"i{type.bits}" if isinstance(type, Integer) else "i64"


def shown(type: Any) -> str:
    """Returns the name of a type for error messages."""
    if isinstance(type, Integer):
        return "a condition" if type == boolean else f"{'i' if type.signed else 'u'}{type.bits}"
    return getattr(type, "__name__", str(type))


class Writer:
    """Emitter of lines and blocks; `node` is the statement being translated, at which errors point."""

    def __init__(self, module: Module, function: Native, source: list[str], tree: ast.FunctionDef) -> None:
        self.module, self.native, self.source, self.tree = module, function, source, tree
        self.node: ast.AST = tree
        self.slots: list[str] = []
        self.lines: list[str] = []
        self.locals: dict[str, Value] = {}
        self.known: dict[str, Any] = {}
        self.count = 0
        self.open = True
        """Whether the current block has no terminator yet."""

    def fail(self, message: str) -> NoReturn:
        """Raises a NativeError at the current statement."""
        line = getattr(self.node, "lineno", 1)
        location = f"{self.native.function.__code__.co_filename}:{line}"
        raise NativeError(f"{self.native.name}: {message}").at(f"{self.source[line - 1].strip()}  ({location})")

    # Lines and blocks

    def line(self, text: str) -> None:
        """Appends a line."""
        self.lines.append(f"  {text}")

    def emit(self, text: str, type: Any) -> Value:
        """Appends an instruction and returns its value."""
        self.count += 1
        self.line(f"%v{self.count} = {text}")
        return Value(f"%v{self.count}", type)

    def label(self, name: str) -> str:
        """Returns a new label name."""
        self.count += 1
        return f"{name}.{self.count}"

    def start(self, label: str) -> None:
        """Starts a block; the previous one branches to it unless it has a terminator."""
        if self.open:
            self.line(f"br label %{label}")
        self.lines.append(f"{label}:")
        self.open = True

    def jump(self, label: str) -> None:
        """Ends the block with an unconditional branch."""
        self.line(f"br label %{label}")
        self.open = False

    def branch(self, condition: Value, then: str, otherwise: str) -> None:
        """Ends the block with a conditional branch."""
        self.line(f"br i1 {condition.text}, label %{then}, label %{otherwise}")
        self.open = False

    def slot(self, type: Any) -> str:
        """Allocates a stack slot, and returns its pointer."""
        self.count += 1
        self.slots.append(f"  %s{self.count} = alloca {llvm_type(type)}")
        return f"%s{self.count}"

    def local(self, name: str, type: Any) -> None:
        """Declares a local variable."""
        self.locals[name] = Value(self.slot(type), type)

    # Operands

    def materialise(self, value: Value | Known) -> Value:
        """Returns a known value as an operand; integers are i64 unless the context gives a type."""
        if isinstance(value, Value):
            return value
        known = value.value
        if isinstance(known, bool):
            return Value(str(known).lower(), boolean)
        if isinstance(known, int):
            return Value(str(known), i64)
        if isinstance(known, Structure) and known.symbol:
            self.module.declare(known.symbol, _global(known.symbol, known.byte_size))
            return Value(f"ptrtoint (ptr @{known.symbol} to i64)", type(known))
        if isinstance(known, Table):
            words = ", ".join(f"i64 {u64(value)}" for value in known.values)
            self.module.declare(
                known.symbol, f"@{known.symbol} = internal constant [{len(known.values)} x i64] [{words}]"
            )
            return Value(f"ptrtoint (ptr @{known.symbol} to i64)", Array[u64])
        self.fail(f"{known!r} is not a value")

    def convert(self, value: Value | Known, type: Any) -> Value:
        """Returns a value as an operand of a type; only known integers are converted."""
        if isinstance(value, Known) and isinstance(value.value, int) and not isinstance(value.value, bool):
            number = type(value.value) if isinstance(type, Integer) else value.value
            return Value(str(number), type)
        value = self.materialise(value)
        if value.type != type:
            self.fail(f"expected {shown(type)}, got {shown(value.type)}: convert it, as in u64(..)")
        return value

    def read(self, slot: Value) -> Value:
        """Loads a stack slot."""
        return self.emit(f"load {llvm_type(slot.type)}, ptr {slot.text}", slot.type)

    def pointer(self, address: Value) -> str:
        """Converts an address to a pointer."""
        return self.emit(f"inttoptr i64 {address.text} to ptr", u64).text


def _global(symbol: str, size: int) -> str:
    return f"@{symbol} = global [{size} x i8] zeroinitializer, align 16"
