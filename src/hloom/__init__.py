"""hloom: XLA, written to be read. See README.md for a tour and docs/design.md for how the house is built."""

from hloom.api import compile, load, parse
from hloom.builder import XlaBuilder, XlaComputation, XlaOp
from hloom.errors import ArgumentError, HloomError, ParseError, ProtoError, RuleError, RunError, VerifyError
from hloom.ir import Computation, Instruction, Module
from hloom.literal import Literal
from hloom.shape import Layout, PaddingValue, Shape, Tile
from hloom.types import PrimitiveType

bf16, f16, f32, f64 = PrimitiveType.BF16, PrimitiveType.F16, PrimitiveType.F32, PrimitiveType.F64
s4, s8, s16, s32, s64 = PrimitiveType.S4, PrimitiveType.S8, PrimitiveType.S16, PrimitiveType.S32, PrimitiveType.S64
u4, u8, u16, u32, u64 = PrimitiveType.U4, PrimitiveType.U8, PrimitiveType.U16, PrimitiveType.U32, PrimitiveType.U64
s2, u2, pred = PrimitiveType.S2, PrimitiveType.U2, PrimitiveType.PRED
c64, c128 = PrimitiveType.C64, PrimitiveType.C128
f8e5m2, f8e4m3, f8e4m3fn = PrimitiveType.F8E5M2, PrimitiveType.F8E4M3, PrimitiveType.F8E4M3FN
f8e4m3b11fnuz, f8e5m2fnuz = PrimitiveType.F8E4M3B11FNUZ, PrimitiveType.F8E5M2FNUZ
f8e4m3fnuz, f8e3m4, f8e8m0fnu = PrimitiveType.F8E4M3FNUZ, PrimitiveType.F8E3M4, PrimitiveType.F8E8M0FNU
f4e2m1fn = PrimitiveType.F4E2M1FN


def __getattr__(name: str) -> object:
    """Names whose modules would make importing hloom slower than it need be."""
    if name == "Device":
        from hloom.runtime.device import Device

        return Device
    if name == "register_custom_call":
        from hloom.runtime.custom_calls import register_custom_call

        return register_custom_call
    raise AttributeError(f"module 'hloom' has no attribute {name!r}")


__all__ = [
    "ArgumentError", "Computation", "Device", "HloomError", "Instruction", "Layout", "Literal", "Module",
    "PaddingValue", "ParseError", "PrimitiveType", "ProtoError", "RuleError", "RunError", "Shape", "Tile",
    "VerifyError", "XlaBuilder", "XlaComputation", "XlaOp",
    "bf16", "c64", "c128", "compile", "f4e2m1fn", "f8e3m4", "f8e4m3", "f8e4m3b11fnuz", "f8e4m3fn", "f8e4m3fnuz",
    "f8e5m2", "f8e5m2fnuz", "f8e8m0fnu", "f16", "f32", "f64", "load", "parse", "pred", "register_custom_call",
    "s2", "s4", "s8", "s16", "s32", "s64", "u2", "u4", "u8", "u16", "u32", "u64",
]  # fmt: skip
