"""The run-time functions of libraries, in native Python: a pool of threads, forks, tables of calls."""

from __future__ import annotations

from typing import Any

from hloom.aot.targets import BuildTarget
from hloom.backends.cpu.llvm.native.threads import pthread_cond_init, pthread_mutex_init
from hloom.backends.cpu.llvm.native.translator import native_module
from hloom.backends.cpu.llvm.native.types import LINE, Address, Array, i32, i64, u64
from hloom.backends.cpu.llvm.native.vocabulary import address_of, elements, external, native, null, stack, to
from hloom.backends.cpu.llvm.native.writer import declaration
from hloom.backends.cpu.runtime.call_table import Task, run_calls
from hloom.backends.cpu.runtime.thread_pool import SHARES, Pool, end_workers, parallel_for
from hloom.lir import Declaration, LirModule
from hloom.system.machine import MAX_THREADS

SPIN = 4000
"""Polls before a worker parks, about 100 us."""
posix_memalign = external("posix_memalign", i32, Address, u64, u64)
free = external("free", None, Address)


def _each(pool: Pool, function: Task, context: Address, chunks: i64) -> None:
    """Calls `function` for each chunk on this thread."""
    for chunk in range(chunks):
        function(context, chunk)


each = native(name="hloom_each")(_each)
serial_fork = native(name="hloom_parallel_for")(_each)
"""The fork of targets without threads."""


@native(name="hloom_parallel_for")
def fork(pool: Pool, function: Task, context: Address, chunks: i64) -> None:
    """Calls `function` for each chunk on the threads of a pool, or without one on this thread."""
    if address_of(pool) == 0:
        each(pool, function, context, chunks)
    else:
        parallel_for(pool, function, context, chunks)


@native(name="hloom_run_calls")
def run_table(table: Array[u64], frame: Array[u64], calls: Array[u64], count: i64) -> None:
    """Runs a table of calls."""
    run_calls(table, frame, calls, count)


@native(name="hloom_go_on")
def go_on(host: Address, site: i64, point: i64) -> i32:
    """Answers polls of loops: nobody stops them."""
    return i32(0)


@native(name="hloom_pool_new")
def new_pool(threads: i32) -> Address:
    """Returns a pool of `threads` threads, the caller's among them; null without memory or for a wrong number."""
    if threads < 1 or threads > MAX_THREADS:
        return Address(0)
    memory, size = stack(1), SHARES + u64(threads) * LINE
    if posix_memalign(address_of(memory), LINE, size) != 0:
        return Address(0)
    words = elements(u64, memory[0])
    for k in range(size >> 3):
        words[k] = 0
    pool = to(Pool, memory[0])
    pthread_mutex_init(address_of(pool.mutex), null)
    pthread_cond_init(address_of(pool.condition), null)
    pool.missing = threads - 1
    pool.threads = u64(threads)
    pool.spin = SPIN
    pool.shares = memory[0] + SHARES
    return memory[0]


@native(name="hloom_pool_free")
def free_pool(pool: Pool) -> None:
    """Ends the threads of a pool that no program uses, and frees its memory; null does nothing."""
    if address_of(pool) != 0:
        end_workers(pool)
        free(address_of(pool))


def _declared(function: Any) -> Declaration:
    return declaration(function)


FORK, RUN_CALLS, GO_ON = map(_declared, (fork, run_table, go_on))
"""Functions that programs call."""


def runtime_module(target: BuildTarget) -> LirModule:
    """Returns the exported functions of the runtime for a target."""
    functions = [run_table, go_on, *([fork, new_pool, free_pool] if target.has_threads else [serial_fork])]
    return native_module(functions, target.processor.architecture)
