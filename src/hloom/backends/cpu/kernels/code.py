"""What a kernel writer hands over: functions in LLVM IR, and what they need."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KernelCode:
    """The functions of one kernel, all `internal`, their names prefixed with the kernel's.

    The entry is `void @entry(ptr operand0, .., ptr result0, .., ptr scratch, ptr pool, ptr parallel_for)`: one pointer
    for each array among the instruction's operands and results, row-major; a workspace of `scratch_bytes`, aligned to
    64 bytes; and how to run chunks on the threads: `void parallel_for(ptr pool, ptr function, ptr context, i64 chunks)`
    calls `void function(ptr context, i64 chunk)` for each chunk.
    """

    text: str
    declarations: dict[str, None]
    scratch_bytes: int
    entry: str
