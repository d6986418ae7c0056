"""The run-time functions of libraries, in native Python: a pool of threads, forks, tables of calls."""

from __future__ import annotations

from typing import Any

from hloom.aot.targets import BuildTarget
from hloom.backends.cpu.llvm.native import windows
from hloom.backends.cpu.llvm.native.translator import native_module
from hloom.backends.cpu.llvm.native.types import LINE, Address, Array, i32, i64, u64
from hloom.backends.cpu.llvm.native.vocabulary import address_of, elements, external, native, null, stack, to
from hloom.backends.cpu.llvm.native.writer import declaration
from hloom.backends.cpu.runtime import web_workers
from hloom.backends.cpu.runtime.affinity import MASK_WORDS, Affinity
from hloom.backends.cpu.runtime.call_table import Task, run_calls
from hloom.backends.cpu.runtime.thread_pool import SHARES, Pool, end_workers, make_pool, parallel_for, worker
from hloom.lir import Declaration, LirModule
from hloom.system.machine import MAX_THREADS

SPIN = 4000
"""Polls before a worker parks, about 100 us."""
WEB_SPIN = 100_000
"""Likewise in WebAssembly, which has no instruction for a pause."""
posix_memalign = external("posix_memalign", i32, Address, Address, Address)
free = external("free", None, Address)
sched_getaffinity = external("sched_getaffinity", i32, i32, Address, Address)
sched_getcpu = external("sched_getcpu", i32)
pthread_setaffinity_np = external("pthread_setaffinity_np", i32, Address, Address, Address)
make_affinity = external("hloom_affinity", Address, Address, u64)


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


@native(name="hloom_current_cpu")
def current_cpu() -> i32:
    """Returns the CPU of this thread."""
    return sched_getcpu()


@native(name="hloom_set_affinity")
def set_affinity(thread: Address, size: Address, mask: Address) -> i32:
    """Sets the CPUs of a thread."""
    return pthread_setaffinity_np(thread, size, mask)


@native(name="hloom_affinity")
def linux_affinity(memory: Address, threads: u64) -> Address:
    """Makes an Affinity in memory of zeros; returns null unless there is one thread for each CPU of the process."""
    mask = stack(MASK_WORDS)
    for word in range(MASK_WORDS):
        mask[word] = 0
    if threads < 2 or sched_getaffinity(i32(0), Address(MASK_WORDS * 8), address_of(mask)) < 0:
        return null
    affinity = to(Affinity, memory)
    affinity.cpus = memory + Affinity.byte_size
    affinity.handles = affinity.cpus + 8 * threads
    cpus, found = elements(i64, affinity.cpus), u64(0)
    for cpu in range(64 * MASK_WORDS):
        if (mask[cpu >> 6] >> u64(cpu & 63)) & 1 == 1:
            if found < threads:
                cpus[found] = cpu
            found += 1
    if found != threads:
        return null
    affinity.current_cpu = address_of(current_cpu)
    affinity.set_affinity = address_of(set_affinity)
    affinity.previous_cpu = cpus[0]
    affinity.threads = i64(threads)
    return memory


@native(name="hloom_affinity")
def no_affinity(memory: Address, threads: u64) -> Address:
    """Returns null: threads are not bound."""
    return null


@native(name="hloom_pool_new")
def new_pool(threads: i32) -> Address:
    """Returns a pool of `threads` threads, the caller's among them; null without memory or for a wrong number."""
    if threads < 1 or threads > MAX_THREADS:
        return null
    memory, shares = stack(1), u64(threads) * LINE
    memory[0] = 0
    size = SHARES + shares + Affinity.byte_size + 16 * u64(threads)
    if posix_memalign(address_of(memory), Address(LINE), size) != 0:
        return null
    make_pool(memory[0], size, u64(threads), i64(SPIN))
    pool = to(Pool, memory[0])
    pool.missing = threads - 1
    pool.affinity = make_affinity(memory[0] + SHARES + shares, u64(threads))
    return memory[0]


@native(name="hloom_web_pool")
def web_pool(memory: Address, threads: i32) -> None:
    """Makes a pool in memory, whose workers JavaScript starts."""
    make_pool(memory, SHARES + u64(threads) * LINE, u64(threads), i64(WEB_SPIN))


@native(name="hloom_web_worker")
def web_worker(pool: Pool) -> None:
    """Main function of a worker of a page, which ends it."""
    worker(pool)


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
    architecture = target.processor.architecture
    if not target.has_threads:
        return native_module([run_table, go_on, serial_fork], architecture)
    if target.is_wasm:
        return native_module([run_table, go_on, fork, web_pool, web_worker], architecture, web_workers.POSIX)
    affinity = linux_affinity if target.system == "linux" else no_affinity
    posix = windows.POSIX if target.system == "windows" else ()
    return native_module([run_table, go_on, fork, new_pool, free_pool], architecture, [affinity, *posix])
