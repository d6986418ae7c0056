"""Which CPUs the threads of a pool run on: each worker on one of its own, and none on the caller's.

A thread that the system moves leaves what it works on in another core's cache, and kernels of some megabytes take
twice as long. So workers are bound to a CPU each. The caller is somebody else's thread and is not: it is looked at, at
every fork. Where it is found on a worker's CPU, twice in a row, that worker gets the one which the caller has left.
(Two callers in turns move nobody.)
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

from hloom.backends.cpu.llvm.native.types import Address, Structure, i32, i64, u64
from hloom.backends.cpu.llvm.native.vocabulary import address_of, elements, external, native, stack, to
from hloom.runtime.machine import allowed_cpus
from hloom.runtime.python_api import c_address, immortal

MASK_WORDS = 16  # of glibc's cpu_set_t
CurrentCpu = Callable[[], i32]
SetAffinity = Callable[[u64, u64, Address], i32]
pthread_self = external("pthread_self", u64)


class Affinity(Structure):
    """For each thread of a pool, the caller first: its CPU, and its handle once it has begun."""

    current_cpu: Address  # sched_getcpu
    set_affinity: Address  # pthread_setaffinity_np
    previous_cpu: i64  # the CPU of the fork before
    threads: i64
    cpus: Address
    handles: Address


@native()
def bind(affinity: Affinity, handle: u64, cpu: i64) -> None:
    mask = stack(MASK_WORDS)
    for word in range(MASK_WORDS):
        mask[word] = 0
    mask[cpu >> 6] = u64(1) << u64(cpu & 63)
    set_affinity = to(SetAffinity, affinity.set_affinity)
    set_affinity(handle, MASK_WORDS * 8, address_of(mask))


@native()
def begin(affinity: Affinity, worker: u64) -> None:
    """What a worker does first."""
    handle = pthread_self()
    elements(u64, affinity.handles)[worker] = handle
    bind(affinity, handle, elements(i64, affinity.cpus)[worker])


@native(inline=True)
def keep_apart(affinity: Affinity) -> None:
    """What a caller does before it forks."""
    current_cpu = to(CurrentCpu, affinity.current_cpu)
    cpu = i64(current_cpu())
    if cpu != elements(i64, affinity.cpus)[0] and cpu == affinity.previous_cpu:
        make_room(affinity, cpu)
    affinity.previous_cpu = cpu


@native()
def make_room(affinity: Affinity, cpu: i64) -> None:
    cpus, handles = elements(i64, affinity.cpus), elements(u64, affinity.handles)
    left = cpus[0]
    for worker in range(1, affinity.threads):
        if cpus[worker] == cpu:
            cpus[worker] = left
            if handles[worker] != 0:
                bind(affinity, handles[worker], left)
    cpus[0] = cpu


def affinity_of(threads: int) -> Affinity | None:
    """The CPUs of a new pool's threads; None where they stay unbound.

    They are bound where there are as many as CPUs that this process may use: fewer would be bound where other
    processes run, while CPUs are idle. The memory is never freed.
    """
    cpus, library = allowed_cpus(), ctypes.CDLL(None)
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
    """As before the first worker began."""
    cpus = allowed_cpus()
    affinity.previous_cpu = cpus[0]
    for worker in range(affinity.threads):
        elements(i64, affinity.cpus)[worker] = cpus[worker % len(cpus)]
        elements(u64, affinity.handles)[worker] = 0
