"""The machine that programs are compiled for, and the cost model: caches, vectors, threads, and the work that pays.

Work is measured in additions: one is the time in which vector instructions add one element of f32 to another, both in
the cache. `Operation.cost` and `loops.nest.Nest.cost` are in this unit. A kernel that counts elements, multiply-adds or
bytes states what one of them costs in additions, as measured by the size from which its threads pay.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

CACHE_LINE = 64
"""Bytes of a cache line, and the alignment of arrays that programs allocate."""
L1_BYTES = 32 << 10
"""Bytes of the first-level cache of a core."""
L2_BYTES = 1 << 20
"""Bytes of the private cache of a core, into which blocks of operands have to fit."""
L3_BYTES = 32 << 20
"""Bytes of the last-level cache, beyond which arrays are read from memory."""

PAGE_BYTES = 4 << 10
"""Bytes of a page of memory, within which processors foresee reads."""

MAX_CACHED_ROW = 1 << 14
"""Elements of a row up to which it stays in the cache between two uses."""
MAX_CACHED_COLUMN = 256
"""Elements of a column up to which a vector of columns stays in the cache."""

MIN_PARALLEL_WORK = 10 << 14
"""Work, in additions, from which it pays to wake threads."""
MIN_TASK_WORK = 1 << 14
"""Work, in additions, of the smallest task that is worth its start."""
TASKS_PER_THREAD = 4
"""Tasks for each thread, so that threads that are done early take over some of another thread's."""

UnrollTable = tuple[tuple[float, int], ...]
"""Pairs, in ascending order: the cost of an iteration up to which the vector loop is unrolled, and by how much."""
UNROLLED_ROWS: UnrollTable = ((8, 8), (30, 4), (60, 2))
"""Unrolling of loops that reduce rows to scalars."""
UNROLLED_COLUMNS: UnrollTable = ((10, 8), (24, 4))
"""Unrolling of loops over columns that are reduced side by side, in nests with several results."""
UNROLLED_COLUMNS_ALONE: UnrollTable = (*UNROLLED_COLUMNS, (math.inf, 2))
"""Unrolling of such loops in nests with one result."""
MAX_UNROLLED_REDUCTION = 12
"""The largest number of iterations of a reduction that is unrolled."""
UNROLLED_ELEMENTS: UnrollTable = ((12, 2),)
"""Unrolling of other loops."""
UNROLLED_CHAINS: UnrollTable = (*UNROLLED_ELEMENTS, (50, 1), (math.inf, 2))
"""Unrolling of such loops in nests with one result and much work: long chains of dependent instructions overlap."""

ADDITION_RATE, MULTIPLY_ADD_RATE, MEMORY_RATE = 5e9, 2.5e10, 1e10
"""Rates that estimates of durations assume: additions, multiply-adds, and bytes read or written, in a second."""

UNROLLED_WORK: UnrollTable = (*UNROLLED_ELEMENTS, (math.inf, 4))
"""Unrolling of such loops with so much work that their longer code pays, on processors with wide registers: those look
some hundred instructions ahead, and find enough that can run only in several chains side by side."""
MIN_UNROLLED_WORK = 16 * MIN_PARALLEL_WORK
"""Work, in additions, of a call that pays for compiling longer code."""
WIDE_REGISTERS_BYTES = 32
"""Bytes of a vector register from which instructions keep their operands, one of which may be in memory: this spares
registers."""
MASK_REGISTERS_BYTES = 64
"""Bytes of a vector register from which processors have registers of masks."""


def min_masked_bits(vector_bytes: int) -> float:
    """The size in bits of the smallest elements with masked loads and stores; LLVM emits a branch a lane for others.

    AVX-512 has masks for all elements, AVX for those of 32 bits and more; other processors have none.
    """
    return 8 if vector_bytes >= MASK_REGISTERS_BYTES else 32 if vector_bytes == 32 else math.inf


def align_up(size: int, alignment: int) -> int:
    """Returns a size, offset or address rounded up to a multiple of an alignment."""
    return -(-size // alignment) * alignment


def unroll_factor(cost: float, table: UnrollTable) -> int:
    """Returns the number of vectors in an iteration of a loop, from the cost of one in additions."""
    return next((factor for limit, factor in table if cost <= limit), 1)


@dataclass(frozen=True, slots=True)
class Target:
    """Target of code generation: the bytes of a vector register, and the number of threads that share the work."""

    vector_bytes: int
    threads: int
    batch_invariant: bool = False
    """Whether sums are added up in an order that depends on the summed dimensions alone, not on how many sums there
    are."""
    has_lapack: bool = True
    """Whether programs may call LAPACK."""
    has_heap: bool = True
    """Whether programs may allocate memory."""

    @property
    def sum_lanes(self) -> int:
        """Number of partial sums of each batch-invariant sum of floats; 0 if sums may have any number."""
        return self.vector_bytes // 4 if self.batch_invariant else 0

    def is_worth_threads(self, work: float) -> bool:
        """Whether it pays to divide some work, in additions, among threads."""
        return self.threads > 1 and work >= MIN_PARALLEL_WORK

    def tasks(self, parts: int, work: float = math.inf) -> int:
        """Returns the number of tasks for some work, in additions, that has this many equal parts."""
        if not self.is_worth_threads(work):
            return 1
        return min(parts, TASKS_PER_THREAD * self.threads, int(min(work, 1 << 60)) // MIN_TASK_WORK)
