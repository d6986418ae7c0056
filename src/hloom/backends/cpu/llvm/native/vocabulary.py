"""What native Python has no syntax for: addresses, memory, functions of C, and what native code itself holds.

All of it works under Python too, on real memory: the logic of a native function can be tested without a compiler.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import typing
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from hloom.backends.cpu.llvm.native.types import Address, Array, Integer, Structure, read, reference, u64, write
from hloom.errors import ArgumentError

null = 0


# Orderings of atomic accesses, in LLVM's words

MONOTONIC, ACQUIRE, RELEASE, ACQ_REL, SEQ_CST = "monotonic", "acquire", "release", "acq_rel", "seq_cst"

S = TypeVar("S", bound=Structure)
F = TypeVar("F", bound=Callable[..., Any])


def address_of(thing: Any) -> int:
    """The address behind a reference, or of an atomic."""
    if isinstance(thing, Native):
        raise ArgumentError(f"{thing.name} has an address in compiled code only")
    return int(thing.address)


@typing.overload
def to(type: type[S], address: Address) -> S: ...
@typing.overload
def to(type: Any, address: Address) -> Any: ...
def to(type: Any, address: Address) -> Any:
    """A reference to the structure, or the function, at an address."""
    return reference(type, address)


def elements(type: Any, address: Address) -> Array[Any]:
    """A reference to the elements at an address."""
    return Array(address, type)


def load(type: Any, address: Address) -> Any:
    """The value of a type at an address."""
    return read(type, address)


def store(type: Any, address: Address, value: Any) -> None:
    """Writes a value of a type to an address."""
    write(type, address, value)


def stack(words: u64) -> Array[u64]:
    """Memory for so many words that is gone when the function returns."""
    memory = (ctypes.c_uint64 * words)()
    _stack.append(memory)
    return Array(ctypes.addressof(memory), u64)


_stack: list[Any] = []


@contextlib.contextmanager
def python_stack() -> Iterator[None]:
    """Native functions that take memory from the stack run under Python inside of this."""
    count = len(_stack)
    yield
    del _stack[count:]


def copy_memory(target: Address, source: Address, size: u64) -> None:
    ctypes.memmove(target, source, size)


def pause() -> None:
    """Tells the processor that a thread is waiting."""


def leading_zeros(word: u64) -> u64:
    """The zeros above the highest bit of a word that is not 0."""
    return 64 - word.bit_length()


@dataclass(frozen=True)
class External:
    """A function of the C library, or of another library of the process."""

    name: str
    result: Any
    arguments: tuple[Any, ...]

    def __call__(self, *arguments: Any) -> Any:
        return _resolved(self)(*arguments)


@functools.cache
def _resolved(external: External) -> Any:
    """The function by ctypes; looked up once, since a forked child may not ask the loader."""
    result = None if external.result is None else _c_type(external.result)
    prototype = ctypes.CFUNCTYPE(result, *map(_c_type, external.arguments))
    return prototype((external.name, ctypes.CDLL(None)))


def external(name: str, result: Any, *arguments: Any) -> External:
    """A function of C that takes and gives integers of these types; `Address` for pointers."""
    return External(name, result, arguments)


def _c_type(type: Integer) -> Any:
    return getattr(ctypes, f"c_{'' if type.signed else 'u'}int{max(type.bits, 8)}")


def static(type: type[S], symbol: str) -> S:
    """A structure of zeros that native code holds, under a name; functions run under Python have one of their own."""
    memory = ctypes.create_string_buffer(type.byte_size)
    structure = type(ctypes.addressof(memory))
    structure.symbol, structure.__dict__["memory"] = symbol, memory
    return structure


class Table(Array[Any]):
    """Words that native code holds and does not change."""

    def __init__(self, symbol: str, values: Iterable[int]) -> None:
        self.symbol, self.values = symbol, tuple(values)
        self._memory = (ctypes.c_uint64 * max(len(self.values), 1))(*self.values)
        super().__init__(ctypes.addressof(self._memory), u64)


class Native:
    """A function that native code is made of; under Python it is called as any other."""

    def __init__(self, function: Callable[..., Any], name: str, inline: bool) -> None:
        self.function, self.name, self.inline = function, name or function.__name__, inline

    def __call__(self, *arguments: Any) -> Any:
        return self.function(*arguments)


def native(*, name: str = "", inline: bool = False) -> Callable[[F], F]:
    """Declares a function of native Python; `inline` writes it out wherever it is called."""

    def declare(function: F) -> F:
        return typing.cast(F, Native(function, name, inline))

    return declare
