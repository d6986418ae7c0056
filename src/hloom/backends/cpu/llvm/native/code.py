"""Native functions as machine code."""

from __future__ import annotations

from typing import Any

from hloom.backends.cpu.llvm.disk_cache import find_program, keep_program
from hloom.backends.cpu.llvm.machine_code import MachineCode, compile_text, load_object, target


def native_code(*exported: Any) -> MachineCode:
    """Native functions as machine code, kept on disk until hloom's own code changes."""
    key = f"native {' '.join(function.name for function in exported)} {target()}"
    compiled = find_program(key)
    if compiled is None:
        # The translator is not needed in a process that finds what another one made.
        from hloom.backends.cpu.llvm.native.translator import native_text

        compiled = compile_text(native_text(exported))
        keep_program(key, compiled)
    return load_object(compiled)
