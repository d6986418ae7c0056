"""`convolution` as LLVM IR.

form.py brings the convolution to a normal form. lines.py and pixels.py compute those in which each feature has a window
of its own, and tiled.py the others; the first such convolution imports them.
"""

from __future__ import annotations

import math

from hloom.backends.cpu.kernels.code import KernelCode, code_of, entry_function, has_native_arrays
from hloom.backends.cpu.kernels.convolution.form import Form, normal_form
from hloom.backends.cpu.kernels.products.sums import accumulator
from hloom.ir import Instruction
from hloom.lir import Type, type_of
from hloom.ops.convolution import Convolution
from hloom.target import Target

MAX_TAPS = 1 << 20
MAX_ELEMENTS = 1 << 31  # of an array: positions in a line are counted in 32 bits


def emit(op: Convolution, name: str, instruction: Instruction, target: Target) -> KernelCode | None:
    """Returns the code of a convolution; None for types without native code, and for windows whose table would be too
    large.
    """
    shapes = [*instruction.operand_shapes, instruction.shape]
    counts = [shape.element_count for shape in shapes]
    if not has_native_arrays(instruction) or max(counts) >= MAX_ELEMENTS or _taps(op) > MAX_TAPS:
        return None
    try:
        lhs, rhs, out = (shape.element_type for shape in shapes)
        sums = accumulator(lhs, rhs, out)
    except ValueError:
        return None
    if min(counts) == 0:
        return _zeros(name, instruction)
    form = normal_form(op, instruction)
    if form.taps == 0:
        return _zeros(name, instruction)
    vector = type_of(sums.element, target.vector_bytes * 8 // sums.bits)
    if form.is_depthwise and (code := _depthwise(name, instruction, form, vector, target)) is not None:
        return code
    from hloom.backends.cpu.kernels.convolution.tiled import emit_tiled

    return emit_tiled(name, instruction, form, vector, target)


def _depthwise(name: str, instruction: Instruction, form: Form, vector: Type, target: Target) -> KernelCode | None:
    """Returns the code of a convolution whose features have windows of their own; None if tiled.py serves it better."""
    from hloom.backends.cpu.kernels.convolution.lines import emit_lines, plan_lines
    from hloom.backends.cpu.kernels.convolution.pixels import emit_pixels, plan_pixels

    if (lines := plan_lines(form, vector, target)) is not None:
        return emit_lines(name, instruction, lines, target)
    pixels = plan_pixels(form, vector, target)
    return None if pixels is None else emit_pixels(name, instruction, pixels, target)


def _taps(op: Convolution) -> int:
    """Upper bound of the number of taps to enumerate."""
    return math.prod(d.size for d in op.window) + sum(d.size * d.base_dilation for d in op.window)


def _zeros(name: str, instruction: Instruction) -> KernelCode:
    f = entry_function(name, instruction)
    f.fill(f["result0"], 0, instruction.shape.element_count * instruction.shape.element_type.byte_width)
    return code_of(name, [f])
