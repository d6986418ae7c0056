"""Targets of ahead-of-time compilation, by the names that users give."""

from __future__ import annotations

from dataclasses import dataclass

import llvmlite.binding as llvm

from hloom.backends.cpu.llvm.processor import Processor, host_processor, level_of_x86
from hloom.errors import ArgumentError


@dataclass(frozen=True)
class BuildTarget:
    """A machine that libraries are built for: its processor, LLVM's triple, and the name by which `zig cc` knows it."""

    name: str
    processor: Processor
    triple: str
    zig: str

    @property
    def is_wasm(self) -> bool:
        """Whether it is WebAssembly."""
        return self.processor.architecture == "wasm32"

    @property
    def has_threads(self) -> bool:
        """Whether the runtime has pools of threads."""
        return not self.is_wasm

    @property
    def is_host(self) -> bool:
        """Whether this machine's tools link for it."""
        return self.processor.architecture == host_processor().architecture


_NEON = Processor("aarch64", "generic", "+neon", 16, converts_f16=True)
_RISCV = Processor("riscv64", "generic-rv64", "+m,+a,+f,+d,+c", 16, converts_f16=False)
_ARM = Processor("armv7", "cortex-a15", "+neon,+vfp4,+hwdiv-arm", 16, converts_f16=False)
_WASM_FEATURES = "+simd128,+bulk-memory,+bulk-memory-opt,+nontrapping-fptoint,+sign-ext"
_WASM = Processor("wasm32", "generic", _WASM_FEATURES, 16, converts_f16=False, has_fma=False)
_LINUX_X86 = ("x86_64-unknown-linux-gnu", "x86_64-linux-gnu")
_CROSS = {
    **{level: (level_of_x86(level), *_LINUX_X86) for level in ("x86-64-v2", "x86-64-v3", "x86-64-v4")},
    "aarch64": (_NEON, "aarch64-unknown-linux-gnu", "aarch64-linux-musl"),
    "armv7": (_ARM, "armv7-unknown-linux-gnueabihf", "arm-linux-musleabihf"),
    "wasm32": (_WASM, "wasm32-unknown-unknown", "wasm32-freestanding"),
    "riscv64": (_RISCV, "riscv64-unknown-linux-gnu", "riscv64-linux-musl"),
}
TARGETS = ("native", *_CROSS)
"""Names of all targets."""


def target_of(name: str) -> BuildTarget:
    """Returns the target of a name in `TARGETS`. Raises ArgumentError for others."""
    if name == "native":
        processor = host_processor()
        return BuildTarget(name, processor, llvm.get_process_triple(), f"{processor.architecture}-linux-gnu")
    if name not in _CROSS:
        raise ArgumentError(f"there is no target {name!r}: targets are {', '.join(TARGETS)}")
    return BuildTarget(name, *_CROSS[name])
