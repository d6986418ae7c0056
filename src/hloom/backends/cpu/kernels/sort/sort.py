"""`sort`: quicksort or radix sort if the comparator orders by one key, else merge sort."""

from __future__ import annotations

import math

from hloom.backends.cpu.kernels.code import KernelCode, code_of, entry_function, has_native_arrays
from hloom.backends.cpu.kernels.scalar_computation import ScalarComputation
from hloom.backends.cpu.kernels.sort import quick
from hloom.backends.cpu.kernels.sort.keys import sort_key
from hloom.backends.cpu.kernels.sort.records import ElementRecords, KeyedPositions, Records, Rows
from hloom.backends.cpu.kernels.sort.rows import MIN_RADIX_SIZE, SortRows
from hloom.ir import Instruction
from hloom.ops.sort import Sort
from hloom.target import Target

MAX_ROW = (1 << 31) - 1
"""Elements of the longest row: positions have 32 bits."""


def emit(op: Sort, name: str, instruction: Instruction, target: Target) -> KernelCode | None:
    """Returns the code of a sort; None if the comparator cannot be emitted, or rows are too long."""
    comparator = ScalarComputation.of(op.comparator)
    sizes = instruction.operands[0].shape.dimensions
    if comparator is None or not has_native_arrays(instruction) or sizes[op.dimension] > MAX_ROW:
        return None
    if 0 in sizes:
        return code_of(name, [entry_function(name, instruction)])
    stride = math.prod(sizes[op.dimension + 1 :])
    rows = Rows(math.prod(sizes) // sizes[op.dimension], sizes[op.dimension], stride)
    types = [shape.element_type for shape in instruction.operand_shapes]
    key = sort_key(comparator)
    records: Records = ElementRecords(types, comparator, key, rows)
    in_place = stride == 1
    sorts_elements = in_place and quick.supports(records, rows.size, target.vector_bytes)
    if key is not None and not sorts_elements and (len(types) > 1 or rows.size < MIN_RADIX_SIZE):
        records, in_place = KeyedPositions(types, key, rows), False
    return SortRows(name, instruction, rows, records, in_place, target).code()
