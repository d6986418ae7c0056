"""Conversions of f16 for processors without instructions for them, under the names of compiler-rt that LLVM calls."""

from __future__ import annotations

import functools

import llvmlite.binding as llvm

from hloom.backends.cpu.llvm.machine_code import MachineCode, compile_text, load_object
from hloom.backends.cpu.llvm.native.types import boolean, u32, u64
from hloom.backends.cpu.llvm.native.vocabulary import leading_zeros, native
from hloom.backends.cpu.llvm.processor import processor
from hloom.lir import F32, I32, Builder, Function, LirModule, Parameter, type_of
from hloom.system.python_api import immortal
from hloom.system.shield import shielded

_INFINITY, _HALF_INFINITY = 0x7F800000, 0x7C00


_F16_OF_F32, _F32_OF_F16 = "hloom_f16_of_f32", "hloom_f32_of_f16"


@native(name=_F16_OF_F32)
def f16_of_f32(bits: u32) -> u32:
    """Returns the bits of an f32 rounded to f16, to nearest even."""
    sign, magnitude = (bits >> 16) & 0x8000, bits & 0x7FFFFFFF
    if magnitude > _INFINITY:
        return sign | _HALF_INFINITY | 0x200 | ((magnitude >> 13) & 0x3FF)
    if magnitude >= 0x47800000:  # 2^16
        return sign | _HALF_INFINITY
    if magnitude >= 0x38800000:  # 2^-14, the smallest normal f16
        scaled = magnitude - 0x38000000
        return sign | ((scaled + 0xFFF + ((scaled >> 13) & 1)) >> 13)
    shift = 126 - (magnitude >> 23)
    if shift > 25:
        return sign
    mantissa = (magnitude & 0x7FFFFF) | 0x800000
    quotient, rest, half = mantissa >> shift, mantissa & ((u32(1) << shift) - 1), u32(1) << (shift - 1)
    up: boolean = rest > half or (rest == half and quotient & 1 != 0)
    return sign | (quotient + u32(up))


@native(name=_F32_OF_F16)
def f32_of_f16(bits: u32) -> u32:
    """Returns the bits of an f16 converted to f32; a NaN becomes quiet."""
    sign, exponent, mantissa = (bits & 0x8000) << 16, (bits >> 10) & 31, bits & 0x3FF
    if exponent == 31:
        return sign | _INFINITY | (mantissa << 13) | (u32(0x400000) if mantissa != 0 else u32(0))
    if exponent != 0:
        return sign | ((exponent + 112) << 23) | (mantissa << 13)
    if mantissa == 0:
        return sign
    top_bit = u32(63 - leading_zeros(u64(mantissa)))
    return sign | ((top_bit + 103) << 23) | ((mantissa << (23 - top_bit)) & 0x7FFFFF)


def _compiler_rt() -> list[Function]:
    """Returns the functions of compiler-rt, whose operands are in floating-point registers."""
    half, single = type_of("half"), F32
    truncate = Builder(Function("__truncsfhf2", [Parameter("x", single)], half, is_exported=True))
    bits = truncate.bitcast(truncate.function.parameters[0], I32)
    word = truncate.call(_F16_OF_F32, I32, bits)
    truncate.ret(truncate.bitcast(truncate.convert("trunc", word, "i16"), half))
    extend = Builder(Function("__extendhfsf2", [Parameter("x", half)], single, is_exported=True))
    short = extend.bitcast(extend.function.parameters[0], type_of("i16"))
    word = extend.call(_F32_OF_F16, I32, extend.convert("zext", short, "i32"))
    extend.ret(extend.bitcast(word, single))
    return [truncate.function, extend.function]


@functools.cache
@shielded
def provide_half_conversions() -> MachineCode | None:
    """Makes the conversions known to LLVM if the target processor has no instructions for them."""
    if processor().converts_f16:
        return None
    # Imported here, because nearly all processors have the instructions and need no translator.
    from hloom.backends.cpu.llvm.native.translator import native_module

    module = LirModule([*native_module([f16_of_f32, f32_of_f16]).functions, *_compiler_rt()])
    code = immortal(load_object(compile_text(module.text())))
    for name in ("__truncsfhf2", "__extendhfsf2"):
        llvm.add_symbol(name, code.address(name))
    return code
