"""The loops of a scatter: over index vectors, then over the window of each."""

from __future__ import annotations

import math

from hloom.affine import row_major_strides
from hloom.backends.cpu.kernels.scatter.bins import Bins, choose_bins
from hloom.backends.cpu.kernels.scatter.copies import Copies, choose_copies
from hloom.ir import Instruction
from hloom.ops.scatter import Scatter
from hloom.system.records import record
from hloom.target import CACHE_LINE, L2_BYTES, MIN_PARALLEL_WORK, Target

UPDATE_COST = 2.5
"""Cost of an element of the updates, in additions."""
MIN_WINDOW_VECTORS = 8
"""Vectors of a window from which it pays that each thread searches all index vectors for those of its part."""
MIN_SEARCH_THREADS = 4
"""Threads from which that pays for any window of a large operand."""
MIN_LARGE_OPERAND_BYTES = L2_BYTES
"""Bytes of an operand that is large: it does not fit a cache."""
MIN_BINNED_BYTES = 4 * L2_BYTES
"""Bytes of an operand from which it pays to sort index vectors, so that parts of it are updated in a cache."""
MIN_BINNED_ROW_BYTES = CACHE_LINE
"""Bytes of a window from which that pays."""
MIN_PART_BYTES = 64
"""Bytes of a window for each task, if tasks divide windows of whole vectors."""
MIN_FAR_ELEMENTS = 16
"""Elements of a window, each on a cache line of its own, from which reading the indices again for each of them pays."""
MAX_LANES = 16
"""Elements of the widest vector."""


@record(slots=True)
class ScatterLoop:
    """A loop, with the distance of its iterations in each of its arrays."""

    size: int
    strides: tuple[int, ...]


@record(slots=True)
class WindowStart:
    """A component of the index vectors: its offset in a vector, largest valid value, and stride in the operand.

    `extent` is the size of the window along its dimension of the operand.
    """

    offset: int
    limit: int
    stride: int
    extent: int


@record(slots=True)
class ScatterPlan:
    """The loops of a scatter: `batches` advance in (indices, updates, operand), `window` in (updates, operand).

    Loops over a window whose elements are far apart are the first of `batches`; each iteration reads all indices.
    """

    batches: list[ScatterLoop]
    starts: list[WindowStart]
    window: list[ScatterLoop]
    shares: int
    """The number of tasks, each of which has a part of the operand."""
    partitioned: WindowStart | ScatterLoop | None
    """The component of index vectors, first of `batches`, or last of `window` whose range tasks divide; None for one
    task.
    """

    prefetches: bool
    """Whether prefetching pays: the operand is large, and there is one loop over index vectors."""
    bins: Bins | None = None
    """The bins of index vectors, each of which is a task; None if index vectors are not sorted."""
    copies: Copies | None = None
    """The copies of the operand, one for each share of the only one of `batches`; None if tasks update the result."""

    @property
    def is_empty(self) -> bool:
        """Whether no window fits the operand, or windows have no elements."""
        return 0 in [loop.size for loop in (*self.batches, *self.window)] or any(s.limit < 0 for s in self.starts)


def plan_scatter(op: Scatter, instruction: Instruction, target: Target) -> ScatterPlan:
    """Returns the loops of a scatter, with its tasks."""
    count = (len(instruction.operands) - 1) // 2
    operand, indices, update = (instruction.operands[k].shape.dimensions for k in (0, count, count + 1))
    operand_strides, update_strides = row_major_strides(operand), row_major_strides(update)
    not_in_window = {*op.inserted_window_dims, *op.input_batching_dims}
    windowed = [d for d in range(len(operand)) if d not in not_in_window]
    extents = [1] * len(operand)
    window = []
    for u, d in zip(op.update_window_dims, windowed, strict=True):
        extents[d] = update[u]
        window.append(ScatterLoop(update[u], (update_strides[u], operand_strides[d])))
    index_strides = row_major_strides(indices)
    vector_stride = index_strides[op.index_vector_dim] if op.index_vector_dim < len(indices) else 0
    starts = [
        WindowStart(k * vector_stride, operand[d] - extents[d], operand_strides[d], extents[d])
        for k, d in enumerate(op.scatter_dims_to_operand_dims)
    ]
    far = _far_apart(op, instruction, dict(zip(windowed, window, strict=True)))
    batches = [ScatterLoop(loop.size, (0, *loop.strides)) for loop in far]
    batches += _batches(op, update, update_strides, index_strides, operand_strides)
    window = _collapsed([loop for loop in window if loop not in far])
    bins = _choose_bins(instruction, _collapsed(batches), starts, window, target)
    if bins is not None:
        return ScatterPlan(_collapsed(batches), starts, window, bins.count, None, False, bins)
    copies = _choose_copies(op, instruction, _collapsed(batches), window, target)
    if copies is not None:
        batches = _collapsed(batches)
        return ScatterPlan(batches, starts, window, copies.count, batches[0], False, copies=copies)
    partitioned = _choose_partitioned(instruction, batches, starts, window, target)
    keep_first = batches and partitioned is batches[0]
    collapsed = batches[:1] + _collapsed(batches[1:]) if keep_first else _collapsed(batches)
    is_contiguous = bool(window) and window[-1].strides == (1, 1) and bool(starts)
    is_large = instruction.operands[0].shape.byte_size >= MIN_LARGE_OPERAND_BYTES
    prefetches = is_large and is_contiguous and len(collapsed) == 1
    shares = target.threads if partitioned is not None else 1
    return ScatterPlan(collapsed, starts, window, shares, partitioned, prefetches)


def _choose_bins(
    instruction: Instruction,
    batches: list[ScatterLoop],
    starts: list[WindowStart],
    window: list[ScatterLoop],
    target: Target,
) -> Bins | None:
    """Returns bins if rows of a large operand are windows, and sorting them pays; else None."""
    operand = instruction.operands[0].shape
    size = math.prod(loop.size for loop in window)
    is_row = len(window) == 0 or (len(window) == 1 and window[0].strides == (1, 1))
    is_list = len(batches) == 1 and batches[0].strides[2] == 0
    if not is_row or not is_list or not size or operand.element_count % size:
        return None
    if not starts or any(start.extent != 1 or start.stride % size or start.limit < 0 for start in starts):
        return None
    row_bytes = size * operand.element_type.byte_width
    if operand.byte_size < MIN_BINNED_BYTES or row_bytes < MIN_BINNED_ROW_BYTES:
        return None
    return choose_bins(operand.element_count // size, row_bytes, batches[0].size, target)


def _choose_copies(
    op: Scatter, instruction: Instruction, batches: list[ScatterLoop], window: list[ScatterLoop], target: Target
) -> Copies | None:
    """Returns copies of the operand if there is much work, in short windows of one list of index vectors; else None."""
    updates = instruction.operand_shapes[-1]
    is_list = len(batches) == 1 and batches[0].strides[2] == 0 and len(instruction.operands) == 3
    is_much = updates.element_count * UPDATE_COST >= MIN_PARALLEL_WORK and _vectors(window) < MIN_WINDOW_VECTORS
    if target.batch_invariant or not is_list or not is_much:
        return None
    return choose_copies(instruction.operand_shapes[0], updates, op.update_computation)


def _far_apart(op: Scatter, instruction: Instruction, window: dict[int, ScatterLoop]) -> list[ScatterLoop]:
    """Returns the loops over a window, by dimension of the operand, if each element is on a cache line of its own.

    Windows start at 0 in their dimensions, so that each iteration writes elements that no other one writes.
    """
    operand, indices = instruction.operands[0].shape, instruction.operands[len(instruction.operands) // 2].shape
    loops = [loop for loop in window.values() if loop.size > 1]
    is_scattered = any(d in op.scatter_dims_to_operand_dims for d, loop in window.items() if loop in loops)
    is_far = all(loop.strides[1] * operand.element_type.byte_width >= CACHE_LINE for loop in loops)
    is_many = math.prod(loop.size for loop in loops) >= MIN_FAR_ELEMENTS
    return loops if is_many and is_far and not is_scattered and indices.byte_size <= L2_BYTES // 2 else []


def _batches(
    op: Scatter,
    update: tuple[int, ...],
    update_strides: list[int],
    index_strides: list[int],
    operand_strides: list[int],
) -> list[ScatterLoop]:
    """Returns a loop for each scatter dimension."""
    loops = []
    for k, u in enumerate(u for u in range(len(update)) if u not in op.update_window_dims):
        source = k + (k >= op.index_vector_dim)
        operand_stride = 0
        if source in op.scatter_indices_batching_dims:
            operand_stride = operand_strides[op.input_batching_dims[op.scatter_indices_batching_dims.index(source)]]
        loops.append(ScatterLoop(update[u], (index_strides[source], update_strides[u], operand_stride)))
    return loops


def _collapsed(loops: list[ScatterLoop]) -> list[ScatterLoop]:
    """Drops loops of one iteration, and joins two loops if the outer one continues where the inner one ends."""
    result: list[ScatterLoop] = []
    for loop in loops:
        if loop.size == 1:
            continue
        if result and all(o == loop.size * i for o, i in zip(result[-1].strides, loop.strides, strict=True)):
            result[-1] = ScatterLoop(result[-1].size * loop.size, loop.strides)
        else:
            result.append(loop)
    return result


def _vectors(window: list[ScatterLoop]) -> int:
    """Returns the iterations over a window, in vectors if its elements are contiguous."""
    width = MAX_LANES if window and window[-1].strides == (1, 1) else 1
    return math.prod(-(-loop.size // (width if loop is window[-1] else 1)) for loop in window)


def _choose_partitioned(
    instruction: Instruction,
    batches: list[ScatterLoop],
    starts: list[WindowStart],
    window: list[ScatterLoop],
    target: Target,
) -> WindowStart | ScatterLoop | None:
    """Chooses the range that tasks divide, so that no two write the same element; None for one task."""
    operand, update = instruction.operands[0].shape, instruction.operands[-1].shape
    threads = target.threads
    if not target.is_worth_threads(update.element_count * UPDATE_COST):
        return None
    if batches and batches[0].strides[2] and batches[0].size >= threads:
        return batches[0]
    if window and window[-1].strides == (1, 1):
        size = window[-1].size
        if size % MAX_LANES == 0 and size * operand.element_type.byte_width >= MIN_PART_BYTES * threads:
            return window[-1]
    search_pays = threads >= MIN_SEARCH_THREADS and operand.byte_size >= MIN_LARGE_OPERAND_BYTES
    if _vectors(window) < MIN_WINDOW_VECTORS and not search_pays:
        return None
    owners = [start for start in starts if start.extent == 1 and start.limit >= threads]
    return max(owners, key=lambda start: start.limit, default=None)
