"""Attention masks: the number of leading keys that any query of a block attends to."""

from __future__ import annotations

from hloom.ir import Instruction, Module
from hloom.ops.attributes import ComparisonDirection
from hloom.ops.broadcast import Broadcast, Iota
from hloom.ops.compare import Compare
from hloom.ops.elementwise_binary import Add, And, Maximum, Minimum, Or
from hloom.ops.elementwise_unary import Not
from hloom.ops.select import Select
from hloom.ops.structure import Constant
from hloom.passes.op_builder import OpBuilder, reduced
from hloom.shape import Shape
from hloom.system.records import record
from hloom.types import PrimitiveType

S32 = PrimitiveType.S32
_LT, _LE = ComparisonDirection.LT, ComparisonDirection.LE
_GT, _GE = ComparisonDirection.GT, ComparisonDirection.GE
_ASCENDING, _INCLUSIVE = (_LT, _LE), (_LE, _GE)
_OPPOSITE = {_LT: _GE, _LE: _GT, _GT: _LE, _GE: _LT}


@record(slots=True)
class Masking:
    """The masking of scores: where `mask` is not `kept_where`, the score is the constant `value`."""

    mask: Instruction
    kept_where: bool
    value: float


def masking_of(scores: Instruction) -> Masking | None:
    """The masking of scores by a select; None if there is none."""
    if isinstance(scores.op, Select) and scores.operands[0].shape.rank:
        for position, kept_where in ((2, True), (1, False)):
            hidden = scores.operands[position]
            value = hidden.operands[0] if isinstance(hidden.op, Broadcast) else hidden
            if isinstance(value.op, Constant) and value.shape.is_scalar:
                return Masking(scores.operands[0], kept_where, float(value.op.literal.value))
    return None


def visible_key_count(
    build: OpBuilder, module: Module, mask: Instruction, dimension: int, kept_where: bool = True
) -> Instruction:
    """Emits the number of leading keys, as s32[], after which every key is masked for all queries.

    A key is visible where the mask is `kept_where`; keys are along `dimension` of the mask.
    """
    op = mask.op
    if isinstance(op, Not):
        return visible_key_count(build, module, mask.operands[0], dimension, not kept_where)
    if isinstance(op, And if kept_where else Or):
        return build(
            Minimum(), *(visible_key_count(build, module, part, dimension, kept_where) for part in mask.operands)
        )
    if isinstance(op, Broadcast) and dimension in op.broadcast_dimensions:
        source = op.broadcast_dimensions.index(dimension)
        return visible_key_count(build, module, mask.operands[0], source, kept_where)
    count = _count_from_comparison(build, module, mask, dimension, kept_where)
    return (
        _one_past_last(build, module, _keys_kept_anywhere(build, module, mask, dimension, kept_where))
        if count is None
        else count
    )


def _keys_kept_anywhere(
    build: OpBuilder, module: Module, mask: Instruction, dimension: int, kept_where: bool
) -> Instruction:
    """Emits pred[keys]: whether any query sees the key."""
    others = tuple(d for d in range(mask.shape.rank) if d != dimension)
    mask = mask if kept_where else build(Not(), mask)
    return reduced(build, module, Or(), mask, False, others) if others else mask


def _one_past_last(build: OpBuilder, module: Module, reached: Instruction) -> Instruction:
    """Emits the index of the last true element plus 1, or 0."""
    shape = Shape.array(S32, reached.shape.dimensions)
    one, none = (build.broadcast(build.constant(value, S32), shape) for value in (1, 0))
    ordinals = build(Add(), build(Iota(iota_dimension=0), shape=shape), one)
    return reduced(build, module, Maximum(), build(Select(), reached, ordinals, none), 0)


def _count_from_comparison(
    build: OpBuilder, module: Module, mask: Instruction, dimension: int, kept_where: bool
) -> Instruction | None:
    """The number of visible keys, if the mask compares integers of keys with integers of queries.

    The extreme integer of the queries decides. None for other masks.
    """
    op = mask.op
    if not isinstance(op, Compare) or not mask.operands[0].shape.element_type.is_integer:
        return None
    if op.direction not in _OPPOSITE:
        return None
    direction = op.direction if kept_where else _OPPOSITE[op.direction]
    for position, operand in enumerate(mask.operands):
        keys, queries = (
            _key_vector(build, operand, dimension),
            _query_values(build, mask.operands[1 - position], dimension),
        )
        if keys is None or queries is None:
            continue
        wants_maximum = (direction in _ASCENDING) == (position == 0)
        extreme = _extreme(build, module, queries, wants_maximum)
        if wants_maximum and isinstance(keys.op, Iota):
            return _positions_below(build, extreme, keys, direction in _INCLUSIVE)
        both = keys, build.broadcast(extreme, keys.shape)
        return _one_past_last(build, module, build(Compare(direction=direction), *both[:: 1 if position == 0 else -1]))
    return None


def _positions_below(build: OpBuilder, limit: Instruction, positions: Instruction, inclusive: bool) -> Instruction:
    """Emits the number of positions 0, 1, .. that are less than a limit, or equal to it if `inclusive`."""
    element_type, more = limit.shape.element_type, int(inclusive)
    (count,) = positions.shape.dimensions
    clamped = build(Maximum(), limit, build.constant(-more if element_type.is_signed else 0, element_type))
    last = build.convert(build(Minimum(), clamped, build.constant(count - more, element_type)), S32)
    return build(Add(), last, build.constant(more, S32)) if inclusive else last


def _extreme(build: OpBuilder, module: Module, values: Instruction, wants_maximum: bool) -> Instruction:
    """Emits the maximum or minimum of integers."""
    element_type = values.shape.element_type
    if isinstance(values.op, Add):
        positions, offset = values.operands
        if isinstance(positions.op, Iota) and isinstance(offset.op, Broadcast):
            # Consecutive positions from `first` on.
            (first,) = offset.operands
            if positions.shape.rank == 1 and first.shape.is_scalar:
                (count,) = positions.shape.dimensions
                return build(Add(), first, build.constant(count - 1 if wants_maximum else 0, element_type))
    low, high = element_type.limits
    if wants_maximum:
        return reduced(build, module, Maximum(), values, low)
    return reduced(build, module, Minimum(), values, high)


def _key_vector(build: OpBuilder, operand: Instruction, dimension: int) -> Instruction | None:
    """The vector of keys that an array repeats for each query; None for other arrays."""
    op = operand.op
    if isinstance(op, Iota) and op.iota_dimension == dimension:
        return _positions(build, op, operand.shape)
    along = isinstance(op, Broadcast) and op.broadcast_dimensions == (dimension,)
    return operand.operands[0] if along else None


def _query_values(build: OpBuilder, operand: Instruction, dimension: int) -> Instruction | None:
    """The integers that an array repeats for each key; None for other arrays."""
    op = operand.op
    if isinstance(op, Iota) and op.iota_dimension != dimension:
        return _positions(build, op, operand.shape)
    if isinstance(op, Broadcast) and dimension not in op.broadcast_dimensions:
        return operand.operands[0]
    if isinstance(op, Add):
        positions, first = (_query_values(build, part, dimension) for part in operand.operands)
        if positions is not None and first is not None and first.shape.is_scalar:
            return build(Add(), positions, build.broadcast(first, positions.shape))
    return None


def _positions(build: OpBuilder, op: Iota, shape: Shape) -> Instruction:
    """The vector that an iota of a shape repeats."""
    vector = Shape.array(shape.element_type, (shape.dimensions[op.iota_dimension],))
    return build(Iota(iota_dimension=0), shape=vector)
