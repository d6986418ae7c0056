"""Python side of native execution (`native/execute.py`): prepares executables, exchanges buffers with native code."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from hloom.backends.cpu.executable import NativeEntry
from hloom.backends.cpu.runtime.device_threads import device_threads_address, run_devices_address
from hloom.errors import ArgumentError, ResourceExhaustedError
from hloom.pjrt.buffers import Buffer, address_of_array, array_at, element_type_of
from hloom.pjrt.handlers import read_integers, read_words
from hloom.pjrt.native.api import code
from hloom.pjrt.native.call_buffers import DESCRIPTION_WORDS
from hloom.pjrt.native.execute import BRIEF, LOOPS, NEVER_QUEUED, TIMED
from hloom.pjrt.native.memory import DONATED
from hloom.pjrt.records import Objects, objects, record_words, set_word, word_address

MAX_TABLE = 8192
"""Size limit in words of a program's tables, which are copied to the stack of the calling thread."""


def enable_native(
    loaded: int,
    entry: NativeEntry,
    layouts: int,
    results: Sequence[Sequence[tuple[int, ...]]],
    donated: frozenset[int],
) -> bool:
    """Fills the record of an executable so that native code can run it; returns false if its tables are too large.

    Arguments:
        loaded: the handle of the executable.
        entry: its program, which must live as long as the executable.
        layouts: the address of the handles of the parameters' layouts.
        results: for each device, the initial words of each result's record.
        donated: the parameter numbers of donated arguments.
    """
    if entry.tables.size > MAX_TABLE:
        return False
    if entry.groups:
        code().state.run_devices = run_devices_address()
        code().state.device_threads = device_threads_address()
    descriptions: list[int] = []
    for index, words in (description for each in results for description in enumerate(each)):
        donor = entry.donated[index] + 1 if index in entry.donated else 0
        descriptions += (donor, *words, *(0,) * (DESCRIPTION_WORDS - 1 - len(words)))
    is_donated = [int(index in donated) for index in range(entry.inputs)]
    words_of = objects[loaded].words
    for name, value in (
        ("template", entry.tables.ctypes.data),
        ("table_words", entry.tables.shape[1]),
        ("first_input", entry.first_input),
        ("input_count", entry.inputs),
        ("output_count", len(results[0])),
        ("descriptions", words_of(descriptions)),
        ("donated", words_of(is_donated) if donated else 0),
        ("arena_bytes", entry.arena_bytes),
        ("input_layouts", layouts),
        ("is_shared", int(entry.is_shared)),
        ("dispatch", _dispatch(entry)),
        ("last_nanoseconds", 0),
        ("failed_call", 0),
        ("device_count", len(results)),
        ("groups", entry.groups),
        ("main", entry.main),
    ):
        set_word("LoadedExecutable", loaded, name, value)
    return True


def _dispatch(entry: NativeEntry) -> int:
    if not entry.always_ends:
        return NEVER_QUEUED
    return BRIEF if entry.is_brief else LOOPS if entry.has_loops else TIMED


class NativeMemory:
    """Owner of memory that native code allocated; releases it with the last array that views it."""

    def __init__(self, address: int, size: int) -> None:
        self.address = address
        self.size = size
        self._release = code().release

    def __del__(self) -> None:
        self._release(self.address, self.size)


def adopt(handle: int) -> Buffer:
    """Makes the Python object of a buffer that native code created, and transfers the memory to it.

    Raises ArgumentError for a donated buffer, KeyError for a handle of anything else.
    """
    owned = ctypes.c_uint64.from_address(word_address("Buffer", handle, "owned"))
    if owned.value == DONATED:
        raise ArgumentError("the buffer has been deleted or donated")
    if not owned.value:
        raise KeyError(handle)
    words = read_words(handle + 16, len(record_words("Buffer")))
    word = dict(zip(record_words("Buffer"), words, strict=True))
    code().wait_for(word["ready_at"])
    shape = read_integers(word["dims"], word["num_dims"])
    order = tuple(read_integers(word["minor_to_major"], word["num_dims"]))
    memory = NativeMemory(owned.value, word["on_device_size_in_bytes"])
    array = array_at(
        word["buffer_pointer"], element_type_of(word["type"]), [shape[d] for d in order[::-1]], None, memory
    )
    owned.value = 0
    buffer = Buffer(array, objects[word["memory"]], handle=handle, order=order)
    objects[handle] = buffer
    return buffer


def transfer_to_native(buffer: Buffer) -> None:
    """Transfers a buffer without external references to native code, so that it can be donated. Copies its contents."""
    address = code().allocate(buffer.size)
    if not address:
        raise ResourceExhaustedError(f"no memory for a buffer of {buffer.size:,} bytes")
    ctypes.memmove(address, address_of_array(buffer.value()), buffer.size)
    set_word("Buffer", buffer.handle, "buffer_pointer", address)
    set_word("Buffer", buffer.handle, "owned", address)
    code().count_bytes(buffer.handle, True)
    del objects[buffer.handle]
    buffer.release()


Objects.adopt = staticmethod(adopt)
