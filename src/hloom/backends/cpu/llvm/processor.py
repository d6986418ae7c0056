"""Target processor of generated code."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

import llvmlite.binding as llvm

from hloom.errors import ArgumentError
from hloom.system.machine import architecture, grants_tile_registers
from hloom.system.records import record
from hloom.system.shield import shielded

TILE_REGISTERS = "amx-tile"
"""The feature of tile registers, without which those of their instructions are of no use."""
FAST_DIVISION = "avx512vbmi2"
"""A feature of processors that divide 64 bits about as fast as 32: LLVM else tests each operand and divides either way,
twice the code.
"""
_LEVELS = {
    "x86-64-v2": ("sse4.2", "popcnt", "ssse3"),
    "x86-64-v3": ("avx2", "bmi2", "fma", "f16c", "lzcnt"),
    "x86-64-v4": ("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"),
}
"""Features that each level of x86-64 adds to the previous one."""


@record
class Processor:
    """Target processor: architecture, LLVM's name, features not implied by the name, the width of a vector register."""

    architecture: str
    """`x86_64`, `aarch64` or the first part of another triple of LLVM."""
    name: str
    features: str
    vector_bytes: int
    converts_f16: bool
    """Whether it has instructions to convert between f16 and f32."""
    has_fma: bool = True
    """Whether it has instructions for fused multiply-adds."""

    @property
    def pointer_bytes(self) -> int:
        """Size of a pointer in bytes."""
        return 4 if self.architecture in ("armv7", "thumbv7em", "wasm32") else 8

    @property
    def table_entries(self) -> int:
        """The entries of f32 among which one instruction looks up that of each lane of a register; 0 without it."""
        return {64: 32, 32: 8}.get(self.vector_bytes, 0) if self.architecture == "x86_64" else 0

    def has(self, feature: str) -> bool:
        """Whether it has a feature, by LLVM's name, that is not implied by the processor's name."""
        return f"+{feature}" in self.features.split(",")

    def without_tile_registers(self) -> Processor:
        """Returns the processor without AMX, which programs have to ask the system for."""
        return replace(self, features=self.features.replace(f"+{TILE_REGISTERS}", f"-{TILE_REGISTERS}"))


_CURRENT: ContextVar[Processor | None] = ContextVar("processor", default=None)


def processor() -> Processor:
    """Returns the processor that code is generated for: that of `generating_for`, by default that of this process."""
    return _CURRENT.get() or host_processor()


@contextmanager
def generating_for(target: Processor) -> Iterator[None]:
    """Generates code for another processor in a `with` block."""
    token = _CURRENT.set(target)
    try:
        yield
    finally:
        _CURRENT.reset(token)


@functools.cache
@shielded
def host_processor() -> Processor:
    """Returns the processor that HLOOM_TARGET_CPU names, by default this one with its widest registers.

    Raises ArgumentError if this processor cannot run code of the named level.
    """
    features = llvm.get_host_cpu_features()
    level = os.environ.get("HLOOM_TARGET_CPU", "native")
    if level != "native":
        return _level(level, features)
    if features.get(TILE_REGISTERS) and not grants_tile_registers():
        features[TILE_REGISTERS] = False
    if "prefer-256-bit" in features:
        features["prefer-256-bit"] = False
    if features.get(FAST_DIVISION):
        features["idivq-to-divl"] = False
    wide = all(features.get(feature) for feature in _LEVELS["x86-64-v4"])
    width = 64 if wide else 32 if features.get("avx2") else 16
    flat = str(features.flatten())
    return Processor(
        architecture(),
        llvm.get_host_cpu_name(),
        flat,
        width,
        bool(features.get("f16c", True)),
        bool(features.get("fma", True)),
    )


def _level(level: str, features: Any) -> Processor:
    """Returns a level of x86-64 that this processor, with `features`, can run."""
    if level not in _LEVELS:
        raise ArgumentError(f"HLOOM_TARGET_CPU is native or one of {', '.join(_LEVELS)}, got {level!r}")
    names = list(_LEVELS)[: list(_LEVELS).index(level) + 1]
    missing = [feature for name in names for feature in _LEVELS[name] if not features.get(feature)]
    if missing:
        raise ArgumentError(f"HLOOM_TARGET_CPU={level}: this processor has no {', '.join(missing)}")
    return level_of_x86(level)


def level_of_x86(level: str) -> Processor:
    """Returns a level of x86-64, such as x86-64-v3."""
    above = list(_LEVELS).index(level)
    return Processor("x86_64", level, "-prefer-256-bit", 16 << above, converts_f16=above > 0, has_fma=above > 0)
