"""Bounds of integers that follow from sizes of dynamic dimensions: interval arithmetic on HLO instructions."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from hloom.ir import Instruction
from hloom.ops.attributes import ComparisonDirection
from hloom.ops.compare import Compare
from hloom.ops.convert import Convert
from hloom.ops.dynamic_size import GetDimensionSize
from hloom.ops.elementwise_binary import Add, And, Divide, Maximum, Minimum, Multiply, Or, Remainder, Subtract
from hloom.ops.elementwise_unary import Negate, Not, Sign
from hloom.ops.select import Clamp, Select
from hloom.ops.traits import Movement
from hloom.stablehlo.importer.constant_folding import ConstantFolder, evaluated, is_foldable
from hloom.values import Array

MAX_DEPTH = 200
_MONOTONE = (Add, And, Clamp, Compare, Convert, Divide, Maximum, Minimum, Multiply, Negate, Not, Or, Sign, Subtract)
"""Operations that rise or fall with each operand, so that their extremes are at the bounds of the operands."""


class Bounds(NamedTuple):
    """The least and the greatest value of each element of an array."""

    low: Any
    high: Any

    @property
    def is_known(self) -> bool:
        """Whether there is but one value."""
        return np.array_equal(self.low, self.high)


class SizeBounds:
    """Computes and caches bounds of integers and predicates that depend on dynamic sizes and constants alone."""

    def __init__(self) -> None:
        self.folder = ConstantFolder()
        self.found: dict[Instruction, Bounds | None] = {}

    def of(self, instruction: Instruction, depth: int = 0) -> Bounds | None:
        """Returns the bounds of an instruction; None for one that depends on other values."""
        if instruction not in self.found:
            self.found[instruction] = self._compute(instruction, depth) if depth < MAX_DEPTH else None
        return self.found[instruction]

    def _compute(self, instruction: Instruction, depth: int) -> Bounds | None:
        op, type = instruction.op, instruction.shape.element_type
        value = self.folder.value(instruction)
        if value is not None:
            return Bounds(value, value)
        if isinstance(op, GetDimensionSize):
            bound = instruction.operands[0].shape.dimensions[op.dimension]
            return Bounds(np.int32(0), np.int32(bound)) if bound >= 0 else None
        if not is_foldable(instruction) or not (type.is_integer or type.is_pred):
            return None
        operands = [self.of(operand, depth + 1) for operand in instruction.operands]
        if isinstance(op, Clamp) and operands[1] is None:
            operands[1] = Bounds(*map(type.dtype.type, type.limits))
        known = [operand for operand in operands if operand is not None]
        return _bounds(instruction, known) if len(known) == len(operands) else None


def _bounds(instruction: Instruction, operands: Sequence[Bounds]) -> Bounds | None:
    match instruction.op:
        case Select():
            return _selected(*operands)
        case Compare(direction=ComparisonDirection.EQ):
            return _equal(*operands)
        case Compare(direction=ComparisonDirection.NE):
            equal = _equal(*operands)
            return Bounds(~equal.high, ~equal.low)
        case Divide() | Remainder() if not np.all(np.asarray(operands[1].low) > 0):
            return None
        case Remainder():
            return _remainder(*operands)
        case Movement(moved_operands=moved) if all(each.is_known for each in operands[moved:] if moved is not None):
            corners = [*zip(*operands, strict=True)]
        case op if isinstance(op, _MONOTONE):
            corners = [*itertools.product(*operands)]
        case _:
            return None
    values = [_at(instruction, corner) for corner in corners]
    exact = [value for value in values if value is not None]
    if len(exact) < len(values):
        return None
    return Bounds(np.minimum.reduce(exact), np.maximum.reduce(exact))


def _at(instruction: Instruction, operands: Sequence[Array]) -> Array | None:
    """Returns the value for these operands; None if it overflows, since it then neither rises nor falls."""
    op, value = instruction.op, evaluated(instruction, operands)
    wide: list[Any] = [np.asarray(operand, np.float64) for operand in operands]
    exact: Any = value
    if isinstance(op, Add | Subtract | Multiply):
        exact = type(op).function(*wide)
    elif isinstance(op, Convert):
        (exact,) = wide
    return value if value is not None and np.array_equal(exact, value) else None


def _equal(a: Bounds, b: Bounds) -> Bounds:
    is_possible = np.logical_and(a.low <= b.high, b.low <= a.high)
    return Bounds(np.logical_and.reduce([a.low == a.high, b.low == b.high, is_possible]), is_possible)


def _selected(pred: Bounds, on_true: Bounds, on_false: Bounds) -> Bounds:
    either = Bounds(np.minimum(on_true.low, on_false.low), np.maximum(on_true.high, on_false.high))
    ends = zip(on_true, on_false, either, strict=True)
    return Bounds(*(np.where(pred.low, yes, np.where(pred.high, both, no)) for yes, no, both in ends))


def _remainder(dividend: Bounds, divisor: Bounds) -> Bounds | None:
    if np.any(np.asarray(dividend.low) < 0):
        return None
    high = np.minimum(dividend.high, divisor.high - 1)
    return Bounds(np.zeros_like(high), high)
