"""Functions of POSIX that the runtime calls, for WebAssembly in workers of a page: locks and conditions on words.

Workers are started by JavaScript. The thread of the page must not wait: it only ever takes locks that workers hold
for a moment, and does not wait on conditions.
"""

from __future__ import annotations

from hloom.backends.cpu.llvm.native.types import Address, Atomic, Structure, i32, i64
from hloom.backends.cpu.llvm.native.vocabulary import ACQUIRE, RELEASE, SEQ_CST, address_of, external, native, null, to

TRY_AGAIN = 11
_wait = external("llvm.wasm.memory.atomic.wait32", i32, Address, i32, i64)
_notify = external("llvm.wasm.memory.atomic.notify", i32, Address, i32)


class Word(Structure):
    """A lock: whether it is held; a condition: how often it was signalled."""

    value: Atomic[i32]


@native(name="pthread_create")
def refuse_thread(thread: Address, attributes: Address, function: Address, argument: Address) -> i32:
    """Starts no thread."""
    return i32(TRY_AGAIN)


@native(name="pthread_mutex_init")
def make_mutex(mutex: Address, attributes: Address) -> i32:
    """Makes a lock that nobody holds."""
    to(Word, mutex).value.store(0, RELEASE)
    return i32(0)


@native(name="pthread_mutex_lock")
def lock(mutex: Address) -> i32:
    """Acquires a lock."""
    word = to(Word, mutex)
    while word.value.exchange(1, ACQUIRE) != 0:
        pass
    return i32(0)


@native(name="pthread_mutex_unlock")
def unlock(mutex: Address) -> i32:
    """Releases a lock."""
    to(Word, mutex).value.store(0, RELEASE)
    return i32(0)


@native(name="pthread_cond_init")
def make_condition(condition: Address, attributes: Address) -> i32:
    """Makes a condition."""
    to(Word, condition).value.store(0, RELEASE)
    return i32(0)


@native(name="pthread_cond_wait")
def wait(condition: Address, mutex: Address) -> i32:
    """Waits for a signal, without the lock."""
    word = to(Word, condition)
    seen = word.value.load(SEQ_CST)
    unlock(mutex)
    _wait(address_of(word), seen, i64(-1))
    lock(mutex)
    return i32(0)


@native(inline=True)
def _signal(condition: Address, count: i32) -> i32:
    word = to(Word, condition)
    word.value.add(1, SEQ_CST)
    _notify(address_of(word), count)
    return i32(0)


@native(name="pthread_cond_signal")
def wake(condition: Address) -> i32:
    """Wakes a worker that waits."""
    return _signal(condition, i32(1))


@native(name="pthread_cond_broadcast")
def wake_all(condition: Address) -> i32:
    """Wakes all workers that wait."""
    return _signal(condition, i32(-1))


@native(name="pthread_self")
def no_handle() -> Address:
    """Returns null: workers are not bound to processors."""
    return null


@native(name="sched_yield")
def yield_processor() -> i32:
    """Does nothing: there is no such function."""
    return i32(0)


POSIX = (refuse_thread, make_mutex, lock, unlock, make_condition, wait, wake, wake_all, no_handle, yield_processor)
"""The functions, by the names of POSIX."""
