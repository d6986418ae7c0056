"""An event count (Reed and Kanodia, 1979): threads wait until it is advanced. They poll for a while, and then sleep."""

from __future__ import annotations

from hloom.backends.cpu.llvm.native.threads import (
    clock_gettime,
    pthread_cond_broadcast,
    pthread_cond_init,
    pthread_cond_timedwait,
    pthread_cond_wait,
    pthread_mutex_init,
    pthread_mutex_lock,
    pthread_mutex_unlock,
    sched_yield,
)
from hloom.backends.cpu.llvm.native.types import Array, Atomic, Structure, boolean, field, i32, u8, u64
from hloom.backends.cpu.llvm.native.vocabulary import (
    ACQUIRE,
    MONOTONIC,
    SEQ_CST,
    address_of,
    native,
    null,
    pause,
    stack,
)

SPINS, MAX_POLLS = 100, 1_000
"""Polls of a thread without yielding the processor, and until it sleeps."""
FOREVER = 0
"""Limit of a sleep that has none."""
CLOCK_REALTIME = 0


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
    if not spin(events, count):
        sleep(events, count, FOREVER)


@native()
def spin(events: EventCount, count: u64) -> boolean:
    """Polls for a while; returns whether the count differs from one that was read before."""
    polls = 0
    while events.count.load(ACQUIRE) == count and polls < MAX_POLLS:
        polls += 1
        if polls < SPINS:
            pause()
        else:
            sched_yield()
    return polls < MAX_POLLS


@native()
def sleep(events: EventCount, count: u64, limit: u64) -> boolean:
    """Sleeps until the count differs from one that was read before, for up to `limit` nanoseconds; returns whether it
    does.
    """
    end = stack(2)
    set_deadline(end, limit)
    status: i32 = 0
    pthread_mutex_lock(address_of(events.mutex))
    events.sleepers.add(1, SEQ_CST)
    while events.count.load(SEQ_CST) == count and status == 0:
        if limit == FOREVER:
            status = pthread_cond_wait(address_of(events.condition), address_of(events.mutex))
        else:
            status = pthread_cond_timedwait(address_of(events.condition), address_of(events.mutex), address_of(end))
    events.sleepers.subtract(1, MONOTONIC)
    pthread_mutex_unlock(address_of(events.mutex))
    return events.count.load(ACQUIRE) != count


@native(inline=True)
def set_deadline(end: Array[u64], limit: u64) -> None:
    """Writes the time `limit` nanoseconds from now, as seconds and nanoseconds."""
    clock_gettime(CLOCK_REALTIME, address_of(end))
    nanoseconds = end[1] + limit
    end[0] = end[0] + nanoseconds // 1_000_000_000
    end[1] = nanoseconds % 1_000_000_000
