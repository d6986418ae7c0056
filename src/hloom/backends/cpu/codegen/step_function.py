"""A function that steps are emitted into: pointers of the program's table, and stack memory."""

from __future__ import annotations

from collections.abc import Sequence

from hloom.backends.cpu.codegen.timer_functions import read_clock
from hloom.backends.cpu.program.interface import TABLE
from hloom.backends.cpu.program.program import Buffer
from hloom.lir import I8, I32, I64, PTR, FunctionBuilder, Value, constant
from hloom.lir.instructions import Alloca


class StepFunction:
    """A function under construction: what it loaded and allocated at its start."""

    def __init__(self, builder: FunctionBuilder) -> None:
        self.builder = builder
        self.values: dict[str, Value] = {}
        """Pointers by name: `table`, and the entries of `TABLE` that were loaded."""
        self.stack: dict[Buffer, Value] = {}
        """Stack memory of temporaries."""
        self.pointers: dict[Buffer, Value] = {}
        """Addresses of parameters, outputs and constants that were loaded."""
        self._memory: dict[str, Alloca] = {}
        self._polled: tuple[Value, Value] | None = None

    def value(self, name: str) -> Value:
        """Returns a pointer of the program's table by its name."""
        if name not in self.values:
            self.values[name] = self.table_entry(TABLE.index(name))
        return self.values[name]

    def table_entry(self, position: int) -> Value:
        """Loads a pointer from the table at the start of the function."""
        with self.builder.prologue() as b:
            return b.load(b.element_pointer(self.values["table"], constant(I64, position), "i64"), PTR, 8)

    def stack_memory(self, size: int) -> Value:
        """Allocates `size` bytes in the stack frame of the current function."""
        return self.builder.stack_array(I8, max(size, 1))

    def frame(self, words: Sequence[Value]) -> Value:
        """Stores words for a call in memory of the current function; returns its address."""
        return self.builder.pack(*words, context=self.memory_of_calls("frame", len(words)))

    def memory_of_calls(self, name: str, words: int) -> Value:
        """Returns stack memory that calls share, which grows as needed: "frame" for the words of one, "callee" for the
        table of a subroutine.
        """
        if name not in self._memory:
            memory = self.builder.stack_array(I64, 1, 16)
            assert isinstance(memory, Alloca)
            self._memory[name] = memory
        self._memory[name].count = max(self._memory[name].count, words)
        return self._memory[name]

    def poll_memory(self) -> tuple[Value, Value]:
        """Returns stack memory for polls: a counter of iterations, and the clock at the last poll."""
        if self._polled is not None:
            return self._polled
        counter, last = (self.builder.stack_array(type, 1, type.byte_size) for type in (I32, I64))
        with self.builder.prologue() as b:
            b.store(constant(I32, 0), counter, 4)
            b.store(read_clock(b), last, 8)
        self._polled = counter, last
        return self._polled

    def subroutine_table(self, buffers: int) -> Value:
        """Returns the table for a subroutine with `buffers` pointers, with the entries that all subroutines share."""
        if "callee" not in self._memory:
            shared = [self.value(name) for name in TABLE[1:]]
            table = self.memory_of_calls("callee", len(TABLE))
            with self.builder.prologue() as b:
                b.pack(*shared, context=b.at(table, 1, "i64"))
        return self.memory_of_calls("callee", len(TABLE) + buffers)
