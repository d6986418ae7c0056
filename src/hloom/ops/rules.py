"""Checks shared by many operations. The first argument is the operation, which RuleErrors name beside the clause."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hloom.ops.context import Computation
from hloom.ops.operation import Operation
from hloom.shape import Shape, scalar
from hloom.types import PrimitiveType


def check_array(op: Operation, clause: str, *shapes: Shape) -> None:
    """Checks that all shapes are arrays: no tuples, tokens or opaque values."""
    for shape in shapes:
        if not shape.is_array:
            op.reject(clause, f"takes arrays, got {shape}")


def check_moved(op: Operation, clause: str, operand: Shape, result: Shape) -> None:
    """Checks that operand and result are arrays of one element type (GEN-5)."""
    check_array(op, clause, operand, result)
    if operand.element_type is not result.element_type:
        op.reject("GEN-5", f"the element type stays: got {result} from {operand}")


def check_dimension(op: Operation, clause: str, dimension: int, rank: int, what: str = "dimension") -> None:
    """Checks that a dimension is in [0, rank) (GEN-4)."""
    if not 0 <= dimension < rank:
        valid = f"must be in [0, {rank})" if rank else "cannot be given for a scalar (rank 0)"
        op.reject(clause, f"{what} {dimension} {valid}")


def check_dimensions(
    op: Operation, clause: str, dimensions: Sequence[int], rank: int, what: str = "dimensions", increasing: bool = False
) -> None:
    """Checks that dimensions are in [0, rank) and distinct (GEN-4), and increasing if required."""
    for dimension in dimensions:
        check_dimension(op, clause, dimension, rank, what)
    if len(set(dimensions)) != len(dimensions):
        op.reject(clause, f"{what} must be distinct, got {list(dimensions)}")
    if increasing and list(dimensions) != sorted(dimensions):
        op.reject(clause, f"{what} must be increasing, got {list(dimensions)}")


def check_same_type(op: Operation, clause: str, *shapes: Shape) -> None:
    """Checks that all operands have the same element type (GEN-5)."""
    if len({shape.element_type for shape in shapes}) > 1:
        op.reject(clause, f"element types must be equal, got {', '.join(map(str, shapes))}")


def check_computation(
    op: Operation,
    clause: str,
    computation: Computation,
    parameters: Iterable[Shape],
    result: Shape | None,
    what: str = "to_apply",
) -> None:
    """Checks the signature of a computation: parameter shapes, and the result shape unless None (GEN-8)."""
    want = list(parameters)
    got = computation.parameter_shapes
    if len(got) != len(want) or not all(a.compatible(b) for a, b in zip(got, want, strict=True)):
        op.reject(clause, f"{what} {computation.name} must take {listed(want)}, it takes {listed(got)}")
    if result is not None and not computation.result_shape.compatible(result):
        op.reject(clause, f"{what} {computation.name} must return {result}, it returns {computation.result_shape}")


def listed(shapes: Sequence[Shape]) -> str:
    """The text of shapes: `(f32[2], s32[])`."""
    return f"({', '.join(map(str, shapes))})"


def result_shape(shapes: Sequence[Shape]) -> Shape:
    """Returns the shape of an operation with these results: that of the only one, or a tuple."""
    return shapes[0] if len(shapes) == 1 else Shape.tuple_of(shapes)


def result_shapes(shape: Shape) -> tuple[Shape, ...]:
    """Returns the shapes of the results of an operation: the elements of a tuple, or the shape itself."""
    return shape.elements if shape.is_tuple else (shape,)


def reduction_signature(types: Sequence[PrimitiveType]) -> tuple[list[Shape], Shape]:
    """Returns the parameter and result shapes of a combiner of arrays of these types (REDUCE-2)."""
    scalars = [scalar(t) for t in types]
    return scalars * 2, result_shape(scalars)
