"""The memory pool in native code: large memory for Python's arrays and for programs that run without Python.

`i64 hloom_take(i64 size)` returns uninitialised memory, aligned to a cache line, from 4 MiB on in huge pages if the
system has them; 0 if there is none. `hloom_give(i64 address, i64 size)` frees it. Sizes are rounded up to size classes,
four for each power of two; free memory of a class is a list linked through its first words. If freeing would exceed the
limit, all free memory returns to the system. All functions are thread-safe.

`PyObject *hloom_take_capsule(i64 size)` returns a Python capsule that owns memory. The same in Python could be
interrupted half-way, and an interrupt in a method `__del__` would be lost.

Allocations start at different cache lines of their pages: processors confuse addresses that differ by a multiple of 4
KiB (4K aliasing), and stall loads after recent stores when arrays are read and written side by side.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable

from hloom.backends.cpu.llvm.native.code import native_code
from hloom.backends.cpu.llvm.native.types import Address, Array, Atomic, Structure, field, i32, i64, u64
from hloom.backends.cpu.llvm.native.vocabulary import (
    ACQUIRE,
    RELEASE,
    address_of,
    external,
    leading_zeros,
    load,
    native,
    null,
    static,
    store,
)
from hloom.system.forks import at_fork
from hloom.system.machine import memory_map_flags, memory_size
from hloom.system.python_api import c_address

SMALLEST = 64 << 10
"""Size of the smallest class in bytes."""
HUGE_PAGE = 2 << 20
PAGE = 4096
NEXT_START = 10 * 64
"""Difference of the offsets in a page at which consecutive allocations start, in bytes."""
SMALLEST_HUGE = 4 << 20  # minimum size for alignment to huge pages
MAX = 1 << 60  # larger sizes would overflow in the computation of their class
CLASSES = 256
READ_WRITE, PRIVATE, HUGE_PAGES_WANTED = memory_map_flags()
FAILED = (1 << 64) - 1


class State(Structure):
    """State of the pool. A list starts with the address of its first free memory, which holds the address
    of the next."""

    limit: u64
    """Maximum number of bytes of free memory."""
    cached: u64
    """Number of bytes of free memory."""
    start: u64
    """Offset in its page of the last allocation."""
    lock: Atomic[u64]
    new_capsule: Callable[[Address, Address, Address], Address]
    """Functions of Python's C interface."""
    set_context: Callable[[Address, u64], i32]
    pointer: Callable[[Address, Address], Address]
    context: Callable[[Address], u64]
    no_memory: Callable[[], Address]
    lists: Array[u64] = field(inline=(u64, CLASSES))


STATE = static(State, "hloom_memory_pool")

map_memory = external("mmap", Address, Address, u64, i32, i32, i32, i64)
unmap_memory = external("munmap", i32, Address, u64)
advise = external("madvise", i32, Address, u64, i32)


@native(name="hloom_take")
def take(requested: u64) -> Address:
    """Returns uninitialised memory; null if there is none."""
    if requested > MAX:
        return null
    list, size = list_of(requested), rounded(requested)
    lock()
    memory = STATE.lists[list]
    if memory != null:
        STATE.lists[list] = load(u64, memory)
        STATE.cached -= size
        unlock()
        return memory
    unlock()
    memory = fresh(size)
    if memory == null:
        release_cached()
        memory = fresh(size)
    return memory


@native(name="hloom_give")
def give(memory: Address, requested: u64) -> None:
    """Frees memory of a size."""
    list, size = list_of(requested), rounded(requested)
    if size > STATE.limit:
        drop(memory, size)
        return
    lock()
    if STATE.cached + size > STATE.limit:
        drop_all()
    store(u64, memory, STATE.lists[list])
    STATE.lists[list] = memory
    STATE.cached += size
    unlock()


@native(name="hloom_take_capsule")
def take_capsule(size: u64) -> Address:
    """Returns a capsule with the address of new memory, and its size as context; null and a MemoryError
    without memory."""
    memory = take(size)
    if memory == null:
        return STATE.no_memory()
    capsule = STATE.new_capsule(memory, null, address_of(give_back))
    if capsule == null:
        give(memory, size)
        return null
    STATE.set_context(capsule, size)
    return capsule


@native()
def give_back(capsule: Address) -> None:
    """Destructor of capsules: frees the memory."""
    give(STATE.pointer(capsule, null), STATE.context(capsule))


@native(name="hloom_release_cached")
def release_cached() -> None:
    """Returns all free memory to the system."""
    lock()
    drop_all()
    unlock()


@native()
def drop_all() -> None:
    """Returns all free memory to the system; the lock is held."""
    for list in range(u64(CLASSES)):
        memory = STATE.lists[list]
        STATE.lists[list] = null
        while memory != null:
            following = load(u64, memory)
            drop(memory, size_of_list(list))
            memory = following
    STATE.cached = 0


# Size classes: q 2^e bytes, where q is from 5 to 8; the list of a class has index 4 e + q - 4.


@native()
def exponent_of(requested: u64) -> u64:
    """Returns the exponent e of a size's class."""
    return 61 - leading_zeros(max(requested, SMALLEST) - 1)


@native()
def quarters_of(requested: u64) -> u64:
    """Returns the factor q of a size's class, from 5 to 8."""
    exponent = exponent_of(requested)
    return (max(requested, SMALLEST) - 1 + (u64(1) << exponent)) >> exponent


@native()
def rounded(requested: u64) -> u64:
    """Returns a size rounded up to its class."""
    return quarters_of(requested) << exponent_of(requested)


@native()
def list_of(requested: u64) -> u64:
    """Returns the index of the list of a size's class."""
    return (exponent_of(requested) << 2) + quarters_of(requested) - 4


@native()
def size_of_list(list: u64) -> u64:
    """Returns the size of a class, by the index of its list."""
    return ((list & 3) + 4) << (list >> 2)


# System memory


@native()
def fresh(size: u64) -> Address:
    """Maps new memory; null if there is none."""
    whole = size + PAGE
    memory = fresh_large(whole) if size >= SMALLEST_HUGE else fresh_plain(whole)
    if memory == null:
        return null
    STATE.start = (STATE.start + NEXT_START) & (PAGE - 1)
    return memory + STATE.start


@native(inline=True)
def drop(memory: Address, size: u64) -> None:
    """Unmaps memory."""
    unmap_memory(memory & ~u64(PAGE - 1), size + PAGE)


@native()
def fresh_plain(size: u64) -> Address:
    """Maps memory in pages of the default size; null if there is none."""
    memory = map_memory(null, size, READ_WRITE, PRIVATE, -1, 0)
    return u64(null) if memory == FAILED else memory


@native()
def fresh_huge(size: u64) -> Address:
    """Maps memory aligned to huge pages, by mapping one more and unmapping both ends; null if there is none."""
    begin = fresh_plain(size + HUGE_PAGE)
    if begin == null:
        return null
    head = (0 - begin) & (HUGE_PAGE - 1)
    if head != 0:
        unmap_memory(begin, head)
    unmap_memory(begin + head + size, HUGE_PAGE - head)
    advise(begin + head, size, HUGE_PAGES_WANTED)
    return begin + head


fresh_large = fresh_huge if HUGE_PAGES_WANTED else fresh_plain


@native(inline=True)
def lock() -> None:
    """Acquires the spin lock."""
    while STATE.lock.exchange(1, ACQUIRE) != 0:
        pass


@native(inline=True)
def unlock() -> None:
    """Releases the spin lock."""
    STATE.lock.store(0, RELEASE)


_PYTHON = {
    "new_capsule": "PyCapsule_New",
    "set_context": "PyCapsule_SetContext",
    "pointer": "PyCapsule_GetPointer",
    "context": "PyCapsule_GetContext",
    "no_memory": "PyErr_NoMemory",
}


class MemoryPool:
    """Pool of this process; at most `limit` bytes of free memory are kept."""

    def __init__(self, limit: int) -> None:
        self._code = native_code(take, give, take_capsule, release_cached)
        self.take_address = self._code.address("hloom_take")
        self.give_address = self._code.address("hloom_give")
        # These are so short that releasing the GIL would not pay.
        self.take = ctypes.PYFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(self.take_address)
        self.give = ctypes.PYFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64)(self.give_address)
        self.take_capsule = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_int64)(
            self._code.address("hloom_take_capsule")
        )
        self.release_cached = ctypes.PYFUNCTYPE(None)(self._code.address("hloom_release_cached"))
        self.state = State(self._code.address(STATE.symbol))
        for name, function in _PYTHON.items():
            setattr(self.state, name, c_address(getattr(ctypes.pythonapi, function)))
        self.limit = limit
        at_fork(after_in_child=self._after_fork)

    @property
    def limit(self) -> int:
        """Maximum number of bytes of free memory."""
        return self.state.limit

    @limit.setter
    def limit(self, limit: int) -> None:
        self.state.limit = limit

    @property
    def cached_bytes(self) -> int:
        """Number of bytes of free memory in the pool."""
        return self.state.cached

    def _after_fork(self) -> None:
        """Resets the lock in a forked child: another thread of the parent may have held it."""
        self.state.lock.store(0, RELEASE)


@functools.cache
def memory_pool() -> MemoryPool:
    """Returns the pool of this process, made at the first call; it keeps at most an eighth of the memory free."""
    return MemoryPool(memory_size() // _CACHED_SHARE)


_CACHED_SHARE = 8
