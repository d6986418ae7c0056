"""topk-decomposer: topk as a sort (spec 112)."""

from __future__ import annotations

from typing import ClassVar

from hloom.ir import Computation, Instruction, Module
from hloom.ops.attributes import ComparisonDirection, ComparisonType, SliceDimension
from hloom.ops.broadcast import Iota
from hloom.ops.compare import Compare
from hloom.ops.slice import Slice
from hloom.ops.sort import Sort, TopK
from hloom.passes.op_builder import OpBuilder, expand_each, new_computation
from hloom.shape import scalar
from hloom.system.records import record
from hloom.types import PrimitiveType


@record
class TopKDecomposer:
    """Before: topk(%x). After: a stable sort of %x together with its indices, and the first k of both.

    Floats are compared by total order. The whole rows are sorted, even if k is small.
    """

    name: ClassVar[str] = "topk-decomposer"

    def run(self, module: Module) -> int:
        """Decomposes the instructions; returns their number."""
        return expand_each(module, TopK, _decompose)


def _decompose(op: TopK, build: OpBuilder, old: Instruction, module: Module) -> Instruction:
    (operand,) = old.operands
    last = operand.shape.rank - 1
    indices = build(
        Iota(iota_dimension=last), shape=operand.shape.with_element_type(PrimitiveType.S32).without_layout()
    )
    comparator = _comparator(module, operand.shape.element_type, op.largest)
    ordered = build(Sort(dimension=last, is_stable=True, comparator=comparator), operand, indices)
    sizes = operand.shape.dimensions
    first = Slice(slice=(*(SliceDimension(0, size) for size in sizes[:last]), SliceDimension(0, op.k)))
    return build.tuple(*(build(first, build.element(ordered, k)) for k in range(2)))


def _comparator(module: Module, element_type: PrimitiveType, largest: bool) -> Computation:
    computation = new_computation(module, "best-first")
    build = OpBuilder.of(computation)
    left, right, *_ = (
        build.parameter(number, scalar(kind))
        for number, kind in enumerate([element_type] * 2 + [PrimitiveType.S32] * 2)
    )
    direction = ComparisonDirection.GT if largest else ComparisonDirection.LT
    build(Compare(direction=direction, type=ComparisonType.TOTALORDER if element_type.is_float else None), left, right)
    return computation
