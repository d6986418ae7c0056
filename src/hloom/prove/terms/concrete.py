"""Terms on numbers: the values of terms for arrays of values of their variables, as the interpreter computes them."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hloom.numerics import bits_of, has_nan, is_narrow_integer
from hloom.ops import elementwise_binary as binary
from hloom.ops import elementwise_unary as unary
from hloom.ops.context import Context
from hloom.ops.convert import BitcastConvert
from hloom.ops.operation import Operation
from hloom.ops.select import Select
from hloom.prove.terms.term import Combination, Function, Join, Part, Polynomial, Term, Unsupported, in_order
from hloom.shape import Shape
from hloom.types import BY_DTYPE, PrimitiveType
from hloom.values import Array

KEEPS_NAN = (Select, BitcastConvert, unary.Negate, unary.Abs, unary.Real, unary.Imag, binary.Complex)
"""Operations that move, choose or negate data, NaNs with their bits among them (GEN-7)."""


def from_codes(type: PrimitiveType, codes: Sequence[int] | Array) -> Array:
    """Returns the elements with some bits, given as unsigned integers; 0 or 1 for PRED."""
    if type.is_pred:
        return np.asarray(codes).astype(bool)
    if type.bits > 64:
        return np.frombuffer(b"".join(int(code).to_bytes(type.bits // 8, "little") for code in codes), type.dtype)
    raw = np.asarray(codes, np.uint64)
    if is_narrow_integer(type.dtype) and type.is_signed:
        raw = np.where(raw >> np.uint64(type.bits - 1), raw | np.uint64(0x100 - (1 << type.bits)), raw)
    return raw.astype(f"u{min(8, type.dtype.itemsize)}").view(type.dtype)


def to_codes(type: PrimitiveType, array: Array) -> list[int]:
    """Returns the bits of elements, the inverse of `from_codes`."""
    if type.is_pred:
        return [int(value) for value in array.reshape(-1)]
    mask, size = (1 << type.bits) - 1, type.dtype.itemsize
    raw = np.ascontiguousarray(array).tobytes()
    return [int.from_bytes(raw[k : k + size], "little") & mask for k in range(0, len(raw), size)]


class _Site:
    """The part of a context that element-wise operations look at: the shape of the result."""

    __slots__ = ("shape",)

    def __init__(self, shape: Shape) -> None:
        self.shape = shape


@functools.lru_cache(1024)
def _site(type: PrimitiveType, count: int) -> Any:
    return _Site(Shape.array(type, (count,)))


def applied(op: Function, type: PrimitiveType, arrays: Sequence[Array]) -> Array:
    """Applies a function to vectors of elements of equal lengths. Raises Unsupported for unknown functions."""
    with np.errstate(all="ignore"):
        if isinstance(op, Operation):
            site: Context = _site(type, len(arrays[0]))
            result = np.asarray(op.evaluate(site, *op.bind(arrays)))
            return result if isinstance(op, KEEPS_NAN) else _without_nan_bits(result, type)
        if isinstance(op, Combination):
            return _combined(op, type, list(arrays))
        if isinstance(op, Polynomial):
            return _polynomial(op, type, arrays)
        if isinstance(op, Part):
            return _part(arrays[0], type, op.index)
        if isinstance(op, Join):
            return _joined(arrays, type)
    raise Unsupported(f"{op.name} has no values")


def _without_nan_bits(array: Array, type: PrimitiveType) -> Array:
    """Replaces NaNs by one that has no sign and no payload (GEN-7)."""
    if type.is_complex:
        parts = array.view(type.real.dtype).copy()
        parts[np.isnan(parts)] = np.nan
        return parts.view(type.dtype)
    if type.is_float and has_nan(type.dtype) and (nans := np.isnan(array)).any():
        array = array.copy()
        array[nans] = np.asarray(np.nan).astype(type.dtype)
    return array


def _combined(combination: Combination, type: PrimitiveType, arrays: list[Array]) -> Array:
    while len(arrays) > 1:
        pairs = [applied(combination.op, type, arrays[k : k + 2]) for k in range(0, len(arrays) - 1, 2)]
        arrays = [*pairs, *arrays[len(arrays) & ~1 :]]
    return arrays[0]


def _polynomial(polynomial: Polynomial, type: PrimitiveType, arrays: Sequence[Array]) -> Array:
    wide = [array.astype(np.int64).view(np.uint64) for array in arrays]
    total = np.zeros(arrays[0].shape, np.uint64)
    for coefficient, factors in polynomial.products:
        product = np.full(arrays[0].shape, coefficient, np.uint64)
        for factor in factors:
            product = product * wide[factor]
        total = total + product
    return from_codes(type, total & np.uint64((1 << type.bits) - 1))


def _part(array: Array, type: PrimitiveType, index: int) -> Array:
    if type.bits >= 8:
        parts: Array = np.ascontiguousarray(array).view(type.dtype).reshape(*array.shape, -1)[..., index]
        return parts
    mask = np.uint64((1 << type.bits) - 1)
    return from_codes(type, bits_of(array).astype(np.uint64) >> np.uint64(index * type.bits) & mask)


def _joined(arrays: Sequence[Array], type: PrimitiveType) -> Array:
    bits = BY_DTYPE[arrays[0].dtype].bits
    if bits >= 8:
        return np.ascontiguousarray(np.stack(arrays, -1)).view(type.dtype).reshape(arrays[0].shape)
    total = np.zeros(arrays[0].shape, np.uint64)
    for k, array in enumerate(arrays):
        total |= (bits_of(array).astype(np.uint64) & np.uint64((1 << bits) - 1)) << np.uint64(k * bits)
    return from_codes(type, total)


def values(roots: Sequence[Term], given: Mapping[Term, Array]) -> list[Array]:
    """Returns the values of terms, for vectors of values of their variables, all of one length.

    Raises Unsupported if the terms have unknown functions.
    """
    found = dict(given)
    count = len(next(iter(given.values()))) if given else 1
    for term in in_order(roots):
        if term in found:
            continue
        if term.known is not None:
            found[term] = np.broadcast_to(from_codes(term.type, [term.known]), (count,))
        elif term.op is not None:
            found[term] = applied(term.op, term.type, [found[operand] for operand in term.operands])
    return [found[root] for root in roots]
