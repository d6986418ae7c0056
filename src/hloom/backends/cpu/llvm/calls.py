"""Calls of LLVM's three long functions without a lock, so that threads compile in parallel.

LLVM is thread-safe if each thread has a context and a target machine of its own, and ctypes releases the GIL, but
llvmlite holds a lock of its own around each call. So the long calls (parse, run passes, emit) go directly to the same
loaded library, with the argument types that llvmlite declares. If a version of llvmlite has different internals, its
public functions are used, one call at a time.
"""

from __future__ import annotations

import ctypes
from typing import Any

import llvmlite.binding as llvm
from llvmlite.binding import ffi


class LlvmCalls:
    """Calls through llvmlite's public functions."""

    are_parallel = False
    """Whether calls on several threads run in parallel."""

    def parse(self, text: str, context: Any) -> Any:
        """Parses LLVM IR text to a module of the context."""
        return llvm.parse_assembly(text, context)

    def run_passes(self, passes: Any, module: Any, builder: Any) -> None:
        """Runs passes on a module."""
        passes.run(module, builder)

    def emit_object(self, machine: Any, module: Any) -> bytes:
        """Returns the object file of a module."""
        return bytes(machine.emit_object(module))


class _ParallelCalls(LlvmCalls):
    """Calls without a lock. The constructor raises AttributeError or OSError if llvmlite's internals are unknown."""

    are_parallel = True

    def __init__(self) -> None:
        message = ctypes.POINTER(ctypes.c_char_p)
        self._library = ctypes.CDLL(ffi.lib._name)
        if self._library._handle != ffi.lib._handle:
            raise OSError("another library than llvmlite's")
        self._parse = self._function("LLVMPY_ParseAssembly", ffi.LLVMContextRef, ctypes.c_char_p, message)
        self._run = self._function(
            "LLVMPY_RunNewModulePassManager", ffi.LLVMModulePassManagerRef, ffi.LLVMModuleRef, ffi.LLVMPassBuilderRef
        )
        self._emit = self._function(
            "LLVMPY_TargetMachineEmitToMemory", ffi.LLVMTargetMachineRef, ffi.LLVMModuleRef, ctypes.c_int, message
        )

    def _function(self, name: str, *types: Any) -> Any:
        declared = getattr(ffi.lib, name)
        if list(declared.argtypes) != list(types):
            raise AttributeError(f"{name} takes {declared.argtypes}")
        function = self._library[name]
        function.argtypes, function.restype = declared.argtypes, declared.restype
        return function

    def parse(self, text: str, context: Any) -> Any:
        with ffi.OutputString() as error:
            module = llvm.ModuleRef(self._parse(context, text.encode(), error), context)
            if error:
                module.detach()
                raise RuntimeError(f"LLVM IR parsing error\n{error}")
        return module

    def run_passes(self, passes: Any, module: Any, builder: Any) -> None:
        self._run(passes, module, builder)

    def emit_object(self, machine: Any, module: Any) -> bytes:
        with ffi.OutputString() as error:
            buffer = self._emit(machine, module, 1, error)
            if not buffer:
                raise RuntimeError(str(error))
        try:
            size = ffi.lib.LLVMPY_GetBufferSize(buffer)
            return ctypes.string_at(ffi.lib.LLVMPY_GetBufferStart(buffer), size)
        finally:
            ffi.lib.LLVMPY_DisposeMemoryBuffer(buffer)


def llvm_calls() -> LlvmCalls:
    """Returns the calls that this version of llvmlite supports."""
    try:
        return _ParallelCalls()
    except (AttributeError, OSError, TypeError):
        return LlvmCalls()
