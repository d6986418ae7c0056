"""Floating-point state of the processor: programs run in that of IEEE 754, whatever the caller's is.

Flush-to-zero, rounding modes and traps are set for a thread by its owner. A program that finds a state other than
IEEE's calls itself in the default state and restores the caller's afterwards. Threads that it starts inherit its state.
"""

from __future__ import annotations

from hloom.runtime.machine import architecture

_DECLARATIONS = {
    "x86_64": ["declare void @llvm.x86.sse.stmxcsr(ptr)", "declare void @llvm.x86.sse.ldmxcsr(ptr)"],
    "aarch64": ["declare i64 @llvm.aarch64.get.fpcr()", "declare void @llvm.aarch64.set.fpcr(i64)"],
}
# MXCSR: all exceptions masked; the six lowest bits only say which have occurred. FPCR: all zeros.
_HEAD = {
    "x86_64": """  %state = alloca [2 x i32]
  call void @llvm.x86.sse.stmxcsr(ptr %state)
  %word = load i32, ptr %state
  %mode = and i32 %word, -64
  %is_ieee = icmp eq i32 %mode, 8064
  br i1 %is_ieee, label %run, label %otherwise
otherwise:
  %default = getelementptr i32, ptr %state, i64 1
  store i32 8064, ptr %default
  call void @llvm.x86.sse.ldmxcsr(ptr %default)
  %status = call i32 @NAME(ptr %table)
  call void @llvm.x86.sse.ldmxcsr(ptr %state)
  ret i32 %status
run:""",
    "aarch64": """  %word = call i64 @llvm.aarch64.get.fpcr()
  %is_ieee = icmp eq i64 %word, 0
  br i1 %is_ieee, label %run, label %otherwise
otherwise:
  call void @llvm.aarch64.set.fpcr(i64 0)
  %status = call i32 @NAME(ptr %table)
  call void @llvm.aarch64.set.fpcr(i64 %word)
  ret i32 %status
run:""",
}


def in_ieee_state(name: str) -> tuple[list[str], list[str]]:
    """Returns the head of `i32 @name(ptr %table)`, which ensures IEEE state before its block `run`; and
    declarations."""
    machine = architecture()
    return _HEAD[machine].replace("NAME", name).split("\n"), _DECLARATIONS[machine]
