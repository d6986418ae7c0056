"""hloom: XLA, written to be read. README.md is a tour, docs/design.md explains the architecture.

Element types and shapes are imported eagerly, everything else on first use, so that importing hloom takes little longer
than importing NumPy.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from hloom.errors import ArgumentError, HloomError, ParseError, ProtoError, RuleError, RunError, VerifyError
from hloom.layout import Layout, PaddingValue, Tile
from hloom.shape import Shape
from hloom.system.shield import shielded
from hloom.system.tracebacks import shorten_tracebacks
from hloom.types import PrimitiveType

shorten_tracebacks()

if TYPE_CHECKING:
    __version__: str
    from hloom.aot import build
    from hloom.api import compile, load, parse, save
    from hloom.builder import XlaBuilder, XlaComputation, XlaOp
    from hloom.explorer import explore
    from hloom.files.snapshot import Snapshot
    from hloom.ir import Computation, Instruction, Module
    from hloom.literal import Literal
    from hloom.passes.rewrite import rewrite
    from hloom.profiler import profile
    from hloom.runtime.custom_calls.registry import register_custom_call
    from hloom.runtime.device import Device
    from hloom.runtime.executable import Executable
    from hloom.stablehlo.importer.from_jax import from_jax
    from hloom.text import parse_shape

bf16, f16, f32, f64 = PrimitiveType.BF16, PrimitiveType.F16, PrimitiveType.F32, PrimitiveType.F64
s2, s4, s8, s16 = PrimitiveType.S2, PrimitiveType.S4, PrimitiveType.S8, PrimitiveType.S16
s32, s64, u32, u64 = PrimitiveType.S32, PrimitiveType.S64, PrimitiveType.U32, PrimitiveType.U64
u2, u4, u8, u16 = PrimitiveType.U2, PrimitiveType.U4, PrimitiveType.U8, PrimitiveType.U16
c64, c128, pred = PrimitiveType.C64, PrimitiveType.C128, PrimitiveType.PRED
f8e5m2, f8e4m3, f8e4m3fn = PrimitiveType.F8E5M2, PrimitiveType.F8E4M3, PrimitiveType.F8E4M3FN
f8e4m3b11fnuz, f8e5m2fnuz = PrimitiveType.F8E4M3B11FNUZ, PrimitiveType.F8E5M2FNUZ
f8e4m3fnuz, f8e3m4, f8e8m0fnu = PrimitiveType.F8E4M3FNUZ, PrimitiveType.F8E3M4, PrimitiveType.F8E8M0FNU
f4e2m1fn = PrimitiveType.F4E2M1FN

_MODULES = {
    "compile": "api", "load": "api", "parse": "api", "save": "api",
    "XlaBuilder": "builder", "XlaComputation": "builder", "XlaOp": "builder",
    "Computation": "ir", "Instruction": "ir", "Module": "ir", "Literal": "literal",
    "Device": "runtime.device", "Executable": "runtime.executable", "from_jax": "stablehlo.importer.from_jax",
    "register_custom_call": "runtime.custom_calls.registry", "parse_shape": "text", "Snapshot": "files.snapshot",
    "build": "aot", "profile": "profiler", "explore": "explorer", "rewrite": "passes.rewrite",
}  # fmt: skip


def __getattr__(name: str) -> object:
    if name == "__version__":
        return importlib.import_module("importlib.metadata").version("hloom")
    if name not in _MODULES:
        raise AttributeError(f"module 'hloom' has no attribute {name!r}")
    # A signal that interrupts an import may leave other packages' modules partially initialised.
    module = shielded(importlib.import_module)(f"hloom.{_MODULES[name]}")
    globals()[name] = value = getattr(module, name)
    return value


def __dir__() -> list[str]:
    return __all__


__all__ = [
    "__version__",
    "ArgumentError", "Computation", "Device", "Executable", "HloomError", "Instruction", "Layout", "Literal", "Module",
    "PaddingValue", "ParseError", "PrimitiveType", "ProtoError", "RuleError", "RunError", "Shape", "Snapshot", "Tile",
    "VerifyError", "XlaBuilder", "XlaComputation", "XlaOp",
    "bf16", "build", "c64", "c128", "compile", "explore", "f4e2m1fn", "f8e3m4", "f8e4m3", "f8e4m3b11fnuz", "f8e4m3fn",
    "f8e4m3fnuz", "f8e5m2", "f8e5m2fnuz", "f8e8m0fnu", "f16", "f32", "f64", "from_jax", "load", "parse", "parse_shape",
    "pred", "profile", "register_custom_call", "rewrite", "s2", "s4", "s8", "s16", "s32", "s64", "save", "u2", "u4",
    "u8", "u16", "u32", "u64",
]  # fmt: skip
