"""Complex functions against the interpreter's functions in long double."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from backends.cpu.elements.compile_elementwise import Array, compile_elementwise
from hloom.backends.cpu.elements.complex_ops import COMPLEX
from hloom.ops import elementwise_binary, elementwise_unary
from hloom.ops.operation import Operation

pytestmark = pytest.mark.skipif(np.finfo(np.longdouble).nmant < 63, reason="needs a long double wider than f64")

OPERATIONS: dict[str, Any] = {
    operation.opcode: operation
    for module in (elementwise_unary, elementwise_binary)
    for operation in vars(module).values()
    if isinstance(operation, type) and issubclass(operation, Operation) and hasattr(operation, "opcode")
}

# The largest errors of c128, relative to the modulus of the result in units of 2^-52.
BOUNDS = {
    "abs": 1.5,
    "acos": 3,
    "acosh": 3,
    "asin": 3.5,
    "asinh": 3.5,
    "atanh": 3,
    "cosh": 2.5,
    "cosine": 2.5,
    "divide": 4,
    "exponential": 2,
    "exponential-minus-one": 3,
    "log": 1.5,
    "log-plus-one": 2,
    "logistic": 4,
    "multiply": 2,
    "rsqrt": 4,
    "sign": 2,
    "sine": 2.5,
    "sinh": 2.5,
    "sqrt": 2,
    "tan": 4,
    "tanh": 4,
}


def compiled(opcode: str, dtype: type) -> Any:
    """Compiles a function of complex arrays."""
    op = OPERATIONS[opcode]()
    emit, operands = COMPLEX[op], len(op.operands)
    real = np.float32 if dtype == np.complex64 else np.float64

    def on_parts(b: Any, *parts: Any) -> Any:
        return emit(op, b, None, *zip(parts[::2], parts[1::2]))

    native = compile_elementwise(on_parts, real, 8, 2 * operands, 1 if opcode == "abs" else 2)

    def run(*arrays: Array) -> Array:
        parts = native(*(part for z in arrays for part in (z.real, z.imag)))
        return parts if opcode == "abs" else joined(*parts)

    return run


def joined(real: Array, imaginary: Array) -> Array:
    """Combines parts to complex numbers; `real + 1j * imaginary` would lose signs and infinities."""
    result = np.empty(np.shape(real), np.complex64 if real.dtype == np.float32 else np.complex128)
    result.real, result.imag = real, imaginary
    return result


def samples(dtype: type, seed: int, count: int = 4000) -> Array:
    """Complex numbers with normal parts, with parts of very different sizes, and close to the unit circle."""
    random = np.random.default_rng(seed)
    parts = [
        random.normal(size=2 * count) * np.exp(random.choice([0, 1], 2 * count) * random.uniform(-20, 3, 2 * count))
        for _ in "xy"
    ]
    circle = np.exp(1j * random.uniform(-4, 4, count)) * (
        1 + random.normal(size=count) * np.exp(random.uniform(-30, -3, count))
    )
    return np.concatenate([parts[0] + 1j * parts[1], circle]).astype(dtype)


def exact(opcode: str, *operands: Array) -> Array:
    long = [z.astype(np.clongdouble) for z in operands]
    if opcode == "abs":
        return np.abs(long[0])
    return np.asarray(OPERATIONS[opcode].function(*long))


def relative_errors(got: Array, expected: Array, dtype: type) -> Array:
    unit = np.finfo(dtype).eps * np.maximum(np.abs(expected), np.finfo(dtype).tiny)
    return np.asarray(np.abs(got - expected) / unit)


@pytest.mark.sampled(12)
@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
@pytest.mark.parametrize("opcode", BOUNDS)
def test_complex_function_is_accurate(opcode: str, dtype: type) -> None:
    operands = [samples(dtype, seed) for seed in range(len(OPERATIONS[opcode].operands))]
    expected = exact(opcode, *operands)
    error = relative_errors(compiled(opcode, dtype)(*operands), expected, dtype)
    if opcode == "logistic":
        # 1 + e^-z cancels near the poles.
        error = error / np.maximum(1, np.abs(expected))
    worst = int(np.argmax(error))
    # c64 is computed in f64 and rounded, but for products.
    bound = 0.8 if dtype == np.complex64 and opcode not in ("abs", "multiply") else BOUNDS[opcode]
    assert error[worst] <= bound, [z[worst] for z in operands]


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_power_is_accurate_for_the_size_of_its_logarithm(dtype: type) -> None:
    base, exponent = samples(dtype, 0), samples(dtype, 1)
    expected = exact("power", base, exponent)
    error = relative_errors(compiled("power", dtype)(base, exponent), expected, dtype)
    amplified = 2 + np.abs(exponent * np.log(base)) * (1e-6 if dtype == np.complex64 else 2)
    inside = (np.abs(expected) > np.finfo(dtype).tiny) & (np.abs(expected) < np.finfo(dtype).max)
    assert np.all((error <= amplified) | ~inside)


def test_atan2_follows_its_formula() -> None:
    """-i log((x + i y) / sqrt(x^2 + y^2)) cancels near 0, so that errors are absolute."""
    y, x = samples(np.complex128, 0), samples(np.complex128, 1)
    expected = exact("atan2", y, x)
    assert np.max(np.abs(compiled("atan2", np.complex128)(y, x) - expected) / (1 + np.abs(expected))) < 1e-14


@pytest.mark.parametrize("scale", [1e-290, 1e290])
def test_atan2_does_not_depend_on_the_scale(scale: float) -> None:
    """ATAN2-1: a quotient, whose squares must not overflow."""
    y, x = samples(np.complex128, 0)[:1000], samples(np.complex128, 1)[:1000]
    y, x = y / np.abs(y), x / np.abs(x) * 3
    operation = OPERATIONS["atan2"]
    for function in (compiled("atan2", np.complex128), lambda *z: operation.evaluate(operation(), None, *z)):
        assert np.max(np.abs(function(y * scale, x * scale) - function(y, x))) < 1e-13


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_sign_is_accurate_where_the_modulus_is_not_in_range(dtype: type) -> None:
    """SIGN-1: x / |x|, whose divisor may overflow, or be a subnormal number of few bits."""
    limits = np.finfo(dtype)
    large, small, middle = limits.max, limits.smallest_subnormal, dtype(2.0**61).real
    parts = [(large, large), (large, -large / 3), (middle, 1 / middle), (-large, 1.5)]
    parts += [(small, small), (small * 3, -small), (limits.tiny, small * 9), (3.0, -4.0)]
    operand = np.array([complex(*pair) for pair in parts], dtype)
    wide = operand.astype(np.clongdouble)
    expected = np.sqrt(wide.real**2 + wide.imag**2)
    operation = OPERATIONS["sign"]
    for function in (compiled("sign", dtype), lambda z: operation.evaluate(operation(), None, z)):
        result = function(operand)
        for got, part in ((result.real, wide.real), (result.imag, wide.imag)):
            np.testing.assert_allclose(got, (part / expected).astype(got.dtype), rtol=3 * limits.eps)


SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, 0.5, -3.0, 1e30, -1e-30, 100.0, -700.0, np.inf, -np.inf, np.nan])


@pytest.mark.parametrize(
    "opcode",
    [
        "abs",
        "asin",
        "asinh",
        "cosh",
        "divide",
        "exponential",
        "log",
        "log-plus-one",
        "logistic",
        "rsqrt",
        "sqrt",
        "tan",
        "tanh",
    ],
)
def test_special_values_are_those_of_the_interpreter(opcode: str) -> None:
    real, imaginary = np.meshgrid(SPECIAL, SPECIAL)
    z = joined(real.ravel(), imaginary.ravel())
    z = np.concatenate([z, np.ones(-z.size % 8)])
    operands = [z] if len(OPERATIONS[opcode].operands) == 1 else [np.repeat(z, z.size), np.tile(z, z.size)]
    got = compiled(opcode, np.complex128)(*operands)
    operation = OPERATIONS[opcode]
    expected = operation.evaluate(object.__new__(operation), None, *operands)
    for part in ("real", "imag"):
        np.testing.assert_allclose(getattr(got, part), getattr(expected, part), rtol=1e-12, atol=1e-300)


def test_the_logarithm_of_one_plus_a_small_number_keeps_its_digits() -> None:
    """LOG1P-1: |1 + iy| is 1 in doubles, the real part y^2 / 2."""
    z = np.array([1e-40 + 1e-7j, 1e-7j, -1e-9 + 1e-8j, 1e-20 - 1e-12j] * 2)
    want = z - z**2 / 2
    operation = OPERATIONS["log-plus-one"]
    for got in (compiled("log-plus-one", np.complex128)(z), operation.evaluate(operation(), None, z)):
        np.testing.assert_allclose(got.real, want.real, rtol=1e-6)
        np.testing.assert_allclose(got.imag, want.imag, rtol=1e-6)


def test_the_logistic_function_is_zero_far_below_zero() -> None:
    """LOGISTIC-1: e^-z overflows, but e^z / (1 + e^z) does not."""
    z = np.array([-1715.5 - 0.5j, -800 + 2j, -np.inf + 1j, -710.0, 800 + 1j, 0.5j, -1 + 1j, 0])
    got = compiled("logistic", np.complex128)(z)
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(got, [0, 0, 0, np.exp(-710.0), 1, *1 / (1 + np.exp(-z[5:]))], rtol=1e-14)


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_signs_of_atan2_near_pi(dtype: type) -> None:
    """ATAN2-1: the angle is the arc tangent of y / x and pi or -pi, which keep it in (-pi, pi], however small y is."""
    x, y = samples(dtype, 0)[:2000], samples(dtype, 1)[:2000]
    x.real, y = -np.abs(x.real), y * dtype(2.0**-80)
    quotient = (y.astype(np.clongdouble) / x).real
    is_clear = (np.abs(x.real) > np.abs(y)) & (np.abs(quotient) > 2.0**-120)
    operation = OPERATIONS["atan2"]
    for function in (compiled("atan2", dtype), lambda *z: operation.evaluate(operation(), None, *z)):
        np.testing.assert_array_equal(np.sign(function(y, x).real[is_clear]), -np.sign(quotient[is_clear]))


LARGEST, LEAST = np.finfo(np.float64).max, np.finfo(np.float64).tiny


@pytest.mark.parametrize("opcode", ["acos", "acosh", "asin", "asinh", "atanh"])
def test_inverse_functions_have_the_range_of_the_type(opcode: str) -> None:
    """UNARY-2: |z| beyond the largest number, and squares of the distance to 1 below the least one."""
    large = [
        LARGEST * (1 + 1j),
        LARGEST * (-1 + 1j),
        1e308 - 1.7e308j,
        LARGEST + 1j,
        1.5 - LARGEST * 1j,
        1e302 * (1 + 1j),
    ]
    near = [1 + LEAST * 1j, 1 - 5e-324j, -1 + LEAST / 8 * 1j, 1 + 1e-200j, 1 + 2.0**-52 + LEAST * 1j, LEAST * (1 - 1j)]
    beside = [1 + 1e-10j, 1 + 1e-9j, -1 + 2.0**-30 * 1j, -1 + 0.0086j, 1 - 0.7j, -1 + 2.5j, 1 + 1e-5j, -1 - 1e-3j]
    z = np.array([*large, *near, *beside, 0.5 + 5e-324j, -1 + 1e-100j, 1 + 1e-160j, LEAST / 4 * 1j])
    got, expected = compiled(opcode, np.complex128)(z), exact(opcode, z)
    for part in ("real", "imag"):
        wanted = getattr(expected, part).astype(np.float64)
        np.testing.assert_allclose(getattr(got, part), wanted, rtol=1e-15 * BOUNDS[opcode], atol=LEAST * 2.0**-51)


def test_the_hyperbolic_arc_tangent_of_nan_is_nan() -> None:
    z = joined(np.array([np.inf, -np.inf, 1e300, 1.0] * 2), np.full(8, np.nan))
    assert np.isnan(compiled("atanh", np.complex128)(z).imag).all()
