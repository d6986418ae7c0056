"""Memory for results and temporaries that is used again, so that calls in a steady state pay for no page faults.

Fresh memory from the system costs a page fault and a page of zeros for every page that is first written, often more
than the computation that writes it. Memory of 64 KiB and more comes from the pool of `memory_pool.py`, and returns to
it when the last array over it dies: a `Block` owns memory while it lives, by a capsule, and arrays made over it have it
as their base, and so have all their views.
"""

from __future__ import annotations

import ctypes
import math
from typing import Any

import numpy as np
import numpy.typing as npt

from hloom.backends.cpu.runtime.memory_pool import MAX, SMALLEST, memory_pool
from hloom.errors import ResourceExhaustedError
from hloom.runtime.python_api import python_function

_BYTE = np.dtype(np.uint8)
_LINE = 64  # bytes
_WRITABLE = 0x200  # PyBUF_WRITE
_pointer = python_function("PyCapsule_GetPointer", ctypes.c_size_t, ctypes.py_object, ctypes.c_void_p)
_view = python_function("PyMemoryView_FromMemory", ctypes.py_object, ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int)


class Block(np.ndarray[Any, np.dtype[np.uint8]]):
    """Memory of the pool in use, as an array of bytes; it returns to the pool when the block dies."""

    capsule: object = None
    """Gives the memory back when it dies; None for a view of a block."""

    @property
    def address(self) -> int:
        return int(self.ctypes.data)

    @property
    def byte_size(self) -> int:
        return self.nbytes


def allocate(byte_size: int) -> Block:
    """A block of byte_size bytes (any content), aligned to a cache line."""
    try:
        capsule = memory_pool().take_capsule(min(byte_size, MAX + 1))
    except MemoryError:
        reason = f"no memory for a buffer of {byte_size:,} bytes: the system has none to give"
        raise ResourceExhaustedError(reason) from None
    block = Block((byte_size,), _BYTE, _view(_pointer(capsule, None), byte_size, _WRITABLE))
    block.capsule = capsule
    return block


def empty(shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """A row-major array of any content. From SMALLEST bytes on it lies in a block; less is NumPy's (aligned to 16)."""
    dtype = np.dtype(dtype)
    byte_size = math.prod(shape) * dtype.itemsize
    if byte_size < SMALLEST:
        try:
            return np.empty(shape, dtype)  # the C library has small memory at hand
        except ValueError as error:
            raise ResourceExhaustedError(f"no array of shape {shape}: {error}") from None
    return np.ndarray(shape, dtype, allocate(byte_size))


def owns_memory(owner: object) -> bool:
    """Whether no other object that owns memory owns a part of this one's; False where that is not known."""
    if isinstance(owner, Block):
        return owner.capsule is not None
    return isinstance(owner, np.ndarray) and owner.flags.owndata


def is_well_aligned(array: npt.NDArray[Any]) -> bool:
    """Whether an array starts where `empty` puts one of its size, as programs expect of arrays that they write."""
    return array.nbytes < SMALLEST or array.ctypes.data % _LINE == 0


def release_cached() -> None:
    """Gives all free memory back to the system."""
    memory_pool().release_cached()
