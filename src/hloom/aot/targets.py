"""Targets of ahead-of-time compilation, by the names that users give."""

from __future__ import annotations

from dataclasses import replace

import llvmlite.binding as llvm

from hloom.backends.cpu.llvm.processor import Processor, host_processor, level_of_x86
from hloom.errors import ArgumentError
from hloom.system.machine import operating_system
from hloom.system.records import record


@record
class BuildTarget:
    """A machine that libraries are built for: its processor, LLVM's triple, and the name by which `zig cc` knows it."""

    name: str
    processor: Processor
    triple: str
    zig: str
    has_threads: bool = True
    """Whether the runtime has pools of threads, which need a heap; those of WebAssembly are workers of a page."""

    @property
    def is_wasm(self) -> bool:
        """Whether it is WebAssembly."""
        return self.processor.architecture == "wasm32"

    def with_workers(self) -> BuildTarget:
        """Returns WebAssembly that shares its memory with workers."""
        processor = replace(self.processor, features=f"{self.processor.features},+atomics")
        return replace(self, processor=processor, has_threads=True)

    @property
    def system(self) -> str:
        """`linux`, `windows`, `macos`, or `none` for programs without an operating system."""
        names = {"linux": "linux", "windows": "windows", "macosx": "macos"}
        return next((names[word] for word in names if word in self.triple), "none")

    @property
    def is_host(self) -> bool:
        """Whether this machine's tools link for it."""
        return self.processor.architecture == host_processor().architecture and self.system == operating_system()

    def shared_name(self, library: str) -> str:
        """Returns the file name of a shared library."""
        match self.system:
            case "windows":
                return f"{library}.dll"
            case "macos":
                return f"lib{library}.dylib"
            case _:
                return f"lib{library}.so"


_NEON = Processor("aarch64", "generic", "+neon", 16, converts_f16=True)
_RISCV = Processor("riscv64", "generic-rv64", "+m,+a,+f,+d,+c", 16, converts_f16=False)
# NEON of 32-bit Arm takes subnormal numbers for zero; VFP's scalar instructions do not.
_ARM = Processor("armv7", "cortex-a15", "-neon,+vfp4,+hwdiv-arm", 8, converts_f16=False)
_WASM_FEATURES = "+simd128,+bulk-memory,+bulk-memory-opt,+nontrapping-fptoint,+sign-ext"
_WASM = Processor("wasm32", "generic", _WASM_FEATURES, 16, converts_f16=False, has_fma=False)
_RELAXED = replace(_WASM, features=f"{_WASM_FEATURES},+relaxed-simd")
_APPLE = Processor("aarch64", "apple-m1", "", 16, converts_f16=True)
_THUMB = Processor("thumbv7em", "cortex-m7", "+fp-armv8d16", 8, converts_f16=False)
_X86 = {level: level_of_x86(level) for level in ("x86-64-v2", "x86-64-v3", "x86-64-v4")}
_CROSS = [
    *(BuildTarget(level, each, "x86_64-unknown-linux-gnu", "x86_64-linux-gnu") for level, each in _X86.items()),
    BuildTarget("aarch64", _NEON, "aarch64-unknown-linux-gnu", "aarch64-linux-musl"),
    BuildTarget("armv7", _ARM, "armv7-unknown-linux-gnueabihf", "arm-linux-musleabihf"),
    BuildTarget("riscv64", _RISCV, "riscv64-unknown-linux-gnu", "riscv64-linux-musl"),
    BuildTarget("windows-x86-64", _X86["x86-64-v3"], "x86_64-pc-windows-gnu", "x86_64-windows-gnu"),
    BuildTarget("macos-x86-64", _X86["x86-64-v3"], "x86_64-apple-macosx12.0", "x86_64-macos"),
    BuildTarget("macos-aarch64", _APPLE, "aarch64-apple-macosx12.0", "aarch64-macos"),
    BuildTarget("wasm32", _WASM, "wasm32-unknown-unknown", "wasm32-freestanding", has_threads=False),
    BuildTarget("wasm32-relaxed", _RELAXED, "wasm32-unknown-unknown", "wasm32-freestanding", has_threads=False),
    BuildTarget("thumbv7em", _THUMB, "thumbv7em-none-eabihf", "thumb-freestanding-eabihf", has_threads=False),
]
TARGETS = ("native", *(target.name for target in _CROSS))
"""Names of all targets."""


def target_of(name: str) -> BuildTarget:
    """Returns the target of a name in `TARGETS`. Raises ArgumentError for others."""
    if name == "native":
        processor = host_processor().without_tile_registers()
        return BuildTarget(name, processor, llvm.get_process_triple(), f"{processor.architecture}-linux-gnu")
    for target in _CROSS:
        if target.name == name:
            return target
    raise ArgumentError(f"there is no target {name!r}: targets are {', '.join(TARGETS)}")
