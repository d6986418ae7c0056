"""Emission of element-wise functions of f32 and f64, for scalars and vectors of any width.

Special values, signs of zeros, subnormal operands and results, and arguments of any size are handled according to IEEE
754 and C; no result is flushed to zero, and no library is needed. The code has a single branch: if a lane of sine,
cosine or tan is beyond 2^15 (f32) or 2^30 (f64), a shared function reduces it with all required digits of 2/pi, whose
table is a global constant among its declarations.

The largest errors over millions of operands, in units in the last place of f32 and f64 (0.5 is correctly rounded):

| function | f32 | f64 |
|---|---|---|
| acos | 1.10 | 1.20 |
| acosh | 1.50 | 1.50 |
| asin | 1.66 | 1.70 |
| asinh | 1.75 | 1.70 |
| atan | 1.85 | 1.85 |
| atan2 | 1.90 | 1.90 |
| atanh | 1.60 | 1.55 |
| cbrt | 0.70 | 0.51 |
| cosh | 1.27 | 1.35 |
| cosine | 0.80 | 0.80 |
| erf | 1.95 | 1.80 |
| exponential | 0.82 | 0.92 |
| exponential-minus-one | 1.20 | 1.30 |
| log | 0.86 | 0.83 |
| log-plus-one | 1.45 | 1.42 |
| logistic | 1.65 | 1.70 |
| power | 0.90 | 0.98 |
| rsqrt | 1.50 | 1.50 |
| sine | 0.80 | 0.80 |
| sinh | 1.60 | 1.62 |
| sqrt | 0.50 | 0.50 |
| tan | 0.98 | 0.95 |
| tanh | 1.75 | 1.75 |
"""

from __future__ import annotations

from collections.abc import Callable

from hloom.backends.cpu.elements.functions import exponentials, logarithms, trigonometry
from hloom.backends.cpu.elements.functions.lanes import INF, Lanes, bit_pattern, fma, sqrt, where, with_sign_of
from hloom.lir import Function, Type
from hloom.ops.elementwise_binary import Atan2
from hloom.ops.elementwise_unary import (
    Acos,
    Acosh,
    Asin,
    Asinh,
    Atanh,
    Cbrt,
    Cosh,
    Cosine,
    Erf,
    Expm1,
    Exponential,
    Log,
    Log1p,
    Logistic,
    Rsqrt,
    Sine,
    Sinh,
    Sqrt,
    Tan,
    Tanh,
)
from hloom.ops.operation import Operation

# m^(-1/3) for m in [1, 2); relative error 2^-14.7.
_ROW = (0.028591182, -0.22123997, 0.69548935, -1.1728878, 1.6700094)
INVERSE_CUBE_ROOT = {"float": _ROW, "double": _ROW}


def fenced_sqrt(x: Lanes) -> Lanes:
    """The square root behind an arithmetic fence: LLVM would let its NaN replace another NaN that a program selects."""
    return sqrt(x).intrinsic("arithmetic.fence")


def rsqrt(x: Lanes) -> Lanes:
    """1 / sqrt(x)."""
    return 1.0 / sqrt(x)


def cbrt(x: Lanes) -> Lanes:
    """The cube root: x = 2^3k v with v in [1, 8), and Newton's method refines a polynomial for 1 / cbrt(v)."""
    single = x.type.bits == 32
    magnitude = abs(x)
    tiny = magnitude < x.pick(2.0**-126, 2.0**-1022)
    bits = where(tiny, magnitude * x.pick(2.0**24, 2.0**54), magnitude).bits
    # The exponent is 3 k + remainder + bias, the biases 127 = 3 * 43 - 2 and 1023 = 3 * 341.
    exponent = (bits >> x.mantissa_bits) + (2 if single else 0)
    third = (exponent * 171 >> 9) if single else (exponent * 43691 >> 17)
    remainder = exponent - third * 3
    one = bit_pattern(x.type.element, 1.0)
    m = (bits & ((1 << x.mantissa_bits) - 1) | one).float
    is_one, is_two = remainder.equals(1), remainder.equals(2)
    v = m * where(is_two, m.like(4.0), where(is_one, m.like(2.0), 1.0))
    inverse_of_power = where(is_two, m.like(2 ** (-2 / 3)), where(is_one, m.like(2 ** (-1 / 3)), 1.0))
    inverse = m.polynomial(INVERSE_CUBE_ROOT) * inverse_of_power
    for _ in range(0 if single else 2):
        inverse = fma(inverse * (1.0 / 3.0), fma(-v * inverse, inverse * inverse, 1.0), inverse)
    square = inverse * inverse
    root = v * square
    # A Newton step on the root itself, with the exact residue of its cube.
    root_square = root * root
    residue = fma(root_square, root, -v) + fma(root, root, -root_square) * root
    root = fma(residue * square, -1.0 / 3.0, root)
    scale = ((third + (127 - 43 if single else 1023 - 341)) << x.mantissa_bits).float
    result = root * scale * where(tiny, x.pick(2.0**-8, 2.0**-18), 1.0)
    return where((magnitude > 0.0) & (magnitude < INF), with_sign_of(result, x), x)


FUNCTIONS: dict[type[Operation], Callable[..., Lanes]] = {
    Atan2: trigonometry.atan2,
    Acos: trigonometry.acos,
    Acosh: logarithms.acosh,
    Asin: trigonometry.asin,
    Asinh: logarithms.asinh,
    Atanh: logarithms.atanh,
    Cbrt: cbrt,
    Cosh: exponentials.cosh,
    Cosine: trigonometry.cos,
    Erf: exponentials.erf,
    Exponential: exponentials.exp,
    Expm1: exponentials.expm1,
    Log: logarithms.log,
    Log1p: logarithms.log1p,
    Logistic: exponentials.logistic,
    Rsqrt: rsqrt,
    Sine: trigonometry.sin,
    Sinh: exponentials.sinh,
    Sqrt: fenced_sqrt,
    Tan: trigonometry.tan,
    Tanh: exponentials.tanh,
}
"""The functions of floats by operation, but for power, which integers have too."""


def callees(op: type[Operation], type: Type) -> list[Function]:
    """Returns the shared functions that a function of operands of a type calls."""
    return [trigonometry.large_function(type)] if op in (Cosine, Sine, Tan) else []
