"""Straight parts of a program as tables of calls (`runtime/call_table.py`): LLVM takes no time for data."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hloom.backends.cpu.codegen.modules import is_call_only
from hloom.backends.cpu.kernels.code import KernelCode
from hloom.backends.cpu.llvm.function import call_only_attribute
from hloom.backends.cpu.llvm.text import I64, PTR, Builder, Value, constant
from hloom.backends.cpu.program.interface import TABLE

MIN_CALLS = 4
"""Fewer calls are written as code."""
COPY = "copy.call"
THREADS = ("pool", "parallel_for")
"""What kernels take after their buffers, by its name in the program's table."""

TableAddress = tuple[int, int]
"""A place of the program's table, and the bytes from the pointer there."""


@dataclass(frozen=True, slots=True)
class TableCall:
    """A call of `void @function(ptr frame, i64)`: for chunks on the threads, or once with an argument."""

    function: str
    pointers: Sequence[TableAddress]
    chunks: int = 0
    argument: int = 0

    def words(self) -> str:
        pointers = (f"i64 {number}" for address in self.pointers for number in address)
        head = f"i64 ptrtoint (ptr @{self.function} to i64), i64 {self.chunks}, i64 {self.argument}"
        return ", ".join([head, f"i64 {len(self.pointers)}", *pointers])


def table_of(name: str, calls: Iterable[TableCall]) -> str:
    """The constant that holds calls, one in each line."""
    rows = [call.words() for call in calls]
    count = sum(row.count(",") + 1 for row in rows)
    body = ",\n  ".join(rows)
    return f"@{name} = internal constant [{count} x i64] [\n  {body}\n], align 8"


def kernel_call(code: KernelCode) -> str:
    """`void @entry.call(ptr frame, i64)`: a kernel with its arguments from a frame."""
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
    """What the frame of a kernel holds after its buffers: the threads."""
    return [*pointers, *((TABLE.index(name), 0) for name in THREADS)]


def copy_call() -> str:
    """`void @copy.call(ptr frame, i64 bytes)`: copies what the second pointer points to where the first one does."""
    b = Builder()
    target, source = from_frame(b, 0), from_frame(b, 1)
    b.line(f"call void @llvm.memcpy.p0.p0.i64({target}, {source}, i64 %argument, i1 false)")
    return _function(f"define internal void @{COPY}", b, only_calls=True)


def _function(head: str, b: Builder, only_calls: bool) -> str:
    b.line("ret void")
    mark = call_only_attribute(only_calls)
    return "\n".join([f"{head}(ptr %frame, i64 %argument) nounwind #0{mark} {{", "entry:", *b.lines, "}"])


def from_frame(b: Builder, position: int, frame: str = "frame") -> Value:
    """A pointer that was handed over in a frame, which the function's parameter `frame` is."""
    return b.load(b.element_pointer(Value(f"%{frame}", PTR), constant(I64, position), "ptr"), PTR, 8)
