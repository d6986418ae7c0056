"""A fork-join thread pool whose code is LLVM IR, so that compiled loops fork without a word to Python.

Compiled code calls `void parallel_for(ptr pool, ptr function, ptr context, i64 chunks)`, which calls
`void function(ptr context, i64 chunk)` once for each chunk from 0 to chunks - 1 and returns when all have returned.
Nested calls, a second concurrent caller and loops of one chunk run serially on the calling thread.

The protocol. One word, `state`, holds `generation:32 | open:1 | active:31`.

- Fork: the caller owns the pool (`busy`), writes the loop (function, context, chunks, next = 0), then adds one to the
  generation and sets `open` in one atomic addition, with release.
- Enter: a worker that sees a new generation adds one to `active` by compare-and-exchange, with acquire, and only while
  `open` is set. Then it reads the loop, and takes chunks by atomic addition to `next` until none is left.
- Leave: the worker takes one from `active`, with release.
- Join: the caller, out of chunks itself, clears `open` and waits, with acquire, until `active` is zero.

Why a late worker cannot run a stale function: it reads the loop only after its exchange succeeded, and the exchange
compares the whole word, so at that moment the loop of the word's generation is open. Every change of `state` is an
atomic read-modify-write, so the exchange reads from the fork's release sequence: the loop's fields are visible, on
AArch64 too. They are written again only by a later fork, after a join that saw `active` at zero, hence after this
worker left. (A worker that slept through 2**32 forks may find "its" word again: it enters the loop that is open now.)
A worker that comes when `open` is clear does nothing, so nobody waits for it. Why every chunk has ended at the join:
a chunk is taken between an enter and a leave or by the caller, and `active` is zero with `open` clear; what the chunks
wrote is visible, because each leave releases and the join acquires.

Parking. A worker polls `state` for a while, then adds itself to `sleepers`, and waits on a condition variable unless
`state` has changed; a fork changes `state`, then wakes all if `sleepers` is not zero. These four accesses are
sequentially consistent, so the worker sees the fork or the fork sees the worker.

Workers are threads of the C library, started by the first fork. They know nothing of Python, never end, and hold
nothing up when the interpreter exits: code and memory of a pool are never freed.
"""

from __future__ import annotations

import ctypes
import functools
import math
import os
import platform
import time

from hloom.backends.cpu.llvm.machine_code import MachineCode, compile_text, load_object
from hloom.errors import ArgumentError, RunError
from hloom.runtime.machine import MAX_THREADS, thread_count
from hloom.runtime.python_api import immortal

SPIN_SECONDS = 100e-6  # about what waking a parked worker costs: polling for longer would not pay
_LINE = 128  # bytes; an upper bound of the cache lines of today's CPUs and what they prefetch in pairs
_SIZE = 8 * _LINE
_FIELDS = {  # name -> offset; fields that different threads write live in different lines
    "state": 0,  # i64
    "next": _LINE,  # i64
    "function": 2 * _LINE,  # ptr
    "context": 2 * _LINE + 8,  # ptr
    "chunks": 2 * _LINE + 16,  # i64
    "spin": 2 * _LINE + 24,  # i64: polls before a worker parks
    "missing": 3 * _LINE,  # i32: workers that are not started yet
    "busy": 3 * _LINE + 4,  # i32: a caller owns the pool
    "sleepers": 4 * _LINE,  # i32
    "mutex": 5 * _LINE,  # pthread_mutex_t: at most 64 bytes on Linux and macOS
    "condition": 6 * _LINE,  # pthread_cond_t: likewise
}
_OPEN = 1 << 31
_ACTIVE = _OPEN - 1
_FORK = (1 << 32) + _OPEN  # the next generation, open
_PAUSE = {
    "x86_64": "@llvm.x86.sse2.pause()",
    "amd64": "@llvm.x86.sse2.pause()",
    "aarch64": "@llvm.aarch64.hint(i32 1)",
    "arm64": "@llvm.aarch64.hint(i32 1)",
}


def _fields(*names: str) -> str:
    return "\n".join(f"  %{name} = getelementptr i8, ptr %pool, i64 {_FIELDS[name]}" for name in names)


_DECLARATIONS = """
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_broadcast(ptr)
declare i32 @sched_yield()
"""

_PARALLEL_FOR = f"""
define void @parallel_for(ptr %pool, ptr %callee, ptr %argument, i64 %count) {{
entry:
{_fields("busy", "function", "context", "chunks", "next", "state")}
  %few = icmp sle i64 %count, 1
  br i1 %few, label %serial, label %claim
claim:
  %claimed = atomicrmw xchg ptr %busy, i32 1 acquire
  %free = icmp eq i32 %claimed, 0
  br i1 %free, label %fork, label %serial
fork:
  call void @start_workers(ptr %pool)
  store ptr %callee, ptr %function
  store ptr %argument, ptr %context
  store i64 %count, ptr %chunks
  store atomic i64 0, ptr %next monotonic, align 8
  atomicrmw add ptr %state, i64 {_FORK} seq_cst
  call void @wake_sleepers(ptr %pool)
  call void @take_chunks(ptr %pool)
  atomicrmw sub ptr %state, i64 {_OPEN} monotonic
  call void @wait_for_workers(ptr %pool)
  store atomic i32 0, ptr %busy release, align 4
  ret void
serial:
  %chunk = phi i64 [ 0, %entry ], [ 0, %claim ], [ %following, %call ]
  %more = icmp slt i64 %chunk, %count
  br i1 %more, label %call, label %done
call:
  call void %callee(ptr %argument, i64 %chunk)
  %following = add i64 %chunk, 1
  br label %serial
done:
  ret void
}}

define internal void @take_chunks(ptr %pool) {{
entry:
{_fields("function", "context", "chunks", "next")}
  %callee = load ptr, ptr %function
  %argument = load ptr, ptr %context
  %count = load i64, ptr %chunks
  br label %take
take:
  %chunk = atomicrmw add ptr %next, i64 1 monotonic
  %more = icmp slt i64 %chunk, %count
  br i1 %more, label %call, label %done
call:
  call void %callee(ptr %argument, i64 %chunk)
  br label %take
done:
  ret void
}}
"""

_CALLER = f"""
define internal void @start_workers(ptr %pool) {{
entry:
{_fields("missing")}
  %thread = alloca i64
  br label %next
next:
  %left = load i32, ptr %missing
  %some = icmp sgt i32 %left, 0
  br i1 %some, label %start, label %done
start:                                      ; where the system refuses a thread, the others do its work
  call i32 @pthread_create(ptr %thread, ptr null, ptr @worker, ptr %pool)
  %fewer = sub i32 %left, 1
  store i32 %fewer, ptr %missing
  br label %next
done:
  ret void
}}

define internal void @wake_sleepers(ptr %pool) {{
entry:
{_fields("sleepers", "mutex", "condition")}
  %count = load atomic i32, ptr %sleepers seq_cst, align 4
  %none = icmp eq i32 %count, 0
  br i1 %none, label %done, label %wake
wake:                                       ; holding the mutex once: no worker is between its check and its wait
  call i32 @pthread_mutex_lock(ptr %mutex)
  call i32 @pthread_mutex_unlock(ptr %mutex)
  call i32 @pthread_cond_broadcast(ptr %condition)
  br label %done
done:
  ret void
}}

define internal void @wait_for_workers(ptr %pool) {{
entry:
{_fields("state", "spin")}
  %patience = load i64, ptr %spin
  br label %poll
poll:
  %polls = phi i64 [ 0, %entry ], [ %polled, %pause ], [ %polls, %yield ]
  %now = load atomic i64, ptr %state acquire, align 8
  %active = and i64 %now, {_ACTIVE}
  %none = icmp eq i64 %active, 0
  br i1 %none, label %done, label %wait
wait:
  %patient = icmp ult i64 %polls, %patience
  br i1 %patient, label %pause, label %yield
pause:
  %polled = add i64 %polls, 1
  call void PAUSE
  br label %poll
yield:                                      ; a worker may need this core to end its chunk
  call i32 @sched_yield()
  br label %poll
done:
  ret void
}}
"""

_WORKER = f"""
define internal ptr @worker(ptr %pool) {{
entry:
{_fields("state", "spin")}
  %patience = load i64, ptr %spin
  br label %rest
rest:
  %seen = phi i64 [ 0, %entry ], [ %seen, %park ], [ %generation, %arrive ]
  br label %poll
poll:
  %polls = phi i64 [ 0, %rest ], [ %polled, %pause ]
  %now = load atomic i64, ptr %state monotonic, align 8
  %generation = lshr i64 %now, 32
  %same = icmp eq i64 %generation, %seen
  br i1 %same, label %pause, label %arrive
pause:
  call void PAUSE
  %polled = add i64 %polls, 1
  %patient = icmp ult i64 %polled, %patience
  br i1 %patient, label %poll, label %park
park:
  call void @park(ptr %pool, i64 %seen)
  br label %rest
arrive:
  call void @enter(ptr %pool, i64 %now)
  br label %rest
}}

define internal void @enter(ptr %pool, i64 %now) {{
entry:
{_fields("state")}
  br label %try
try:
  %expected = phi i64 [ %now, %entry ], [ %found, %exchange ]
  %open = and i64 %expected, {_OPEN}
  %closed = icmp eq i64 %open, 0
  br i1 %closed, label %done, label %exchange
exchange:
  %entered = add i64 %expected, 1
  %result = cmpxchg ptr %state, i64 %expected, i64 %entered acquire monotonic
  %found = extractvalue {{ i64, i1 }} %result, 0
  %success = extractvalue {{ i64, i1 }} %result, 1
  br i1 %success, label %work, label %try
work:
  call void @take_chunks(ptr %pool)
  atomicrmw sub ptr %state, i64 1 release
  br label %done
done:
  ret void
}}

define internal void @park(ptr %pool, i64 %seen) {{
entry:
{_fields("state", "sleepers", "mutex", "condition")}
  atomicrmw add ptr %sleepers, i32 1 seq_cst
  call i32 @pthread_mutex_lock(ptr %mutex)
  br label %check
check:
  %now = load atomic i64, ptr %state seq_cst, align 8
  %generation = lshr i64 %now, 32
  %same = icmp eq i64 %generation, %seen
  br i1 %same, label %sleep, label %done
sleep:
  call i32 @pthread_cond_wait(ptr %condition, ptr %mutex)
  br label %check
done:
  call i32 @pthread_mutex_unlock(ptr %mutex)
  atomicrmw sub ptr %sleepers, i32 1 seq_cst
  ret void
}}

define void @pause_often(i64 %times) {{
entry:
  br label %pause
pause:
  %done = phi i64 [ 0, %entry ], [ %following, %pause ]
  call void PAUSE
  %following = add i64 %done, 1
  %more = icmp ult i64 %following, %times
  br i1 %more, label %pause, label %exit
exit:
  ret void
}}
"""


def pool_code(machine: str) -> str:
    """The pool as LLVM IR for a CPU that `platform.machine()` calls `machine`."""
    pause = _PAUSE.get(machine.lower())
    if pause is None:
        raise RunError(f"the CPU backend runs on x86-64 and AArch64, this is a {machine}")
    declaration = f"declare void {pause.replace('i32 1', 'i32')}\n"
    return declaration + _DECLARATIONS + (_PARALLEL_FOR + _CALLER + _WORKER).replace("PAUSE", pause)


@functools.cache
def _code() -> MachineCode:
    """The pool's functions; workers may outlive Python, so they are never unloaded."""
    return immortal(load_object(compile_text(pool_code(platform.machine()))))


@functools.cache
def _pause_seconds() -> float:
    """How long one poll of a waiting thread takes: from a few ns to 50 ns, as CPUs differ in their pause."""
    pause_often = ctypes.CFUNCTYPE(None, ctypes.c_int64)(_code().address("pause_often"))
    times = 1000
    best = math.inf
    for _ in range(3):
        start = time.perf_counter()
        pause_often(times)
        best = min(best, time.perf_counter() - start)
    return best / times


class ThreadPool:
    """`threads` threads, the caller of `parallel_for` among them, that share the chunks of one loop at a time.

    `address` is the pool's memory, the first argument of `parallel_for`; it stays valid for the life of the process
    and, with new workers, in a forked child. A worker polls for about `spin_seconds` before it parks.
    """

    def __init__(self, threads: int | None = None, spin_seconds: float = SPIN_SECONDS) -> None:
        self.threads = thread_count() if threads is None else threads
        if not 1 <= self.threads <= MAX_THREADS:
            raise ArgumentError(f"a thread pool has from 1 to {MAX_THREADS} threads, got {threads}")
        self.spin = int(spin_seconds / _pause_seconds())
        self.parallel_for_address = _code().address("parallel_for")
        self._libc = ctypes.CDLL(None)
        memory = ctypes.c_void_p()
        if self._libc.posix_memalign(ctypes.byref(memory), ctypes.c_size_t(_LINE), ctypes.c_size_t(_SIZE)):
            raise RunError("no memory for a thread pool")
        self.address: int = memory.value or 0
        self._reset()
        os.register_at_fork(after_in_child=self._reset)

    def _reset(self) -> None:
        """Makes a pool without workers out of the memory, whatever it holds (a child has none of its parent's)."""
        ctypes.memset(self.address, 0, _SIZE)
        self._libc.pthread_mutex_init(ctypes.c_void_p(self.address + _FIELDS["mutex"]), None)
        self._libc.pthread_cond_init(ctypes.c_void_p(self.address + _FIELDS["condition"]), None)
        ctypes.c_int32.from_address(self.address + _FIELDS["missing"]).value = self.threads - 1
        ctypes.c_int64.from_address(self.address + _FIELDS["spin"]).value = self.spin


@functools.cache
def shared_pool() -> ThreadPool:
    """The pool of this process, made at the first call with `thread_count()` threads."""
    return ThreadPool()
