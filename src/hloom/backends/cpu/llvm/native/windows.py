"""Functions of POSIX that native Python calls, made of those of Windows: memory, threads, locks, conditions.

Locks and condition variables of Windows (SRWLOCK, CONDITION_VARIABLE) are a word of zeros at first.
"""

from __future__ import annotations

from hloom.backends.cpu.llvm.native.types import Address, i32, i64, u32, u64
from hloom.backends.cpu.llvm.native.vocabulary import elements, external, native, null

OUT_OF_MEMORY, TRY_AGAIN = 12, 11
FOREVER = 0xFFFFFFFF
_aligned_malloc = external("_aligned_malloc", Address, Address, Address)
_aligned_free = external("_aligned_free", None, Address)
_create_thread = external("CreateThread", Address, Address, Address, Address, Address, u32, Address)
_wait_for_object = external("WaitForSingleObject", u32, Address, u32)
_close_handle = external("CloseHandle", i32, Address)
_acquire_lock = external("AcquireSRWLockExclusive", None, Address)
_release_lock = external("ReleaseSRWLockExclusive", None, Address)
_sleep_on_condition = external("SleepConditionVariableSRW", i32, Address, Address, u32, u32)
_wake = external("WakeConditionVariable", None, Address)
_wake_all = external("WakeAllConditionVariable", None, Address)
_switch_to_thread = external("SwitchToThread", i32)
_virtual_alloc = external("VirtualAlloc", Address, Address, u64, u32, u32)
_virtual_free = external("VirtualFree", i32, Address, u64, u32)
RESERVE_AND_COMMIT, RELEASE, READ_WRITE = 0x3000, 0x8000, 4
STACK_BYTES, STACK_IS_RESERVED = 8 << 20, 0x10000


@native(name="posix_memalign")
def allocate(result: Address, alignment: Address, size: Address) -> i32:
    """Allocates memory."""
    memory = _aligned_malloc(size, alignment)
    elements(u64, result)[0] = memory
    if memory == 0:
        return i32(OUT_OF_MEMORY)
    return i32(0)


@native(name="free")
def release(memory: Address) -> None:
    """Frees what `posix_memalign` returned."""
    _aligned_free(memory)


@native(name="mmap")
def map_memory(wanted: Address, size: u64, protection: i32, flags: i32, file: i32, offset: i64) -> Address:
    """Returns new memory of zeros, aligned to 64 KiB."""
    memory = _virtual_alloc(null, size, u32(RESERVE_AND_COMMIT), u32(READ_WRITE))
    if memory == 0:
        return u64(0) - 1
    return memory


@native(name="munmap")
def unmap_memory(memory: Address, size: u64) -> i32:
    """Frees all of what `mmap` returned."""
    _virtual_free(memory, u64(0), u32(RELEASE))
    return i32(0)


@native(name="pthread_self")
def this_thread() -> Address:
    """Returns null: threads are not bound to processors, which their handles would serve."""
    return null


@native(name="pthread_create")
def start_thread(thread: Address, attributes: Address, function: Address, argument: Address) -> i32:
    """Starts a thread, and stores its handle."""
    handle = _create_thread(attributes, Address(STACK_BYTES), function, argument, u32(STACK_IS_RESERVED), null)
    elements(u64, thread)[0] = handle
    if handle == 0:
        return i32(TRY_AGAIN)
    return i32(0)


@native(name="pthread_join")
def join(thread: Address, result: Address) -> i32:
    """Waits for the end of a thread."""
    _wait_for_object(thread, u32(FOREVER))
    _close_handle(thread)
    return i32(0)


@native(name="pthread_mutex_init")
def make_mutex(mutex: Address, attributes: Address) -> i32:
    """Makes a lock of zeros."""
    elements(u64, mutex)[0] = 0
    return i32(0)


@native(name="pthread_mutex_lock")
def lock(mutex: Address) -> i32:
    """Acquires a lock."""
    _acquire_lock(mutex)
    return i32(0)


@native(name="pthread_mutex_unlock")
def unlock(mutex: Address) -> i32:
    """Releases a lock."""
    _release_lock(mutex)
    return i32(0)


@native(name="pthread_cond_init")
def make_condition(condition: Address, attributes: Address) -> i32:
    """Makes a condition variable of zeros."""
    elements(u64, condition)[0] = 0
    return i32(0)


@native(name="pthread_cond_wait")
def wait(condition: Address, mutex: Address) -> i32:
    """Waits until it is woken, without the lock."""
    _sleep_on_condition(condition, mutex, u32(FOREVER), u32(0))
    return i32(0)


@native(name="pthread_cond_signal")
def wake(condition: Address) -> i32:
    """Wakes a thread that waits."""
    _wake(condition)
    return i32(0)


@native(name="pthread_cond_broadcast")
def wake_all(condition: Address) -> i32:
    """Wakes all threads that wait."""
    _wake_all(condition)
    return i32(0)


@native(name="sched_yield")
def yield_processor() -> i32:
    """Lets another thread run."""
    return _switch_to_thread()


POSIX = (
    *(allocate, release, map_memory, unmap_memory, start_thread, this_thread, join, yield_processor),
    *(make_mutex, lock, unlock, make_condition, wait, wake, wake_all),
)
"""The functions, by the names of POSIX."""
