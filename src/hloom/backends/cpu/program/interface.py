"""The interface between compiled programs and their callers: pointer table, host requests, clock."""

from __future__ import annotations

from hloom.backends.cpu.program.program import Program
from hloom.system.machine import architecture

REQUEST_WORD = 6
"""Index of the 64-bit word of the host's memory that identifies host calls.

Each call increments it by 2 and passes its low 31 bits, an odd number, which the host returns on success. Any other
result is a failure: if an exception such as KeyboardInterrupt comes before the first line of a callback, ctypes returns
the result of an earlier call.
"""
REQUEST_MASK = 0x7FFFFFFF
TABLE = ("arena", "pool", "parallel_for", "run_calls", "host_call", "host_data", "poll")
"""Names of the first pointers in a program's table; pointers of parameters, outputs and constants follow."""
POLL_CYCLES = {"x86_64": 1 << 25, "aarch64": 1 << 18}[architecture()]
"""Clock cycles between two polls of the host, about 10 ms.

x86 has a time-stamp counter in the GHz range; AArch64 a timer of about 20 MHz or more.
"""
IN_LOOP, IN_BLOCK, BEFORE_BLOCK, AFTER_BLOCKS = range(4)
"""Points from which a program polls the host: a loop, a task of a loop, before a task, after all tasks."""


def loop_site(loop_index: int) -> int:
    """Returns the site of polls of a loop; host steps have non-negative sites."""
    return -1 - loop_index


def loop_of_site(site: int) -> int | None:
    """Returns the index of the loop that polls at a site; None for sites of host steps."""
    return -1 - site if site < 0 else None


def table_starts(program: Program) -> dict[str, int]:
    """Returns the index in the table of the first parameter, output and constant pointer."""
    outputs = len(TABLE) + len(program.of_kind("parameter"))
    return {"parameter": len(TABLE), "output": outputs, "constant": outputs + len(program.of_kind("output"))}
