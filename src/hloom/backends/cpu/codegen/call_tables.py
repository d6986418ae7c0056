"""Encodes straight-line parts of a program as tables of calls, interpreted by `runtime/call_table.py`.

Tables are data, on which LLVM spends no time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hloom.backends.cpu.codegen.modules import is_call_only
from hloom.backends.cpu.kernels.code import KernelCode
from hloom.backends.cpu.llvm.function import call_only_attribute
from hloom.backends.cpu.llvm.text import I64, PTR, Builder, Value, constant
from hloom.backends.cpu.program.interface import TABLE

MIN_CALLS = 4
"""Minimum number of calls for a table; fewer calls are written as code."""
COPY = "copy.call"
THREADS = ("pool", "parallel_for")
"""Names of the table entries that kernels take after their buffers."""

TableAddress = tuple[int, int]
"""Index of a pointer in the program's table, and an offset from it in bytes."""


@dataclass(frozen=True, slots=True)
class TableCall:
    """Call of `void @function(ptr frame, i64)`: once with `argument`, or for each of `chunks` on the threads."""

    function: str
    pointers: Sequence[TableAddress]
    chunks: int = 0
    argument: int = 0

    def words(self) -> str:
        """Returns the words of the call as operands of an LLVM constant."""
        pointers = (f"i64 {number}" for address in self.pointers for number in address)
        head = f"i64 ptrtoint (ptr @{self.function} to i64), i64 {self.chunks}, i64 {self.argument}"
        return ", ".join([head, f"i64 {len(self.pointers)}", *pointers])


def table_of(name: str, calls: Iterable[TableCall]) -> str:
    """Returns the definition of a constant that holds calls, one on each line."""
    rows = [call.words() for call in calls]
    count = sum(row.count(",") + 1 for row in rows)
    body = ",\n  ".join(rows)
    return f"@{name} = internal constant [{count} x i64] [\n  {body}\n], align 8"


def kernel_call(code: KernelCode) -> str:
    """Returns `void @entry.call(ptr frame, i64)`, which calls a kernel with arguments from a frame."""
    b = Builder()
    parameters = code.text.partition(f"define internal void @{code.entry}(")[2].partition(")")[0].count(",") + 1
    pointers = iter(range(parameters))
    arguments = [
        Value("null", PTR) if k == parameters - 3 and not code.scratch_bytes else from_frame(b, next(pointers))
        for k in range(parameters)
    ]
    b.line(f"call void @{code.entry}({', '.join(map(str, arguments))}) #1")
    entry = code.text.partition(f" @{code.entry}(")[2]
    return _function(f"define void @{code.entry}.call", b, is_call_only(entry))


def kernel_arguments(pointers: Iterable[TableAddress]) -> list[TableAddress]:
    """Returns the addresses of a kernel's buffers, followed by those of the thread pool."""
    return [*pointers, *((TABLE.index(name), 0) for name in THREADS)]


def copy_call() -> str:
    """Returns `void @copy.call(ptr frame, i64 bytes)`, which copies from the frame's second pointer to the first."""
    b = Builder()
    target, source = from_frame(b, 0), from_frame(b, 1)
    b.line(f"call void @llvm.memcpy.p0.p0.i64({target}, {source}, i64 %argument, i1 false)")
    return _function(f"define internal void @{COPY}", b, only_calls=True)


def _function(head: str, b: Builder, only_calls: bool) -> str:
    b.line("ret void")
    mark = call_only_attribute(only_calls)
    return "\n".join([f"{head}(ptr %frame, i64 %argument) nounwind #0{mark} {{", "entry:", *b.lines, "}"])


def from_frame(b: Builder, position: int, frame: str = "frame") -> Value:
    """Loads a pointer from a frame; `frame` names the function's parameter."""
    return b.load(b.element_pointer(Value(f"%{frame}", PTR), constant(I64, position), "ptr"), PTR, 8)
