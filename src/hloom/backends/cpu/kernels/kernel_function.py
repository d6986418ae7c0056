"""The builder of a kernel's functions: stack variables, contexts of parallel tasks, and elements of arrays."""

from __future__ import annotations

from hloom.backends.cpu.elements.memory import load_lanes, store_lanes
from hloom.backends.cpu.elements.types import Element, memory_element
from hloom.backends.cpu.llvm.function import Function
from hloom.backends.cpu.llvm.text import I1, I8, I64, PTR, IndexValue, Type, Value, constant
from hloom.types import PrimitiveType


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


class KernelFunction(Function):
    """A Function with named parameters that can run tasks, functions `(ptr context, i64 chunk)`, on a thread pool."""

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

    # Tasks

    def pack(self, *words: Value) -> Value:
        """Stores words (pointers and i64) consecutively on the stack; returns their address, the context of a task."""
        context = self.slot(I64, max(1, len(words)))
        for position, word in enumerate(words):
            self.store(word, self.at(context, position, "i64"), 8)
        return context

    def unpack(self, context: Value, *types: Type) -> list[Value]:
        """Loads the words that `pack` stored, as values of the given types."""
        return [self.load(self.at(context, k, "i64"), type, 8) for k, type in enumerate(types)]

    def run_chunks(self, task: str, context: Value, chunks: IndexValue, on: tuple[Value, Value] | None) -> None:
        """Calls a task for each chunk: on the threads of `on`, a pool and its `parallel_for`, or sequentially if it is
        None.
        """
        if on is None:
            with self.each(0, chunks) as chunk:
                self.invoke(task, context, chunk)
            return
        pool, parallel_for = on
        arguments = f"{pool}, ptr @{task}, {context}, {self.index(chunks)}"
        self.line(f"call void {parallel_for.text}({arguments})")

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


def task_function(name: str) -> KernelFunction:
    """Returns an empty task, whose parameters are the context and the index of the chunk."""
    return KernelFunction(name, context=PTR, chunk=I64)
