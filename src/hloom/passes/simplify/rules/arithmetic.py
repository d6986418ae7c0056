"""Rules of arithmetic, logic, comparisons, selections and conversions."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np

from hloom.ir import Instruction
from hloom.literal import extreme
from hloom.numerics import bits_of, convert, widen
from hloom.ops.attributes import ComparisonDirection
from hloom.ops.compare import Compare
from hloom.ops.convert import BitcastConvert, Convert
from hloom.ops.elementwise_binary import (
    Add,
    And,
    Monoid,
    Multiply,
    Shift,
    ShiftRightLogical,
    Subtract,
)
from hloom.ops.elementwise_unary import Abs, Negate
from hloom.ops.select import Select
from hloom.passes.pattern import splat_source
from hloom.passes.rewrite import Match, Rule
from hloom.types import Kind, PrimitiveType
from hloom.values import Array

_MONOIDS = [cls.opcode for cls in Monoid.__subclasses__()]
_IDEMPOTENT = [cls.opcode for cls in Monoid.__subclasses__() if cls.is_idempotent]
_SHIFTS = [cls.opcode for cls in Shift.__subclasses__()]
_EQ, _NE = ComparisonDirection.EQ, ComparisonDirection.NE
_GE, _GT, _LE, _LT = (ComparisonDirection[name] for name in ("GE", "GT", "LE", "LT"))
_SWAPPED = {_EQ: _EQ, _NE: _NE, _GE: _LE, _LE: _GE, _GT: _LT, _LT: _GT}
_INVERTED = {_EQ: _NE, _NE: _EQ, _GE: _LT, _LT: _GE, _GT: _LE, _LE: _GT}

# Conditions on a splat


def _is(value: float) -> Any:
    """Returns the condition that $c is this real number, where -0 and 0 are different; false for complex values."""

    def condition(m: Match) -> bool:
        c = widen(m.value("c")).item()
        return not isinstance(c, complex) and c == value and math.copysign(1, c) == math.copysign(1, value)

    return condition


def _integer(condition: Any) -> Any:
    """Restricts a condition to integers and predicates."""
    return lambda m: (m.element_type.is_integer or m.element_type.is_pred) and condition(m)


def _is_minus_zero(m: Match) -> bool:
    c = widen(m.value("c")).item()
    return isinstance(c, float) and c == 0 and math.copysign(1, c) < 0


def _is_ones(m: Match) -> bool:
    """Whether all bits of the value of $c are set, or it is true."""
    c = m.value("c")
    return bool(c == True) if c.dtype == bool else bool(widen(c) == widen(np.asarray(-1).astype(c.dtype)))  # noqa: E712


def _is_extreme(*, highest: bool) -> Any:
    """Returns the condition that $c is the highest or lowest value of a real type: an infinity if it has one."""

    def condition(m: Match) -> bool:
        element_type = m.element_type
        return not element_type.is_complex and bool(
            widen(m.value("c")) == widen(extreme(element_type, highest=highest))
        )

    return condition


def _is_power_of_two(m: Match) -> bool:
    """Whether $c is a power of two of an unsigned type."""
    c = m.value("c")
    return m.element_type.kind is Kind.UNSIGNED and m.element_type.bits >= 8 and int(c).bit_count() == 1


def _has_exact_reciprocal(m: Match) -> bool:
    """Whether $c is plus or minus a power of two whose reciprocal is a normal number of the float type."""
    if m.element_type.text not in ("f16", "bf16", "f32", "f64"):
        return False
    c = float(m.value("c"))
    if c == 0 or not np.isfinite(c) or abs(np.frexp(c)[0]) != 0.5:
        return False
    smallest, reciprocal = float(ml_dtypes.finfo(m.element_type.dtype).smallest_normal), abs(1 / c)
    return reciprocal >= smallest and bool(np.isfinite(convert(np.asarray(1 / c), m.element_type.dtype)))


def _log2(m: Match) -> int:
    return int(m.value("c")).bit_length() - 1


# Comparisons


def _compare(m: Match, direction: ComparisonDirection, lhs: Instruction, rhs: Instruction, op: Compare) -> Instruction:
    return m.result(op.replace(direction=direction), lhs, rhs)


def _is_total(m: Match) -> bool:
    """Whether exactly one of <, = and > holds for any two elements that the root compares."""
    return _orders_totally(m.op, m.root.operands[0])


def _orders_totally(op: Compare, operand: Instruction) -> bool:
    element_type = operand.shape.element_type
    is_total_order = op.is_total_order and element_type.is_float
    return is_total_order or element_type.is_integer or element_type.is_pred


def _can_invert(m: Match) -> bool:
    """Whether a comparison can be inverted: with NaNs all but NE are false, so for floats only EQ and NE can."""
    return m.inner.direction in (_EQ, _NE) or _orders_totally(m.inner, m.root.operands[0].operands[0])


def _unsigned_below_zero(m: Match) -> bool:
    element_type = m.x.shape.element_type
    unsigned = element_type.kind is Kind.UNSIGNED
    return unsigned and m.op.direction in (_LT, _GE) and bool(widen(m.value("c")) == 0)


# Conversions


def _holds(wide: PrimitiveType, narrow: PrimitiveType) -> bool:
    """Whether `wide` represents every value of `narrow`, infinities and -0 included."""
    if narrow is wide:
        return True
    if narrow.is_pred:
        return wide.is_integer or (wide.is_float and wide.text != "f8e8m0fnu")
    if narrow.is_integer and wide.is_integer:
        return wide.bits > narrow.bits if wide.is_signed or not narrow.is_signed else False
    if narrow.text in ("f16", "bf16", "f32"):
        return wide.text in ("f32", "f64") and wide.bits > narrow.bits
    return False


def _conversion_is_lossless(m: Match) -> bool:
    """Whether the first of two conversions is to a type that represents every value of x's type."""
    source, middle = m.x.shape.element_type, m.root.operands[0].shape.element_type
    return _holds(middle, source)


def _is_one_bitcast(m: Match) -> bool:
    types = {m.x.shape.element_type.bits, m.root.operands[0].shape.element_type.bits, m.element_type.bits}
    return len(types) == 1


def _reconvert(m: Match) -> Instruction:
    return m.x if m.x.shape.element_type is m.element_type else m.result(Convert(), m.x)


def _recast(m: Match) -> Instruction:
    return m.x if m.x.shape.element_type is m.element_type else m.result(BitcastConvert(), m.x)


def _squares_exactly(m: Match) -> bool:
    """Whether x ** 2 is rounded once, as x * x is: f64 represents the squares of these types exactly."""
    return m.element_type.is_integer or m.element_type.text in ("f16", "bf16", "f32")


def _has_equal_elements(m: Match) -> bool:
    value = m.op.literal.value
    if m.root.shape.element_count < 2:
        return False
    codes: Array = np.ascontiguousarray(value).reshape(-1)
    if codes.dtype.kind == "c":
        codes = codes.view(codes.real.dtype).reshape(-1, 2)
    codes = codes if codes.dtype.kind == "b" else bits_of(codes)
    return bool((codes[:2] == codes[0]).all() and (codes == codes[0]).all())


CONSTANTS = [
    Rule(
        "constant-of-equal-elements", "constant(*)",
        lambda m: m.spread(m.scalar(m.op.literal.value.reshape(-1)[:1].reshape(())), m.root.shape),
        "a constant with equal elements is a broadcast, which needs no memory",
        when=lambda m: m.root.shape.is_array and _has_equal_elements(m),
    ),
    *(
        Rule(
            f"{opcode}-constant-right", f"{opcode}($c, x)", lambda m: m.result(m.op, m.x, m.c),
            "the operation is commutative, and rules expect constants on the right",
            when=lambda m: splat_source(m.x) is None,
        )
        for opcode in _MONOIDS
    ),
    *(
        Rule(
            f"{opcode}-constants", f"{opcode}({opcode}(x, $c), $d)",
            lambda m: m.result(m.op, m.x, m.build(m.op, [m.c, m.d], m.root.shape)),
            "on integers the operation is associative, as they wrap; the constants are combined at compile time",
            when=_integer(lambda m: splat_source(m.x) is None),
        )
        for opcode in _MONOIDS
    ),
]  # fmt: skip

ARITHMETIC = [
    Rule("add-zero", "add(x, $c)", lambda m: m.x, "x + 0 = x in integers; pred: or false", when=_integer(_is(0))),
    Rule("add-minus-zero", "add(x, $c)", lambda m: m.x, "the identity of float addition is -0: -0 + 0 = 0",
         when=_is_minus_zero),
    Rule("subtract-zero", "subtract(x, $c)", lambda m: m.x, "x - 0 = x, also for -0", when=_is(0)),
    Rule("subtract-self", "subtract(x, x)", lambda m: m.splat(0), "x - x = 0 in integers (inf - inf is NaN)",
         when=_integer(lambda m: True)),
    Rule("add-negate", "add(x, negate(y))", lambda m: m.result(Subtract(), m.x, m.y), "x + (-y) = x - y, also in IEEE"),
    Rule("negate-add", "add(negate(y), x)", lambda m: m.result(Subtract(), m.x, m.y), "(-y) + x = x - y, also in IEEE"),
    Rule("subtract-negate", "subtract(x, negate(y))", lambda m: m.result(Add(), m.x, m.y), "x - (-y) = x + y"),
    Rule("multiply-one", "multiply(x, $c)", lambda m: m.x, "x * 1 = x; pred: and true", when=_is(1)),
    Rule("multiply-zero", "multiply(x, $c)", lambda m: m.c, "x * 0 = 0 in integers (not for NaN, inf, -x)",
         when=_integer(_is(0))),
    Rule("multiply-minus-one", "multiply(x, $c)", lambda m: m.result(Negate(), m.x), "x * -1 = -x; integers wrap",
         when=_is(-1)),
    Rule("multiply-negated", "multiply(negate(x), negate(y))", lambda m: m.result(Multiply(), m.x, m.y),
         "the signs cancel", when=lambda m: not m.element_type.is_complex),
    Rule("divide-one", "divide(x, $c)", lambda m: m.x, "x / 1 = x", when=_is(1)),
    Rule("divide-power-of-two", "divide(x, $c)",
         lambda m: m.result(Multiply(), m.x, m.splat(1 / m.value("c").astype(np.float64))),
         "the reciprocal is exact, so both results are the same value, rounded", when=_has_exact_reciprocal),
    Rule("divide-unsigned-power-of-two", "divide(x, $c)",
         lambda m: m.result(ShiftRightLogical(), m.x, m.splat(_log2(m))), "x / 2^k = x >> k", when=_is_power_of_two),
    Rule("remainder-one", "remainder(x, $c)", lambda m: m.splat(0), "integers: x rem 1 = 0", when=_integer(_is(1))),
    Rule("remainder-unsigned-power-of-two", "remainder(x, $c)",
         lambda m: m.result(And(), m.x, m.splat((1 << _log2(m)) - 1)), "x rem 2^k keeps the low k bits",
         when=_is_power_of_two),
    Rule("negate-negate", "negate(negate(x))", lambda m: m.x, "-(-x) = x, also for the smallest integer"),
    Rule("abs-abs", "abs(abs(x))", lambda m: m.root.operands[0], "|x| has no sign (complex: the inner one is real)"),
    Rule("abs-negate", "abs(negate(x))", lambda m: m.result(Abs(), m.x), "|-x| = |x|"),
    Rule("power-zero", "power(x, $c)", lambda m: m.splat(1), "x ** 0 = 1, even for NaN", when=_is(0)),
    Rule("power-one", "power(x, $c)", lambda m: m.x, "x ** 1 = x", when=_is(1)),
    Rule("power-two", "power(x, $c)", lambda m: m.result(Multiply(), m.x, m.x),
         "x ** 2 = x * x where the square is rounded once",
         when=lambda m: _squares_exactly(m) and _is(2)(m)),
    *(
        Rule(f"{opcode}-zero", f"{opcode}(x, $c)", lambda m: m.x, "a shift by 0", when=_is(0))
        for opcode in _SHIFTS
    ),
    *(
        Rule(f"{opcode}-self", f"{opcode}(x, x)", lambda m: m.x, "the operation is idempotent")
        for opcode in _IDEMPOTENT
    ),
    Rule("xor-self", "xor(x, x)", lambda m: m.splat(0), "equal bits cancel"),
    Rule("maximum-lowest", "maximum(x, $c)", lambda m: m.x, "no value is below the lowest; NaN stays NaN",
         when=_is_extreme(highest=False)),
    Rule("minimum-highest", "minimum(x, $c)", lambda m: m.x, "no value is above the highest; NaN stays NaN",
         when=_is_extreme(highest=True)),
    Rule("maximum-highest", "maximum(x, $c)", lambda m: m.c, "integers: no value is above",
         when=_integer(_is_extreme(highest=True))),
    Rule("minimum-lowest", "minimum(x, $c)", lambda m: m.c, "integers: no value is below",
         when=_integer(_is_extreme(highest=False))),
]  # fmt: skip

LOGIC = [
    Rule("not-not", "not(not(x))", lambda m: m.x, "every bit is inverted twice"),
    Rule("and-zero", "and(x, $c)", lambda m: m.c, "x & 0 = 0", when=_is(0)),
    Rule("and-ones", "and(x, $c)", lambda m: m.x, "x & ~0 = x", when=_is_ones),
    Rule("or-zero", "or(x, $c)", lambda m: m.x, "x | 0 = x", when=_is(0)),
    Rule("or-ones", "or(x, $c)", lambda m: m.c, "x | ~0 = ~0", when=_is_ones),
    Rule("xor-zero", "xor(x, $c)", lambda m: m.x, "x ^ 0 = x", when=_is(0)),
    Rule("compare-constant-right", "compare($c, x)",
         lambda m: _compare(m, _SWAPPED[m.op.direction], m.x, m.c, m.op), "c < x means x > c",
         when=lambda m: splat_source(m.x) is None),
    Rule("compare-self", "compare(x, x)", lambda m: m.splat(m.op.direction in (_EQ, _GE, _LE)),
         "x = x in a total order (NaN is not equal to itself)", when=_is_total),
    Rule("compare-unsigned-zero", "compare(x, $c)", lambda m: m.splat(m.op.direction is _GE),
         "no unsigned value is below 0", when=_unsigned_below_zero),
    Rule("not-compare", "not(compare(x, y))", lambda m: _compare(m, _INVERTED[m.inner.direction], m.x, m.y, m.inner),
         "not < is >= in a total order", when=_can_invert),
    Rule("select-constant", "select($c, x, y)", lambda m: m.x if m.value("c") else m.y, "the predicate is known"),
    Rule("select-equal", "select(p, x, x)", lambda m: m.x, "both choices are the same"),
    Rule("select-not", "select(not(p), x, y)", lambda m: m.result(Select(), m.p, m.y, m.x),
         "inverting the predicate swaps the choices"),
    Rule("select-true-false", "select(p, $c, $d)", lambda m: m.p, "true and false selected by p is p itself",
         when=lambda m: m.element_type.is_pred and bool(m.value("c")) and not m.value("d")),
    Rule("clamp-unbounded", "clamp($c, x, $d)", lambda m: m.x, "integers: every value is between lowest and highest",
         when=_integer(lambda m: bool(
             widen(m.value("c")) == widen(extreme(m.element_type, highest=False))
             and widen(m.value("d")) == widen(extreme(m.element_type, highest=True))))),
    Rule("clamp-clamp", "clamp(a, clamp(a, x, b), b)", lambda m: m.root.operands[1], "clamping is idempotent"),
]  # fmt: skip

CONVERSIONS = [
    Rule("convert-same", "convert(x)", lambda m: m.x, "the types are the same"),
    Rule("convert-convert", "convert(convert(x))", _reconvert, "the intermediate type has every value of x",
         when=_conversion_is_lossless),
    Rule("bitcast-convert-same", "bitcast-convert(x)", lambda m: m.x, "the types are the same"),
    Rule("bitcast-convert-twice", "bitcast-convert(bitcast-convert(x))", _recast, "the bits are preserved",
         when=_is_one_bitcast),
    Rule("real-complex", "real(complex(x, y))", lambda m: m.x, "the real part is x"),
    Rule("imag-complex", "imag(complex(x, y))", lambda m: m.y, "the imaginary part is y"),
    Rule("complex-parts", "complex(real(z), imag(z))", lambda m: m.z, "the parts of z combined are z"),
    Rule("real-real", "real(x)", lambda m: m.x, "x is real"),
    Rule("imag-real", "imag(x)", lambda m: m.splat(0), "x is real",
         when=lambda m: m.x.shape.element_type.is_float),
]  # fmt: skip

RULES = [*CONSTANTS, *ARITHMETIC, *LOGIC, *CONVERSIONS]
