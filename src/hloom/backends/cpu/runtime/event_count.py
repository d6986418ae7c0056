"""An event count (Reed and Kanodia, 1979): threads wait until it is advanced. They poll for a while, and then sleep."""

from __future__ import annotations

from hloom.backends.cpu.llvm.native.threads import (
    pthread_cond_broadcast,
    pthread_cond_init,
    pthread_cond_wait,
    pthread_mutex_init,
    pthread_mutex_lock,
    pthread_mutex_unlock,
    sched_yield,
)
from hloom.backends.cpu.llvm.native.types import Array, Atomic, Structure, field, u8, u64
from hloom.backends.cpu.llvm.native.vocabulary import (
    ACQUIRE,
    MONOTONIC,
    SEQ_CST,
    address_of,
    native,
    null,
    pause,
)

SPINS, MAX_POLLS = 100, 1_000
"""Polls of a thread without yielding the processor, and until it sleeps."""


class EventCount(Structure):
    """The number of events so far, and what threads that wait for the next one sleep on."""

    count: Atomic[u64] = field(line=True)
    sleepers: Atomic[u64]
    mutex: Array[u8] = field(line=True, inline=(u8, 64))
    condition: Array[u8] = field(line=True, inline=(u8, 64))


@native()
def reset(events: EventCount) -> None:
    """Makes the count 0; nobody may wait."""
    events.count.store(0, MONOTONIC)
    events.sleepers.store(0, MONOTONIC)
    pthread_mutex_init(address_of(events.mutex), null)
    pthread_cond_init(address_of(events.condition), null)


@native()
def advance(events: EventCount) -> None:
    """Counts an event, and wakes those that sleep."""
    events.count.add(1, SEQ_CST)
    if events.sleepers.load(SEQ_CST) != 0:
        # Acquiring the mutex ensures that nobody is between the check and the wait.
        pthread_mutex_lock(address_of(events.mutex))
        pthread_cond_broadcast(address_of(events.condition))
        pthread_mutex_unlock(address_of(events.mutex))


@native()
def await_next(events: EventCount, count: u64) -> None:
    """Waits until the count differs from one that was read before."""
    polls = 0
    while events.count.load(ACQUIRE) == count and polls < MAX_POLLS:
        polls += 1
        if polls < SPINS:
            pause()
        else:
            sched_yield()
    if polls == MAX_POLLS:
        pthread_mutex_lock(address_of(events.mutex))
        events.sleepers.add(1, SEQ_CST)
        while events.count.load(SEQ_CST) == count:
            pthread_cond_wait(address_of(events.condition), address_of(events.mutex))
        events.sleepers.subtract(1, MONOTONIC)
        pthread_mutex_unlock(address_of(events.mutex))
