"""`dot` of slices that are contiguous in memory: a fusion whose root is the dot, which reads them where they are."""

from __future__ import annotations

from dataclasses import replace

from hloom.backends.cpu.elements.types import clamped, memory_element, resized
from hloom.backends.cpu.kernels.code import KernelCode, entry_function
from hloom.backends.cpu.kernels.kernel_function import KernelFunction
from hloom.backends.cpu.kernels.products import dot as products
from hloom.backends.cpu.kernels.products import sums
from hloom.ir import Instruction
from hloom.lir import IndexValue, Value, type_of
from hloom.ops.control_flow import Fusion
from hloom.ops.dot import Dot
from hloom.ops.slice import DynamicSlice, Slice
from hloom.ops.structure import Constant, Parameter
from hloom.passes.edit import reshape_chain
from hloom.target import Target


def emit(op: Fusion, name: str, instruction: Instruction, target: Target) -> KernelCode | None:
    """Returns the code of a fusion whose root is a dot of parameters and of slices of them; None for other fusions.

    Its entry calls that of the dot with the addresses of the slices.
    """
    root = op.calls.root
    if not isinstance(root.op, Dot) or not all(isinstance(_array(operand).op, Parameter) for operand in root.operands):
        return None
    product = products.emit(root.op, f"{name}.product", root, target)
    assert product is not None
    f = entry_function(name, instruction)
    pointers = [_address(f, operand) for operand in root.operands]
    f.call_void(product.entry, *pointers, f["result0"], *f.parameters[-3:])
    return replace(product, functions=(*product.functions, f.finish()), entry=name, packed=None)


def can_multiply(dot: Instruction) -> bool:
    """Whether there is code for a dot."""
    assert isinstance(dot.op, Dot)
    spec = products.matmul_spec(dot.op, dot)
    return spec is not None and sums.can_multiply(spec.lhs_type, spec.rhs_type, spec.out_type)


def _array(operand: Instruction) -> Instruction:
    """The array in memory that an operand is a slice of, or is."""
    part = reshape_chain(operand)[-1]
    return part.operands[0] if isinstance(part.op, (Slice, DynamicSlice)) else part


def _parameter(f: KernelFunction, instruction: Instruction) -> Value:
    assert isinstance(instruction.op, Parameter)
    return f[f"operand{instruction.op.number}"]


def _address(f: KernelFunction, operand: Instruction) -> Value:
    """Returns the address of the first element of an operand."""
    part, array = reshape_chain(operand)[-1], _array(operand)
    offset: IndexValue = 0
    for d, size in enumerate(array.shape.dimensions if part is not array else ()):
        offset = f.add(f.multiply(offset, size), _start(f, part, d))
    return f.element_at(_parameter(f, array), offset, array.shape.element_type)


def _start(f: KernelFunction, part: Instruction, d: int) -> IndexValue:
    """Returns the first index of a slice along a dimension, clamped as dynamic ones are."""
    if isinstance(part.op, Slice):
        return part.op.slice[d].start
    last, start = part.operands[0].shape.dimensions[d] - part.shape.dimensions[d], part.operands[1 + d]
    if isinstance(start.op, Constant):
        return min(max(int(start.op.literal.value), 0), last)
    if last == 0:
        return 0
    type = start.shape.element_type
    value = f.load(_parameter(f, start), type_of(memory_element(type)), type.byte_width)
    return resized(f, clamped(f, value, type.is_signed, 0, last), "i64")
