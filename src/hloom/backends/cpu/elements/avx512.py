"""Instructions of AVX-512 that LLVM's own intrinsics do not give, on vectors of any number of registers."""

from __future__ import annotations

from collections.abc import Sequence

from hloom.backends.cpu.llvm.processor import processor
from hloom.lir import I32, Builder, Type, Value, constant, type_of

REGISTER_BITS = 512
CURRENT_ROUNDING = constant(I32, 4)


def has_avx512(type: Type) -> bool:
    """Whether the processor has AVX-512, and a vector of f32 or f64 fills registers, of 128 bits at least."""
    bits = type.width * type.bits
    fits = bits.bit_count() == 1 and bits >= 128 and type.bits >= 32
    return fits and processor().architecture == "x86_64" and processor().vector_bytes == REGISTER_BITS // 8


def emit_avx512(b: Builder, name: str, *operands: Value, immediates: Sequence[Value] = ()) -> Value:
    """Emits an instruction of vectors, such as `range`, for each register."""
    type = operands[0].type
    lanes = REGISTER_BITS // type.bits
    if type.width <= lanes:
        return _register(b, name, operands, immediates)
    parts = [
        _register(b, name, [b.shuffle(value, None, range(first, first + lanes)) for value in operands], immediates)
        for first in range(0, type.width, lanes)
    ]
    return b.concatenated(parts)


def _register(b: Builder, name: str, operands: Sequence[Value], immediates: Sequence[Value]) -> Value:
    x, *_ = operands
    width = x.type.width * x.type.bits
    mask = constant(type_of(f"i{max(8, x.type.width)}"), -1)
    rounding = [CURRENT_ROUNDING] if width == REGISTER_BITS else []
    intrinsic = f"llvm.x86.avx512.mask.{name}.{'ps' if x.type.bits == 32 else 'pd'}.{width}"
    return b.call(intrinsic, x.type, *operands, *immediates, x, mask, *rounding)
