"""What a program and its callers agree on: its table of pointers, its questions to the host, the clock it reads."""

from __future__ import annotations

from collections.abc import Iterator

from hloom.backends.cpu.program.program import Buffer, HostStep, Program, Slot, leaves
from hloom.runtime.machine import architecture

REQUEST_WORD = 6
"""The word of the host's memory that changes with each call of the host.

The host is given an odd number made of it, and returns that where all went well. ctypes returns what an earlier call
left where an exception, such as that of Ctrl-C, comes before the first line of a function that is called back.
"""
REQUEST_MASK = 0x7FFFFFFF
TABLE = ("arena", "pool", "parallel_for", "run_calls", "host_call", "host_data", "poll")
CLOCK = {"x86_64": "llvm.readcyclecounter", "aarch64": "llvm.readsteadycounter"}[architecture()]
POLL_CYCLES = 1 << 25 if CLOCK.endswith("cyclecounter") else 1 << 18
"""Some 10 ms of the clock: the time-stamp counter of x86, elsewhere a timer of some 20 MHz and more."""
IN_LOOP, IN_BLOCK, BEFORE_BLOCK, AFTER_BLOCKS = range(4)
"""Where the program asks whether it may go on."""


def table_starts(program: Program) -> dict[str, int]:
    """From where on the table holds the pointers of the parameters, outputs and constants."""
    outputs = len(TABLE) + len(program.of_kind("parameter"))
    return {"parameter": len(TABLE), "output": outputs, "constant": outputs + len(program.of_kind("output"))}


def host_buffers(step: HostStep) -> Iterator[Buffer]:
    """The arrays that a host step reads, then those it writes."""
    for tree in (*step.operands, step.result):
        for leaf in leaves(tree):
            if not isinstance(leaf, Slot):
                yield leaf
