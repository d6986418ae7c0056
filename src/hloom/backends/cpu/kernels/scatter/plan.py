"""The loops of a scatter: over index vectors, then over the window that each of them places."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from hloom.ir import Instruction
from hloom.loops.pull import row_major_strides

MIN_PARALLEL_ELEMENTS = 1 << 16
"""So many updates are worth several threads."""
MIN_WINDOW_VECTORS = 8
"""Windows of fewer vectors cost less than finding out whose they are, unless there are MANY_THREADS."""
MIN_SEARCH_THREADS = 4
MIN_LARGE_OPERAND_BYTES = 1 << 20
"""And unless the operand does not fit a cache."""
MIN_PART_BYTES = 64
"""Bytes of a window that a task takes at least, where tasks divide windows of whole vectors."""
MAX_LANES = 16


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop, and how far each step of it moves in every array it concerns."""

    size: int
    strides: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Start:
    """A component of the index vectors: its place in a vector, the largest valid start, and what a step moves."""

    offset: int
    limit: int
    stride: int
    extent: int


@dataclass(frozen=True, slots=True)
class ScatterPlan:
    """`batches` move in (indices, updates, operand), `window` in (updates, operand); neighbouring loops are joined."""

    batches: list[Loop]
    starts: list[Start]
    window: list[Loop]
    shares: int
    """Into how many tasks the operand is divided."""
    partitioned: Start | Loop | None
    """What they divide: positions of a component of index vectors, the first of `batches`, or the last of `window`."""

    prefetches: bool
    """Whether it pays to ask for places ahead: the operand is large, and there is one loop over index vectors."""

    @property
    def is_empty(self) -> bool:
        """Whether no window lies inside, or no element in a window."""
        return 0 in [loop.size for loop in (*self.batches, *self.window)] or any(s.limit < 0 for s in self.starts)


def plan_scatter(instruction: Instruction, threads: int) -> ScatterPlan:
    """The loops of a scatter, with its tasks."""
    op: Any = instruction.op
    count = (len(instruction.operands) - 1) // 2
    operand, indices, update = (instruction.operands[k].shape.dimensions for k in (0, count, count + 1))
    operand_strides, update_strides = row_major_strides(operand), row_major_strides(update)
    not_in_window = {*op.inserted_window_dims, *op.input_batching_dims}
    windowed = [d for d in range(len(operand)) if d not in not_in_window]
    extents = [1] * len(operand)
    window = []
    for u, d in zip(op.update_window_dims, windowed, strict=True):
        extents[d] = update[u]
        window.append(Loop(update[u], (update_strides[u], operand_strides[d])))
    index_strides = row_major_strides(indices)
    vector_stride = index_strides[op.index_vector_dim] if op.index_vector_dim < len(indices) else 0
    starts = [
        Start(k * vector_stride, operand[d] - extents[d], operand_strides[d], extents[d])
        for k, d in enumerate(op.scatter_dims_to_operand_dims)
    ]
    batches = _batches(op, update, update_strides, index_strides, operand_strides)
    window = _collapsed(window)
    partitioned = _choose_partitioned(instruction, batches, starts, window, threads)
    keep_first = batches and partitioned is batches[0]
    collapsed = batches[:1] + _collapsed(batches[1:]) if keep_first else _collapsed(batches)
    is_contiguous = bool(window) and window[-1].strides == (1, 1) and bool(starts)
    is_large = instruction.operands[0].shape.byte_size >= MIN_LARGE_OPERAND_BYTES
    prefetches = is_large and is_contiguous and len(collapsed) == 1
    return ScatterPlan(collapsed, starts, window, threads if partitioned is not None else 1, partitioned, prefetches)


def _batches(
    op: Any, update: tuple[int, ...], update_strides: list[int], index_strides: list[int], operand_strides: list[int]
) -> list[Loop]:
    """A loop for each scatter dimension."""
    loops = []
    for k, u in enumerate(u for u in range(len(update)) if u not in op.update_window_dims):
        source = k + (k >= op.index_vector_dim)
        operand_stride = 0
        if source in op.scatter_indices_batching_dims:
            operand_stride = operand_strides[op.input_batching_dims[op.scatter_indices_batching_dims.index(source)]]
        loops.append(Loop(update[u], (index_strides[source], update_strides[u], operand_stride)))
    return loops


def _collapsed(loops: list[Loop]) -> list[Loop]:
    """Loops without those of one step; two are one where the outer goes on where the inner ends."""
    result: list[Loop] = []
    for loop in loops:
        if loop.size == 1:
            continue
        if result and all(o == loop.size * i for o, i in zip(result[-1].strides, loop.strides, strict=True)):
            result[-1] = Loop(result[-1].size * loop.size, loop.strides)
        else:
            result.append(loop)
    return result


def _vectors(window: list[Loop]) -> int:
    """So many steps a window takes, by vectors where its elements lie side by side."""
    width = MAX_LANES if window and window[-1].strides == (1, 1) else 1
    return math.prod(-(-loop.size // (width if loop is window[-1] else 1)) for loop in window)


def _choose_partitioned(
    instruction: Instruction, batches: list[Loop], starts: list[Start], window: list[Loop], threads: int
) -> Start | Loop | None:
    """What tasks divide, such that no two write the same place; None where one thread does it all."""
    operand, update = instruction.operands[0].shape, instruction.operands[-1].shape
    elements = update.element_count
    if threads == 1 or elements < MIN_PARALLEL_ELEMENTS:
        return None
    if batches and batches[0].strides[2] and batches[0].size >= threads:
        return batches[0]
    if window and window[-1].strides == (1, 1):
        size = window[-1].size
        if size % MAX_LANES == 0 and size * operand.element_type.byte_width >= MIN_PART_BYTES * threads:
            return window[-1]
    is_worth_search = threads >= MIN_SEARCH_THREADS and operand.byte_size >= MIN_LARGE_OPERAND_BYTES
    if _vectors(window) < MIN_WINDOW_VECTORS and not is_worth_search:
        return None
    owners = [start for start in starts if start.extent == 1 and start.limit >= threads]
    return max(owners, key=lambda start: start.limit, default=None)
