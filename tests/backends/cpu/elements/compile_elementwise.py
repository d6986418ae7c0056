"""Compiles element-wise functions that emit LLVM IR into functions of NumPy arrays, for tests."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm
import numpy as np

from hloom.lir import I64, PTR, Builder, Function, LirModule, Parameter, type_of

Array = np.ndarray[Any, np.dtype[Any]]
_engines: list[Any] = []


def compile_elementwise(emit: Callable[..., Any], dtype: type, width: int, operands: int, results: int = 1) -> Any:
    """Compiles a function of `operands` arrays of `dtype`, with sizes that `width` divides, to `results` arrays."""
    text = _loop(emit, "float" if dtype == np.float32 else "double", width, operands, results)
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    module = llvm.parse_assembly(text)
    module.verify()
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=1, jit=True
    )
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    _engines.append(engine)
    pointers = [ctypes.c_void_p] * (operands + results)
    native = ctypes.CFUNCTYPE(None, *pointers, ctypes.c_int64)(engine.get_function_address("f"))

    def run(*arrays: Array) -> Any:
        inputs = [np.ascontiguousarray(x, dtype) for x in arrays]
        outputs = [np.empty_like(inputs[0]) for _ in range(results)]
        assert len(inputs) == operands and inputs[0].size % max(width, 1) == 0
        native(*(x.ctypes.data for x in inputs + outputs), inputs[0].size)
        return outputs[0] if results == 1 else tuple(outputs)

    return run


def _loop(emit: Callable[..., Any], element: str, width: int, operands: int, results: int) -> str:
    type = type_of(element, width)
    pointers, size = [Parameter(f"p{k}", PTR) for k in range(operands + results)], Parameter("n", I64)
    b = Builder(Function("f", [*pointers, size], is_exported=True))
    with b.loop(size, max(width, 1)) as loop:
        i = b.index(loop.index)
        values = [b.load(b.element_pointer(p, i, element), type, type.bits // 8) for p in pointers[:operands]]
        result = emit(b, *values)
        for value, pointer in zip((result,) if results == 1 else result, pointers[operands:]):
            b.store(value, b.element_pointer(pointer, i, element), type.bits // 8)
    return LirModule([b.finish()]).text()
