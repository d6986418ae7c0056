"""Literals: values with shapes, arrays or tuples of literals, and their conversion to and from linear memory."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import numpy as np

from hloom.errors import ArgumentError, RuleError
from hloom.index import linear_indices
from hloom.layout import Layout, PaddingValue
from hloom.numerics import has_infinity, pack_narrow, unpack_narrow
from hloom.shape import TOKEN, Shape, tiled_buffer_size
from hloom.types import BY_DTYPE, PrimitiveType
from hloom.values import TOKEN_VALUE, Array, Token, Value


class Literal:
    """An immutable value: a `shape` with layouts, and `value`, a read-only NumPy array, a token or a tuple of values.

    Two literals are equal if their shapes are equal up to layouts and their elements have the same bits, NaN payloads
    included; padding is ignored (SL-16).

    >>> literal = hl.Literal.from_value(np.float32([[1, 2], [3, 4]]))
    >>> np.frombuffer(literal.with_layout(hl.Layout((0, 1))).to_linear_memory(), np.float32)
    array([1., 3., 2., 4.], dtype=float32)
    """

    __slots__ = ("shape", "value")

    def __init__(self, shape: Shape, value: Value) -> None:
        self.shape = shape
        self.value = value

    @staticmethod
    def from_numpy(array: Array | np.generic, layout: Layout | None = None) -> Literal:
        """Returns a literal with a copy of a NumPy array, in `layout` or the default one.

        Raises ArgumentError for a dtype without an element type.
        """
        array = plain_array(array)
        dtype = array.dtype.newbyteorder("=")
        if dtype not in BY_DTYPE:
            known = ", ".join(str(known) for known in BY_DTYPE)
            raise ArgumentError(f"there is no element type for arrays of {array.dtype}; there is for: {known}")
        own = np.array(array, dtype, order="C")
        own.flags.writeable = False
        return Literal(Shape.array(BY_DTYPE[dtype], own.shape, layout=layout), own)

    @staticmethod
    def from_value(value: Any) -> Literal:
        """Converts arrays, Python numbers, nested lists, and tuples of these to a literal.

        Python bools become pred, ints s32 (s64 if a value does not fit), floats f32, complex numbers c64. Objects with
        `__array__` or `__dlpack__` are arrays. Raises ArgumentError for anything else.
        """
        if isinstance(value, Literal):
            return value
        if isinstance(value, tuple):
            return Literal.tuple_of(map(Literal.from_value, value))
        if isinstance(value, Token):
            return Literal(TOKEN, TOKEN_VALUE)
        if isinstance(value, (np.ndarray, np.generic)):
            return Literal.from_numpy(value)
        try:
            if hasattr(value, "__array__"):
                return Literal.from_numpy(np.asarray(value))
            if hasattr(value, "__dlpack__"):
                return Literal.from_numpy(np.from_dlpack(value))
            return Literal.from_numpy(_from_python(value))
        except (TypeError, ValueError, OverflowError, BufferError, RuntimeError) as error:
            raise ArgumentError(f"cannot convert {type(value).__name__} to an array: {error}") from None

    @staticmethod
    def tuple_of(elements: Iterable[Literal]) -> Literal:
        """Returns the tuple of some literals."""
        parts = tuple(elements)
        return Literal(Shape.tuple_of(part.shape for part in parts), tuple(part.value for part in parts))

    @property
    def elements(self) -> tuple[Literal, ...]:
        """The elements of a tuple literal, in order."""
        return tuple(Literal(s, v) for s, v in zip(self.shape.elements, self.value, strict=True))

    def with_layout(self, layout: Layout | None) -> Literal:
        """Returns the array with the same values in another layout; None is the default layout."""
        return Literal(self.shape.with_layout(layout), self.value)

    def to_linear_memory(self) -> bytes:
        """Encodes an array in the layout of its shape, padding and tiles included (SL-10 to SL-17, SL-23).

        The result has `shape.byte_size` bytes. Raises ArgumentError for tuples and tokens, which have no buffer of
        their own.
        """
        shape = self.shape
        if shape.layout is None:
            raise ArgumentError(f"{shape} has no linear memory of its own: take its elements")
        array = cast(Array, self.value)
        if shape.layout.is_dense_row_major:
            return array.tobytes()
        buffer = np.zeros(tiled_buffer_size(shape), shape.element_type.dtype)
        if shape.layout.padded_dimensions:
            buffer[:] = _padding(shape)
            if shape.layout.tiles:
                buffer[_tile_padding(shape)] = 0
        buffer[linear_indices(shape).reshape(-1)] = array.reshape(-1)
        bits = shape.layout.element_size_in_bits
        return (pack_narrow(buffer) if 0 < bits < 8 else buffer).tobytes()

    @staticmethod
    def from_linear_memory(shape: Shape, memory: bytes | memoryview) -> Literal:
        """Decodes an array from a buffer in the layout of `shape`; the inverse of `to_linear_memory`.

        Raises RuleError[SL-22] if the buffer does not have `shape.byte_size` bytes, ArgumentError if `shape` is no
        array.
        """
        if shape.layout is None:
            raise ArgumentError(f"{shape} has no linear memory of its own")
        size = memoryview(memory).nbytes
        if size != shape.byte_size:
            raise RuleError("literal", "SL-22", f"the buffer of {shape} has {shape.byte_size} bytes, got {size}")
        bits, dtype = shape.layout.element_size_in_bits, shape.element_type.dtype
        if 0 < bits < 8:
            buffer = unpack_narrow(np.frombuffer(memory, np.uint8), tiled_buffer_size(shape), dtype)
        else:
            buffer = np.frombuffer(memory, dtype)
        if shape.layout.is_dense_row_major:
            array = buffer.reshape(shape.dimensions)
        else:
            array = np.asarray(buffer[linear_indices(shape)])
        array = array.view()
        array.flags.writeable = False
        return Literal(shape, array)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Literal) or not self.shape.compatible(other.shape):
            return False
        return self.bits() == other.bits()

    def __hash__(self) -> int:
        return hash((self.shape, self.bits()))

    def bits(self) -> bytes:
        """The bits of all elements, in row-major order without padding; elements narrower than a byte are packed."""
        if self.shape.is_tuple:
            return b"".join(element.bits() for element in self.elements)
        return _element_bits(self.value) if self.shape.is_array else b""

    def __repr__(self) -> str:
        text = np.array2string(self.value, threshold=8, edgeitems=2) if self.shape.is_array else str(self.value)
        return f"Literal({self.shape} {text})"


def plain_array(array: Any) -> Array:
    """Returns an array of NumPy's own class with the memory of one that may be of a subclass, with other operators.

    Raises ArgumentError for a masked array with masked elements, which have no value.
    """
    # NumPy imports `np.ma` at its first use, which takes as long as compiling a small program.
    is_subclass = isinstance(array, np.ndarray) and type(array) is not np.ndarray
    if is_subclass and isinstance(array, np.ma.MaskedArray) and np.ma.is_masked(array):
        raise ArgumentError("a masked array has elements without a value: give array.filled(value)")
    return np.asarray(array)


def _element_bits(array: Array) -> bytes:
    """The bits of the elements, in the width of their type; a predicate is 0 or 1 whatever byte holds it."""
    element_type = BY_DTYPE[array.dtype]
    if element_type.is_pred:
        return np.ascontiguousarray(array).view(np.uint8).astype(bool).tobytes()
    return (pack_narrow(array) if element_type.bits < 8 else array).tobytes()


def _from_python(value: Any) -> Array:
    array = np.asarray(value)
    if array.dtype == np.float64:
        return array.astype(np.float32)
    if array.dtype == np.complex128:
        return array.astype(np.complex64)
    if array.dtype == np.int64 and (array.size == 0 or (array.min() >= -(2**31) and array.max() < 2**31)):
        return array.astype(np.int32)
    return array


def _padding(shape: Shape) -> Any:
    """The element that fills the padding of a buffer (SL-14); zero unless the layout has a padding value."""
    kind, element_type = shape.layout.padding_value if shape.layout else None, shape.element_type
    if kind is PaddingValue.ONE_PAD:
        return np.ones((), element_type.dtype)
    if kind in (PaddingValue.LOWEST_PAD, PaddingValue.HIGHEST_PAD):
        return extreme(element_type, highest=kind is PaddingValue.HIGHEST_PAD)
    return np.zeros((), element_type.dtype)


def extreme(element_type: PrimitiveType, *, highest: bool) -> Array:
    """Returns the highest or lowest value of an ordered element type as a scalar: an infinity if the type has one."""
    import ml_dtypes

    dtype = element_type.dtype
    if element_type.is_pred:
        return np.asarray(highest)
    if element_type.is_integer:
        return np.asarray(element_type.limits[highest]).astype(dtype)
    if has_infinity(dtype):
        return np.asarray(np.inf if highest else -np.inf, np.float32).astype(dtype)
    limits = ml_dtypes.finfo(dtype)
    return np.asarray(limits.max if highest else limits.min, dtype)


def _tile_padding(shape: Shape) -> Array:
    """A mask over the slots of the buffer that tiles add beyond the padded widths; they hold zeros (SL-28)."""
    assert shape.layout is not None
    widened = Shape.array(
        shape.element_type,
        shape.buffer_dimensions,
        layout=Layout(shape.layout.minor_to_major, tiles=shape.layout.tiles),
    )
    outside = np.ones(tiled_buffer_size(shape), bool)
    outside[linear_indices(widened).reshape(-1)] = False
    return outside
