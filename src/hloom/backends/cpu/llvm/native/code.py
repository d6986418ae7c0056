"""Native functions as machine code."""

from __future__ import annotations

import threading
from typing import Any

from hloom.backends.cpu.llvm.disk_cache import cached, code_version
from hloom.backends.cpu.llvm.machine_code import MachineCode, load_object, make_object, target
from hloom.runtime.python_api import immortal
from hloom.shield import shielded

_TRANSLATING = threading.Lock()
"""Python 3.11 parses in one thread at a time alone: else it says that its parser's depth is wrong."""


@shielded
def native_code(*exported: Any) -> MachineCode:
    """Native functions as machine code, kept on disk until hloom's own code changes.

    The code stays to the end of the process: others have its addresses, also where two threads make it at once.
    """
    names, version = " ".join(function.name for function in exported), code_version()

    def make() -> bytes:
        # The translator is not needed in a process that finds what another one made.
        from hloom.backends.cpu.llvm.native.translator import native_text

        with _TRANSLATING:
            text = native_text(exported)
        return make_object(text)

    content = cached(f"native {names}", f"{target()} {version}", make) if version else make()
    return immortal(load_object(content))
