"""scan_expander: scans as counted while loops."""

from __future__ import annotations

from typing import ClassVar

from hloom.ir import Instruction, Module
from hloom.ops.control_flow import Call
from hloom.ops.elementwise_binary import Subtract
from hloom.ops.reshape import Reshape
from hloom.ops.rules import result_shapes
from hloom.ops.scan import Scan
from hloom.ops.slice import DynamicSlice, DynamicUpdateSlice
from hloom.passes.op_builder import OpBuilder, counted_loop, expand_each
from hloom.shape import Shape
from hloom.system.records import record
from hloom.types import PrimitiveType

S32 = PrimitiveType.S32


@record
class ScanExpander:
    """Before: scan(inputs.., carries..), to_apply=f. After: a while over (step, inputs.., carries.., outputs..).

    The body calls f on slices of the inputs and writes its results into slices of the outputs; `inline` removes the
    call. The loop has a known trip count. Associative scans become sequential loops too.
    """

    name: ClassVar[str] = "scan_expander"
    operations: ClassVar[tuple[type, ...]] = (Scan,)

    def run(self, module: Module) -> int:
        """Expands the scans; returns their number."""
        return expand_each(module, Scan, _expand)


def _expand(op: Scan, build: OpBuilder, old: Instruction, module: Module) -> Instruction:
    count = len(old.operands) - op.num_carries
    results = result_shapes(old.shape)
    outputs = [
        build.broadcast(build.constant(0, shape.element_type), shape)
        for shape in results[: len(results) - op.num_carries]
    ]
    trips = old.operands[0].shape.dimensions[op.scan_dimension]
    if trips == 0:
        carries = old.operands[count:]
        return build.tuple(*outputs, *carries) if old.shape.is_tuple else (*outputs, *carries)[0]

    def body(build: OpBuilder, step: Instruction, values: list[Instruction]) -> list[Instruction]:
        return _body(build, op, count, step, values)

    done = counted_loop(build, module, "scan", trips, [*old.operands, *outputs], body)
    elements = [*done[len(old.operands) :], *done[count : len(old.operands)]]
    return build.tuple(*elements) if old.shape.is_tuple else elements[0]


def _body(build: OpBuilder, op: Scan, count: int, step: Instruction, elements: list[Instruction]) -> list[Instruction]:
    """Builds one iteration; returns the inputs, carries and outputs after it."""
    arrays = count + op.num_carries
    inputs, carries, outputs = elements[:count], elements[count:arrays], elements[arrays:]
    trips = inputs[0].shape.dimensions[op.scan_dimension]
    index = build(Subtract(), build.constant(trips - 1, S32), step) if op.is_reverse else step
    slices = [_slice_at(build, array, op.scan_dimension, index) for array in inputs]
    values = build.elements(build(Call(computation=op.computation), *slices, *carries))
    stacked = [
        _write_at(build, array, new, op.scan_dimension, index)
        for array, new in zip(outputs, values[: len(outputs)], strict=True)
    ]
    return [*inputs, *values[len(outputs) :], *stacked]


def _starts(build: OpBuilder, rank: int, dimension: int, index: Instruction) -> list[Instruction]:
    zero = build.constant(0, S32)
    return [index if d == dimension else zero for d in range(rank)]


def _slice_at(build: OpBuilder, array: Instruction, dimension: int, index: Instruction) -> Instruction:
    sizes = tuple(1 if d == dimension else size for d, size in enumerate(array.shape.dimensions))
    part = build(DynamicSlice(size_indices=sizes), array, *_starts(build, len(sizes), dimension, index))
    return build(Reshape(), part, shape=array.shape.delete_dimensions([dimension]).without_layout())


def _write_at(
    build: OpBuilder, array: Instruction, new: Instruction, dimension: int, index: Instruction
) -> Instruction:
    sizes = [1 if d == dimension else size for d, size in enumerate(array.shape.dimensions)]
    update = build(Reshape(), new, shape=Shape.array(array.shape.element_type, sizes))
    return build(DynamicUpdateSlice(), array, update, *_starts(build, len(sizes), dimension, index))
