"""Tolerances: given, or those of a module, by the element types that it computes in and the lengths of its sums."""

from __future__ import annotations

import math

import ml_dtypes

from hloom.analysis.flops import count_flops_of
from hloom.files.arrays import difference, flat
from hloom.ir import Instruction, Module
from hloom.ops.structure import Constant, Parameter
from hloom.ops.traits import CallLike, Identity, Movement, NoWork
from hloom.system.records import record
from hloom.types import PrimitiveType
from hloom.values import Value

ROUNDINGS = 4.0
"""Roundings of the coarsest type, and of each term of a sum, in units of the distance from 1 to the next number."""


@record
class Tolerance:
    """Tolerance of a comparison: |a - b| <= absolute + relative |b| + of_largest max |b|.

    The maximum is that of the finite elements of the array.

    >>> from hloom import faults
    >>> faults.Tolerance(relative=1e-3).difference(np.float32([1, 2]), np.float32([1, 2.5]))
    'differs in 1 of 2 elements, first at [1]: 2.0, expected 2.5'
    """

    relative: float = 1e-4
    absolute: float = 1e-5
    of_largest: float = 0.0

    def difference(self, value: Value, expected: Value) -> str | None:
        """Describes the first difference of a value from the expected one; None if there is none."""
        pairs = list(zip(flat(value), flat(expected), strict=True))
        for index, (got, want) in enumerate(pairs):
            message = difference(got, want, self.relative, self.absolute, self.of_largest)
            if message:
                return message if len(pairs) == 1 else f"element {index} {message}"
        return None


def tolerance_of(module: Module) -> Tolerance:
    """The tolerance of the results of a module; zero if it computes with integers or only moves elements.

    It is some roundings of the coarsest type in which an instruction computes, and of the accumulator for the longest
    sum, whose error grows as the square root of its length.
    """
    computing = [i for i in module.instructions() if _is_rounded(i)]
    coarsest = max((_epsilon(type) for i in computing for type in _floats(i)), default=0.0)
    accumulated = max((_sum_error(i) for i in computing), default=0.0)
    relative = ROUNDINGS * (coarsest + accumulated)
    return Tolerance(relative, 0.0, relative)


def _is_rounded(instruction: Instruction) -> bool:
    exact = isinstance(instruction.op, (Parameter, Constant, Movement, Identity, NoWork, CallLike))
    return not exact and bool(_floats(instruction))


def _floats(instruction: Instruction) -> set[PrimitiveType]:
    """The types of the floats in the result."""
    return {type.real for type in instruction.shape.leaf_types if type.is_float or type.is_complex}


def _sum_error(instruction: Instruction) -> float:
    accumulator = max(_epsilon(type.computation_type) for type in _floats(instruction))
    return accumulator * math.sqrt(_sum_length(instruction))


def _sum_length(instruction: Instruction) -> float:
    """Operations for each element of the result; where they are not known, the longest dimension of an operand."""
    operations = count_flops_of(instruction)
    if operations is None:
        return max(
            (size for shape in instruction.operand_shapes for s in shape.leaves() for size in s.dimensions), default=1
        )
    elements = sum(leaf.element_count for leaf in instruction.shape.leaves() if leaf.is_array)
    return operations / max(1, elements)


def _epsilon(type: PrimitiveType) -> float:
    return float(ml_dtypes.finfo(type.dtype).eps)
