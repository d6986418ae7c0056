"""A fork-join thread pool in native Python: compiled loops fork without calling the interpreter.

Compiled code calls `void parallel_for(ptr pool, ptr function, ptr context, i64 chunks)`, which calls `void function(ptr
context, i64 chunk)` once for each chunk from 0 to chunks - 1 and returns when all have returned. Nested calls, a second
concurrent caller and loops of one chunk run serially on the calling thread.

The protocol. One word, `state`, holds `generation:32 | open:1 | active:31`.

- Fork: the caller owns the pool (`busy`), writes the loop (function, context, chunks), then adds one to the generation
  and sets `open` in one atomic addition, with release.
- Enter: a worker that sees a new generation that is open adds one to `active`, with acquire. If the old word was open,
  and fewer workers were active than there are chunks for, it reads the loop, and takes chunks until none is left. One
  addition for each worker, rather than compare-and-exchange until it succeeds, makes the time of a fork grow with the
  number of workers, not with its square.
- Leave: the worker subtracts one from `active`, with release.
- Join: the caller, having run out of chunks, clears `open` and waits, with acquire, until `active` is zero.

Each thread has a share of the chunks, the same part of every loop, so that loops over one array find the data of the
previous loop in a core's cache. It takes its own chunks first, then steals from other shares. A share is a word,
`generation:32 | taken:32`; a word of an older generation counts as zero, so nobody has to reset it.

Why a late worker cannot run a stale function: it reads the loop only after its addition found `open` set, and from then
on the join of that loop, whichever it is, waits for it. Every change of `state` is an atomic read-modify-write, so the
addition reads from the fork's release sequence: the loop's fields are visible, on AArch64 too. They are written again
only by a later fork, after a join that saw `active` at zero, hence after this worker left. A worker that arrives when
`open` is clear does nothing, and nobody waits for it longer than for its addition and subtraction. Why every chunk has
ended at the join: a chunk is taken between an enter and a leave or by the caller, and `active` is zero with `open`
clear; the writes of the chunks are visible, because each leave releases and the join acquires.

Parking. A worker polls `state` for a while, then adds itself to `sleepers`, and waits on a condition variable unless
`state` has changed; a fork changes `state`, then wakes as many as it has chunks for if `sleepers` is not zero. These
four accesses are sequentially consistent, so the worker sees the fork or the fork sees the worker.

Workers are threads of the C library, started by the first fork. They do not use Python and do not delay the exit of the
interpreter. In a process of Python they never end: code and memory of a pool are never freed. Pools of libraries that
are built ahead of time end with `end_workers`.
"""

from __future__ import annotations

import ctypes
import functools
import math
import time

from hloom.backends.cpu.llvm.machine_code import MachineCode
from hloom.backends.cpu.llvm.native.code import native_code
from hloom.backends.cpu.llvm.native.threads import (
    pthread_cond_broadcast,
    pthread_cond_init,
    pthread_cond_signal,
    pthread_cond_wait,
    pthread_create,
    pthread_join,
    pthread_mutex_init,
    pthread_mutex_lock,
    pthread_mutex_unlock,
    sched_yield,
)
from hloom.backends.cpu.llvm.native.types import LINE, Address, Array, Atomic, Structure, field, i32, i64, u8, u64
from hloom.backends.cpu.llvm.native.vocabulary import (
    ACQUIRE,
    MONOTONIC,
    RELEASE,
    SEQ_CST,
    address_of,
    elements,
    native,
    null,
    pause,
    stack,
    to,
)
from hloom.backends.cpu.runtime.affinity import Affinity, affinity_of, begin, keep_apart, reset
from hloom.backends.cpu.runtime.call_table import Task, run_calls
from hloom.errors import ArgumentError
from hloom.system.forks import at_fork
from hloom.system.machine import MAX_THREADS, thread_count
from hloom.system.python_api import immortal
from hloom.target import align_up

SPIN_SECONDS = 100e-6  # about the cost of waking a parked worker: polling for longer would not pay
OPEN = 1 << 31
ACTIVE = OPEN - 1
FORK = (1 << 32) + OPEN  # the next generation, open
TAKEN = (1 << 32) - 1


class Share(Structure):
    """Number of chunks of a thread's share that have been taken, and the handle of a worker that was started."""

    taken: Atomic[u64] = field(line=True)
    handle: u64


class Pool(Structure):
    """Memory of a pool. Fields that different threads write lie in different cache lines."""

    state: Atomic[u64] = field(line=True)
    function: Task = field(line=True)
    context: Address
    chunks: i64
    spin: i64  # polls before a worker parks
    threads: u64
    shares: Address  # one for each thread; the caller's is the first
    affinity: Address  # an Affinity; 0 if threads are not bound to CPUs
    ends: Atomic[i32]  # whether workers are to end
    workers: Atomic[u64] = field(line=True)  # number of workers that have begun
    missing: i32 = field(line=True)  # number of workers to be started
    busy: Atomic[i32]  # a caller owns the pool
    sleepers: Atomic[i32] = field(line=True)
    mutex: Array[u8] = field(line=True, inline=(u8, 64))  # pthread_mutex_t: at most 64 bytes on Linux and macOS
    condition: Array[u8] = field(line=True, inline=(u8, 64))  # pthread_cond_t: likewise


SHARES = align_up(Pool.byte_size, LINE)  # offset of the shares from the pool


@native(name="hloom_make_pool")
def make_pool(memory: Address, size: u64, threads: u64, spin: i64) -> None:
    """Makes a pool without workers in memory."""
    words = elements(u64, memory)
    for k in range(size >> 3):
        words[k] = 0
    pool = to(Pool, memory)
    pthread_mutex_init(address_of(pool.mutex), null)
    pthread_cond_init(address_of(pool.condition), null)
    pool.threads = threads
    pool.spin = spin
    pool.shares = memory + SHARES


# The caller


@native()
def parallel_for(pool: Pool, function: Task, context: Address, chunks: i64) -> None:
    """Calls `function` for each chunk on the threads of the pool, and returns when all calls have returned."""
    if chunks <= 1 or pool.busy.exchange(1, ACQUIRE) != 0:
        for chunk in range(chunks):
            function(context, chunk)
        return
    start_workers(pool)
    if pool.affinity != 0:
        keep_apart(to(Affinity, pool.affinity))
    pool.function = function
    pool.context = context
    pool.chunks = chunks
    pool.state.add(FORK, SEQ_CST)
    wake_sleepers(pool, chunks - 1)
    take_chunks(pool, 0)
    pool.state.subtract(OPEN, MONOTONIC)
    wait_for_workers(pool)
    pool.busy.store(0, RELEASE)


@native()
def take_chunks(pool: Pool, own: u64) -> None:
    """Runs the chunks of the thread's own share, then those left in other shares."""
    function, context, threads = pool.function, pool.context, pool.threads
    each, rest = u64(pool.chunks) // threads, u64(pool.chunks) % threads
    generation = pool.state.load(MONOTONIC) >> 32
    for k in range(threads):
        index = (own + k) % threads
        first, count = index * each + min(index, rest), each
        if index < rest:
            count += 1
        share = to(Share, pool.shares + index * LINE)
        chunk = take(share, generation, count)
        while chunk < count:
            function(context, i64(first + chunk))
            chunk = take(share, generation, count)


@native()
def take(share: Share, generation: u64, count: u64) -> u64:
    """Takes a chunk of a share. Returns its index, or `count` if none is left."""
    word = share.taken.load(MONOTONIC)
    while True:
        taken: u64 = 0
        if word >> 32 == generation:
            taken = word & TAKEN
        if taken >= count:
            return count
        now = share.taken.compare_exchange(word, (generation << 32) + taken + 1, MONOTONIC, MONOTONIC)
        if now == word:
            return taken
        word = now


@native()
def start_workers(pool: Pool) -> None:
    """Starts the workers that are missing."""
    thread = stack(1)
    while pool.missing > 0:
        # If the system refuses to start a thread, the others do its work.
        if pthread_create(address_of(thread), null, address_of(worker), address_of(pool)) == 0:
            to(Share, pool.shares + u64(pool.missing) * LINE).handle = thread[0]
        pool.missing -= 1


@native()
def wake_sleepers(pool: Pool, wanted: i64) -> None:
    """Wakes parked workers: as many as are wanted, since waking one takes microseconds."""
    sleepers = i64(pool.sleepers.load(SEQ_CST))
    if sleepers != 0:
        # Acquiring the mutex ensures that no worker is between its check and its wait.
        pthread_mutex_lock(address_of(pool.mutex))
        pthread_mutex_unlock(address_of(pool.mutex))
        if sleepers <= wanted:
            pthread_cond_broadcast(address_of(pool.condition))
        else:
            for _ in range(wanted):
                pthread_cond_signal(address_of(pool.condition))


@native()
def wait_for_workers(pool: Pool) -> None:
    """Waits until all workers have left the loop."""
    polls = 0
    while pool.state.load(ACQUIRE) & ACTIVE != 0:
        if polls < pool.spin:
            polls += 1
            pause()
        else:
            # A worker may need this core to finish its chunk.
            sched_yield()


# The workers


@native()
def worker(pool: Pool) -> Address:
    """Main function of a worker: enters each loop, and parks if there is none for a while."""
    own = pool.workers.add(1, MONOTONIC) + 1
    if pool.affinity != 0:
        begin(to(Affinity, pool.affinity), own)
    seen: u64 = 0
    while True:
        polls = 0
        now = pool.state.load(MONOTONIC)
        while now >> 32 == seen:
            pause()
            polls += 1
            if polls >= pool.spin:
                park(pool, seen)
                polls = 0
            now = pool.state.load(MONOTONIC)
        seen = now >> 32
        if pool.ends.load(ACQUIRE) != 0:
            return null
        enter(pool, own, now)


@native()
def end_workers(pool: Pool) -> None:
    """Ends all workers; nobody may use the pool meanwhile."""
    pool.ends.store(1, RELEASE)
    pool.state.add(FORK - OPEN, SEQ_CST)
    wake_sleepers(pool, i64(pool.threads))
    for k in range(1, pool.threads):
        handle = to(Share, pool.shares + k * LINE).handle
        if handle != 0:
            pthread_join(handle, null)


@native()
def enter(pool: Pool, own: u64, now: u64) -> None:
    """Takes part in the loop of a generation if it is still open, and has a chunk for another worker."""
    if now & OPEN != 0:
        word = pool.state.add(1, ACQUIRE)
        if word & OPEN != 0 and i64(word & ACTIVE) < pool.chunks - 1:
            take_chunks(pool, own)
        pool.state.subtract(1, RELEASE)


@native()
def park(pool: Pool, seen: u64) -> None:
    """Sleeps until the generation changes."""
    pool.sleepers.add(1, SEQ_CST)
    pthread_mutex_lock(address_of(pool.mutex))
    while pool.state.load(SEQ_CST) >> 32 == seen:
        pthread_cond_wait(address_of(pool.condition), address_of(pool.mutex))
    pthread_mutex_unlock(address_of(pool.mutex))
    pool.sleepers.subtract(1, SEQ_CST)


@native()
def pause_often(times: i64) -> None:
    """Executes a number of pause instructions."""
    for _ in range(times):
        pause()


@functools.cache
def _code() -> MachineCode:
    """Returns the pool's functions."""
    return native_code(make_pool, parallel_for, pause_often, run_calls)


@functools.cache
def _pause_seconds() -> float:
    """Measures a poll of a waiting thread in seconds: pause takes from a few ns to 50 ns, depending on the CPU."""
    pause_often = ctypes.CFUNCTYPE(None, ctypes.c_int64)(_code().address("pause_often"))
    times = 1000
    best = math.inf
    for _ in range(3):
        start = time.perf_counter()
        pause_often(times)
        best = min(best, time.perf_counter() - start)
    return best / times


class ThreadPool:
    """Pool of `threads` threads, including the caller of `parallel_for`, that share the chunks of one loop at a time.

    `address` is the pool's memory, the first argument of `parallel_for`; it stays valid for the life of the process
    and, with new workers, in a forked child. A worker polls for about `spin_seconds` before it parks.
    """

    def __init__(self, threads: int | None = None, spin_seconds: float = SPIN_SECONDS) -> None:
        self.threads = thread_count() if threads is None else threads
        if not 1 <= self.threads <= MAX_THREADS:
            raise ArgumentError(f"a thread pool has from 1 to {MAX_THREADS} threads, got {threads}")
        self.spin = int(spin_seconds / _pause_seconds())
        self.parallel_for_address = _code().address("parallel_for")
        self.run_calls_address = _code().address("run_calls")
        self._make = ctypes.CFUNCTYPE(None, *[ctypes.c_uint64] * 3, ctypes.c_int64)(_code().address("hloom_make_pool"))
        self._byte_size = SHARES + self.threads * LINE
        memory = immortal((ctypes.c_uint8 * (self._byte_size + LINE))())
        self.memory = Pool(align_up(ctypes.addressof(memory), LINE))
        self.affinity = affinity_of(self.threads)
        self._reset()
        at_fork(after_in_child=self._reset)

    @property
    def address(self) -> int:
        """Address of the pool's memory."""
        return self.memory.address

    def _reset(self) -> None:
        """Initialises the memory as a pool without workers; a forked child has none of its parent's."""
        pool = self.memory
        self._make(pool.address, self._byte_size, self.threads, self.spin)
        pool.missing = self.threads - 1
        if self.affinity is not None:
            reset(self.affinity)
            pool.affinity = self.affinity.address


@functools.cache
def shared_pool() -> ThreadPool:
    """Returns the pool of this process, made at the first call with `thread_count()` threads."""
    return ThreadPool()
