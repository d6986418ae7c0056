"""Emission of maximum and minimum of floats: -0 is less than +0, and NaN propagates (MAX-1, MIN-1)."""

from __future__ import annotations

import functools

from hloom.backends.cpu.llvm.processor import processor
from hloom.lir import I32, Builder, Constant, Type, Value, constant, poison, type_of


def _range_operand(intrinsic: str) -> Value:
    """The immediate operand of AVX-512's VRANGE: the larger or smaller of two numbers, with its own sign."""
    return constant(I32, 0b0101 if intrinsic == "maximum" else 0b0100)


def float_extremum(b: Builder, intrinsic: str, x: Value, y: Value) -> Value:
    """Emits LLVM's `maximum` or `minimum`, or VRANGE of AVX-512 and two instructions that propagate NaN."""
    type = x.type
    if not _has_ranges(type) or isinstance(x, Constant) or isinstance(y, Constant):
        return b.intrinsic(intrinsic, x, y)
    if not type.width:
        return _with_nan(b, x, y, _scalar_range(b, intrinsic, x, y))
    lanes = min(512 // type.bits, type.width)
    parts = [
        _range(b, intrinsic, *(b.shuffle(value, None, range(first, first + lanes)) for value in (x, y)))
        for first in range(0, type.width, lanes)
    ]
    return _with_nan(b, x, y, functools.reduce(b.joined, parts))


def _with_nan(b: Builder, x: Value, y: Value, number: Value) -> Value:
    """`number`, or NaN where x or y is NaN."""
    return b.select(b.compare("uno", x, y), b.binary("fadd", x, y), number)


def _has_ranges(type: Type) -> bool:
    """Whether the processor has VRANGE for a type."""
    width = type.width * type.bits
    fits = not type.width or (width.bit_count() == 1 and width >= 128)
    return fits and type.bits >= 32 and processor().architecture == "x86_64" and processor().vector_bytes == 64


def _range(b: Builder, intrinsic: str, x: Value, y: Value) -> Value:
    width = x.type.width * x.type.bits
    name = f"llvm.x86.avx512.mask.range.{'ps' if x.type.bits == 32 else 'pd'}.{width}"
    mask = constant(type_of(f"i{max(8, x.type.width)}"), -1)
    rest = [constant(I32, 4)] if width == 512 else []
    return b.call(name, x.type, x, y, _range_operand(intrinsic), x, mask, *rest)


def _scalar_range(b: Builder, intrinsic: str, x: Value, y: Value) -> Value:
    type = type_of(x.type.element, 128 // x.type.bits)
    first = [b.insert(poison(type), value, 0) for value in (x, y)]
    name = f"llvm.x86.avx512.mask.range.{'ss' if x.type.bits == 32 else 'sd'}"
    rest = [constant(type_of("i8"), -1), _range_operand(intrinsic), constant(I32, 4)]
    return b.extract(b.call(name, type, *first, first[0], *rest), 0)
