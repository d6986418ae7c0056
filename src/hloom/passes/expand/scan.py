"""scan_expander: scan as a counted loop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hloom.ir import Computation, Instruction, Module
from hloom.ops.attributes import ComparisonDirection
from hloom.ops.compare import Compare
from hloom.ops.control_flow import Call, While
from hloom.ops.elementwise_binary import Add, Subtract
from hloom.ops.reshape import Reshape
from hloom.ops.scan import Scan
from hloom.ops.slice import DynamicSlice, DynamicUpdateSlice
from hloom.passes.expand.maker import Maker, expand_all, new_computation
from hloom.shape import Shape
from hloom.types import PrimitiveType

S32 = PrimitiveType.S32


@dataclass(frozen=True)
class ScanExpander:
    """Before: scan(inputs.., carries..), to_apply=f. After: a while over (step, inputs.., carries.., outputs..).

    Its body calls f on slices of the inputs and writes what it gives into the outputs; `inline` removes the call. The
    loop has a known trip count. Associative scans are loops too.
    """

    name: ClassVar[str] = "scan_expander"

    def run(self, module: Module) -> int:
        return expand_all(module, {"scan": _expand})


def _expand(make: Maker, old: Instruction, module: Module) -> Instruction:
    op = old.op
    assert isinstance(op, Scan)
    count = len(old.operands) - op.num_carries
    results = old.shape.elements if old.shape.is_tuple else (old.shape,)
    outputs = [
        make.broadcast(make.constant(0, shape.element_type), shape)
        for shape in results[: len(results) - op.num_carries]
    ]
    trips = old.operands[0].shape.dimensions[op.scan_dimension]
    if trips == 0:
        carries = old.operands[count:]
        return make.tuple(*outputs, *carries) if old.shape.is_tuple else (*outputs, *carries)[0]
    init = make.tuple(make.constant(0, S32), *old.operands, *outputs)
    loop = While(
        condition=_condition(module, init.shape, trips), body=_body(module, op, init.shape, count, len(outputs), trips)
    )
    last = make(loop, init)
    first_carry, first_output = 1 + count, 1 + len(old.operands)
    order = [*range(first_output, first_output + len(outputs)), *range(first_carry, first_output)]
    elements = [make.element(last, k) for k in order]
    return make.tuple(*elements) if old.shape.is_tuple else elements[0]


def _condition(module: Module, shape: Shape, trips: int) -> Computation:
    computation = new_computation(module, "scan-condition")
    make = Maker.of(computation)
    step = make.element(make.parameter(0, shape), 0)
    make(Compare(direction=ComparisonDirection.LT), step, make.constant(trips, S32))
    return computation


def _body(module: Module, op: Scan, shape: Shape, count: int, outputs: int, trips: int) -> Computation:
    computation = new_computation(module, "scan-body")
    make = Maker.of(computation)
    state = make.parameter(0, shape)
    elements = [make.element(state, k) for k in range(len(shape.elements))]
    step, inputs, carries = elements[0], elements[1 : 1 + count], elements[1 + count : len(elements) - outputs]
    place = make(Subtract(), make.constant(trips - 1, S32), step) if op.is_reverse else step
    slices = [_slice_at(make, array, op.scan_dimension, place) for array in inputs]
    value = make(Call(computation=op.computation), *slices, *carries)
    is_tuple = value.shape.is_tuple
    values = [make.element(value, k) for k in range(len(value.shape.elements))] if is_tuple else [value]
    stacked = [
        _write_at(make, array, new, op.scan_dimension, place)
        for array, new in zip(elements[len(elements) - outputs :], values[:outputs], strict=True)
    ]
    make.tuple(make(Add(), step, make.constant(1, S32)), *inputs, *values[outputs:], *stacked)
    return computation


def _starts(make: Maker, rank: int, dimension: int, place: Instruction) -> list[Instruction]:
    zero = make.constant(0, S32)
    return [place if d == dimension else zero for d in range(rank)]


def _slice_at(make: Maker, array: Instruction, dimension: int, place: Instruction) -> Instruction:
    sizes = tuple(1 if d == dimension else size for d, size in enumerate(array.shape.dimensions))
    part = make(DynamicSlice(size_indices=sizes), array, *_starts(make, len(sizes), dimension, place))
    return make(Reshape(), part, shape=array.shape.delete_dimensions([dimension]).without_layout())


def _write_at(make: Maker, array: Instruction, new: Instruction, dimension: int, place: Instruction) -> Instruction:
    sizes = [1 if d == dimension else size for d, size in enumerate(array.shape.dimensions)]
    update = make(Reshape(), new, shape=Shape.array(array.shape.element_type, sizes))
    return make(DynamicUpdateSlice(), array, update, *_starts(make, len(sizes), dimension, place))
