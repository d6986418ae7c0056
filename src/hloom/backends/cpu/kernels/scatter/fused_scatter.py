"""`scatter` into a repeated value, with updates computed where they are combined: a fusion whose root is the scatter.

Neither the updates nor the repeated value are arrays in memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from hloom.backends.cpu.elements.types import Element, register_type
from hloom.backends.cpu.kernels.code import KernelCode, entry_function
from hloom.backends.cpu.kernels.kernel_function import KernelFunction, task_function
from hloom.backends.cpu.kernels.products.computed.computed_operand import VECTOR, ComputedOperand, computed_operand
from hloom.backends.cpu.kernels.products.computed.operand_emitter import OperandEmitter
from hloom.backends.cpu.kernels.scalar_computation import ScalarComputation
from hloom.backends.cpu.kernels.scatter.scatter import MAX_PREFETCHED_LINES, TASK_COPY_BYTES, ScatterEmitter
from hloom.ir import Instruction
from hloom.lir import PTR, IndexValue, Value
from hloom.ops.broadcast import Broadcast
from hloom.ops.control_flow import Fusion
from hloom.ops.scatter import Scatter
from hloom.ops.structure import Constant, Parameter
from hloom.target import CACHE_LINE, Target
from hloom.types import PrimitiveType

TYPES = (PrimitiveType.F32, PrimitiveType.F64, PrimitiveType.S32, PrimitiveType.S64)


def emit(op: Fusion, name: str, instruction: Instruction, target: Target) -> KernelCode | None:
    """Returns the code of a fusion whose root is a scatter; None for other fusions."""
    if not isinstance(op.calls.root.op, Scatter):
        return None
    return _FusedScatter(op.calls.root.op, name, instruction, op.calls.root, target).code()


def can_compute(scatter: Instruction, sources: Sequence[Instruction]) -> bool:
    """Whether there is code for a scatter that computes its updates from these arrays: rows of a vector or more, in the
    order of the index vectors, that are added to whole rows of a repeated value.
    """
    op = scatter.op
    assert isinstance(op, Scatter)
    if len(scatter.operands) != 3 or _repeated_byte(scatter) is None:
        return False
    operand, indices, updates = scatter.operand_shapes
    window = len(op.update_window_dims)
    rows, rest = operand.rank - window, updates.rank - window
    is_in_order = op.update_window_dims == tuple(range(rest, updates.rank)) and op.index_vector_dim >= indices.rank - 1
    are_rows = op.inserted_window_dims == tuple(range(rows)) and {*op.scatter_dims_to_operand_dims} <= {*range(rows)}
    if not is_in_order or not are_rows or updates.dimensions[rest:] != operand.dimensions[rows:]:
        return False
    computation = ScalarComputation.of(op.update_computation)
    if computation is None or computation.calls_functions or operand.element_type not in TYPES:
        return False
    if math.prod(updates.dimensions[rest:]) < VECTOR or updates.element_type is not operand.element_type:
        return False
    computed = _computed_updates(scatter, sources)
    return computed.contiguous is computed.contracted


def _repeated_byte(scatter: Instruction) -> int | None:
    """Returns the byte that all bytes of a scatter's operand equal; None if there is none."""
    operand = scatter.operands[0]
    if not isinstance(operand.op, Broadcast) or not isinstance(operand.operands[0].op, Constant):
        return None
    found = {*np.ascontiguousarray(operand.operands[0].op.literal.value).tobytes()}
    return found.pop() if len(found) == 1 else None


def _computed_updates(scatter: Instruction, sources: Sequence[Instruction]) -> ComputedOperand:
    """Returns the updates in terms of index vectors, the free axis, and of elements of a window, the contracted one."""
    assert isinstance(scatter.op, Scatter)
    updates, rank = scatter.operands[2], scatter.operands[2].shape.rank
    first = rank - len(scatter.op.update_window_dims)
    return computed_operand(
        updates, ((), range(first), range(first, rank)), {source: k for k, source in enumerate(sources)}
    )


class _FusedScatter(ScatterEmitter):
    """Writes the functions of a fused scatter."""

    def __init__(self, op: Scatter, name: str, fusion: Instruction, scatter: Instruction, target: Target) -> None:
        computation, byte = ScalarComputation.of(op.update_computation), _repeated_byte(scatter)
        assert computation is not None and byte is not None and isinstance(fusion.op, Fusion)
        super().__init__(op, name, scatter, computation, target)
        self.fusion, self.byte, self.parameters = fusion, byte, fusion.op.calls.parameters
        self.updated = _computed_updates(scatter, self.parameters)
        self.size = math.prod(loop.size for loop in self.plan.window)

    def _entry(self) -> KernelFunction:
        return entry_function(self.name, self.fusion)

    def _unpack(self, f: KernelFunction) -> Value:
        *arrays, result, scratch = f.unpack(f["context"], *[PTR] * (len(self.parameters) + 2))
        indices = self.instruction.operands[1].op
        assert isinstance(indices, Parameter)
        self.indices, self.results = arrays[indices.number], [result]
        self.emitter = OperandEmitter(f, self.updated, arrays, register_type(self.types[0], self.lanes))
        return scratch

    def _copy(self, f: KernelFunction, k: int, on: tuple[Value, Value] | None) -> list[KernelFunction]:
        size = self.instruction.shape.byte_size
        if on is None or size < 2 * TASK_COPY_BYTES:
            f.fill(f["result0"], self.byte, size)
            return []
        f.run_chunks(f"{self.name}.fill", f.pack(f["result0"]), -(-size // TASK_COPY_BYTES), on)
        task = task_function(f"{self.name}.fill")
        (result,) = task.unpack(task["context"], PTR)
        start = task.multiply(task["chunk"], TASK_COPY_BYTES)
        task.fill(task.at(result, start, "i8"), self.byte, task.minimum(TASK_COPY_BYTES, task.subtract(size, start)))
        return [task]

    def _copy_bin(self, f: KernelFunction, elements: int) -> None:
        width = self.types[0].byte_width
        start = f.multiply(f["chunk"], elements * width)
        length = f.minimum(elements * width, f.subtract(self.instruction.shape.byte_size, start))
        f.fill(f.at(self.results[0], start, "i8"), self.byte, length)

    def _prefetch_update(self, f: KernelFunction, index: Value, size: int) -> None:
        step = CACHE_LINE // self.types[0].byte_width
        for element in range(0, min(size, MAX_PREFETCHED_LINES * step), step):
            row, at = (self.updated.free, index), (self.updated.contracted, element)
            self.emitter.prefetch((self.updated.batch, 0), row, at)

    @contextmanager
    def _at_window(self, f: KernelFunction, update: IndexValue) -> Iterator[None]:
        self.first = update
        with (
            self.emitter.at(self.updated.batch, 0),
            self.emitter.at(self.updated.free, f.divide(update, self.size)),
        ):
            yield

    def _updates(self, f: KernelFunction, update: IndexValue, lanes: int, mask: Value | None) -> list[Element]:
        axis = self.updated.contracted
        with self.emitter.lanes_along(axis, mask):
            (found,) = self.emitter.elements(axis, f.subtract(update, self.first), 1)
        return [*found]
