"""scatter: updates are applied one by one, each wherever its start index may be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from hloom.ir import Instruction
from hloom.ops.scatter import Scatter
from hloom.prove.meanings.evaluator import RULES, Evaluator, Symbol
from hloom.prove.meanings.reads import equals
from hloom.prove.terms.functions import FALSE, both, choose
from hloom.prove.terms.normal import normal
from hloom.prove.terms.term import Term
from hloom.values import Array


@RULES.rule(Scatter)
def _scatter(op: Scatter, evaluator: Evaluator, instruction: Instruction, operands: Sequence[Symbol]) -> Symbol:
    """Applies the updates one by one, in the order of the index vectors (SCATTER-7)."""
    half = len(operands) // 2
    results, indices, updates = [o.copy() for o in operands[:half]], operands[half], operands[half + 1 :]
    batch = [u for u in range(updates[0].ndim) if u not in op.update_window_dims]
    order = [*batch, *op.update_window_dims]
    sizes = _along_window(op, updates[0].shape, results[0].ndim, 1)
    for position in np.ndindex(*(updates[0].shape[u] for u in order)):
        update = tuple(position[order.index(u)] for u in range(len(order)))
        starts = _scatter_starts(op, indices, [update[u] for u in batch])
        window = _window_offsets(op, update, [update[u] for u in batch], results[0].ndim)
        for target in np.ndindex(*results[0].shape):
            here = _is_target(target, starts, window, sizes, results[0].shape)
            if here is FALSE:
                continue
            new = evaluator.scalars(op.update_computation, [r[target] for r in results] + [u[update] for u in updates])
            for result, term in zip(results, new, strict=True):
                result[target] = choose(here, term, result[target])
    return tuple(results) if half > 1 else results[0]


def _scatter_starts(op: Scatter, indices: Array, batch: Sequence[int]) -> dict[int, Term]:
    """Returns the start index of each operand dimension that has one."""
    starts = {}
    for component, d in enumerate(op.scatter_dims_to_operand_dims):
        vector = list(batch)
        if op.index_vector_dim < indices.ndim:
            vector.insert(op.index_vector_dim, component)
        starts[d] = normal(indices[tuple(vector)])
    return starts


def _along_window(op: Scatter, values: Sequence[int], rank: int, otherwise: int) -> list[int]:
    """Returns a value for each operand dimension: that of its dimension of the updates, where the window has one."""
    found = [otherwise] * rank
    collapsed = {*op.inserted_window_dims, *op.input_batching_dims}
    for d, u in zip((d for d in range(rank) if d not in collapsed), op.update_window_dims, strict=True):
        found[d] = values[u]
    return found


def _window_offsets(op: Scatter, update: Sequence[int], batch: Sequence[int], rank: int) -> list[int]:
    """Returns the offset of an update in each operand dimension, before the start index is added."""
    offsets = _along_window(op, update, rank, 0)
    for d, source in zip(op.input_batching_dims, op.scatter_indices_batching_dims, strict=True):
        offsets[d] = batch[source - (source > op.index_vector_dim)]
    return offsets


def _is_target(
    target: Sequence[int],
    starts: Mapping[int, Term],
    offsets: Sequence[int],
    sizes: Sequence[int],
    shape: Sequence[int],
) -> Term:
    """Returns whether an update goes to `target` and its whole window is inside."""
    conditions: list[Term] = []
    for d, position in enumerate(target):
        start = position - offsets[d]
        if d not in starts:
            if start:
                return FALSE
        elif 0 <= start <= shape[d] - sizes[d]:
            conditions.append(equals(starts[d], start))
        else:
            return FALSE
    return both(conditions)
