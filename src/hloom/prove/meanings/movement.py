"""Operations that move elements: their own semantics move numbers of elements instead.

Start indices that are not known are enumerated (`reads.py`).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from hloom.errors import RunError
from hloom.ir import Instruction
from hloom.ops.indexing import IndexingMap, indexing_map
from hloom.ops.operation import OPERATIONS, Operation
from hloom.ops.reshape import Bitcast, DynamicReshape
from hloom.ops.traits import Identity, Movement
from hloom.prove.meanings.evaluator import RULES, Evaluator, Refused, Symbol
from hloom.prove.meanings.reads import moved
from hloom.prove.terms.concrete import from_codes
from hloom.prove.terms.normal import normal
from hloom.prove.terms.term import Unsupported, array_of, constant
from hloom.shape import Shape
from hloom.types import PrimitiveType
from hloom.values import Array

ORDINAL_TYPE = PrimitiveType.S64
"""The element type of the numbers of elements."""


class Site:
    """The part of a context that movements look at: shapes, for elements that are numbers."""

    def __init__(self, instruction: Instruction) -> None:
        self.shape = _of_ordinals(instruction.shape)
        self.operand_shapes = tuple(map(_of_ordinals, instruction.operand_shapes))


def _of_ordinals(shape: Shape) -> Shape:
    return shape.with_element_type(ORDINAL_TYPE) if shape.is_array else shape


def _move(op: Operation, evaluator: Evaluator, instruction: Instruction, operands: Sequence[Symbol]) -> Array:
    if isinstance(op, Identity):
        return operands[0]
    count = len(operands) if op.moved_operands is None else op.moved_operands  # type: ignore[attr-defined]
    moving, starts = operands[:count], [[normal(x) for x in array.reshape(-1)] for array in operands[count:]]
    is_known = all(x.known is not None for terms in starts for x in terms)
    indices = [_known_or_zero(array, terms) for array, terms in zip(operands[count:], starts, strict=True)]
    result = _moved_by_ordinals(op, instruction, moving, indices)
    return result if is_known else _enumerated(evaluator, instruction, operands, result.shape)


def _known_or_zero(array: Array, terms: Sequence[Any]) -> Array:
    if not terms:
        return np.zeros(array.shape, np.int64)
    return from_codes(terms[0].type, [x.known or 0 for x in terms]).reshape(array.shape)


def _moved_by_ordinals(op: Operation, instruction: Instruction, moving: Sequence[Array], indices: list[Array]) -> Array:
    """Runs the semantics of the operation on the numbers of the elements, counted from 1; 0 is a new element."""
    ends = list(itertools.accumulate((array.size for array in moving), initial=1))
    ordinals = [np.arange(a, b).reshape(x.shape) for a, b, x in zip(ends, ends[1:], moving, strict=False)]
    site: Any = Site(instruction)
    try:
        result = np.asarray(op.evaluate(site, *op.bind([*ordinals, *indices])))
    except RunError as error:
        raise Refused(str(error)) from None
    table = np.empty(ends[-1], object)
    table[0] = constant(instruction.operand_shapes[0].element_type, 0)
    for array, start in zip(moving, ends, strict=False):
        table[start : start + array.size] = array.reshape(-1)
    found: Array = table[result.reshape(-1)].reshape(result.shape)
    return found


def _enumerated(
    evaluator: Evaluator, instruction: Instruction, operands: Sequence[Symbol], sizes: tuple[int, ...]
) -> Array:
    mapped = actual_map(instruction, sizes, operands)
    if mapped is None:
        raise Unsupported("sizes that depend on the arguments")
    elements = []
    for index in np.ndindex(*sizes):
        evaluator.deadline.check("the evaluation of all start indices")
        elements.append(moved(mapped, operands, dict(zip(mapped.dimensions, index, strict=True))))
    return array_of(elements, sizes)


for _declaration in [*OPERATIONS.values()]:
    if issubclass(_declaration, Movement) and not issubclass(_declaration, DynamicReshape):
        RULES.add(_declaration, _move)


def actual_map(instruction: Instruction, sizes: tuple[int, ...], operands: Sequence[Array]) -> IndexingMap | None:
    """Returns the indexing map of an instruction for the actual sizes of its result and operands."""
    shapes = [next(instruction.shape.leaves()), *instruction.operand_shapes]
    if not any(shape.is_dynamic for shape in shapes):
        return instruction.indexing_map()
    actual = [
        Shape.array(shape.element_type, s)
        for shape, s in zip(shapes, (sizes, *(o.shape for o in operands)), strict=True)
    ]
    return indexing_map(instruction.op, actual[0], actual[1:])


@RULES.rule(Bitcast)
def _bitcast(op: Bitcast, evaluator: Evaluator, instruction: Instruction, operands: Sequence[Symbol]) -> Symbol:
    """Moves elements between layouts. Raises Unsupported if the element type changes."""
    if instruction.shape.is_tuple:
        return operands[0]
    if instruction.shape.element_type is not instruction.operand_shapes[0].element_type:
        raise Unsupported("a bitcast to another element type")
    return _move(op, evaluator, instruction, operands)
