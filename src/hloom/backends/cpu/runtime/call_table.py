"""Interprets call tables: straight-line parts of a program that are data rather than code.

A call is `WORDS` words and two for each pointer: a function `void (ptr frame, i64 argument)`, `chunks` (the number of
calls on the threads, each with its index; 0 for a single call with `argument`), `argument`, and the number of pointers
in its frame. A pointer is an index in the program's table and an offset in bytes from the pointer there.
"""

from __future__ import annotations

from collections.abc import Callable

from hloom.backends.cpu.llvm.native.types import Address, Array, i64, u64
from hloom.backends.cpu.llvm.native.vocabulary import address_of, native, to
from hloom.backends.cpu.program.interface import TABLE

WORDS = 4
POOL, PARALLEL_FOR = TABLE.index("pool"), TABLE.index("parallel_for")

Task = Callable[[Address, i64], None]
Fork = Callable[[Address, Address, Address, i64], None]


@native()
def run_calls(table: Array[u64], frame: Array[u64], calls: Array[u64], count: i64) -> None:
    """Runs `count` calls; `frame` is memory for the pointers of one."""
    fork = to(Fork, table[PARALLEL_FOR])
    at = 0
    for _ in range(count):
        function, chunks, argument, pointers = calls[at], i64(calls[at + 1]), i64(calls[at + 2]), calls[at + 3]
        at += WORDS
        for k in range(pointers):
            frame[k] = table[calls[at]] + calls[at + 1]
            at += 2
        if chunks != 0:
            fork(table[POOL], function, address_of(frame), chunks)
        else:
            task = to(Task, function)
            task(address_of(frame), argument)
