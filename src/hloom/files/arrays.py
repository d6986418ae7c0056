"""Arrays in .npz files for the command line, random arrays, and comparisons.

Element types that NumPy lacks (bf16, f8, s4 ..) are stored as raw bits in unsigned integers of the same width.
"""

from __future__ import annotations

import lzma
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from hloom.errors import ArgumentError, counted
from hloom.numerics import convert
from hloom.shape import Shape
from hloom.types import BY_DTYPE
from hloom.values import TOKEN_VALUE, Array, Value, leaves

Arrays = dict[str, Array]
_UNREADABLE = (
    OSError,
    ValueError,
    EOFError,
    LookupError,
    AttributeError,
    TypeError,
    SyntaxError,
    MemoryError,
    OverflowError,
    RuntimeError,
    struct.error,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zipfile.LargeZipFile,
    zlib.error,
    lzma.LZMAError,
)
"""Exceptions that zipfile, its decompressors and NumPy's header parser raise on bytes that are no .npz file."""


def read_arrays(path: str) -> Arrays:
    """Reads all arrays of an .npz file. Raises ArgumentError."""
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except _UNREADABLE as error:
        raise ArgumentError(f"cannot read arrays from {path}: {_reason(error)}") from None


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else "") or str(error) or type(error).__name__


def take_value(arrays: Arrays, shape: Shape, counter: Iterator[int], prefix: str, suffix: str) -> Value:
    """Takes the value of a shape from arrays p0, p1, ..; each leaf of a tuple is an array.

    Raises ArgumentError if an array is missing.
    """
    if shape.is_tuple:
        return tuple(take_value(arrays, element, counter, prefix, suffix) for element in shape.elements)
    if not shape.is_array:
        return TOKEN_VALUE
    name = f"{prefix}{next(counter)}"
    for key in (name + suffix, name):
        if key in arrays:
            return from_raw_bits(arrays[key], shape.element_type.dtype)
    raise ArgumentError(f"the input has no array {name + suffix}; it has: {', '.join(arrays) or 'none'}")


def from_raw_bits(array: Array, dtype: np.dtype[Any]) -> Array:
    """Reinterprets raw bits as an element type that NumPy lacks; other arrays are returned unchanged."""
    if dtype in _NUMPY_TYPES or array.dtype == dtype or array.dtype.itemsize != dtype.itemsize:
        return array
    return array.view(dtype)


_NUMPY_TYPES = {np.dtype(t) for t in "?bhilqBHILQefdFD"}


def write_arrays(path: str, results: list[Value]) -> None:
    """Writes the leaves of the results as r0, r1, .. (r0_rep0, .. for several devices). Raises ArgumentError."""
    arrays = {}
    for device, result in enumerate(results):
        for i, leaf in enumerate(flat(result)):
            stored = leaf if leaf.dtype in _NUMPY_TYPES else leaf.view(np.dtype(f"u{leaf.dtype.itemsize}"))
            arrays[f"r{i}" + (f"_rep{device}" if len(results) > 1 else "")] = stored
    try:
        np.savez(path, allow_pickle=False, **arrays)
    except OSError as error:
        raise ArgumentError(f"cannot write {path}: {error}") from None


def flat(value: Value) -> list[Array]:
    """Flattens a value to its arrays, in order; tokens are dropped."""
    return [np.asarray(leaf) for leaf in leaves(value) if leaf is not TOKEN_VALUE]


def random_value(rng: np.random.Generator, shape: Shape) -> Value:
    """A random value: normally distributed floats, integers from -10 to 10, predicates.

    Raises ArgumentError for unbounded sizes.
    """
    if shape.is_tuple:
        return tuple(random_value(rng, element) for element in shape.elements)
    if not shape.is_array:
        return TOKEN_VALUE
    if shape.is_unbounded:
        raise ArgumentError(f"{shape} has an unbounded size: give arrays, whose sizes it takes")
    element_type, sizes = shape.element_type, shape.dimensions
    if element_type.is_pred:
        return np.asarray(rng.random(sizes) < 0.5)
    if element_type.is_integer:
        low = -min(10, 1 << (element_type.bits - 1)) if element_type.is_signed else 0
        high = min(10, (1 << (element_type.bits - element_type.is_signed)) - 1)
        return np.asarray(rng.integers(low, high, sizes, endpoint=True)).astype(element_type.dtype)
    values: Array = np.asarray(rng.standard_normal(sizes))
    if element_type.is_complex:
        return np.asarray(values + 1j * rng.standard_normal(sizes)).astype(element_type.dtype)
    return convert(values, element_type.dtype)


def difference(got: Array, want: Array, rtol: float, atol: float, of_largest: float = 0.0) -> str | None:
    """Describes how an array differs from the expected one, by the tolerances of `mismatches`; None if not."""
    want = from_raw_bits(want, got.dtype)
    return type_mismatch(got, want) or describe_mismatches(got, want, mismatches(got, want, rtol, atol, of_largest))


def type_mismatch(got: Array, want: Array) -> str | None:
    """Describes how element type or sizes differ; None if they are the same."""
    if got.shape == want.shape and got.dtype == want.dtype:
        return None
    return f"is {describe_type(got)}, expected {describe_type(want)}"


def mismatches(got: Array, want: Array, rtol: float, atol: float, of_largest: float) -> Array:
    """Returns where floats violate |got - want| <= atol + rtol |want| + of_largest max |want|, and others differ.

    The maximum is that of finite elements. NaNs are the same, and infinities of one sign.
    """
    element_type = BY_DTYPE[got.dtype]
    if not (element_type.is_float or element_type.is_complex):
        return np.asarray(got != want)
    wide = np.complex128 if element_type.is_complex else np.float64
    g, w = got.astype(wide), want.astype(wide)
    with np.errstate(all="ignore"):
        sizes = np.abs(w)
        finite = np.isfinite(w)  # an infinity only equals itself: its tolerance would be infinite
        largest = np.max(sizes, initial=0.0, where=finite) if of_largest else 0.0
        near = finite & (np.abs(g - w) <= atol + rtol * sizes + of_largest * largest)
    return ~(near | (g == w) | (np.isnan(g) & np.isnan(w)))


def describe_mismatches(got: Array, want: Array, wrong: Array) -> str | None:
    """Describes where an array differs from the expected one, and its first wrong element; None without one."""
    if not wrong.any():
        return None
    at = tuple(int(i) for i in np.argwhere(wrong)[0]) if got.ndim else ()
    where = f"{int(wrong.sum())} of {counted(got.size, 'element')}, first at {list(at)}"
    return f"differs in {where}: {got[at]}, expected {want[at]}"


def describe_type(array: Array) -> str:
    """Element type and sizes, such as `f32[2,3]`."""
    return f"{BY_DTYPE.get(array.dtype, array.dtype)}[{','.join(map(str, array.shape))}]"
