"""Masks: up to which key any query of a block looks."""

from __future__ import annotations

import ml_dtypes

from hloom.ir import Instruction, Module
from hloom.ops.attributes import ComparisonDirection
from hloom.ops.broadcast import Iota
from hloom.ops.compare import Compare
from hloom.ops.elementwise_binary import Add, And, Maximum, Minimum, Or
from hloom.ops.reduce import Reduce
from hloom.ops.select import Select
from hloom.ops.structure import Constant
from hloom.passes.expand.maker import Maker, scalar_computation
from hloom.shape import Shape
from hloom.types import PrimitiveType

S32, PRED = PrimitiveType.S32, PrimitiveType.PRED
_ASCENDING = (ComparisonDirection.LT, ComparisonDirection.LE)
_DESCENDING = (ComparisonDirection.GT, ComparisonDirection.GE)


def masked_value(scores: Instruction) -> float | None:
    """What stands where a mask is false, if scores are chosen by one; None where they are not."""
    if scores.opcode != "select" or scores.operands[2].opcode != "broadcast" or not scores.operands[0].shape.rank:
        return None
    (value,) = scores.operands[2].operands
    return float(value.op.literal.value) if isinstance(value.op, Constant) and value.shape.is_scalar else None


def keys_in_reach(make: Maker, module: Module, mask: Instruction, dimension: int) -> Instruction:
    """A number of keys, as s32[]: for those after them, along a dimension of the mask, it is false everywhere."""
    reached = _reached(make, module, mask, dimension)
    shape = Shape.array(S32, reached.shape.dimensions)
    number = make(Add(), make(Iota(iota_dimension=0), shape=shape), _repeated(make, 1, shape))
    counts = make(Select(), reached, number, _repeated(make, 0, shape))
    most = Reduce(dimensions=(0,), computation=scalar_computation(module, Maximum(), S32))
    return make(most, counts, make.constant(0, S32))


def _repeated(make: Maker, value: int, shape: Shape) -> Instruction:
    return make.broadcast(make.constant(value, S32), shape)


def _reached(make: Maker, module: Module, mask: Instruction, dimension: int) -> Instruction:
    """pred[keys]: whether the mask may be true for a key anywhere."""
    if mask.shape.rank == 1:
        return mask
    if mask.opcode == "and":
        return make(And(), *(_reached(make, module, part, dimension) for part in mask.operands))
    if mask.opcode == "broadcast":
        source = mask.op.broadcast_dimensions  # type: ignore[attr-defined]
        if dimension in source:
            return _reached(make, module, mask.operands[0], source.index(dimension))
    found = _compared(make, module, mask, dimension)
    if found is not None:
        return found
    others = tuple(d for d in range(mask.shape.rank) if d != dimension)
    combine = scalar_computation(module, Or(), PRED)
    return make(Reduce(dimensions=others, computation=combine), mask, make.constant(False, PRED))


def _compared(make: Maker, module: Module, mask: Instruction, dimension: int) -> Instruction | None:
    """Where integers of keys are compared with integers of queries, the extreme one of those decides."""
    if not isinstance(mask.op, Compare) or not mask.operands[0].shape.element_type.is_integer:
        return None
    for position, operand in enumerate(mask.operands):
        keys, queries = _along(operand, dimension), _across(mask.operands[1 - position], dimension)
        if keys is None or queries is None or mask.op.direction not in (*_ASCENDING, *_DESCENDING):
            continue
        takes_most = (mask.op.direction in _ASCENDING) == (position == 0)
        extreme = make.broadcast(_extreme(make, module, queries, takes_most), keys.shape)
        return make(mask.op, *(keys, extreme)[:: 1 if position == 0 else -1])
    return None


def _extreme(make: Maker, module: Module, values: Instruction, takes_most: bool) -> Instruction:
    """The largest or least of some integers."""
    element_type = values.shape.element_type
    limits = ml_dtypes.iinfo(element_type.dtype)
    init = make.constant(int(limits.min if takes_most else limits.max), element_type)
    combine = scalar_computation(module, Maximum() if takes_most else Minimum(), element_type)
    return make(Reduce(dimensions=tuple(range(values.shape.rank)), computation=combine), values, init)


def _along(operand: Instruction, dimension: int) -> Instruction | None:
    """The vector that an array repeats along a dimension."""
    along = operand.opcode == "broadcast" and operand.op.broadcast_dimensions == (dimension,)  # type: ignore[attr-defined]
    return operand.operands[0] if along else None


def _across(operand: Instruction, dimension: int) -> Instruction | None:
    """The array that another one repeats for each place of a dimension."""
    repeated = operand.opcode == "broadcast" and dimension not in operand.op.broadcast_dimensions  # type: ignore[attr-defined]
    return operand.operands[0] if repeated else None
