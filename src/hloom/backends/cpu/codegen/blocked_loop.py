"""Cache blocking of loops with element-wise bodies: all iterations run on one block, then on the next.

    while i < 30: z = f(z, c); n = g(n, z); i = i + 1        each iteration reads and writes the arrays in memory
->  for each block, on any thread: the same loop on the elements of the block, which stay in the cache

Scalars of the loop are copied for each block, so every task counts the iterations itself.
"""

from __future__ import annotations

from collections.abc import Iterator

from hloom.affine import Index
from hloom.backends.cpu.program.buffer_assignment import Assignment
from hloom.backends.cpu.program.program import Buffer, CopyStep, KernelStep, Step, WhileStep
from hloom.loops.expressions import Load
from hloom.loops.nest import Nest
from hloom.system.records import record
from hloom.target import L2_BYTES

BLOCK_BYTES = L2_BYTES // 8
"""Size in bytes of all arrays of a block, so that they fit the cache."""
MIN_BYTES = 1 << 16
"""Minimum total size of the arrays in bytes for which blocking pays."""
BLOCK_STEP = 256
"""Granularity of the block size in elements, a multiple of every vector length."""


@record(slots=True)
class BlockedLoop:
    """Blocking of a loop over `size` elements in blocks of `block`; `scalars` are modified by the loop."""

    size: int
    block: int
    scalars: list[Buffer]
    shared: list[Buffer]
    """All other buffers that the loop uses."""


def blocked_loop(loop: WhileStep, assignment: Assignment) -> BlockedLoop | None:
    """Returns the blocking of a loop, or None if an iteration combines different elements or the arrays are small."""
    steps = [*loop.condition, *loop.body]
    if not all(isinstance(step, (KernelStep, CopyStep)) for step in steps):
        return None
    written = dict.fromkeys(assignment.representative(b) for step in steps for b in step.writes)
    arrays = {buffer for buffer in written if buffer.byte_size > assignment.stack_bytes}
    scalars = [buffer for buffer in written if buffer not in arrays]
    if not arrays or any(buffer.kind != "temp" for buffer in scalars):
        return None
    sizes = {_element_count(buffer) for buffer in arrays}
    if len(sizes) != 1:
        return None
    (size,) = sizes
    if not all(_keeps_elements(step, assignment, arrays, size) for step in steps):
        return None
    accesses = [loop.predicate, *(b for step in steps for b in (*step.reads, *step.writes))]
    used = dict.fromkeys(map(assignment.representative, accesses))
    shared = [buffer for buffer in used if buffer not in set(scalars)]
    row = sum(buffer.byte_size for buffer in shared if _element_count(buffer) == size) // size
    if row * size < MIN_BYTES:
        return None
    block = max(BLOCK_STEP, BLOCK_BYTES // row // BLOCK_STEP * BLOCK_STEP)
    return BlockedLoop(size, block, scalars, shared)


def _element_count(buffer: Buffer) -> int:
    return buffer.byte_size // buffer.type.byte_width


def _keeps_elements(step: Step, assignment: Assignment, arrays: set[Buffer], size: int) -> bool:
    """Whether element i of each array that changes depends on elements i only, in a single loop over all."""
    representatives = [assignment.representative(buffer) for buffer in (*step.reads, *step.writes)]
    if not any(buffer in arrays for buffer in representatives):
        return True
    if isinstance(step, CopyStep):
        return True
    assert isinstance(step, KernelStep)
    if len(step.kernel.nests) != 1:
        return False
    nest = step.kernel.nests[0]
    if len(nest.loops) != 1 or nest.loops[0].extent != size or nest.schedule.transposed or nest.schedule.staged:
        return False
    variable = nest.loops[0]
    accessed = [(step.buffers[k], index) for k, index in _array_accesses(nest)]
    return all(index.is_atom(variable) for buffer, index in accessed if assignment.representative(buffer) in arrays)


def _array_accesses(nest: Nest) -> Iterator[tuple[int, Index]]:
    for store in nest.stores:
        yield store.buffer, store.index
    for expression in nest.all_expressions:
        if isinstance(expression, Load):
            yield expression.buffer, expression.index


def is_blocked_step(step: Step, assignment: Assignment, blocked: BlockedLoop) -> bool:
    """Whether the step works on elements of the block, rather than on scalars."""
    return any(
        assignment.representative(buffer).byte_size > assignment.stack_bytes
        and _element_count(assignment.representative(buffer)) == blocked.size
        for buffer in step.writes
    )
