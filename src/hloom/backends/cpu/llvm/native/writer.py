"""The common part of translators of native functions: blocks, stack slots of locals, and operands."""

from __future__ import annotations

import ast
import inspect
import types
import typing
from typing import Any, NoReturn

from hloom.backends.cpu.llvm.native.types import Array, Integer, Structure, boolean, i64, u64
from hloom.backends.cpu.llvm.native.vocabulary import Native, Table
from hloom.errors import ArgumentError
from hloom.lir import (
    I1,
    I32,
    I64,
    PTR,
    VOID,
    Attribute,
    Declaration,
    Function,
    FunctionBuilder,
    Global,
    Need,
    Parameter,
    Symbol,
    Type,
    Value,
    Zeros,
    constant,
    type_of,
)
from hloom.lir.control import Terminator
from hloom.system.records import record

_PAUSE = {
    "x86_64": ("llvm.x86.sse2.pause", ()),
    "aarch64": ("llvm.aarch64.hint", (constant(I32, 1),)),
}
"""The instruction of a spin loop, where there is one: an intrinsic with its arguments."""


class NativeError(ArgumentError):
    """Error in a native function, with its line: the subset of Python does not allow a construct."""


@record
class Typed:
    """Operand of the IR, with an integer type or the type of a reference."""

    value: Value
    type: Any


@record
class Known:
    """Python value known at translation time."""

    value: Any


class Required:
    """The functions to translate, by name, for an architecture."""

    def __init__(self, machine: str) -> None:
        self.machine = machine
        self.functions: dict[str, Native] = {}

    def add(self, function: Native) -> None:
        """Adds a called function, which is translated after its callers."""
        if self.functions.setdefault(function.name, function) is not function:
            raise NativeError(f"two native functions are called {function.name}")


def register_type(type: Any) -> Type:
    """Returns the type of a value in a register; references are 64-bit words."""
    return VOID if type is None else type_of(f"i{type.bits}") if isinstance(type, Integer) else I64


def passed_type(type: Any) -> Type:
    """Returns the type of a value that is passed to a function or returned; references and addresses are pointers."""
    is_plain = type is None or (isinstance(type, Integer) and not type.is_address)
    return register_type(type) if is_plain else PTR


def signature(function: Native) -> tuple[dict[str, Any], Any]:
    """Returns the types of the parameters and of the result; annotations may refer to closure variables."""
    inner = function.function
    hints = typing.get_type_hints(inner, localns=dict(inspect.getclosurevars(inner).nonlocals))
    result = hints.pop("return", None)
    return hints, None if result is types.NoneType else result


def declaration(function: Native) -> Declaration:
    """Returns the declaration of a native function."""
    parameters, result = signature(function)
    return Declaration(function.name, passed_type(result), tuple(map(passed_type, parameters.values())))


def shown(type: Any) -> str:
    """Returns the name of a type for error messages."""
    if isinstance(type, Integer):
        return "a condition" if type == boolean else f"{'i' if type.signed else 'u'}{type.bits}"
    return getattr(type, "__name__", str(type))


class Writer:
    """Front end of the builder; `node` is the statement being translated, at which errors point."""

    def __init__(self, required: Required, function: Native, source: list[str], tree: ast.FunctionDef) -> None:
        self.required, self.native, self.source, self.tree = required, function, source, tree
        self.node: ast.AST = tree
        self.parameters, self.result = signature(function)
        attributes = {Attribute.NO_UNWIND} | ({Attribute.ALWAYS_INLINE} if function.inline else set())
        own = [Parameter(name, passed_type(type)) for name, type in self.parameters.items()]
        self.b = FunctionBuilder(Function(function.name, own, passed_type(self.result), frozenset(attributes)))
        self.locals: dict[str, Typed] = {}
        """The stack slots of locals."""
        self.known: dict[str, Any] = {}

    def fail(self, message: str) -> NoReturn:
        """Raises a NativeError at the current statement."""
        line = getattr(self.node, "lineno", 1)
        location = f"{self.native.function.__code__.co_filename}:{line}"
        raise NativeError(f"{self.native.name}: {message}").at(f"{self.source[line - 1].strip()}  ({location})")

    # Blocks and slots

    @property
    def is_open(self) -> bool:
        """Whether the current block has no terminator yet."""
        return not (self.b.body and isinstance(self.b.body[-1], Terminator))

    def start(self, label: str) -> None:
        """Starts a block; the previous one branches to it unless it has a terminator."""
        if self.is_open:
            self.b.branch(label)
        self.b.start(label)

    def slot(self, type: Any) -> Typed:
        """Allocates a stack slot."""
        register = register_type(type)
        return Typed(self.b.stack_array(register, 1, register.byte_size), type)

    def local(self, name: str, type: Any) -> None:
        """Declares a local variable."""
        self.locals[name] = self.slot(type)

    def write(self, slot: Typed, value: Typed) -> None:
        """Stores a value of the same type in a stack slot."""
        self.b.store(value.value, slot.value, value.value.type.byte_size)

    def read(self, slot: Typed) -> Typed:
        """Loads a stack slot."""
        register = register_type(slot.type)
        return Typed(self.b.load(slot.value, register, register.byte_size), slot.type)

    # Operands

    def materialise(self, value: Typed | Known) -> Typed:
        """Returns a known value as an operand; integers are i64 unless the context gives a type."""
        if isinstance(value, Typed):
            return value
        known = value.value
        if isinstance(known, bool):
            return Typed(constant(I1, known), boolean)
        if isinstance(known, int):
            return Typed(constant(I64, known), i64)
        if isinstance(known, Structure) and known.symbol:
            memory = Zeros(-(-known.byte_size // 8))
            return self.address(Global(known.symbol, memory, 16, is_constant=False, is_exported=True), type(known))
        if isinstance(known, Table):
            return self.address(Global(known.symbol, [constant(I64, word) for word in known.values]), Array[u64])
        self.fail(f"{known!r} is not a value")

    def address(self, need: Need, type: Any) -> Typed:
        """Returns the address of a function or a variable as a word."""
        self.b.address_of(need)
        return Typed(Symbol(need.name, I64), type)

    def convert(self, value: Typed | Known, type: Any) -> Typed:
        """Returns a value as an operand of a type; only known integers are converted."""
        if isinstance(value, Known) and isinstance(value.value, int) and not isinstance(value.value, bool):
            return Typed(constant(register_type(type), value.value), type)
        value = self.materialise(value)
        if value.type != type:
            self.fail(f"expected {shown(type)}, got {shown(value.type)}: convert it, as in u64(..)")
        return value

    def word(self, value: Typed | Known) -> Value:
        """Returns a value as an unsigned word."""
        return self.convert(value, u64).value

    def pointer(self, address: Typed) -> Value:
        """Converts an address to a pointer."""
        return self.b.convert("inttoptr", address.value, "ptr")

    def passed(self, value: Typed | Known, type: Any) -> Value:
        """Returns a value as an argument or a result of a type."""
        typed = self.convert(value, type)
        return self.pointer(typed) if passed_type(type) is PTR else typed.value

    def received(self, value: Value, type: Any) -> Typed:
        """Returns a parameter, or the result of a call, as an operand of a type."""
        return Typed(self.b.convert("ptrtoint", value, "i64") if value.type is PTR else value, type)

    def pause(self) -> Known:
        """Translates `pause`."""
        if self.required.machine in _PAUSE:
            name, arguments = _PAUSE[self.required.machine]
            self.b.call_void(name, *arguments)
        return Known(None)
