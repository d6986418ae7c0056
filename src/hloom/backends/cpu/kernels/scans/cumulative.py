"""`reduce-window` that is a running reduction, such as a cumulative sum, or has large windows."""

from __future__ import annotations

import math

from hloom.backends.cpu.kernels.code import KernelCode, code_of, entry_function, has_native_arrays
from hloom.backends.cpu.kernels.scalar_computation import ScalarComputation
from hloom.backends.cpu.kernels.scans.across import ScanAcross
from hloom.backends.cpu.kernels.scans.along import ScanAlong
from hloom.backends.cpu.kernels.scans.scan import Scan
from hloom.backends.cpu.kernels.scans.window_reduction import WindowReduction, axes_of
from hloom.ir import Instruction
from hloom.ops.reduce_window import ReduceWindow, cumulative_dimension
from hloom.target import Target


def emit(op: ReduceWindow, name: str, instruction: Instruction, target: Target) -> KernelCode | None:
    """Returns the code of a reduce-window; None if the combiner cannot be emitted, and if a loop nest is as fast."""
    computation = ScalarComputation.of(op.computation)
    sizes = instruction.operands[0].shape.dimensions
    dimension = cumulative_dimension(op.window, sizes)
    if computation is None or computation.calls_functions or not has_native_arrays(instruction):
        return None
    if 0 in next(instruction.shape.leaves()).dimensions:
        return code_of(name, [entry_function(name, instruction)])
    if dimension is None:
        axes = axes_of(op.window, sizes)
        if axes is not None and len(axes) == 1 and axes[0].inner == axes[0].window.window_dilation == 1:
            return None  # loop nests reduce windows of contiguous elements as fast as these can be read
        return WindowReduction(name, instruction, computation, axes, target).code() if axes else None
    outer, inner = math.prod(sizes[:dimension]), math.prod(sizes[dimension + 1 :])
    backward = op.window[dimension].padding_low == 0
    scan = Scan(instruction, computation, outer, sizes[dimension], inner, backward)
    is_minor = dimension == len(sizes) - 1 if target.batch_invariant else inner == 1
    writer = ScanAlong if is_minor else ScanAcross
    return writer(name, scan, target).code()
