"""Reuses memory of results and temporaries, so that calls in a steady state cause no page faults.

Fresh memory from the system costs a page fault and zeroing for every page that is first written, often more than the
computation that writes it. Memory of 64 KiB and more comes from the pool of `memory_pool.py`, and returns to it when
the last array over it is collected: a `Block` owns memory by a capsule, and is the base of all arrays and views over
the memory.
"""

from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from hloom.backends.cpu.runtime.memory_pool import MAX, SMALLEST, memory_pool
from hloom.errors import ResourceExhaustedError
from hloom.system.python_api import python_function
from hloom.target import CACHE_LINE

_BYTE = np.dtype(np.uint8)
_WRITABLE = 0x200  # PyBUF_WRITE
_pointer = python_function("PyCapsule_GetPointer", ctypes.c_size_t, ctypes.py_object, ctypes.c_void_p)
_view = python_function("PyMemoryView_FromMemory", ctypes.py_object, ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int)


class Block(np.ndarray[Any, np.dtype[np.uint8]]):
    """Memory in use of the pool, as an array of bytes; it returns to the pool when the block is collected."""

    capsule: object = None
    """Python capsule that owns the memory; None for a view of a block."""

    @property
    def address(self) -> int:
        """Address of the memory."""
        return int(self.ctypes.data)

    @property
    def byte_size(self) -> int:
        """Size in bytes."""
        return self.nbytes


def allocate(byte_size: int) -> Block:
    """Returns an uninitialised block of `byte_size` bytes, aligned to a cache line.

    Raises ResourceExhaustedError if the system has no memory.
    """
    try:
        capsule = memory_pool().take_capsule(min(byte_size, MAX + 1))
    except MemoryError:
        reason = f"no memory for a buffer of {byte_size:,} bytes: the system has none to give"
        raise ResourceExhaustedError(reason) from None
    block = Block((byte_size,), _BYTE, _view(_pointer(capsule, None), byte_size, _WRITABLE))
    block.capsule = capsule
    return block


def empty(shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Returns an uninitialised row-major array, as `allocator` makes them."""
    return allocator(shape, dtype)()


def allocator(shape: tuple[int, ...], dtype: npt.DTypeLike) -> Callable[[], npt.NDArray[Any]]:
    """Returns a function that makes uninitialised row-major arrays: in blocks if they have SMALLEST bytes or more, else
    NumPy's.

    NumPy aligns memory to 16 bytes. The function raises ResourceExhaustedError if the system has no memory.
    """
    dtype = np.dtype(dtype)
    byte_size = math.prod(shape) * dtype.itemsize
    if byte_size >= SMALLEST:
        return lambda: np.ndarray(shape, dtype, allocate(byte_size))
    if byte_size:
        return functools.partial(np.empty, shape, dtype)  # the C library caches small allocations
    return lambda: _without_elements(shape, dtype)


def _without_elements(shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Returns an array without elements, whose other sizes may be too large for NumPy."""
    try:
        return np.empty(shape, dtype)
    except ValueError as error:
        raise ResourceExhaustedError(f"no array of shape {shape}: {error}") from None


def owns_memory(owner: object) -> bool:
    """Whether the memory of an array is its own, not shared with another owner; False if unknown."""
    if isinstance(owner, Block):
        return owner.capsule is not None
    return isinstance(owner, np.ndarray) and owner.flags.owndata


def is_well_aligned(array: npt.NDArray[Any]) -> bool:
    """Whether an array is aligned as `empty` aligns arrays of its size, as programs require of their results."""
    return array.nbytes < SMALLEST or array.ctypes.data % CACHE_LINE == 0


def release_cached() -> None:
    """Returns all free memory to the system."""
    memory_pool().release_cached()
