"""Element-wise functions of one operand (spec 57 to 82, and the inverse and hyperbolic functions of today's XLA)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from hloom.numerics import C64, C128, bits_of, compute, compute_accurately, widen
from hloom.ops.attributes import RESULT_ACCURACY, ResultAccuracy
from hloom.ops.context import Context
from hloom.ops.operation import Operation, attribute
from hloom.ops.rules import check_array
from hloom.shape import Shape
from hloom.types import BY_DTYPE, Kind
from hloom.values import Array

FLOATS = frozenset({Kind.FLOAT})
FLOATS_COMPLEX = frozenset({Kind.FLOAT, Kind.COMPLEX})
INTEGERS = frozenset({Kind.SIGNED, Kind.UNSIGNED})
SIGNED = frozenset({Kind.SIGNED, Kind.FLOAT, Kind.COMPLEX})


class Unary(Operation):
    """One operand of a kind in `kinds`; the result has its shape (UNARY-1)."""

    operands = ("operand",)
    elementwise = True
    kinds: ClassVar[frozenset[Kind]] = FLOATS_COMPLEX

    def infer(self, operand: Shape) -> Shape:
        check_array(self, "UNARY-1", operand)
        if operand.element_type.kind not in self.kinds:
            valid = ", ".join(sorted(kind.value for kind in self.kinds))
            self.reject("UNARY-1", f"takes elements of these kinds: {valid}; got {operand}")
        return operand.without_layout()

    def evaluate(self, ctx: Context, operand: Array) -> Array:
        return compute_accurately(self.function, operand)

    function: ClassVar[Callable[..., Any]]
    """The function on f32, f64, c64, c128 or whole integers."""


class AccurateUnary(Unary):
    """A transcendental function; XLA's `result_accuracy` wish is kept and always met."""

    result_accuracy: ResultAccuracy = attribute(RESULT_ACCURACY, default=ResultAccuracy())


class Abs(Unary, opcode="abs", builder="abs"):
    """|x|; complex: the modulus, in the real type; the minimum of a signed type stays itself (ABS-1)."""

    kinds = SIGNED

    def infer(self, operand: Shape) -> Shape:
        shape = super().infer(operand)
        return shape.with_element_type(shape.element_type.real)

    def evaluate(self, ctx: Context, operand: Array) -> Array:
        if operand.dtype in (C64, C128):
            return np.abs(operand.astype(C128)).astype(BY_DTYPE[operand.dtype].real.dtype)
        return compute(np.abs, operand)


class Ceil(Unary, opcode="ceil", builder="ceil"):
    """The smallest integer >= x; ceil(-0.5) = -0 (CEIL-1)."""

    kinds = FLOATS
    function = staticmethod(np.ceil)


class Floor(Unary, opcode="floor", builder="floor"):
    """The largest integer <= x (FLOOR-1)."""

    kinds = FLOATS
    function = staticmethod(np.floor)


class RoundNearestAfz(Unary, opcode="round-nearest-afz", builder="round"):
    """The nearest integer, ties away from zero: 2.5 -> 3, -0.5 -> -1, 0.49999997 -> 0 (ROUND-1)."""

    kinds = FLOATS

    @staticmethod
    def function(x: Array) -> Any:
        whole = np.trunc(x)
        return np.where(np.abs(x - whole) >= 0.5, whole + np.copysign(1.0, x), whole)


class RoundNearestEven(Unary, opcode="round-nearest-even", builder="round_nearest_even"):
    """The nearest integer, ties to even: 2.5 -> 2, -0.5 -> -0 (ROUNDNEARESTEVEN-1)."""

    kinds = FLOATS
    function = staticmethod(np.rint)


class Exponential(AccurateUnary, opcode="exponential", builder="exp"):
    """e^x (EXP-1)."""

    function = staticmethod(np.exp)


class Expm1(AccurateUnary, opcode="exponential-minus-one", builder="expm1"):
    """e^x - 1, accurate near 0 (EXPM1-1)."""

    @staticmethod
    def function(x: Array) -> Any:
        result = np.asarray(np.expm1(x))
        if np.iscomplexobj(x):
            # Of real numbers real, where e^x is infinite, too.
            result.imag = np.where(x.imag == 0, x.imag, result.imag)
        return result


class Log(AccurateUnary, opcode="log", builder="log"):
    """ln(x); log(0) = -inf, of negative numbers NaN (LOG-1)."""

    function = staticmethod(np.log)


class Log1p(AccurateUnary, opcode="log-plus-one", builder="log1p"):
    """ln(1 + x), accurate near 0; log1p(-1) = -inf (LOG1P-1)."""

    function = staticmethod(np.log1p)


class Logistic(AccurateUnary, opcode="logistic", builder="logistic"):
    """1 / (1 + e^-x) (LOGISTIC-1)."""

    @staticmethod
    def function(x: Array) -> Any:
        e = np.exp(np.where(x.real < 0, x, -x))
        above = np.where(x.real < 0, e, 1)
        quotient = above / (1 + e)
        # A quotient s = a / (1 + e) is a - e s, too, which loses less than 1 + e.
        return quotient if np.iscomplexobj(x) else above - e * quotient


class Sqrt(AccurateUnary, opcode="sqrt", builder="sqrt"):
    """The square root; of negative numbers NaN, sqrt(-0) = -0 (SQRT-1)."""

    function = staticmethod(np.sqrt)


class Rsqrt(AccurateUnary, opcode="rsqrt", builder="rsqrt"):
    """1 / sqrt(x); of +-0 +-inf (RSQRT-1)."""

    @staticmethod
    def function(x: Array) -> Any:
        return 1 / np.sqrt(x)


class Cbrt(AccurateUnary, opcode="cbrt", builder="cbrt"):
    """The real cube root, also of negative numbers (CBRT-1)."""

    kinds = FLOATS
    function = staticmethod(np.cbrt)


class Sine(AccurateUnary, opcode="sine", builder="sin"):
    """sin(x) (SIN-1)."""

    function = staticmethod(np.sin)


class Cosine(AccurateUnary, opcode="cosine", builder="cos"):
    """cos(x) (COS-1)."""

    function = staticmethod(np.cos)


class Tan(AccurateUnary, opcode="tan", builder="tan"):
    """tan(x) (TAN-1)."""

    function = staticmethod(np.tan)


class Tanh(AccurateUnary, opcode="tanh", builder="tanh"):
    """The hyperbolic tangent; +-1 at +-inf (TANH-1)."""

    function = staticmethod(np.tanh)


class Sinh(AccurateUnary, opcode="sinh", builder="sinh"):
    """The hyperbolic sine (an addition of today's XLA)."""

    function = staticmethod(np.sinh)


class Cosh(AccurateUnary, opcode="cosh", builder="cosh"):
    """The hyperbolic cosine (an addition of today's XLA)."""

    function = staticmethod(np.cosh)


class Asin(AccurateUnary, opcode="asin", builder="asin"):
    """The inverse sine (an addition of today's XLA)."""

    function = staticmethod(np.arcsin)


class Acos(AccurateUnary, opcode="acos", builder="acos"):
    """The inverse cosine (an addition of today's XLA)."""

    function = staticmethod(np.arccos)


class Asinh(AccurateUnary, opcode="asinh", builder="asinh"):
    """The inverse hyperbolic sine (an addition of today's XLA)."""

    function = staticmethod(np.arcsinh)


class Acosh(AccurateUnary, opcode="acosh", builder="acosh"):
    """The inverse hyperbolic cosine (an addition of today's XLA)."""

    function = staticmethod(np.arccosh)


class Atanh(AccurateUnary, opcode="atanh", builder="atanh"):
    """The inverse hyperbolic tangent (an addition of today's XLA)."""

    function = staticmethod(np.arctanh)


class Erf(AccurateUnary, opcode="erf", builder="erf"):
    """The error function (ERF-1)."""

    kinds = FLOATS

    @staticmethod
    def function(x: Array) -> Any:
        from scipy.special import erf

        # SciPy's quotient of polynomials below 1 is off by up to 2.7 units in the last place.
        return np.where(np.abs(x) < 1, x + x * np.polyval(_ERF_OVER_X, np.minimum(x * x, 1)), erf(x))


_ERF_OVER_X = [2 / math.pi**0.5 * (-1) ** k / (math.factorial(k) * (2 * k + 1)) for k in range(20, 0, -1)] + [
    0.12837916709551257
]
"""erf(x) / x - 1 by x^2, the highest power first: Taylor's series."""


class Negate(Unary, opcode="negate", builder="neg"):
    """-x; integers wrap; -0 from 0.0 (NEG-1)."""

    kinds = INTEGERS | FLOATS_COMPLEX

    def evaluate(self, ctx: Context, operand: Array) -> Array:
        return compute(np.negative, operand)


class Sign(Unary, opcode="sign", builder="sign"):
    """-1, -0, NaN, +0 or 1; complex: x / |x|, 0 for 0 (SIGN-1)."""

    kinds = SIGNED

    def evaluate(self, ctx: Context, operand: Array) -> Array:
        return compute(self.function, operand)

    @staticmethod
    def function(x: Array) -> Any:
        if np.iscomplexobj(x):
            modulus, parts = np.abs(x), np.empty_like(x)
            modulus = np.where(modulus == 0, 1, modulus)
            # Part by part: the reciprocal of a complex number may overflow.
            parts.real, parts.imag = x.real / modulus, x.imag / modulus
            return parts
        # np.sign gives +0 for -0.
        return np.where(x == 0, x, np.sign(x))


class Real(Unary, opcode="real", builder="real"):
    """The real part; a real operand is returned as it is (REAL-1)."""

    def infer(self, operand: Shape) -> Shape:
        shape = super().infer(operand)
        return shape.with_element_type(shape.element_type.real)

    def evaluate(self, ctx: Context, operand: Array) -> Array:
        return operand.real if np.iscomplexobj(operand) else operand


class Imag(Unary, opcode="imag", builder="imag"):
    """The imaginary part; 0 of a real operand (IMAG-1)."""

    def infer(self, operand: Shape) -> Shape:
        shape = super().infer(operand)
        return shape.with_element_type(shape.element_type.real)

    def evaluate(self, ctx: Context, operand: Array) -> Array:
        return operand.imag if np.iscomplexobj(operand) else np.zeros_like(operand)


class IsFinite(Unary, opcode="is-finite", builder="is_finite"):
    """True where the element is neither +-inf nor NaN (ISFINITE-1)."""

    kinds = FLOATS

    def infer(self, operand: Shape) -> Shape:
        from hloom.types import PrimitiveType

        return super().infer(operand).with_element_type(PrimitiveType.PRED)

    def evaluate(self, ctx: Context, operand: Array) -> Array:
        return np.isfinite(widen(operand))


class Not(Unary, opcode="not", builder="not_"):
    """Logical not of PRED, bitwise complement of integers (NOT-1)."""

    kinds = INTEGERS | {Kind.PRED}

    def evaluate(self, ctx: Context, operand: Array) -> Array:
        return compute(np.invert, operand) if operand.dtype != bool else np.logical_not(operand)


class PopulationCount(Unary, opcode="popcnt", builder="population_count"):
    """The number of bits set in T's width (POPULATIONCOUNT-1)."""

    kinds = INTEGERS

    def evaluate(self, ctx: Context, operand: Array) -> Array:
        return np.bitwise_count(_code(operand)).astype(operand.dtype)


class CountLeadingZeros(Unary, opcode="count-leading-zeros", builder="clz"):
    """The number of leading zero bits in T's width; of 0 the width (CLZ-1)."""

    kinds = INTEGERS

    def evaluate(self, ctx: Context, operand: Array) -> Array:
        x = _code(operand).astype(np.uint64)
        # Smear the highest bit downward; what is not set then are the leading zeros.
        for shift in (1, 2, 4, 8, 16, 32):
            x = x | (x >> np.uint64(shift))
        return (BY_DTYPE[operand.dtype].bits - np.bitwise_count(x).astype(np.int64)).astype(operand.dtype)


def _code(x: Array) -> Array:
    """The bits as an unsigned integer, those beyond the type's width cleared."""
    bits = BY_DTYPE[x.dtype].bits
    return bits_of(x) & np.uint8((1 << bits) - 1) if bits < 8 else bits_of(x)
