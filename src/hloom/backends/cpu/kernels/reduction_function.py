"""Reductions of arrays for MPI: `void (ptr operand, ptr accumulator, ptr length, ptr datatype)`, an
`MPI_User_function`.
"""

from __future__ import annotations

from typing import Any

from hloom.backends.cpu.kernels.kernel_function import KernelFunction
from hloom.backends.cpu.kernels.scalar_computation import ScalarComputation
from hloom.backends.cpu.llvm.machine_code import load_object, make_object
from hloom.backends.cpu.llvm.processor import processor
from hloom.ir import Computation, Module
from hloom.lir import I32, PTR, IndexValue, LirModule
from hloom.ops.operation import OPERATIONS
from hloom.passes.op_builder import scalar_computation
from hloom.types import PrimitiveType


def make_reduction(opcode: str, element_type: PrimitiveType) -> tuple[int, Any] | None:
    """Compiles the reduction by a Monoid; returns its address, and its code, which must live as long.

    Returns None if the combiner has no native code for the element type.
    """
    combiner = scalar_computation(Module("reduction"), OPERATIONS[opcode](), element_type)
    text = reduction_text("hloom_reduction", combiner)
    if text is None:
        return None
    code = load_object(make_object(text))
    return code.address("hloom_reduction"), code


def reduction_text(name: str, computation: Computation) -> str | None:
    """Returns LLVM IR of accumulator[i] = computation(operand[i], accumulator[i]) for i < *length; None if there is
    none.
    """
    scalar = ScalarComputation.of(computation)
    if scalar is None:
        return None
    type = scalar.types[0]
    f = KernelFunction(name, operand=PTR, accumulator=PTR, length=PTR, datatype=PTR)
    length = f.convert("sext", f.load(f["length"], I32, 4), "i64")
    lanes = max(2, processor().vector_bytes // max(4, type.byte_width))

    def reduction(index: IndexValue, width: int) -> None:
        addresses = [f.element_at(f[array], index, type) for array in ("operand", "accumulator")]
        (result,) = scalar.emit(f, [f.load_lanes(address, type, width) for address in addresses])
        f.store_lanes(result, addresses[1], type)

    vectors = f.divide(length, lanes)
    with f.each(0, vectors) as block:
        reduction(f.multiply(block, lanes), lanes)
    with f.each(f.multiply(vectors, lanes), length) as index:
        reduction(index, 0)
    function = f.finish()
    function.is_exported = True
    return LirModule([function]).text()
