"""Floating-point state of the processor: programs run in that of IEEE 754, whatever the caller's is.

Flush-to-zero, rounding modes and traps are set for a thread by its owner. A program that finds a state other than
IEEE's calls itself in the default state and restores the caller's afterwards. Threads that it starts inherit its state.
RISC-V cannot flush to zero.
"""

from __future__ import annotations

from hloom.backends.cpu.llvm.processor import processor
from hloom.lir import I32, I64, Builder, Value, constant

_MXCSR, _OCCURRED = 8064, 63
"""MXCSR with all exceptions masked; the six lowest bits only say which have occurred. FPCR is all zeros."""


def ensure_ieee_state(b: Builder) -> None:
    """Starts a function `i32 (ptr table)`, which calls itself in the default state if it finds another one."""
    if processor().architecture == "x86_64":
        state = b.stack_array(I32, 2, 4)
        default = b.element_pointer(state, constant(I64, 1), "i32")
        b.call_void("llvm.x86.sse.stmxcsr", state)
        mode = b.binary("and", b.load(state, I32, 4), constant(I32, ~_OCCURRED))
        with b.when(b.compare("ne", mode, constant(I32, _MXCSR))):
            b.store(constant(I32, _MXCSR), default, 4)
            _call_itself(b, "llvm.x86.sse.ldmxcsr", default, state)
    elif processor().architecture == "aarch64":
        found = b.call("llvm.aarch64.get.fpcr", I64)
        with b.when(b.compare("ne", found, constant(I64, 0))):
            _call_itself(b, "llvm.aarch64.set.fpcr", constant(I64, 0), found)


def _call_itself(b: Builder, set_state: str, default: Value, found: Value) -> None:
    b.call_void(set_state, default)
    status = b.call(b.function.name, I32, *b.function.parameters)
    b.call_void(set_state, found)
    b.ret(status)
