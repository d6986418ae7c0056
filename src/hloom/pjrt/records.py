"""Records: the memory that PJRT handles point to, and the Python objects behind them."""

from __future__ import annotations

import ctypes
import functools
import struct
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from hloom.pjrt.c_api import functions
from hloom.system.forks import new_lock
from hloom.system.python_api import immortal

RECORD_WORDS = 32
"""Words of a record: the link of the list that it is in, a flag for immortal records, then the words of its kind."""
_UNCOPIED_WORDS: dict[str, tuple[str, ...]] = {
    "Buffer": ("references", "owned", "ready_at"),
    "Device": ("native_bytes",),
    "Event": ("is_ready", "task_id"),
    "LoadedExecutable": (
        *("main", "template", "table_words", "first_input", "input_count", "output_count", "descriptions", "donated"),
        *("arena_bytes", "input_layouts", "is_shared", "failed_call", "dispatch", "last_nanoseconds"),
        *("device_count", "groups"),
    ),
}
"""Words that no getter copies, by kind; `native/structures.py` documents them."""
IMMORTAL = 1
HEADER_BYTES = 16
"""Size of the link and the flag."""
_RECORDS_IN_SLAB = 512


WITHHELD = 1 << 8
"""The word `is_deleted` of a buffer without contents yet, or with an error: native code leaves it to Python.

As a bool, which is the lowest byte, it is false.
"""


class Objects(dict[int, Any]):
    """Python object of each live handle. A buffer that native code created gets its object at the first look-up."""

    adopt: Callable[[int], Any]

    def __missing__(self, handle: int) -> Any:
        return self.adopt(handle)


objects = immortal(Objects())


@functools.cache
def record_words(kind: str) -> tuple[str, ...]:
    """Names of the words that a record of a kind holds, after the link and the flag."""
    names: dict[str, None] = {}
    for function in functions().values():
        if function.kind == kind and function.implementation == "get":
            names.update((field.word, None) for field in function.outputs)
    names.update((name, None) for name in _UNCOPIED_WORDS.get(kind, ()))
    if kind == "Buffer":
        # The words before these are copied from a template for each result.
        last = ("buffer_pointer", *_UNCOPIED_WORDS[kind])
        names = {name: None for name in names if name not in last} | dict.fromkeys(last)
    assert len(names) + 2 <= RECORD_WORDS, kind
    return tuple(names)


@functools.cache
def offsets_of_record(kind: str) -> Any:
    """Byte offsets of the words of a kind of record, as attributes: `offsets_of_record("Buffer").is_deleted`."""
    return SimpleNamespace(**{name: HEADER_BYTES + 8 * i for i, name in enumerate(record_words(kind))})


@functools.cache
def offsets_of_arguments(function: str) -> Any:
    """Byte offsets of the fields of a function's argument structure, as attributes."""
    return SimpleNamespace(**{field.name: field.offset for field in functions()[function].fields})


class RecordPool:
    """Allocator of records, in slabs that are never freed: the framework may read a record at any time."""

    def __init__(self) -> None:
        self._free: list[tuple[int, Any, int]] = []
        self._slots: dict[int, tuple[int, Any, int]] = {}
        self._pack = struct.Struct(f"{RECORD_WORDS}Q").pack_into
        self._lock = new_lock()

    def new(self, words: tuple[int, ...], owner: Any, is_immortal: bool = False) -> int:
        """Returns the handle of a new record with `words`, in the order of `record_words`; it keeps `owner` alive."""
        try:
            slot = self._free.pop()
        except IndexError:
            slot = self._grow()
        address, slab, offset = slot
        self._pack(slab, offset, 0, int(is_immortal), *words, *_PADDING[len(words)])
        self._slots[address] = slot
        objects[address] = owner
        return address

    def free(self, address: int) -> None:
        """Makes a record available again."""
        self._free.append(self._slots[address])

    def reserve(self, count: int) -> list[int]:
        """Takes `count` records out of the pool, for the free list of native code."""
        taken = []
        for _ in range(count):
            slot = self._free.pop() if self._free else self._grow()
            self._slots[slot[0]] = slot
            taken.append(slot[0])
        return taken

    def _grow(self) -> tuple[int, Any, int]:
        with self._lock:
            size = 8 * RECORD_WORDS
            slab = ctypes.create_string_buffer(size * _RECORDS_IN_SLAB)
            immortal(slab)
            start = ctypes.addressof(slab)
            slots = [(start + size * i, slab, size * i) for i in range(_RECORDS_IN_SLAB)]
            self._free.extend(slots[1:])
            return slots[0]


_PADDING = [(0,) * (RECORD_WORDS - 2 - n) for n in range(RECORD_WORDS - 1)]
_pool = RecordPool()


def new_record(kind: str, owner: Any, /, *, is_immortal: bool = False, **words: int) -> int:
    """Returns the handle of a new record with words given by name; the others are 0."""
    assert words.keys() <= set(record_words(kind)), (kind, words.keys() - set(record_words(kind)))
    return _pool.new(tuple(words.get(name, 0) for name in record_words(kind)), owner, is_immortal)


new_packed_record = _pool.new
reserve_records = _pool.reserve
recycle_record = _pool.free


def word_address(kind: str, handle: int, name: str) -> int:
    """Address of a word of a record."""
    return int(handle + getattr(offsets_of_record(kind), name))


def set_word(kind: str, handle: int, name: str, value: int) -> None:
    """Stores a word of a record."""
    ctypes.c_uint64.from_address(word_address(kind, handle, name)).value = value
