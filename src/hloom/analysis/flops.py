"""Count of the arithmetic operations of a module, from its instructions as written.

A multiplication with its addition counts as two; any other operation on an element counts as one, transcendental
functions and complex operations included. Data movement is free. The count is unknown (None) where it depends on the
algorithm (sort, reduce-window, cholesky ..), on run-time values (a loop without a known trip count) or on external code
(custom-call).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

from hloom.analysis.counted_loop import trip_count
from hloom.ir import Computation, Instruction, Module, callees_first
from hloom.ops.attributes import FftType
from hloom.ops.broadcast import Iota
from hloom.ops.control_flow import AsyncStart, Call, Conditional, Fusion, While
from hloom.ops.convolution import Convolution
from hloom.ops.dot import Dot, ScaledDot
from hloom.ops.fft import Fft
from hloom.ops.reduce import Map, Reduce
from hloom.ops.scatter import Scatter
from hloom.ops.traits import Done, Identity, Movement, NoWork

Counts = dict[Computation, int | None]


def count_flops(module: Module) -> int | None:
    """Counts the operations of one run of a module; None if a part is unknown."""
    counts: Counts = {}
    for computation in callees_first(module.entry):
        counts[computation] = _sum(_count(instruction, counts) for instruction in computation.instructions)
    return counts[module.entry]


def count_flops_of(instruction: Instruction) -> int | None:
    """Counts the operations of one instruction, called computations included; None if a part is unknown."""
    counts: Counts = {}
    for called in instruction.op.computations:
        for computation in callees_first(called):
            counts[computation] = _sum(_count(inner, counts) for inner in computation.instructions)
    return _count(instruction, counts)


def bytes_of(instruction: Instruction) -> int:
    """Returns the total size of an instruction's operands and result, in bytes."""
    shapes = [*instruction.operand_shapes, instruction.shape]
    return sum(leaf.byte_size for shape in shapes for leaf in shape.leaves() if leaf.is_array)


def _count(instruction: Instruction, counts: Counts) -> int | None:
    """Counts the operations of one instruction, given those of the computations that it calls."""
    op, operands, elements = instruction.op, instruction.operand_shapes, instruction.shape.element_count
    match op:
        case Dot() | ScaledDot():
            return 2 * elements * math.prod(operands[0].dimensions[d] for d in op.lhs_contracting_dims)
        case Convolution():
            outputs = operands[1].dimensions[op.dimension_numbers.kernel_output_feature_dimension]
            return 2 * elements * operands[1].element_count // max(1, outputs)
        case Fft():
            # The customary 5 n log2 n of a complex transform, half of it where one side is real.
            real = op.fft_type in (FftType.RFFT, FftType.IRFFT)
            points, length = max(elements, operands[0].element_count), max(1, math.prod(op.fft_length))
            return round((2.5 if real else 5) * points * math.log2(length))
        case Reduce():
            return _times(operands[0].element_count, counts[op.computation])
        case Map():
            return _times(elements, counts[op.computation])
        case Scatter():
            return _times(operands[-1].element_count, counts[op.update_computation])
        case Call():
            return counts[op.computation]
        case Fusion() | AsyncStart():
            return counts[op.calls]
        case While():
            return _times(_trips(instruction), _sum([counts[op.condition], counts[op.body]]))
        case Conditional():
            branches = {counts[branch] for branch in op.branch_computations}
            return branches.pop() if len(branches) == 1 else None
    if op.elementwise:
        return elements
    return 0 if isinstance(op, (NoWork, Identity, Movement, Iota, Done)) else None


def _times(count: int | None, each: int | None) -> int | None:
    return None if count is None or each is None else count * each


def _sum(counts: Iterable[int | None]) -> int | None:
    known = list(counts)
    return None if None in known else sum(count for count in known if count is not None)


def _trips(loop: Instruction) -> int | None:
    """The trip count of a loop: the compiler's `{"known_trip_count":{"n":"10"}}` in the backend config, else by
    analysis.
    """
    said = re.search(r'"known_trip_count":\s*\{\s*"n":\s*"(\d+)"', loop.backend_config)
    return int(said[1]) if said else trip_count(loop)
