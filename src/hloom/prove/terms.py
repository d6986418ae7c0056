"""Elements as SMT terms: booleans, bit-vectors, and floats that are seen as bits or as IEEE numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import z3

from hloom.errors import HloomError
from hloom.types import PrimitiveType
from hloom.values import Array

FORMATS = {
    PrimitiveType.F16: (5, 11), PrimitiveType.BF16: (8, 8), PrimitiveType.F32: (8, 24), PrimitiveType.F64: (11, 53),
    PrimitiveType.F8E5M2: (5, 3), PrimitiveType.F8E4M3: (4, 4), PrimitiveType.F8E3M4: (3, 5),
}  # fmt: skip
"""Widths of exponent and significand, with its hidden bit, of the element types in formats of IEEE 754."""

NEAREST = z3.RNE()
"""Rounding to nearest, ties to even (GEN-7)."""


class Unsupported(HloomError):
    """Raised for what has no symbolic meaning; the message names it."""


class Term:
    """An element: a boolean for PRED, else its bits, and for floats of IEEE 754 also a number.

    Both views are made when they are needed. Elements that only move keep their bits; the bits of a NaN that is
    computed are unspecified.
    """

    __slots__ = ("_bits", "_number", "type")

    def __init__(
        self, type: PrimitiveType, bits: Callable[[], Any] | None = None, number: Callable[[], Any] | None = None
    ) -> None:
        self.type = type
        self._bits: Any = bits
        self._number: Any = number

    @property
    def bits(self) -> Any:
        """The bit-vector, or the boolean of a PRED; the real part of a complex number is in the low half."""
        if self._bits is None:
            self._bits = z3.fpToIEEEBV(self.number)
        elif not isinstance(self._bits, z3.ExprRef):
            self._bits = self._bits()
        return self._bits

    @property
    def number(self) -> Any:
        """The IEEE number of a float. Raises Unsupported for other formats."""
        if self._number is None:
            self._number = z3.simplify(z3.fpBVToFP(self.bits, sort_of(self.type)))
        elif not isinstance(self._number, z3.ExprRef):
            self._number = self._number()
        return self._number

    @property
    def known(self) -> int | None:
        """The bits as an unsigned integer, or 0 or 1 for PRED, if they do not depend on variables."""
        value = z3.simplify(self.bits)
        if self.type.is_pred:
            return 1 if z3.is_true(value) else 0 if z3.is_false(value) else None
        return int(value.as_long()) if z3.is_bv_value(value) else None


def from_bits(type: PrimitiveType, value: Any) -> Term:
    """Returns an element, given by its bits."""
    return Term(type, bits=lambda: value)


def from_number(type: PrimitiveType, value: Any) -> Term:
    """Returns a float, given by its IEEE number."""
    return Term(type, number=lambda: value)


def sort_of(type: PrimitiveType) -> Any:
    """Returns the sort of the IEEE numbers of a float type. Raises Unsupported for other formats."""
    if type not in FORMATS:
        raise Unsupported(f"{type} is not a format of IEEE 754")
    return z3.FPSort(*FORMATS[type])


def variable(type: PrimitiveType, name: str) -> Term:
    """Returns an unknown element."""
    return from_bits(type, z3.Bool(name) if type.is_pred else z3.BitVec(name, type.bits))


def constant(type: PrimitiveType, value: Any) -> Term:
    """Returns an element of known value, given as a NumPy scalar."""
    array = np.asarray(value, type.dtype)
    if type.is_pred:
        return from_bits(type, z3.BoolVal(bool(array)))
    known = int.from_bytes(array.tobytes(), "little") & ((1 << type.bits) - 1)
    return from_bits(type, z3.BitVecVal(known, type.bits))


def choose(condition: Any, then: Term, otherwise: Term) -> Term:
    """Returns `then` where a z3 boolean holds, else `otherwise`."""
    condition = z3.simplify(condition)
    if z3.is_true(condition) or then is otherwise:
        return then
    if z3.is_false(condition):
        return otherwise
    return Term(
        then.type,
        lambda: z3.If(condition, then.bits, otherwise.bits),
        (lambda: z3.If(condition, then.number, otherwise.number)) if then.type in FORMATS else None,
    )


def same(a: Term, b: Term) -> Any:
    """Returns a z3 boolean: whether two elements are equal; all NaNs are equal, zeros of both signs are not."""
    return identical(a.number, b.number) if a.type in FORMATS else a.bits == b.bits


def identical(a: Any, b: Any) -> Any:
    """Returns a z3 boolean: whether two terms have one value, where all NaNs are one."""
    return z3.BoolRef(z3.Z3_mk_eq(a.ctx_ref(), a.as_ast(), b.as_ast()), a.ctx)


def array_of(terms: list[Term], sizes: tuple[int, ...]) -> Array:
    """Returns an array of terms, given in row-major order."""
    array = np.empty(len(terms), object)
    array[:] = terms
    return array.reshape(sizes)
