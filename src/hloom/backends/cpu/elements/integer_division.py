"""Division of integers, by which no operands trap (DIV-2).

Processors divide vectors of floats, but integers one by one. The quotient of two integers, unless it is one, is farther
from the next one than floats of more than twice their bits are rounded, so that it is truncated to the same integer.
"""

from __future__ import annotations

from hloom.backends.cpu.elements.types import rounded
from hloom.backends.cpu.llvm.processor import processor
from hloom.lir import Builder, Value, constant
from hloom.loops.expressions import Apply, Constant

TWO_TO_52 = 2.0**52
"""The sum with an integer has it in the low bits."""


def quotient(b: Builder, e: Apply, x: Value, y: Value) -> Value:
    """Emits a quotient of integers, truncated; -1, all bits, for zero divisors."""
    safe, zero = _safe_divisor(b, e, x, y)
    if _are_floats_faster(e, x):
        _, _, exact = _float_quotient(b, e, x, safe)
        result = _integer(b, e, exact, x)
    else:
        result = b.binary("sdiv" if e.type.is_signed else "udiv", x, safe)
    if zero is not None:
        result = b.select(zero, constant(x.type, -1), result)
    return rounded(b, result, e.type)


def remainder(b: Builder, e: Apply, x: Value, y: Value) -> Value:
    """Emits a remainder with the sign of the dividend, which it is for zero divisors."""
    safe, zero = _safe_divisor(b, e, x, y)
    if _are_floats_faster(e, x):
        dividend, divisor, exact = _float_quotient(b, e, x, safe)
        result = _integer(b, e, b.fmuladd(b.fneg(b.intrinsic("trunc", exact)), divisor, dividend), x)
    else:
        result = b.binary("srem" if e.type.is_signed else "urem", x, safe)
    return b.select(zero, x, result) if zero is not None else result


def _are_floats_faster(e: Apply, x: Value) -> bool:
    """Whether vectors of floats are divided in less time; LLVM replaces divisions by a constant by multiplications."""
    is_constant = isinstance(e.operands[1], Constant)
    return processor().architecture == "x86_64" and x.type.width > 0 and x.type.bits <= 32 and not is_constant


def _float_quotient(b: Builder, e: Apply, x: Value, y: Value) -> tuple[Value, Value, Value]:
    """Returns both operands and their quotient as floats."""
    instruction = "sitofp" if e.type.is_signed else "uitofp"
    dividend, divisor = (b.convert(instruction, each, "double" if x.type.bits == 32 else "float") for each in (x, y))
    return dividend, divisor, b.binary("fdiv", dividend, divisor)


def _integer(b: Builder, e: Apply, value: Value, like: Value) -> Value:
    """Truncates floats to integers of a type."""
    if like.type.bits < 32:
        return b.convert("trunc", b.convert("fptosi", value, "i32"), like.type.element)
    if e.type.is_signed:
        return b.convert("fptosi", value, "i32")
    # No instruction before AVX-512 converts to unsigned integers.
    shifted = b.binary("fadd", b.intrinsic("trunc", value), constant(value.type, TWO_TO_52))
    return b.convert("trunc", b.bitcast(shifted, value.type.integer), "i32")


def _safe_divisor(b: Builder, e: Apply, x: Value, y: Value) -> tuple[Value, Value | None]:
    """A divisor that cannot trap, and i1 values for a zero divisor; None if impossible.

    It is 1 for zeros, and for -1 where the quotient is too large, which then is the dividend.
    """
    divisor = e.operands[1]
    if isinstance(divisor, Constant) and int(divisor.value) not in (0, -1):
        return y, None
    zero = b.compare("eq", y, constant(y.type, 0))
    one = constant(y.type, 1)
    if not e.type.is_signed:
        return b.select(zero, one, y), zero
    lowest = constant(x.type, e.type.limits[0])
    overflow = b.binary("and", b.compare("eq", x, lowest), b.compare("eq", y, constant(y.type, -1)))
    return b.select(b.binary("or", zero, overflow), one, y), zero
