"""Element-wise operations on two operands of one shape (spec 29 to 44, mulhi).

In HLO both operands have equal dimensions; the builder adds broadcasts (BC-20).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from hloom.errors import RunError
from hloom.literal import extreme
from hloom.numerics import C64, compute, compute_accurately, scaled_alike, widen
from hloom.ops.context import Context
from hloom.ops.operation import Operation
from hloom.ops.rules import check_array, check_same_type
from hloom.ops.traits import Linear
from hloom.shape import UNBOUNDED, Shape
from hloom.types import BY_DTYPE, FLOATS, FLOATS_COMPLEX, INTEGERS, NUMERIC, REALS, Kind, PrimitiveType
from hloom.values import Array

BITS = INTEGERS | {Kind.PRED}


def joint_shape(op: Operation, clause: str, *shapes: Shape) -> Shape:
    """Returns the shape of element-wise operands of equal sizes, dynamic where one of theirs is (BC-20)."""
    if any(shape.is_unbounded for shape in shapes):
        shapes = tuple(_with_known_sizes(shape, shapes) for shape in shapes)
    first = shapes[0]
    for shape in shapes:
        if shape.dimensions != first.dimensions:
            op.reject(clause, f"operands must have equal dimensions, got {', '.join(map(str, shapes))}")
    if not any(shape.is_dynamic for shape in shapes):
        return first.without_layout()
    dynamic = map(any, zip(*(shape.dynamic_dimensions for shape in shapes), strict=True))
    return Shape.array(first.element_type, first.dimensions, dynamic)


def _with_known_sizes(shape: Shape, shapes: Sequence[Shape]) -> Shape:
    """Replaces the unbounded sizes of a shape by those of other shapes of the same rank (SL-25)."""
    sizes, dynamic = list(shape.dimensions), list(shape.dynamic_dimensions)
    for other in shapes:
        for d, (size, flag) in enumerate(zip(other.dimensions, other.dynamic_dimensions, strict=True)):
            if d < len(sizes) and sizes[d] == UNBOUNDED != size:
                sizes[d], dynamic[d] = size, flag
    return Shape.array(shape.element_type, sizes, dynamic)


def check_actual_sizes(*arrays: Array) -> tuple[Array, ...]:
    """Returns the arrays. Raises RunError unless their actual sizes are equal (SETDIMENSIONSIZE-3); scalars match
    any.
    """
    sizes = {array.shape for array in arrays if array.ndim}
    if len(sizes) > 1:
        raise RunError(f"SETDIMENSIONSIZE-3: element-wise operands have the actual sizes {sorted(sizes)}")
    return arrays


class Binary(Operation):
    """Base class: two operands of one shape, of an element type in `kinds`; the result has their shape (BINARY-1,
    -3).
    """

    operands = {
        "lhs": "left array",
        "rhs": "right array, of the shape and type of `lhs`",
    }
    elementwise = True
    kinds: ClassVar[frozenset[Kind]] = NUMERIC

    def infer(self, lhs: Shape, rhs: Shape) -> Shape:
        check_array(self, "BINARY-1", lhs, rhs)
        check_same_type(self, "GEN-5", lhs, rhs)
        if lhs.element_type.kind not in self.kinds:
            valid = ", ".join(sorted(kind.value for kind in self.kinds))
            self.reject("BINARY-3", f"takes elements of these kinds: {valid}; got {lhs}")
        return joint_shape(self, "BINARY-1", lhs, rhs)

    def evaluate(self, ctx: Context, lhs: Array, rhs: Array) -> Array:
        return compute(self.function, *check_actual_sizes(lhs, rhs))

    function: ClassVar[Callable[..., Any]]
    """The function on arrays of f32, f64, c64, c128, integers of whole bytes or predicates."""


class Monoid(Binary):
    """Base class of commutative and associative operations with an identity: their reductions may run in any order."""

    is_idempotent: ClassVar[bool] = False
    """Whether the operation on a value and itself returns the value."""

    @classmethod
    def identity(cls, element_type: PrimitiveType) -> Array:
        """Returns the scalar that leaves others unchanged, such as -0.0 for the addition of floats.

        The identity of the addition of floats narrower than 16 bits is an f32: some have no zero, and sums are f32.
        """
        return np.zeros((), element_type.dtype)


class Add(Linear, Monoid, opcode="add", builder="add"):
    """Adds `lhs` and `rhs`; logical or for PRED (ADD-1)."""

    see_also = ("subtract",)
    kinds = NUMERIC | {Kind.PRED}
    function = staticmethod(np.add)

    @classmethod
    def identity(cls, element_type: PrimitiveType) -> Array:
        dtype = element_type.dtype
        if element_type.is_complex:
            return np.asarray(complex(-0.0, -0.0), dtype)
        is_narrow = element_type.is_float and element_type.bits < 16
        return np.asarray(-0.0 if element_type.is_float else 0, np.float32 if is_narrow else dtype)


class Subtract(Linear, Binary, opcode="subtract", builder="sub"):
    """Subtracts `rhs` from `lhs` (SUB-1)."""

    function = staticmethod(np.subtract)


class Multiply(Monoid, opcode="multiply", builder="mul"):
    """Multiplies `lhs` and `rhs`; logical and for PRED (MUL-1)."""

    see_also = ("mulhi",)
    kinds = NUMERIC | {Kind.PRED}
    function = staticmethod(np.multiply)

    @classmethod
    def identity(cls, element_type: PrimitiveType) -> Array:
        return np.asarray(1, element_type.dtype)


class Divide(Binary, opcode="divide", builder="div"):
    """Divides `lhs` by `rhs`: floats by IEEE 754, integers toward zero (DIV-1, DIV-2).

    For integers, x / 0 = -1 and minimum / -1 = minimum.
    """

    see_also = ("remainder",)
    cost = 4

    @staticmethod
    def function(x: Array, y: Array) -> Array:
        if x.dtype.kind in "iu":
            return integer_divide(x, y)[0]
        if x.dtype == C64:
            return complex_quotient(x.astype(np.complex128), y.astype(np.complex128)).astype(C64)
        return complex_quotient(x, y) if x.dtype.kind == "c" else np.asarray(np.divide(x, y))


class Remainder(Binary, opcode="remainder", builder="rem"):
    """Computes the remainder of the division, with the sign of `lhs`: -7 rem 2 = -1 (REM-1, REM-2).

    For integers, x rem 0 = x and minimum rem -1 = 0; floats as C's fmod.
    """

    cost = 20
    kinds = REALS

    @staticmethod
    def function(x: Array, y: Array) -> Array:
        return integer_divide(x, y)[1] if x.dtype.kind in "iu" else np.fmod(x, y)


def complex_quotient(x: Array, y: Array) -> Array:
    """Divides complex numbers, with the infinities and zeros of C's Annex G where both parts would be NaN."""
    x, y = np.broadcast_arrays(x, y)
    by_zero = (y == 0) & ~(np.isnan(x.real) & np.isnan(x.imag))
    result = np.asarray(np.divide(x, np.where(by_zero, 1, y)))
    lost = np.isnan(result.real) & np.isnan(result.imag) & ~by_zero
    finite_x, finite_y = np.isfinite(x), np.isfinite(y)
    for chosen, numerator, denominator, factor in (
        (lost & np.isinf(x) & finite_y, _signs(x), y, np.inf),
        (lost & np.isinf(y) & finite_x, x, _signs(y), 0.0),
    ):
        real = (numerator.real * denominator.real + numerator.imag * denominator.imag) * factor
        imaginary = (numerator.imag * denominator.real - numerator.real * denominator.imag) * factor
        result.real = np.where(chosen, real, result.real)
        result.imag = np.where(chosen, imaginary, result.imag)
    infinity = np.copysign(np.inf, y.real)
    result.real = np.where(by_zero, infinity * x.real, result.real)
    result.imag = np.where(by_zero, infinity * x.imag, result.imag)
    return result


def _signs(z: Array) -> Array:
    """Returns 1 for infinite parts and 0 for finite ones, with their signs."""
    signs = np.empty_like(z)
    signs.real = np.copysign(np.isinf(z.real), z.real)
    signs.imag = np.copysign(np.isinf(z.imag), z.imag)
    return signs


def integer_divide(x: Array, y: Array) -> tuple[Array, Array]:
    """Returns the quotient toward zero and the remainder, as XLA on CPUs for zero divisors and overflow (DIV-2,
    REM-2).
    """
    zero = y == 0
    overflow = (x == np.iinfo(x.dtype).min) & (y == -1) if x.dtype.kind == "i" else np.zeros(np.shape(zero), bool)
    divisor = np.where(zero | overflow, np.ones((), x.dtype), y)
    remainder = np.fmod(x, divisor)
    quotient = np.floor_divide(x - remainder, divisor)
    all_ones = np.asarray(-1 if x.dtype.kind == "i" else np.iinfo(x.dtype).max, x.dtype)
    return np.where(zero, all_ones, np.where(overflow, x, quotient)), np.where(zero, x, remainder)


class Power(Binary, opcode="power", builder="pow"):
    """Raises `lhs` to the power `rhs`: floats as IEEE pow; integers wrap (POW-1).

    A negative exponent of integers gives 1 for base 1, 1 or -1 for base -1, else 0 (POW-2).
    """

    cost = 60

    def evaluate(self, ctx: Context, lhs: Array, rhs: Array) -> Array:
        lhs, rhs = check_actual_sizes(lhs, rhs)
        return compute_accurately(self.function, lhs, rhs)

    @staticmethod
    def function(x: Array, y: Array) -> Array:
        return integer_power(x, y) if x.dtype.kind in "iu" else np.asarray(np.power(x, y))


def integer_power(x: Array, y: Array) -> Array:
    """Computes a wrapping power by squaring; negative exponents give 1, +-1 or 0 by the base (POW-2)."""
    base, exponent = np.broadcast_arrays(x, y)
    negative = exponent < 0
    odd = (exponent & 1) != 0
    rest = np.where(negative, 0, exponent)
    result, square = np.ones(base.shape, base.dtype), base
    while np.any(rest):
        result = np.where(rest & 1, result * square, result)
        square = square * square
        rest = rest >> 1
    if x.dtype.kind == "u":
        return result
    of_negative = np.where(base == 1, 1, np.where(base == -1, np.where(odd, -1, 1), 0)).astype(base.dtype)
    return np.where(negative, of_negative, result)


class Maximum(Monoid, opcode="maximum", builder="max"):
    """Takes the larger element; NaN if either is, max(-0, +0) = +0; logical or for PRED (MAX-1)."""

    see_also = ("minimum", "clamp")
    is_idempotent = True
    kinds = REALS | {Kind.PRED}

    @staticmethod
    def function(x: Array, y: Array) -> Array:
        larger = np.maximum(x, y)
        if x.dtype.kind == "f":
            return np.where((x == 0) & (y == 0), np.where(np.signbit(x) & np.signbit(y), x, np.abs(x)), larger)
        return larger

    @classmethod
    def identity(cls, element_type: PrimitiveType) -> Array:
        return extreme(element_type, highest=False)


class Minimum(Monoid, opcode="minimum", builder="min"):
    """Takes the smaller element; NaN if either is, min(-0, +0) = -0; logical and for PRED (MIN-1)."""

    is_idempotent = True
    kinds = REALS | {Kind.PRED}

    @staticmethod
    def function(x: Array, y: Array) -> Array:
        smaller = np.minimum(x, y)
        if x.dtype.kind == "f":
            return np.where((x == 0) & (y == 0), np.where(np.signbit(x), x, y), smaller)
        return smaller

    @classmethod
    def identity(cls, element_type: PrimitiveType) -> Array:
        return extreme(element_type, highest=True)


class And(Monoid, opcode="and", builder="and_"):
    """Bitwise and of integers, logical and of PRED (AND-1)."""

    see_also = ("or", "xor", "not")
    is_idempotent = True
    kinds = BITS
    function = staticmethod(np.bitwise_and)

    @classmethod
    def identity(cls, element_type: PrimitiveType) -> Array:
        return np.asarray(True) if element_type.is_pred else np.asarray(-1, np.int64).astype(element_type.dtype)


class Or(Monoid, opcode="or", builder="or_"):
    """Bitwise or of integers, logical or of PRED (OR-1)."""

    is_idempotent = True
    kinds = BITS
    function = staticmethod(np.bitwise_or)


class Xor(Monoid, opcode="xor", builder="xor"):
    """Bitwise exclusive or of integers, logical exclusive or of PRED (XOR-1)."""

    kinds = BITS
    function = staticmethod(np.bitwise_xor)


class Shift(Binary):
    """Base class of shifts: amounts outside [0, bits), read as unsigned, shift all bits out."""

    kinds = INTEGERS

    def evaluate(self, ctx: Context, lhs: Array, rhs: Array) -> Array:
        check_actual_sizes(lhs, rhs)
        bits = BY_DTYPE[lhs.dtype].bits
        x, amount = widen(lhs), widen(rhs)
        inside = (amount >= 0) & (amount < bits)
        return self.shift(x, np.where(inside, amount, 0), inside, bits).astype(lhs.dtype)

    @staticmethod
    def shift(x: Array, amount: Array, inside: Array, bits: int) -> Array:
        """Shifts `x` by `amount` where `inside`, which excludes amounts outside [0, bits)."""
        raise NotImplementedError


class ShiftLeft(Shift, opcode="shift-left", builder="shift_left"):
    """Shifts `lhs` left by `rhs` bits, inserting zeros; amounts outside [0, bits) give 0 (SHIFTLEFT-1)."""

    see_also = ("shift-right-arithmetic", "shift-right-logical")

    @staticmethod
    def shift(x: Array, amount: Array, inside: Array, bits: int) -> Array:
        return np.where(inside, x << amount, 0)


class ShiftRightArithmetic(Shift, opcode="shift-right-arithmetic", builder="shift_right_arithmetic"):
    """Shifts `lhs` right by `rhs` bits, copying the sign bit (SHIFTRIGHTARITHMETIC-1).

    Amounts outside [0, bits) give the sign bit in all bits. Unsigned types have their top bit as the sign bit.
    """

    @staticmethod
    def shift(x: Array, amount: Array, inside: Array, bits: int) -> Array:
        if x.dtype.kind == "u":
            # The top bit of unsigned types is their sign bit.
            signed = x.astype(np.dtype(f"i{x.dtype.itemsize}"))
            signed = np.where(signed >> (bits - 1) & 1, signed - (1 << (bits - 1)) * 2, signed) if bits < 8 else signed
            amount = amount.astype(signed.dtype)
            return np.where(inside, signed >> amount, np.where(signed < 0, -1, 0)).astype(x.dtype)
        return np.where(inside, x >> amount, np.where(x < 0, -1, 0))


class ShiftRightLogical(Shift, opcode="shift-right-logical", builder="shift_right_logical"):
    """Shifts `lhs` right by `rhs` bits, inserting zeros; amounts outside [0, bits) give 0 (SHIFTRIGHTLOGICAL-1)."""

    @staticmethod
    def shift(x: Array, amount: Array, inside: Array, bits: int) -> Array:
        unsigned = x.astype(np.dtype(f"u{x.dtype.itemsize}"))
        if bits < 8:
            unsigned = unsigned & np.uint8((1 << bits) - 1)
        return np.where(inside, unsigned >> amount.astype(unsigned.dtype), 0).astype(x.dtype)


class Atan2(Binary, opcode="atan2", builder="atan2"):
    """Computes the angle of the point (x = `rhs`, y = `lhs`) (ATAN2-1).

    For complex numbers, -i log((rhs + i lhs) / sqrt(rhs^2 + lhs^2)). To the left, the sign of the angle is that of the
    real part of -lhs / rhs, which a small lhs loses beside rhs.
    """

    cost = 40
    kinds = FLOATS_COMPLEX

    def evaluate(self, ctx: Context, lhs: Array, rhs: Array) -> Array:
        return compute_accurately(self.function, *check_actual_sizes(lhs, rhs))

    @staticmethod
    def function(x: Array, y: Array) -> Array:
        if np.iscomplexobj(x):
            x, y = scaled_alike(x, y)
            unit = np.asarray((y + 1j * x) / np.sqrt(y * y + x * x))
            side = x.real * y.real + x.imag * y.imag
            is_left = (unit.real < -abs(unit.imag)) & (side != 0)
            unit.imag = np.where(is_left, np.copysign(unit.imag, -side), unit.imag)
            return np.asarray(-1j * np.log(unit))
        return np.asarray(np.arctan2(x, y))


class Complex(Linear, Binary, opcode="complex", builder="complex"):
    """Combines real and imaginary parts to complex numbers: f32 to c64, f64 to c128 (COMPLEX-1)."""

    see_also = ("real", "imag")
    kinds = FLOATS

    def infer(self, lhs: Shape, rhs: Shape) -> Shape:
        shape = super().infer(lhs, rhs)
        complex_type = lhs.element_type.complex
        if complex_type is None:
            self.reject("COMPLEX-1", f"takes f32 or f64, got {lhs}")
        return shape.with_element_type(complex_type)

    def evaluate(self, ctx: Context, lhs: Array, rhs: Array) -> Array:
        lhs, rhs = np.broadcast_arrays(*check_actual_sizes(lhs, rhs))
        result = np.empty(lhs.shape, np.complex64 if lhs.dtype == np.float32 else np.complex128)
        result.real, result.imag = lhs, rhs
        return result


class Mulhi(Binary, opcode="mulhi", builder="mulhi"):
    """Computes the high half of the double-width product of integers (a later addition to XLA).

    The product of two numbers of n bits has 2n bits: multiply keeps the low n of them, mulhi the high n. Division by a
    constant and arithmetic on wider integers use both. Signed operands give the high half of the signed product.
    """

    kinds = INTEGERS

    def evaluate(self, ctx: Context, lhs: Array, rhs: Array) -> Array:
        lhs, rhs = check_actual_sizes(lhs, rhs)
        bits = BY_DTYPE[lhs.dtype].bits
        if bits < 64:
            wide = np.int64 if BY_DTYPE[lhs.dtype].is_signed else np.uint64
            product = lhs.astype(wide) * rhs.astype(wide)
            return (product >> np.asarray(bits, wide)).astype(lhs.dtype)
        product = lhs.astype(object) * rhs.astype(object)
        return np.asarray(product >> 64).astype(lhs.dtype)
