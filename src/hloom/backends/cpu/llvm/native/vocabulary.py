"""Vocabulary of native Python without syntax of its own: addresses, memory, C functions, static structures.

All of it works in the Python interpreter too, on real memory, so the logic of a native function can be tested without
compiling it.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import typing
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from hloom.backends.cpu.llvm.native.types import Address, Array, Integer, Structure, read, reference, u64, write
from hloom.errors import ArgumentError
from hloom.system.records import record

null = 0


# Orderings of atomic accesses, by LLVM's names

MONOTONIC, ACQUIRE, RELEASE, ACQ_REL, SEQ_CST = "monotonic", "acquire", "release", "acq_rel", "seq_cst"

S = TypeVar("S", bound=Structure)
F = TypeVar("F", bound=Callable[..., Any])


def address_of(value: Any) -> int:
    """Returns the address that a reference or an atomic refers to."""
    if isinstance(value, Native):
        raise ArgumentError(f"{value.name} has an address in compiled code only")
    return int(value.address)


@typing.overload
def to(type: type[S], address: Address) -> S:
    """Returns a reference to the structure, or the function, at an address."""


@typing.overload
def to(type: Any, address: Address) -> Any: ...
def to(type: Any, address: Address) -> Any:
    """A reference to the structure, or the function, at an address."""
    return reference(type, address)


def elements(type: Any, address: Address) -> Array[Any]:
    """Returns a reference to the array at an address."""
    return Array(address, type)


def load(type: Any, address: Address) -> Any:
    """Returns the value of a type at an address."""
    return read(type, address)


def store(type: Any, address: Address, value: Any) -> None:
    """Writes a value of a type to an address."""
    write(type, address, value)


def stack(words: u64) -> Array[u64]:
    """Allocates memory for 64-bit words, which is freed when the function returns."""
    memory = (ctypes.c_uint64 * words)()
    _stack.append(memory)
    return Array(ctypes.addressof(memory), u64)


_stack: list[Any] = []


@contextlib.contextmanager
def python_stack() -> Iterator[None]:
    """Context manager in which native functions that allocate stack memory may run in the interpreter."""
    count = len(_stack)
    yield
    del _stack[count:]


def copy_memory(target: Address, source: Address, size: u64) -> None:
    """Copies `size` bytes between disjoint memory."""
    ctypes.memmove(target, source, size)


def pause() -> None:
    """Tells the processor that a thread is in a spin loop."""


def leading_zeros(word: u64) -> u64:
    """Returns the number of zeros above the highest bit of a nonzero word."""
    return 64 - word.bit_length()


@record
class External:
    """Function of the C library, or of another library of the process."""

    name: str
    result: Any
    arguments: tuple[Any, ...]

    def __call__(self, *arguments: Any) -> Any:
        return _resolved(self)(*arguments)


@functools.cache
def _resolved(external: External) -> Any:
    """Returns the function by ctypes; cached, since a forked child must not call the dynamic loader."""
    result = None if external.result is None else _c_type(external.result)
    prototype = ctypes.CFUNCTYPE(result, *map(_c_type, external.arguments))
    return prototype((external.name, ctypes.CDLL(None)))


def external(name: str, result: Any, *arguments: Any) -> External:
    """Declares a C function with integer types for its result and arguments; `Address` stands for pointers."""
    return External(name, result, arguments)


def _c_type(type: Integer) -> Any:
    return getattr(ctypes, f"c_{'' if type.signed else 'u'}int{max(type.bits, 8)}")


def static(type: type[S], symbol: str) -> S:
    """Declares a zero-initialised structure that is part of native code; in the interpreter it has memory
    of its own."""
    memory = ctypes.create_string_buffer(type.byte_size)
    structure = type(ctypes.addressof(memory))
    structure.symbol, structure.__dict__["memory"] = symbol, memory
    return structure


class Table(Array[Any]):
    """Constant 64-bit words that are part of native code."""

    def __init__(self, symbol: str, values: Iterable[int]) -> None:
        self.symbol, self.values = symbol, tuple(values)
        self._memory = (ctypes.c_uint64 * max(len(self.values), 1))(*self.values)
        super().__init__(ctypes.addressof(self._memory), u64)


class Native:
    """Function of native Python; in the interpreter it is called like any other."""

    def __init__(self, function: Callable[..., Any], name: str, inline: bool) -> None:
        self.function, self.name, self.inline = function, name or function.__name__, inline

    def __call__(self, *arguments: Any) -> Any:
        return self.function(*arguments)


def native(*, name: str = "", inline: bool = False) -> Callable[[F], F]:
    """Declares a function of native Python; `inline` inlines it into all callers."""

    def declare(function: F) -> F:
        return typing.cast(F, Native(function, name, inline))

    return declare
