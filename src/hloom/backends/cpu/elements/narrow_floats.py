"""Emission of 8- and 4-bit floats: registers are f32 that hold representable values, memory holds codes in bytes.

The same code serves f16, in two bytes, on processors without instructions for it. `Format` has the parameters in which
these types differ, taken from ml_dtypes: widths, range, and the results of converting NaN, infinity and -0. The type
f8e8m0fnu is only an exponent, and has its own functions.
"""

from __future__ import annotations

import functools

import ml_dtypes
import numpy as np

from hloom.backends.cpu.llvm.processor import processor
from hloom.lir import Builder, Value, constant
from hloom.system.records import record
from hloom.types import PrimitiveType

MANTISSA, BIAS = 23, 127
"""Mantissa bits and exponent bias of f32."""
EXPONENT_MASK = 0xFF << MANTISSA
SIGN_MASK = 1 << 31
F16_MANTISSA, F16_EXPONENT, F16_BIAS = 10, 5, 15
"""Bits of the mantissa and of the exponent of f16, and its bias."""
F16_SIGN_MASK = 1 << 15
_F16_QUIET_NAN = 0x7E00
_QUIET_NAN = 0x7FC00000
_SMALLEST_POWER = 1 << (MANTISSA - 1)
"""The bits of 2^-127, which is subnormal in f32."""
_MIDPOINT = 1 << (MANTISSA - 1)
"""Difference of the bits of a power of two and of the midpoint between it and the next one."""


def is_narrow(type: PrimitiveType) -> bool:
    """Whether the type is an 8- or 4-bit float."""
    return type.is_float and type.bits < 16


@record(slots=True)
class Format:
    """A float format with a sign, subnormal numbers and at least one mantissa bit; its values are bits of f32."""

    bits: int
    mantissa: int
    bias: int
    smallest_normal: int
    largest: int
    overflow: int
    """Result of converting infinity: infinity, NaN, or the largest number."""
    nan: int
    """Result of converting a NaN without a sign; one with a sign gives the negative of it."""
    has_payloads: bool
    """Whether NaN has several codes, as in formats that have infinity."""
    has_signed_zero: bool
    """Whether the format has -0; without it, the code of -0 is the only NaN."""

    @staticmethod
    @functools.cache
    def of(type: PrimitiveType) -> Format:
        """The format of an element type, measured by conversions of ml_dtypes."""
        limits, width = ml_dtypes.finfo(type.dtype), int(type.bits)

        def converted(value: float) -> float:
            return float(np.asarray(value, np.float32).astype(type.dtype))

        minus_zero = np.asarray(1 << (width - 1), f"u{type.byte_width}").view(type.dtype)
        return Format(
            bits=width,
            mantissa=type.mantissa_bits,
            bias=1 - int(limits.minexp),
            smallest_normal=_bits(float(limits.smallest_normal)),
            largest=_bits(float(limits.max)),
            overflow=_bits(converted(np.inf)),
            nan=_bits(converted(np.nan)),
            has_payloads=bool(np.isinf(converted(np.inf))),
            has_signed_zero=not np.isnan(float(minus_zero)),
        )

    @property
    def has_nan(self) -> bool:
        """Whether NaN converts to NaN."""
        return self.nan & EXPONENT_MASK == EXPONENT_MASK

    @property
    def is_in_f16(self) -> bool:
        """Whether f16 has its numbers, times a power of two, as normal or as subnormal ones, and its only NaN."""
        has_one_nan = not self.has_signed_zero or self.largest_code >= self.magnitude_mask - 1
        return self.bits - 1 - self.mantissa < F16_EXPONENT and not self.has_payloads and has_one_nan

    @property
    def dropped(self) -> int:
        """The number of mantissa bits of f32 that the format does not have."""
        return MANTISSA - self.mantissa

    @property
    def magnitude_mask(self) -> int:
        """The bits of a code except its sign."""
        return (1 << (self.bits - 1)) - 1

    @property
    def largest_code(self) -> int:
        """The code of the largest finite number."""
        return (self.largest >> self.dropped) - self.rebias

    @property
    def rebias(self) -> int:
        """The difference of the exponent biases, aligned with the exponent in a code."""
        return (BIAS - self.bias) << self.mantissa

    @property
    def aligner(self) -> int:
        """The f32 whose last bit weighs as much as that of a subnormal number: the sum of both ends with its code."""
        return (BIAS + 1 - self.bias + self.dropped) << MANTISSA


def _bits(value: float) -> int:
    return _QUIET_NAN if np.isnan(value) else int(np.asarray(value, np.float32).view(np.uint32))


def decode(b: Builder, code: Value, type: PrimitiveType) -> Value:
    """Converts a code (i8, or i16 for f16) to f32, ignoring bits beyond its width. NaN keeps sign and payload."""
    if type is PrimitiveType.F8E8M0FNU:
        return _decode_exponent(b, b.convert("zext", code, "i32"))
    format = Format.of(type)
    if format.is_in_f16 and processor().converts_f16:
        return _decode_by_f16(b, code, format)
    word = b.convert("zext", code, "i32")

    def word_of(value: int) -> Value:
        return constant(word.type, value)

    magnitude = b.binary("and", word, word_of(format.magnitude_mask))
    shifted = b.binary("shl", magnitude, word_of(format.dropped))
    normal = b.binary("add", shifted, word_of(format.rebias << format.dropped))
    aligner = b.bitcast(word_of(format.aligner), word.type.of("float"))
    aligned = b.bitcast(b.binary("or", magnitude, word_of(format.aligner)), aligner.type)
    subnormal = b.bitcast(b.binary("fsub", aligned, aligner), word.type)
    is_subnormal = b.compare("ult", magnitude, word_of(1 << format.mantissa))
    result = b.select(is_subnormal, subnormal, normal)
    if format.largest_code < format.magnitude_mask:
        special = b.binary("or", shifted, word_of(EXPONENT_MASK)) if format.has_payloads else word_of(format.nan)
        result = b.select(b.compare("ugt", magnitude, word_of(format.largest_code)), special, result)
    sign = b.binary("and", b.binary("shl", word, word_of(32 - format.bits)), word_of(SIGN_MASK))
    result = b.binary("or", result, sign)
    if not format.has_signed_zero:
        is_nan = b.compare("eq", result, word_of(SIGN_MASK))
        result = b.select(is_nan, word_of(SIGN_MASK | _QUIET_NAN), result)
    return b.bitcast(result, aligner.type)


def _decode_by_f16(b: Builder, code: Value, format: Format) -> Value:
    """Converts a code to f32 by way of f16, which has its exponents without a bias of their own, and subnormals."""
    word = b.convert("sext", code, "i16")

    def word_of(value: int) -> Value:
        return constant(word.type, value)

    dropped = F16_MANTISSA - format.mantissa
    magnitudes = format.magnitude_mask << dropped
    if format.bits == 8:
        bits = b.binary("and", b.binary("shl", word, word_of(dropped)), word_of(F16_SIGN_MASK | magnitudes))
    else:
        magnitude = b.binary("and", b.binary("shl", word, word_of(dropped)), word_of(magnitudes))
        sign = b.binary("and", b.binary("shl", word, word_of(16 - format.bits)), word_of(F16_SIGN_MASK))
        bits = b.binary("or", magnitude, sign)
    if not format.has_signed_zero:
        is_nan = b.compare("eq", bits, word_of(F16_SIGN_MASK))
        bits = b.binary("xor", bits, b.binary("and", b.convert("sext", is_nan, "i16"), word_of(_F16_QUIET_NAN)))
    elif format.largest_code < format.magnitude_mask:
        is_nan = b.compare("eq", b.binary("and", bits, word_of(magnitudes)), word_of(magnitudes))
        changed = b.binary("and", b.convert("sext", is_nan, "i16"), word_of(magnitudes ^ _F16_QUIET_NAN))
        bits = b.binary("xor", bits, changed)
    value = b.convert("fpext", b.bitcast(bits, bits.type.of("half")), "float")
    return b.binary("fmul", value, constant(value.type, 2.0 ** (F16_BIAS - format.bias)))


def encode(b: Builder, value: Value, type: PrimitiveType) -> Value:
    """Converts an f32 that holds a value of the type to its code (i8, or i16 for f16)."""
    bits = b.bitcast(value, value.type.integer)
    if type is PrimitiveType.F8E8M0FNU:
        return b.convert("trunc", b.binary("lshr", bits, constant(bits.type, MANTISSA)), "i8")
    format = Format.of(type)

    def word_of(value: int) -> Value:
        return constant(bits.type, value)

    magnitude = b.binary("and", bits, word_of(~SIGN_MASK))
    shifted = b.binary("lshr", magnitude, word_of(format.dropped))
    normal = b.binary("sub", shifted, word_of(format.rebias))
    aligner = b.bitcast(word_of(format.aligner), value.type)
    aligned = b.bitcast(b.binary("fadd", b.bitcast(magnitude, value.type), aligner), bits.type)
    subnormal = b.binary("sub", aligned, word_of(format.aligner))
    result = b.select(b.compare("ult", magnitude, word_of(format.smallest_normal)), subnormal, normal)
    is_special = b.compare("ugt", magnitude, word_of(format.largest))
    if format.has_signed_zero:
        mask = word_of(format.magnitude_mask)
        result = b.select(is_special, b.binary("and", shifted, mask) if format.has_payloads else mask, result)
    sign_bit = word_of(1 << (format.bits - 1))
    result = b.binary("or", result, b.binary("and", b.binary("lshr", bits, word_of(32 - format.bits)), sign_bit))
    if not format.has_signed_zero:
        result = b.select(is_special, sign_bit, result)
    return b.convert("trunc", result, f"i{8 * type.byte_width}")


def rounded(b: Builder, value: Value, type: PrimitiveType, is_data: bool = False) -> Value:
    """Rounds f32 to the nearest value of the type, ties to even.

    A type without NaN keeps the sign of a NaN only if that is data rather than computed (GEN-7). Rounding is done by
    adding and subtracting a number so large that the sum has as many mantissa bits as the type.
    """
    if type is PrimitiveType.F8E8M0FNU:
        return _rounded_to_exponent(b, value)
    format, word = Format.of(type), value.type.integer
    bits = b.bitcast(value, word)
    magnitude = b.intrinsic("fabs", value)
    exponent = b.binary("and", bits, constant(word, EXPONENT_MASK))
    exponent = b.intrinsic("umax", exponent, constant(word, format.smallest_normal))
    exponent = b.intrinsic("umin", exponent, constant(word, format.largest & EXPONENT_MASK))
    large = b.bitcast(b.binary("add", exponent, constant(word, format.dropped << MANTISSA)), value.type)
    result = b.binary("fsub", b.binary("fadd", magnitude, large), large)

    def special(bits: int) -> Value:
        return b.bitcast(constant(word, bits), value.type)

    largest = special(format.largest)
    if format.overflow == _QUIET_NAN:
        result = b.select(b.compare("ole", result, largest), result, special(_QUIET_NAN))
    else:
        result = b.select(b.compare("ogt", result, largest), special(format.overflow), result)
        result = b.select(b.compare("uno", value, value), special(format.nan), result)
    sign = b.binary("and", bits, constant(word, SIGN_MASK))
    if not format.has_nan and not is_data:
        sign = b.select(b.compare("uno", value, value), constant(word, 0), sign)
    result = b.bitcast(b.binary("xor", b.bitcast(result, word), sign), value.type)
    return result if format.has_signed_zero else b.binary("fadd", result, constant(value.type, 0.0))


def plain_nan(b: Builder, value: Value, type: PrimitiveType) -> Value:
    """The value as it converts to wider types, which do not get the payload of a NaN."""
    if type is not PrimitiveType.F8E8M0FNU:
        format = Format.of(type)
        nan = b.bitcast(constant(value.type.integer, _QUIET_NAN), value.type)
        if format.has_payloads:
            return b.select(b.compare("uno", value, value), b.intrinsic("copysign", nan, value), value)
        if not format.has_signed_zero:
            return b.select(b.compare("uno", value, value), b.fneg(nan), value)
    return value


def ordered(b: Builder, value: Value, type: PrimitiveType) -> Value:
    """An f32 with the same position in the total order as a value of the type, whose unsigned NaN is the last."""
    if type is not PrimitiveType.F8E8M0FNU and Format.of(type).has_signed_zero:
        return value
    return b.select(b.compare("uno", value, value), b.intrinsic("fabs", value), value)


def _decode_exponent(b: Builder, word: Value) -> Value:
    """Converts a code of f8e8m0fnu: an exponent of f32, but 0 is the subnormal 2^-127, and the last code is NaN."""
    shifted = b.binary("shl", word, constant(word.type, MANTISSA))
    number = b.intrinsic("umax", shifted, constant(word.type, _SMALLEST_POWER))
    is_nan = b.compare("eq", word, constant(word.type, 0xFF))
    return b.bitcast(b.select(is_nan, constant(word.type, _QUIET_NAN), number), word.type.of("float"))


def _rounded_to_exponent(b: Builder, value: Value) -> Value:
    """Rounds f32 to a power of two, ties up, or NaN if it is not positive or too large (as in ml_dtypes)."""
    bits = b.bitcast(value, value.type.integer)
    word = bits.type
    up = b.binary("add", bits, constant(word, _MIDPOINT))
    power = b.binary("and", up, constant(word, EXPONENT_MASK))
    is_least = b.compare("ule", bits, constant(word, _SMALLEST_POWER))
    power = b.select(is_least, constant(word, _SMALLEST_POWER), power)
    # A single unsigned comparison: 0 and negative values wrap above the largest number.
    before = b.binary("sub", bits, constant(word, 1))
    is_number = b.compare("ult", before, constant(word, EXPONENT_MASK - _MIDPOINT - 1))
    return b.bitcast(b.select(is_number, power, constant(word, _QUIET_NAN)), value.type)
