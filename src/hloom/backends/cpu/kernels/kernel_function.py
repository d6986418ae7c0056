"""The builder of a kernel's functions: stack variables, contexts of parallel tasks, and elements of arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Self

from hloom.backends.cpu.elements.memory import load_lanes, store_lanes
from hloom.backends.cpu.elements.shared import shared
from hloom.backends.cpu.elements.types import Element, load_element, memory_element, resized, rounded, store_element
from hloom.backends.cpu.llvm.processor import processor
from hloom.lir import (
    I1,
    I8,
    I64,
    PTR,
    VOID,
    Attribute,
    Declaration,
    Function,
    FunctionBuilder,
    IndexValue,
    Parameter,
    Type,
    Value,
    constant,
    type_of,
)
from hloom.types import PrimitiveType

PARALLEL_FOR = Declaration("parallel_for", VOID, (PTR, PTR, PTR, I64))
"""Runs a task for each chunk on the threads of a pool, or serially: `parallel_for(pool, task, context, chunks)`."""


def size_of(element: str) -> int:
    """Returns the size of an LLVM scalar type in bytes."""
    return type_of(element).bits // 8


class StackVariable:
    """A stack slot for a value that loops update; LLVM promotes it to registers."""

    __slots__ = ("f", "pointer", "type")

    def __init__(self, f: KernelFunction, type: Type, pointer: Value) -> None:
        self.f, self.type, self.pointer = f, type, pointer

    def get(self) -> Value:
        """Loads the current value."""
        return self.f.load(self.pointer, self.type, 1)

    def set(self, value: Value) -> None:
        """Stores a new value."""
        self.f.store(value, self.pointer, 1)


class KernelFunction(FunctionBuilder):
    """The builder of a function without a result, which can run tasks, functions `(ptr context, i64 chunk)`, on a
    thread pool.
    """

    def __init__(self, name: str, **parameters: Type) -> None:
        own = [Parameter(key, type) for key, type in parameters.items()]
        super().__init__(Function(name, own), processor().vector_bytes)
        self.parameters: list[Value] = [*own]

    def as_call_only(self) -> Self:
        """Marks the function call-only, and returns it."""
        self.function.attributes |= {Attribute.CALL_ONLY}
        return self

    def __getitem__(self, parameter: str) -> Value:
        for value in self.parameters:
            if value.text == f"%{parameter}":
                return value
        raise KeyError(parameter)

    def variable(self, initial: Value) -> StackVariable:
        """Returns a stack variable with an initial value."""
        variable = StackVariable(self, initial.type, self.slot(initial.type, 1, align=1))
        variable.set(initial)
        return variable

    @property
    def threads(self) -> tuple[Value, Value]:
        """The thread pool of an entry, with the function that runs tasks on it."""
        return self["pool"], self["parallel_for"]

    def threads_if(self, is_parallel: bool) -> tuple[Value, Value] | None:
        """Returns the thread pool of an entry; None to run tasks serially."""
        return self.threads if is_parallel else None

    # Memory

    def fill(self, target: Value, byte: int, size: IndexValue) -> None:
        """Sets `size` bytes from `target` on to a value."""
        self.call_void("llvm.memset.p0.i64", target, constant(I8, byte), self.index(size), constant(I1, False))

    def element_at(self, base: Value, index: IndexValue, type: PrimitiveType) -> Value:
        """Returns the address of an element of an array."""
        parts = 2 if type.is_complex else 1
        return self.at(base, self.multiply(index, parts), memory_element(type))

    def load_lanes(self, address: Value, type: PrimitiveType, lanes: int = 0, mask: Value | None = None) -> Element:
        """Loads one element, or a vector of `lanes` consecutive elements; lanes outside the mask are zero."""
        return load_lanes(self, address, type, lanes, mask)

    def store_lanes(self, value: Element, address: Value, type: PrimitiveType, mask: Value | None = None) -> None:
        """Stores an element or a vector of consecutive elements; with a mask, only its lanes."""
        store_lanes(self, value, address, type, mask)

    def load_as(self, pointer: Value, source: PrimitiveType, type: Type, mask: Value | None = None) -> Value:
        """Loads elements of type `source`, converted to `type`; inactive lanes are not read, and zero."""
        memory = type.of(memory_element(source))
        return self.widen(self.load_masked(pointer, memory, source.byte_width, mask), source, type)

    def widen(self, raw: Value, source: PrimitiveType, type: Type) -> Value:
        """Converts elements of type `source`, as loaded, to a type at least as wide, to floats, or modulo 2^n."""
        if source.is_float:
            raw = load_element(self, raw, source)
        if raw.type is type:
            return raw
        if type.is_float:
            conversion = "fpext" if source.is_float else "sitofp" if source.is_signed else "uitofp"
            return self.convert(conversion, raw, type.element)
        return resized(self, raw, type.element, source.is_signed)

    def narrow(self, value: Value, target: PrimitiveType) -> Value:
        """Converts a value to type `target` as stored in memory, rounding to nearest even; floats that are integers to
        a signed type.
        """
        element = memory_element(target)
        if element == value.type.element:
            return value
        if value.type.is_float and target.is_integer:
            return self.convert("fptosi", value, element)
        if value.type.is_float and not type_of(element).is_float:
            return store_element(self, rounded(self, value, target), target)
        return self.convert("fptrunc" if value.type.is_float else "trunc", value, element)

    def store_as(self, value: Value, pointer: Value, target: PrimitiveType, mask: Value | None = None) -> None:
        """Stores a value as an element of type `target`, under an optional mask."""
        raw = self.narrow(value, target)
        self.store_masked(raw, pointer, size_of(raw.type.element), mask)

    def store_first(self, value: Value, pointer: Value, target: PrimitiveType, left: IndexValue) -> None:
        """Stores the lanes below `left` as elements of type `target`; unmasked, which is faster, if these are all."""
        width = value.type.width
        if isinstance(left, int) or self.divides_masks:
            mask = None if isinstance(left, int) and left >= width else self.first_lanes(left, width)
            self.store_as(value, pointer, target, mask)
            return
        is_whole = self.compare("uge", left, self.index(width))
        with self.when(is_whole):
            self.store_as(value, pointer, target)
        with self.unless(is_whole):
            self.store_as(value, pointer, target, self.first_lanes(left, width))

    def multiply_add(self, a: Value, b: Value, c: Value) -> Value:
        """Returns a * b + c: by `fmuladd` for floats, modulo 2^n for integers."""
        return self.fmuladd(a, b, c) if a.type.is_float else self.binary("add", self.binary("mul", a, b), c)


def shared_function(
    name: str, write: Callable[[KernelFunction], None], calls: Sequence[Function] = (), /, **parameters: Type
) -> Function:
    """Returns the shared function of a name with parameters, whose body `write` emits; it calls only shared `calls`."""

    def written() -> KernelFunction:
        f = KernelFunction(name, **parameters)
        write(f)
        return f

    return shared(KernelFunction(name, **parameters).function, written, calls)


def copied_function(name: str, write: Callable[[KernelFunction], None], **parameters: Type) -> Function:
    """Returns a function of which each module that calls it has a copy."""
    f = KernelFunction(name, **parameters)
    write(f)
    return f.finish()


def task_function(name: str) -> KernelFunction:
    """Returns an empty task, whose parameters are the context and the index of the chunk."""
    return KernelFunction(name, context=PTR, chunk=I64)
