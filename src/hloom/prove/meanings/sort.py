"""Sorting: sort, topk."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hloom.ir import Instruction
from hloom.ops.sort import Sort, TopK
from hloom.prove.meanings.evaluator import RULES, Evaluator, Symbol
from hloom.prove.terms.functions import LESS, TOTAL_LESS, apply, choose
from hloom.prove.terms.term import Term, array_of, constant
from hloom.types import PrimitiveType


@RULES.rule(Sort)
def _sort(op: Sort, evaluator: Evaluator, instruction: Instruction, operands: Sequence[Symbol]) -> Symbol:
    """Exchanges neighbours as bubble sort does, which is stable."""
    rows = [np.moveaxis(operand, op.dimension, -1).copy() for operand in operands]
    size = rows[0].shape[-1]
    for lead in np.ndindex(*rows[0].shape[:-1]):
        for last in range(size - 1, 0, -1):
            for k in range(last):
                pairs = [(row[(*lead, k)], row[(*lead, k + 1)]) for row in rows]
                (later,) = evaluator.scalars(op.comparator, [term for a, b in pairs for term in (b, a)])
                for row, (a, b) in zip(rows, pairs, strict=True):
                    row[(*lead, k)], row[(*lead, k + 1)] = choose(later, b, a), choose(later, a, b)
    sorted_arrays = tuple(np.moveaxis(row, -1, op.dimension) for row in rows)
    return sorted_arrays if len(sorted_arrays) > 1 else sorted_arrays[0]


@RULES.rule(TopK)
def _top_k(op: TopK, evaluator: Evaluator, instruction: Instruction, operands: Sequence[Symbol]) -> Symbol:
    """Moves the best of the remaining elements to the front, k times; the first one of equal elements (TOPK-2, -3)."""
    (operand,) = operands
    is_less = TOTAL_LESS if instruction.operand_shapes[0].element_type.is_float else LESS
    values, indices = [], []
    for row in operand.reshape(-1, operand.shape[-1]) if operand.size else []:
        elements: list[Term] = [*row]
        positions = [constant(PrimitiveType.S32, i) for i in range(len(elements))]
        for done in range(op.k):
            for k in range(len(elements) - 1, done, -1):
                pair = (elements[k - 1], elements[k])
                better = apply(is_less, PrimitiveType.PRED, pair if op.largest else pair[::-1])
                for part in (elements, positions):
                    a, b = part[k - 1], part[k]
                    part[k - 1], part[k] = choose(better, b, a), choose(better, a, b)
        values += elements[: op.k]
        indices += positions[: op.k]
    sizes = (*operand.shape[:-1], op.k)
    return (array_of(values, sizes), array_of(indices, sizes))
