"""arg-max: the index of the maximum or minimum, as two reductions by a single operation each.

    i = reduce(x, iota) with a combiner that keeps the better value and its index
->  m = reduce(x), maximum
    i = reduce(select(x = m or x is NaN, iota, the largest integer)), minimum

Reductions by a single operation are vectorised and split into tasks; one with a general combiner is sequential.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from hloom.ir import Computation, Instruction, Module
from hloom.ops.attributes import ComparisonDirection
from hloom.ops.broadcast import Broadcast, Iota
from hloom.ops.compare import FUNCTIONS, Compare
from hloom.ops.elementwise_binary import Maximum, Minimum, Monoid, Or
from hloom.ops.elementwise_unary import Not
from hloom.ops.reduce import Reduce
from hloom.ops.select import Select
from hloom.ops.structure import GetTupleElement, Parameter, Tuple
from hloom.passes.edit import constant_value
from hloom.passes.op_builder import OpBuilder, expand_each, reduced
from hloom.shape import Shape
from hloom.system.records import record

MIN_LENGTH = 32
"""Elements of a row that make vectorisation worthwhile."""

_NAN = math.nan
_COMPARED_PAIRS = ((2, 1), (1, 2), (1, 1), (_NAN, 1), (1, _NAN), (_NAN, _NAN))
"""A pair of values for each outcome of their comparison."""


@record
class ArgMax:
    """Before: a reduction of an array with an iota along its last dimension, whose combiner keeps the larger (or the
    smaller) value with its index, preferring NaNs, and the lower index of equal values; only the index is used. After:
    a reduction with maximum or minimum, and one of the indices of elements that are equal to it.

    Needs the initial value to be the identity of maximum or minimum with index 0, and rows of at least `MIN_LENGTH`.
    """

    name: ClassVar[str] = "arg-max"
    optional: ClassVar[bool] = True
    operations: ClassVar[tuple[type, ...]] = (Reduce,)

    def run(self, module: Module) -> int:
        """Replaces the reductions; returns their number."""
        return expand_each(module, Reduce, _expanded)


def _expanded(op: Reduce, build: OpBuilder, old: Instruction, module: Module) -> Instruction | None:
    if not _is_of_rows(old, op):
        return None
    best = _kept_extremum(op.computation, old.operands[0].shape)
    if best is None or not _starts_at_identity(old.operands[2:], best):
        return None
    x, indices = old.operands[:2]
    reduction = reduced(build, module, best(), x, best.identity(x.shape.element_type), op.dimensions)
    kept = tuple(d for d in range(x.shape.rank) if d not in op.dimensions)
    is_best = build(Compare(direction=ComparisonDirection.EQ), x, build.broadcast(reduction, x.shape, kept))
    if x.shape.element_type.is_float:
        is_best = build(Or(), is_best, build(Compare(direction=ComparisonDirection.NE), x, x))
    _, sentinel = indices.shape.element_type.limits
    no_index = build.broadcast(build.constant(sentinel, indices.shape.element_type), indices.shape)
    candidates = build(Select(), is_best, indices, no_index)
    return build.tuple(reduction, reduced(build, module, Minimum(), candidates, sentinel, op.dimensions))


def _is_of_rows(old: Instruction, op: Reduce) -> bool:
    """Whether rows are reduced together with the indices of their elements, and only the resulting index is used."""
    if len(old.operands) != 4 or len(op.dimensions) != 1:
        return False
    x, indices = old.operands[:2]
    (dimension,) = op.dimensions
    return (
        dimension == x.shape.rank - 1
        and x.shape.dimensions[dimension] >= MIN_LENGTH
        and (x.shape.element_type.is_float or x.shape.element_type.is_integer)
        and _counts_along(indices, dimension)
        and indices.shape.element_type.is_integer
        and all(isinstance(user.op, GetTupleElement) and user.op.index == 1 for user in old.users)
        and old.parent is not None
        and old is not old.parent.root
    )


def _counts_along(indices: Instruction, dimension: int) -> bool:
    """Whether the elements are 0, 1, 2 .. along a dimension."""
    op = indices.op
    if isinstance(op, Broadcast) and dimension in op.broadcast_dimensions:
        return _counts_along(indices.operands[0], op.broadcast_dimensions.index(dimension))
    return isinstance(op, Iota) and op.iota_dimension == dimension


def _starts_at_identity(
    initial: tuple[Instruction, ...] | list[Instruction], best: type[Maximum] | type[Minimum]
) -> bool:
    value, index = map(constant_value, initial)
    if value is None or index is None or int(index) != 0:
        return False
    return bool(value == best.identity(initial[0].shape.element_type))


def _kept_extremum(combiner: Computation, shape: Shape) -> type[Maximum] | type[Minimum] | None:
    """Returns the operation whose result the combiner keeps; None if it is not an arg-max or arg-min.

    The combiner is evaluated on a pair of values for each outcome of a comparison.
    """
    pairs = _COMPARED_PAIRS if shape.element_type.is_float else _COMPARED_PAIRS[:3]
    results = [_evaluated(combiner, (a, 0, b, 1)) for a, b in pairs]
    for best, is_better in ((Maximum, operator.gt), (Minimum, operator.lt)):
        if all(r is not None and _is_right(r, pair, is_better) for r, pair in zip(results, pairs, strict=True)):
            return best
    return None


def _is_right(result: tuple[Any, ...], pair: tuple[float, float], is_better: Callable[[Any, Any], bool]) -> bool:
    """Whether the combiner's result is the better value, or a NaN, with its index; the first one if they are equal."""
    a, b = pair
    takes_b = not math.isnan(a) and (math.isnan(b) or is_better(b, a))
    value, index = result
    return index == int(takes_b) and (value == pair[takes_b] or (math.isnan(value) and math.isnan(pair[takes_b])))


def _evaluated(combiner: Computation, arguments: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """Evaluates a combiner that only compares values with values and indices with indices, and selects; else None."""
    values: dict[Instruction, Any] = {}
    for instruction in combiner.instructions:
        given = [values[operand] for operand in instruction.operands]
        match instruction.op:
            case Parameter() as op:
                value = arguments[op.number]
            case Compare() as op if _compares_like_parameters(instruction, op):
                value = FUNCTIONS[op.direction](*given)
            case Minimum() if {_parameter_index(operand) for operand in instruction.operands} == {1, 3}:
                value = min(given)
            case Monoid() as op if instruction.shape.element_type.is_pred:
                value = bool(op.function(*map(np.bool_, given)))
            case Not() if instruction.shape.element_type.is_pred:
                value = not given[0]
            case Select():
                value = given[1] if given[0] else given[2]
            case Tuple():
                value = tuple(given)
            case _:
                return None
        values[instruction] = value
    result = values[combiner.root]
    return result if isinstance(result, tuple) and len(result) == 2 else None


def _compares_like_parameters(instruction: Instruction, op: Compare) -> bool:
    """Whether two values are compared, or two indices."""
    parameter_indices = {_parameter_index(operand) for operand in instruction.operands}
    return not op.is_total_order and (parameter_indices <= {0, 2} or parameter_indices <= {1, 3})


def _parameter_index(instruction: Instruction) -> int | None:
    return instruction.op.number if isinstance(instruction.op, Parameter) else None
