"""Elements as expressions of z3: booleans, bit-vectors, and floats that are seen as bits or as IEEE numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import z3

from hloom.prove.terms.term import Unsupported, constant
from hloom.types import PrimitiveType

FORMATS = {
    PrimitiveType.F16: (5, 11), PrimitiveType.BF16: (8, 8), PrimitiveType.F32: (8, 24), PrimitiveType.F64: (11, 53),
}  # fmt: skip
"""Widths of exponent and significand, with its hidden bit, of the formats of IEEE 754 that the solver computes in."""

NEAREST = z3.RNE()
"""Rounding to nearest, ties to even (GEN-7)."""


class Element:
    """A boolean for PRED, else a bit-vector, and for floats of IEEE 754 also a number.

    Both views are made when they are needed. The bits of a NaN that is computed have no sign and no payload (GEN-7).
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
            number = self.number
            self._bits = z3.If(z3.fpIsNaN(number), _nan(self.type), z3.fpToIEEEBV(number))
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


def _nan(type: PrimitiveType) -> Any:
    return z3.BitVecVal(constant(type, np.asarray(np.nan).astype(type.dtype)).known, type.bits)


def from_bits(type: PrimitiveType, value: Any) -> Element:
    """Returns an element, given by its bits."""
    return Element(type, bits=lambda: value)


def from_number(type: PrimitiveType, value: Any) -> Element:
    """Returns a float, given by its IEEE number."""
    return Element(type, number=lambda: value)


def sort_of(type: PrimitiveType) -> Any:
    """Returns the sort of the IEEE numbers of a float type. Raises Unsupported for other formats."""
    if type not in FORMATS:
        raise Unsupported(f"{type} is not a format of IEEE 754")
    return z3.FPSort(*FORMATS[type])


def known(type: PrimitiveType, value: Any) -> Element:
    """Returns an element of known value, given as a NumPy or Python scalar."""
    return from_code(type, constant(type, value).known or 0)


def from_code(type: PrimitiveType, code: int) -> Element:
    """Returns an element of known bits; 0 or 1 for PRED."""
    return from_bits(type, z3.BoolVal(bool(code)) if type.is_pred else z3.BitVecVal(code, type.bits))


def choose(condition: Any, then: Element, otherwise: Element) -> Element:
    """Returns `then` where a boolean of z3 holds, else `otherwise`."""
    return Element(
        then.type,
        lambda: z3.If(condition, then.bits, otherwise.bits),
        (lambda: z3.If(condition, then.number, otherwise.number)) if then.type in FORMATS else None,
    )


def identical(a: Any, b: Any) -> Any:
    """Returns whether two expressions have one value, where all NaNs are one, as a boolean of z3."""
    return z3.BoolRef(z3.Z3_mk_eq(a.ctx_ref(), a.as_ast(), b.as_ast()), a.ctx)
