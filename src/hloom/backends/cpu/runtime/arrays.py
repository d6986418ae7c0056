"""Arrays of callers and buffers of programs: which arrays share memory, conversions, and values made of arrays."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import Any, TypeGuard

import numpy as np
from numpy.lib.array_utils import byte_bounds

from hloom.backends.cpu.program.program import TOKEN_SLOT, Buffer, Slot
from hloom.backends.cpu.runtime import buffers
from hloom.values import TOKEN_VALUE, Array, Value, map_leaves


def sharing_memory(arguments: Sequence[Any]) -> set[int]:
    """Returns the indices of the arguments whose memory overlaps that of another one."""
    arrays = {k: argument for k, argument in enumerate(arguments) if isinstance(argument, np.ndarray)}
    owners = [array if array.base is None else array.base for array in arrays.values()]
    if all(map(buffers.owns_memory, owners)) and len(set(map(id, owners))) == len(owners):
        return set()
    shared: set[int] = set()
    last, reached = -1, 0
    for start, end, k in sorted((*byte_bounds(array), k) for k, array in arrays.items() if array.size):
        if start < reached:
            shared |= {last, k}
        if end > reached:
            last, reached = k, end
    return shared


def is_dense_array(array: Any, sizes: tuple[int, ...], dtype: np.dtype[Any]) -> TypeGuard[Array]:
    """Whether a value is a dense array of an element type, with the number of elements of a shape."""
    is_dense = isinstance(array, np.ndarray) and array.dtype == dtype and array.flags.c_contiguous
    return is_dense and array.size == math.prod(sizes)


def with_copies(value: Value, shared: set[int]) -> Value:
    """Returns a value with copies of the arrays whose ids are in `shared`."""
    return map_leaves(lambda array: array.copy() if id(array) in shared else array, value)


def result_value(tree: Any, results: Sequence[Array], slots: list[Any]) -> Value:
    """Returns the result in the shape of the root, from result arrays and slots."""

    def value_of(leaf: Any) -> Value:
        if isinstance(leaf, Slot):
            return TOKEN_VALUE if leaf == TOKEN_SLOT else slots[leaf.index]
        return results[leaf.index]

    return map_leaves(value_of, tree)


def as_dense(array: Array, buffer: Buffer) -> Array:
    """Returns an array as `hloom_call` requires: dense, aligned, with the element type's own descriptor object."""
    dense = np.require(array, requirements=("C", "A"))
    if type(dense) is not np.ndarray or dense.dtype is not buffer.type.dtype:
        # Equal element types may be different objects.
        return np.asarray(dense).astype(buffer.type.dtype, order="C", subok=False)
    return dense


def array_at(address: int, buffer: Buffer) -> Array:
    """Returns the array in a buffer, as a view."""
    size = buffer.byte_size
    if not size:
        return np.empty(buffer.dimensions, buffer.type.dtype)
    memory = (ctypes.c_char * size).from_address(address)
    return np.frombuffer(memoryview(memory), buffer.type.dtype).reshape(buffer.dimensions)
