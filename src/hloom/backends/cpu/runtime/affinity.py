"""Binds each worker of a pool to a CPU of its own, other than the caller's.

If the system moves a thread, its working set stays in another core's cache, and kernels of some megabytes take twice as
long. So each worker is bound to a CPU. The caller's thread belongs to somebody else and is not bound; its CPU is
checked at every fork. If it runs on a worker's CPU at two forks in a row, that worker is moved to the CPU that the
caller has left. (Two alternating callers move no worker.)
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

from hloom.backends.cpu.llvm.native.types import Address, Structure, i32, i64, u64
from hloom.backends.cpu.llvm.native.vocabulary import address_of, elements, external, native, stack, to
from hloom.system.machine import C_LIBRARY, allowed_cpus
from hloom.system.python_api import c_address, immortal

MASK_WORDS = 16  # of glibc's cpu_set_t
CurrentCpu = Callable[[], i32]
SetAffinity = Callable[[Address, Address, Address], i32]
pthread_self = external("pthread_self", Address)


class Affinity(Structure):
    """CPU of each thread of a pool, the caller first, and the thread handles of workers that have begun."""

    current_cpu: Address  # sched_getcpu
    set_affinity: Address  # pthread_setaffinity_np
    previous_cpu: i64  # the caller's CPU at the previous fork
    threads: i64
    cpus: Address
    handles: Address


@native()
def bind(affinity: Affinity, handle: Address, cpu: i64) -> None:
    """Binds a thread to a CPU."""
    mask = stack(MASK_WORDS)
    for word in range(MASK_WORDS):
        mask[word] = 0
    mask[cpu >> 6] = u64(1) << u64(cpu & 63)
    set_affinity = to(SetAffinity, affinity.set_affinity)
    set_affinity(handle, MASK_WORDS * 8, address_of(mask))


@native()
def begin(affinity: Affinity, worker: u64) -> None:
    """Binds a new worker to its CPU."""
    handle = pthread_self()
    elements(u64, affinity.handles)[worker] = handle
    bind(affinity, handle, elements(i64, affinity.cpus)[worker])


@native(inline=True)
def keep_apart(affinity: Affinity) -> None:
    """Moves a worker off the caller's CPU if the caller was there at the last two forks."""
    current_cpu = to(CurrentCpu, affinity.current_cpu)
    cpu = i64(current_cpu())
    if cpu != elements(i64, affinity.cpus)[0] and cpu == affinity.previous_cpu:
        make_room(affinity, cpu)
    affinity.previous_cpu = cpu


@native()
def make_room(affinity: Affinity, cpu: i64) -> None:
    """Moves the worker on a CPU to the one that the caller has left."""
    cpus, handles = elements(i64, affinity.cpus), elements(u64, affinity.handles)
    left = cpus[0]
    for worker in range(1, affinity.threads):
        if cpus[worker] == cpu:
            cpus[worker] = left
            if handles[worker] != 0:
                bind(affinity, handles[worker], left)
    cpus[0] = cpu


def affinity_of(threads: int) -> Affinity | None:
    """Returns the CPUs of a new pool's threads; None if they are not bound.

    Threads are bound if there is one for each CPU that this process may use. Fewer threads might be bound to CPUs that
    other processes use, while others are idle. The memory is never freed.
    """
    cpus, library = allowed_cpus(), ctypes.CDLL(C_LIBRARY)
    functions = [getattr(library, name, None) for name in ("sched_getcpu", "pthread_setaffinity_np")]
    if None in functions or not 1 < threads == len(cpus) or cpus[-1] >= 64 * MASK_WORDS:
        return None
    memory = immortal((ctypes.c_uint64 * (Affinity.byte_size // 8 + 2 * threads))())
    affinity = Affinity(ctypes.addressof(memory))
    affinity.current_cpu, affinity.set_affinity = map(c_address, functions)
    affinity.cpus = affinity.address + Affinity.byte_size
    affinity.handles = affinity.cpus + 8 * threads
    affinity.threads = threads
    return affinity


def reset(affinity: Affinity) -> None:
    """Restores the state before the first worker began."""
    cpus = allowed_cpus()
    affinity.previous_cpu = cpus[0]
    for worker in range(affinity.threads):
        elements(i64, affinity.cpus)[worker] = cpus[worker % len(cpus)]
        elements(u64, affinity.handles)[worker] = 0
