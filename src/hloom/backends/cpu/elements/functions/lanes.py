"""Emission of arithmetic with Python's operators: `fma(n, -LN2, x)` emits one instruction, `a * a + 1.0` two."""

from __future__ import annotations

import functools
import struct
from collections.abc import Mapping, Sequence
from typing import Any

from hloom.backends.cpu.llvm.processor import processor
from hloom.lir import Builder, Type, Value, constant

Number = float | int
INF = float("inf")
NAN = float("nan")

# 1.5 * 2^(mantissa bits): the sum with it is rounded to an integer, which is in the low bits.
ROUNDER = (12582912.0, 6755399441055744.0)


class Lanes:
    """A scalar or vector with the builder that emits operations on it; Python numbers become constants of its type.

    Comparisons are ordered (false for NaN) and return `i1` lanes; `>>` is a logical shift.
    """

    __slots__ = ("b", "value")

    def __init__(self, b: Builder, value: Value) -> None:
        self.b = b
        self.value = value

    @property
    def type(self) -> Type:
        """The LLVM type of the value."""
        return self.value.type

    @property
    def mantissa_bits(self) -> int:
        """The number of mantissa bits of a float as wide as this type, 32 or 64 bits."""
        return 52 if self.type.bits == 64 else 23

    def like(self, other: Lanes | Number) -> Lanes:
        """`other`, with a number converted to a constant of this type."""
        return other if isinstance(other, Lanes) else Lanes(self.b, constant(self.type, other))

    def pick(self, single: Number, double: Number) -> Lanes:
        """The constant `single` for f32, `double` for f64."""
        return self.like(single if self.type.bits == 32 else double)

    # Arithmetic

    def _binary(self, on_floats: str, on_integers: str, other: Lanes | Number) -> Lanes:
        instruction = on_floats if self.type.is_float else on_integers
        return Lanes(self.b, self.b.binary(instruction, self.value, self.like(other).value))

    def __add__(self, other: Lanes | Number) -> Lanes:
        return self._binary("fadd", "add", other)

    def __sub__(self, other: Lanes | Number) -> Lanes:
        return self._binary("fsub", "sub", other)

    def __mul__(self, other: Lanes | Number) -> Lanes:
        return self._binary("fmul", "mul", other)

    def __truediv__(self, other: Lanes | Number) -> Lanes:
        return self._binary("fdiv", "udiv", other)

    __radd__ = __add__
    __rmul__ = __mul__

    def __rsub__(self, other: Number) -> Lanes:
        return self.like(other) - self

    def __rtruediv__(self, other: Number) -> Lanes:
        return self.like(other) / self

    def __neg__(self) -> Lanes:
        return Lanes(self.b, self.b.fneg(self.value))

    def __abs__(self) -> Lanes:
        return Lanes(self.b, self.b.intrinsic("fabs", self.value))

    def polynomial(self, coefficients: Mapping[str, Sequence[float]]) -> Lanes:
        """The polynomial with the coefficients for this element type, from the highest power.

        Long ones are evaluated as E(x^2) + x O(x^2), which has shorter chains of dependent instructions.
        """
        row = coefficients[self.type.element]
        b, x = self.b, self.value
        if len(row) < 8:
            return Lanes(b, b.polynomial(x, row))
        square = b.binary("fmul", x, x)
        even, odd = b.polynomial(square, row[-1::-2][::-1]), b.polynomial(square, row[-2::-2][::-1])
        return Lanes(b, b.fmuladd(odd, x, even))

    # Integers and truth values

    def __and__(self, other: Lanes | Number) -> Lanes:
        return self._binary("", "and", other)

    def __or__(self, other: Lanes | Number) -> Lanes:
        return self._binary("", "or", other)

    def __xor__(self, other: Lanes | Number) -> Lanes:
        return self._binary("", "xor", other)

    def __invert__(self) -> Lanes:
        return self ^ (1 if self.type.element == "i1" else -1)

    def __lshift__(self, count: int) -> Lanes:
        return self._binary("", "shl", count)

    def __rshift__(self, count: int) -> Lanes:
        return self._binary("", "lshr", count)

    def shift_right_signed(self, count: int) -> Lanes:
        """The arithmetic shift of integers."""
        return self._binary("", "ashr", count)

    # Comparisons

    def compare(self, predicate: str, other: Lanes | Number) -> Lanes:
        """A comparison by an LLVM predicate (`olt`, `uno`, `slt` ..), as i1."""
        return Lanes(self.b, self.b.compare(predicate, self.value, self.like(other).value))

    def __lt__(self, other: Lanes | Number) -> Lanes:
        return self.compare("olt" if self.type.is_float else "slt", other)

    def __le__(self, other: Lanes | Number) -> Lanes:
        return self.compare("ole" if self.type.is_float else "sle", other)

    def __gt__(self, other: Lanes | Number) -> Lanes:
        return self.compare("ogt" if self.type.is_float else "sgt", other)

    def __ge__(self, other: Lanes | Number) -> Lanes:
        return self.compare("oge" if self.type.is_float else "sge", other)

    def equals(self, other: Lanes | Number) -> Lanes:
        """Whether the values are equal, as i1; false for NaN."""
        return self.compare("oeq" if self.type.is_float else "eq", other)

    # Conversions

    @property
    def bits(self) -> Lanes:
        """The bit patterns of floats, as integers."""
        return Lanes(self.b, self.b.bitcast(self.value, self.type.integer))

    @property
    def float(self) -> Lanes:
        """The floats with these bit patterns."""
        element = {32: "float", 64: "double"}[self.type.bits]
        return Lanes(self.b, self.b.bitcast(self.value, self.type.of(element)))

    def to(self, element: str) -> Lanes:
        """Converts between float and double."""
        if self.type.element == element:
            return self
        return Lanes(self.b, self.b.convert("fpext" if element == "double" else "fptrunc", self.value, element))

    def lanes(self, *lanes: int) -> Lanes:
        """The vector of some lanes."""
        return Lanes(self.b, self.b.shuffle(self.value, None, lanes))

    def intrinsic(self, name: str, *others: Lanes | Number) -> Lanes:
        """Calls an LLVM intrinsic on operands of this type, which is also that of the result."""
        return Lanes(self.b, self.b.intrinsic(name, self.value, *(self.like(other).value for other in others)))


def fma(a: Lanes, b: Lanes | Number, c: Lanes | Number) -> Lanes:
    """a * b + c, rounded once; without instructions for it, f32 is rounded twice, at first to f64."""
    if a.type.element != "float" or processor().has_fma:
        return a.intrinsic("fma", b, c)
    operands = [a.like(each) for each in (a, b, c)]
    if processor().architecture != "wasm32" or a.type.width % 4 or not a.type.width:
        return _fma_by_double(*operands).to("float")
    quads = [[each.lanes(*range(k, k + 4)) for each in operands] for k in range(0, a.type.width, 4)]
    return Lanes(a.b, functools.reduce(a.b.joined, [_fma_by_pairs(*quad).value for quad in quads]))


def _fma_by_double(a: Lanes, b: Lanes, c: Lanes) -> Lanes:
    return a.to("double") * b.to("double") + c.to("double")


def _fma_by_pairs(*operands: Lanes) -> Lanes:
    """Four lanes, in pairs: WebAssembly converts two to f32 with two zeros; LLVM makes scalars of more."""
    low, high = (_fma_by_double(*(each.lanes(*pair) for each in operands)) for pair in ((0, 1), (2, 3)))
    zeros, b = constant(low.type, 0.0), low.b
    quads = [Lanes(b, b.shuffle(pair.value, zeros, range(4))).to("float") for pair in (low, high)]
    return (quads[0].bits | quads[1].lanes(2, 3, 0, 1).bits).float


def muladd(a: Lanes, b: Lanes | Number, c: Lanes | Number) -> Lanes:
    """a * b + c where it does not matter whether the product is rounded: fused if there is an instruction for it."""
    return Lanes(a.b, a.b.fmuladd(a.value, a.like(b).value, a.like(c).value))


def upper_part(x: Lanes) -> Lanes:
    """An f32 without the lower half of its mantissa: multiples by integers |n| < 2^12 are exact."""
    return (x.bits & -(1 << 12)).float


def add_multiple(n: Lanes, factor: Lanes, c: Lanes) -> Lanes:
    """n * factor + c for integers |n| < 2^12.

    Without fused instructions, f32 is multiplied by the two halves of the factor, which is exact; the sum is rounded
    once if c is so near -n * factor that the first addition loses no bit.
    """
    if n.type.element == "double" or processor().has_fma:
        return fma(n, factor, c)
    high = upper_part(factor)
    return muladd(n, factor - high, muladd(n, high, c))


def where(condition: Lanes, a: Lanes | Number, b: Lanes | Number) -> Lanes:
    """Selects a where the condition holds, else b; at least one of them must not be a Python number."""
    typed: Any = a if isinstance(a, Lanes) else b
    return Lanes(condition.b, condition.b.select(condition.value, typed.like(a).value, typed.like(b).value))


def at_most(x: Lanes, limit: Lanes | Number) -> Lanes:
    """The minimum of x and a limit; NaN if x is NaN."""
    return where(x > limit, limit, x)


def at_least(x: Lanes, limit: Lanes | Number) -> Lanes:
    """The maximum of x and a limit; NaN if x is NaN."""
    return where(x < limit, limit, x)


def with_sign_of(magnitude: Lanes, sign: Lanes) -> Lanes:
    """Copies the sign of one value to another."""
    return magnitude.intrinsic("copysign", sign)


def sqrt(x: Lanes) -> Lanes:
    """The correctly rounded square root."""
    return x.intrinsic("sqrt")


def bit_pattern(element: str, value: Number) -> int:
    """The bit pattern of a constant of LLVM's float or double."""
    single = element == "float"
    return int(struct.unpack("<I" if single else "<Q", struct.pack("<f" if single else "<d", value))[0])
