"""Calls of LLVM's long functions without a lock, so that threads compile in parallel.

LLVM is thread-safe if each thread has a context and a target machine of its own, and ctypes releases the GIL, but
llvmlite holds a lock of its own around each call. So modules are compiled by calls of the same loaded library, with the
argument types that llvmlite declares. Only the long ones (parse, run passes, emit) release the GIL: a thread that
releases it for a microsecond may wait for half a millisecond until it gets it back. If a version of llvmlite has
different internals, its public functions are used, one call at a time.
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

    def object_file(self, text: str, passes: Any, builder: Any, machine: Any) -> bytes:
        """Parses LLVM IR text, runs passes and returns the object file."""
        with llvm.create_context() as context, llvm.parse_assembly(text, context) as module:
            passes.run(module, builder)
            return bytes(machine.emit_object(module))


class _ParallelCalls(LlvmCalls):
    """Calls without a lock. The constructor raises AttributeError or OSError if llvmlite's internals are unknown."""

    are_parallel = True

    def __init__(self) -> None:
        message = ctypes.POINTER(ctypes.c_char_p)
        long, short = ctypes.CDLL(ffi.lib._name), ctypes.PyDLL(ffi.lib._name)
        if long._handle != ffi.lib._handle:
            raise OSError("another library than llvmlite's")
        self._parse = _function(long, "ParseAssembly", ffi.LLVMContextRef, ctypes.c_char_p, message)
        self._run = _function(
            long, "RunNewModulePassManager", ffi.LLVMModulePassManagerRef, ffi.LLVMModuleRef, ffi.LLVMPassBuilderRef
        )
        self._emit = _function(
            long, "TargetMachineEmitToMemory", ffi.LLVMTargetMachineRef, ffi.LLVMModuleRef, ctypes.c_int, message
        )
        self._new_context = _function(short, "ContextCreate")
        self._dispose_of_context = _function(short, "ContextDispose", ffi.LLVMContextRef)
        self._start = _function(short, "GetBufferStart", ffi.LLVMMemoryBufferRef)
        self._size = _function(short, "GetBufferSize", ffi.LLVMMemoryBufferRef)
        self._dispose_of_buffer = _function(short, "DisposeMemoryBuffer", ffi.LLVMMemoryBufferRef)

    def object_file(self, text: str, passes: Any, builder: Any, machine: Any) -> bytes:
        context, message = self._new_context(), ctypes.c_char_p()
        try:
            module = self._parse(context, text.encode(), ctypes.byref(message))
            if message:
                raise RuntimeError(f"LLVM IR parsing error\n{ffi.OutputString(init=message)}")
            self._run(passes, module, builder)
            buffer = self._emit(machine, module, 1, ctypes.byref(message))
            if not buffer:
                raise RuntimeError(str(ffi.OutputString(init=message)))
            try:
                return ctypes.string_at(self._start(buffer), self._size(buffer))
            finally:
                self._dispose_of_buffer(buffer)
        finally:
            self._dispose_of_context(context)  # and of the module


def _function(library: Any, name: str, *types: Any) -> Any:
    """Returns a function of a library with the types that llvmlite declares, which must be the expected ones."""
    declared = getattr(ffi.lib, f"LLVMPY_{name}")
    if list(declared.argtypes or ()) != list(types):
        raise AttributeError(f"{name} takes {declared.argtypes}")
    function = library[f"LLVMPY_{name}"]
    function.argtypes, function.restype = types, declared.restype
    return function


def llvm_calls() -> LlvmCalls:
    """Returns the calls that this version of llvmlite supports."""
    try:
        return _ParallelCalls()
    except (AttributeError, OSError, TypeError):
        return LlvmCalls()
