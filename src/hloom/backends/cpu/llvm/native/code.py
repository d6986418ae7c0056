"""Compiles native functions to machine code."""

from __future__ import annotations

from typing import Any

from hloom.backends.cpu.llvm.disk_cache import cached, code_version
from hloom.backends.cpu.llvm.machine_code import MachineCode, load_object, make_object, target
from hloom.system.forks import new_lock
from hloom.system.machine import operating_system
from hloom.system.python_api import immortal
from hloom.system.shield import shielded

_TRANSLATING = new_lock()
"""Lock around parsing: Python 3.11's parser is not thread-safe, and reports a wrong recursion depth."""


@shielded
def native_code(*exported: Any) -> MachineCode:
    """Returns native functions as machine code, cached on disk until hloom's own code changes.

    The code is never freed, since other code holds its addresses, even if two threads compile it at the same time.
    """
    names, version = " ".join(function.name for function in exported), code_version()

    def make() -> bytes:
        # Imported here, because a process that finds the code on disk needs no translator.
        from hloom.backends.cpu.llvm.native import windows
        from hloom.backends.cpu.llvm.native.translator import native_module

        with _TRANSLATING:
            text = native_module(exported, internal=windows.POSIX if operating_system() == "windows" else ()).text()
        return make_object(text)

    content = cached(f"native {names}", f"{target()} {version}", make) if version else make()
    return immortal(load_object(content))
