"""Encodes straight-line parts of a program as tables of calls, interpreted by `runtime/call_table.py`.

Tables are data, on which LLVM spends no time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hloom.backends.cpu.kernels.code import KernelCode
from hloom.backends.cpu.kernels.kernel_function import task_function
from hloom.backends.cpu.program.interface import TABLE
from hloom.lir import (
    I64,
    PTR,
    VOID,
    Attribute,
    CallAttribute,
    Declaration,
    Function,
    Global,
    Symbol,
    Value,
    constant,
)
from hloom.system.records import record

MIN_CALLS = 4
"""Minimum number of calls for a table; fewer calls are written as code."""
COPY = "copy.call"
THREADS = ("pool", "parallel_for")
"""Names of the table entries that kernels take after their buffers."""

TableAddress = tuple[int, int]
"""Index of a pointer in the program's table, and an offset from it in bytes."""


@record(slots=True)
class TableCall:
    """Call of a task, `void @function(ptr context, i64 chunk)`: once with `argument`, or once for
    each of `chunks` on the threads."""

    function: str
    pointers: Sequence[TableAddress]
    chunks: int = 0
    argument: int = 0

    def words(self) -> list[Value]:
        """Returns the words of the call."""
        pointers = [word for address in self.pointers for word in address]
        head = self.chunks, self.argument, len(self.pointers)
        return [Symbol(self.function, I64), *(constant(I64, word) for word in (*head, *pointers))]


def table_of(name: str, calls: Sequence[TableCall]) -> Global:
    """Returns a constant that holds calls."""
    needs = {call.function: Declaration(call.function, VOID, (PTR, I64)) for call in calls}
    return Global(name, [word for call in calls for word in call.words()], needs=needs)


def kernel_call(code: KernelCode) -> Function:
    """Returns the task `@entry.call`, which calls a kernel with arguments from its context."""
    (entry,) = (function for function in code.functions if function.name == code.entry)
    b = task_function(f"{code.entry}.call")
    b.function.is_exported = True
    b.function.attributes |= entry.attributes & {Attribute.CALL_ONLY}
    count = len(entry.parameters)
    arguments = b.unpack(b.function.parameters[0], *[PTR] * (count if code.scratch_bytes else count - 1))
    if not code.scratch_bytes:
        arguments.insert(count - 3, constant(PTR, 0))
    b.call_void(code.entry, *arguments, attribute=CallAttribute.ALWAYS_INLINE)
    return b.finish()


def kernel_arguments(pointers: Iterable[TableAddress]) -> list[TableAddress]:
    """Returns the addresses of a kernel's buffers, followed by those of the thread pool."""
    return [*pointers, *((TABLE.index(name), 0) for name in THREADS)]


def copy_call() -> Function:
    """Returns `void @copy.call(ptr context, i64 bytes)`, which copies from the second captured pointer to the first."""
    b = task_function(COPY).as_call_only()
    context, size = b.function.parameters
    target, source = b.unpack(context, PTR, PTR)
    b.copy(target, source, size)
    return b.finish()
