"""Element-wise functions of one operand (spec 57 to 82, and functions that XLA added later)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from hloom.numerics import C64, C128, F64, bits_of, compute, compute_accurately, scaled_alike, widen
from hloom.ops.attributes import ResultAccuracy
from hloom.ops.context import Context
from hloom.ops.kinds import RESULT_ACCURACY
from hloom.ops.operation import Operation, attribute
from hloom.ops.rules import check_array
from hloom.ops.traits import Linear
from hloom.shape import Shape
from hloom.types import BY_DTYPE, FLOATS, FLOATS_COMPLEX, INTEGERS, Kind
from hloom.values import Array

SIGNED = frozenset({Kind.SIGNED, Kind.FLOAT, Kind.COMPLEX})


class Unary(Operation):
    """Base class: one operand of an element type in `kinds`; the result has its shape (UNARY-1)."""

    operands = {"operand": "array"}
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
    """The function on arrays of f32, f64, c64, c128 or integers of whole bytes."""


class RealValued(Unary):
    """Base class: the result has the element type of the parts of a complex operand."""

    def infer(self, operand: Shape) -> Shape:
        shape = super().infer(operand)
        return shape.with_element_type(shape.element_type.real)


class AccurateUnary(Unary):
    """Base class of transcendental functions; any `result_accuracy` is met."""

    result_accuracy: ResultAccuracy = attribute(
        RESULT_ACCURACY, default=ResultAccuracy(), doc="error that is tolerated, or the accuracy mode; all are met"
    )


class Abs(RealValued, opcode="abs", builder="abs"):
    """Computes |x|; for complex numbers the modulus, of the real type (ABS-1).

    The minimum of a signed integer type is its own absolute value.
    """

    see_also = ("sign", "negate")
    kinds = SIGNED

    def evaluate(self, ctx: Context, operand: Array) -> Array:
        if operand.dtype in (C64, C128):
            wide = operand.astype(C128)
            return np.hypot(wide.real, wide.imag).astype(BY_DTYPE[operand.dtype].real.dtype)
        return compute(np.abs, operand)


class Ceil(Unary, opcode="ceil", builder="ceil"):
    """Rounds up to an integer; ceil(-0.5) = -0 (CEIL-1)."""

    see_also = ("floor", "round-nearest-afz")
    kinds = FLOATS
    function = staticmethod(np.ceil)


class Floor(Unary, opcode="floor", builder="floor"):
    """Rounds down to an integer (FLOOR-1)."""

    kinds = FLOATS
    function = staticmethod(np.floor)


class RoundNearestAfz(Unary, opcode="round-nearest-afz", builder="round"):
    """Rounds to the nearest integer, ties away from zero: 2.5 -> 3, -0.5 -> -1, 0.49999997 -> 0 (ROUND-1)."""

    see_also = ("round-nearest-even",)
    kinds = FLOATS

    @staticmethod
    def function(x: Array) -> Any:
        whole = np.trunc(x)
        return np.where(np.abs(x - whole) >= 0.5, whole + np.copysign(1.0, x), whole)


class RoundNearestEven(Unary, opcode="round-nearest-even", builder="round_nearest_even"):
    """Rounds to the nearest integer, ties to even: 2.5 -> 2, -0.5 -> -0 (ROUNDNEARESTEVEN-1)."""

    kinds = FLOATS
    function = staticmethod(np.rint)


class Exponential(AccurateUnary, opcode="exponential", builder="exp"):
    """Computes e^x (EXP-1)."""

    see_also = ("exponential-minus-one", "log", "power")
    cost = 15
    function = staticmethod(np.exp)


class Expm1(AccurateUnary, opcode="exponential-minus-one", builder="expm1"):
    """Computes e^x - 1, accurate near 0 (EXPM1-1)."""

    see_also = ("log-plus-one",)
    cost = 22

    @staticmethod
    def function(x: Array) -> Any:
        result = np.asarray(np.expm1(x))
        if np.iscomplexobj(x):
            # The result for real x is real, even if e^x is infinite.
            result.imag = np.where(x.imag == 0, x.imag, result.imag)
        return result


class Log(AccurateUnary, opcode="log", builder="log"):
    """Computes the natural logarithm; log(0) = -inf, NaN for negative real numbers (LOG-1)."""

    see_also = ("log-plus-one",)
    cost = 18
    function = staticmethod(np.log)


class Log1p(AccurateUnary, opcode="log-plus-one", builder="log1p"):
    """Computes ln(1 + x), accurate near 0; log1p(-1) = -inf (LOG1P-1)."""

    cost = 22

    @staticmethod
    def function(x: Array) -> Any:
        if not np.iscomplexobj(x):
            return np.log1p(x)
        # The digits that u = 1 + x rounds away add themselves times u / |u + i y|^2, the derivative of log |u + i y|.
        total = np.array(x)
        total.real += 1
        u, y = total.real, total.imag
        lost = np.where(np.isfinite(u), x.real - (u - 1), 0)
        result = np.asarray(np.log(total))
        result.real += np.where(lost == 0, 0, lost * u / (u * u + y * y))
        return result


class Logistic(AccurateUnary, opcode="logistic", builder="logistic"):
    """Computes the logistic function 1 / (1 + e^-x) (LOGISTIC-1)."""

    see_also = ("tanh", "erf")
    cost = 20

    @staticmethod
    def function(x: Array) -> Any:
        left = np.where(x.real < 0, x, -x)
        e = np.exp(left)
        above = np.where(x.real < 0, e, 1)
        if not np.iscomplexobj(x):
            # s = a / (1 + e) equals a - e s, which loses fewer bits than 1 + e.
            return above - e * (above / (1 + e))
        # Near the poles, odd multiples of i pi, 1 + e cancels, but not (1 + cos y) + (e^x - 1) cos y, its real part.
        below = np.asarray(1 + e)
        near = 2 * np.cos(left.imag / 2) ** 2 + np.expm1(left.real) * np.cos(left.imag)
        below.real = np.where(left.real > -1, near, below.real)
        return above / below


class Sqrt(AccurateUnary, opcode="sqrt", builder="sqrt"):
    """Computes the square root; NaN for negative real numbers, sqrt(-0) = -0 (SQRT-1)."""

    see_also = ("rsqrt", "cbrt")
    cost = 5
    function = staticmethod(np.sqrt)


class Rsqrt(AccurateUnary, opcode="rsqrt", builder="rsqrt"):
    """Computes 1 / sqrt(x); +-inf for +-0 (RSQRT-1)."""

    cost = 6

    @staticmethod
    def function(x: Array) -> Any:
        return 1 / np.sqrt(x)


class Cbrt(AccurateUnary, opcode="cbrt", builder="cbrt"):
    """Computes the real cube root, also of negative numbers (CBRT-1)."""

    cost = 30
    kinds = FLOATS

    @staticmethod
    def function(x: Array) -> Any:
        # In long double, as the cube root of some C libraries is off by three units in the last place.
        return np.cbrt(x.astype(np.longdouble)).astype(x.dtype)


def _of_any_size(function: Callable[[Array], Array], x: Array) -> Array:
    """Sine, cosine or tangent; of large f64 in long double, as C's functions reduce them by too few digits of pi."""
    result = function(x)
    if x.dtype == F64 and np.any(large := np.abs(x) > 2.0**30):
        result = np.where(large, function(x.astype(np.longdouble)), result).astype(F64)
    return result


class Sine(AccurateUnary, opcode="sine", builder="sin"):
    """Computes the sine (SIN-1)."""

    see_also = ("cosine", "tan", "asin")
    cost = 30

    @staticmethod
    def function(x: Array) -> Any:
        return _of_any_size(np.sin, x)


class Cosine(AccurateUnary, opcode="cosine", builder="cos"):
    """Computes the cosine (COS-1)."""

    cost = 30

    @staticmethod
    def function(x: Array) -> Any:
        return _of_any_size(np.cos, x)


class Tan(AccurateUnary, opcode="tan", builder="tan"):
    """Computes the tangent (TAN-1)."""

    see_also = ("tanh", "atan2")
    cost = 40

    @staticmethod
    def function(x: Array) -> Any:
        return _of_any_size(np.tan, x)


class Tanh(AccurateUnary, opcode="tanh", builder="tanh"):
    """Computes the hyperbolic tangent; +-1 at +-inf (TANH-1)."""

    cost = 20
    function = staticmethod(np.tanh)


class Sinh(AccurateUnary, opcode="sinh", builder="sinh"):
    """Computes the hyperbolic sine, (exp(x) - exp(-x)) / 2 (a later addition to XLA).

    Small x keep their relative accuracy, and no result overflows because exp(x) does.
    """

    see_also = ("cosh", "asinh", "tanh")
    cost = 30
    function = staticmethod(np.sinh)


class Cosh(AccurateUnary, opcode="cosh", builder="cosh"):
    """Computes the hyperbolic cosine, (exp(x) + exp(-x)) / 2 (a later addition to XLA).

    No result overflows because exp(x) does.
    """

    cost = 30
    function = staticmethod(np.cosh)


class Asin(AccurateUnary, opcode="asin", builder="asin"):
    """Computes the inverse sine, in [-pi/2, pi/2] (a later addition to XLA).

    Numbers outside [-1, 1] give NaN; functions of complex numbers are discontinuous there.
    """

    see_also = ("acos",)
    cost = 20
    function = staticmethod(np.arcsin)


class Acos(AccurateUnary, opcode="acos", builder="acos"):
    """Computes the inverse cosine, in [0, pi] (a later addition to XLA).

    Numbers outside [-1, 1] give NaN; functions of complex numbers are discontinuous there.
    """

    cost = 20
    function = staticmethod(np.arccos)


class Asinh(AccurateUnary, opcode="asinh", builder="asinh"):
    """Computes the inverse hyperbolic sine, log(x + sqrt(x^2 + 1)) (a later addition to XLA).

    Small x keep their relative accuracy, and large ones do not overflow.
    """

    cost = 40
    function = staticmethod(np.arcsinh)


class Acosh(AccurateUnary, opcode="acosh", builder="acosh"):
    """Computes the inverse hyperbolic cosine, log(x + sqrt(x^2 - 1)), at least 0 (a later addition to XLA).

    Numbers below 1 give NaN; functions of complex numbers are discontinuous there.
    """

    cost = 40
    function = staticmethod(np.arccosh)


class Atanh(AccurateUnary, opcode="atanh", builder="atanh"):
    """Computes the inverse hyperbolic tangent, log((1 + x) / (1 - x)) / 2 (a later addition to XLA).

    -1 and 1 give infinities, numbers outside [-1, 1] NaN; functions of complex numbers are discontinuous there.
    """

    see_also = ("tanh",)
    cost = 30
    function = staticmethod(np.arctanh)


class Erf(AccurateUnary, opcode="erf", builder="erf"):
    """Computes the error function (ERF-1)."""

    cost = 25
    kinds = FLOATS

    @staticmethod
    def function(x: Array) -> Any:
        from scipy.special import erf

        # SciPy's rational approximation below 1 errs by up to 2.7 ulps.
        return np.where(np.abs(x) < 1, x + x * np.polyval(_ERF_OVER_X, np.minimum(x * x, 1)), erf(x))


_ERF_OVER_X = [2 / math.pi**0.5 * (-1) ** k / (math.factorial(k) * (2 * k + 1)) for k in range(20, 0, -1)] + [
    0.12837916709551257
]
"""Coefficients of the Taylor series of erf(x) / x - 1 in x^2, the highest power first."""


class Negate(Linear, Unary, opcode="negate", builder="neg"):
    """Negates elements; integers wrap, -(0.0) = -0 (NEG-1)."""

    kinds = INTEGERS | FLOATS_COMPLEX

    def evaluate(self, ctx: Context, operand: Array) -> Array:
        return compute(np.negative, operand)


class Sign(Unary, opcode="sign", builder="sign"):
    """Computes the sign: -1, -0, NaN, +0 or 1; for complex numbers x / |x|, 0 for 0 (SIGN-1)."""

    kinds = SIGNED

    def evaluate(self, ctx: Context, operand: Array) -> Array:
        return compute(self.function, operand)

    @staticmethod
    def function(x: Array) -> Any:
        if np.iscomplexobj(x):
            (x,) = scaled_alike(x)
            modulus, parts = np.abs(x), np.empty_like(x)
            modulus = np.where(modulus == 0, 1, modulus)
            # Divide each part: the reciprocal of a complex number may overflow.
            parts.real, parts.imag = x.real / modulus, x.imag / modulus
            return parts
        # np.sign gives +0 for -0.
        return np.where(x == 0, x, np.sign(x))


class Real(Linear, RealValued, opcode="real", builder="real"):
    """Takes the real part; a real operand is returned unchanged (REAL-1)."""

    def evaluate(self, ctx: Context, operand: Array) -> Array:
        return operand.real if np.iscomplexobj(operand) else operand


class Imag(Linear, RealValued, opcode="imag", builder="imag"):
    """Takes the imaginary part; 0 for a real operand (IMAG-1)."""

    def evaluate(self, ctx: Context, operand: Array) -> Array:
        return operand.imag if np.iscomplexobj(operand) else np.zeros_like(operand)


class IsFinite(Unary, opcode="is-finite", builder="is_finite"):
    """Tests whether elements are neither +-inf nor NaN; the result is PRED (ISFINITE-1)."""

    see_also = ("compare",)
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
    """Counts the bits set in the width of the element type (POPULATIONCOUNT-1)."""

    see_also = ("count-leading-zeros",)
    kinds = INTEGERS

    def evaluate(self, ctx: Context, operand: Array) -> Array:
        return np.bitwise_count(_code(operand)).astype(operand.dtype)


class CountLeadingZeros(Unary, opcode="count-leading-zeros", builder="clz"):
    """Counts the leading zero bits in the width of the element type; the width for 0 (CLZ-1)."""

    kinds = INTEGERS

    def evaluate(self, ctx: Context, operand: Array) -> Array:
        x = _code(operand).astype(np.uint64)
        # Copy the highest bit to all lower ones; the bits not set then are the leading zeros.
        for shift in (1, 2, 4, 8, 16, 32):
            x = x | (x >> np.uint64(shift))
        return (BY_DTYPE[operand.dtype].bits - np.bitwise_count(x).astype(np.int64)).astype(operand.dtype)


def _code(x: Array) -> Array:
    """The bits as unsigned integers; bits beyond the type's width are cleared."""
    bits = BY_DTYPE[x.dtype].bits
    return bits_of(x) & np.uint8((1 << bits) - 1) if bits < 8 else bits_of(x)
