"""Rules of ops on values and shapes: `RULES`, by op name."""

from __future__ import annotations

import numpy as np

from hloom.broadcasting import Broadcasting
from hloom.builder import XlaOp
from hloom.errors import ArgumentError
from hloom.ops.broadcast import Broadcast
from hloom.ops.dynamic_size import SetDimensionSize
from hloom.ops.elementwise_binary import Maximum, Minimum
from hloom.ops.structure import AfterAll, Tuple
from hloom.shape import Shape
from hloom.stablehlo.attributes.values import integer, integers, required
from hloom.stablehlo.importer.body import Body, Rule
from hloom.stablehlo.importer.rules import dynamic
from hloom.stablehlo.mlir.ir import DenseElements, ElidedElements, Number, Operation, TensorType
from hloom.stablehlo.mlir.types import shape_of
from hloom.stablehlo.operations import BY_NAME
from hloom.types import PrimitiveType

Ops = list[XlaOp]


def _constant(body: Body, operation: Operation, operands: Ops) -> XlaOp:
    value = required(operation.attributes, "value")
    if isinstance(value, ElidedElements):
        return body.elided(shape_of(value.type))
    if isinstance(value, (bool, Number)):
        return body.scalar(value, operation.results[0].type)
    if not isinstance(value, DenseElements):
        raise ArgumentError(f"value is dense<..>, got {value!r}")
    return body.dense(value)


def _iota(body: Body, operation: Operation, operands: Ops) -> XlaOp:
    return body.iota(shape_of(operation.results[0].type), integer(required(operation.attributes, "iota_dimension")))


def _broadcast_in_dim(body: Body, operation: Operation, operands: Ops) -> XlaOp:
    """Drops dimensions of size 1 that are stretched, since HLO's broadcast does not stretch them."""
    operand, dimensions = dynamic.in_result_order(body, operation, operands[0])
    operands = [operand]
    shape = shape_of(operation.results[0].type)
    if shape.is_dynamic:
        return body.emit(operation, Broadcast(broadcast_dimensions=tuple(dimensions)), operands)[0]
    plan = Broadcasting.in_dim(operand.shape, shape.dimensions, dimensions)
    if plan.expanded:
        return body.broadcast_in_dim(operand, shape.dimensions, dimensions)
    return body._add(Broadcast(broadcast_dimensions=tuple(dimensions)), operands, plan.shape)


def _broadcast(body: Body, operation: Operation, operands: Ops) -> XlaOp:
    return body.broadcast(operands[0], integers(required(operation.attributes, "broadcast_sizes")))


def _convert(body: Body, operation: Operation, operands: Ops) -> Ops:
    """Converts element types; complex to real takes the real part."""
    (operand,), shape = operands, operands[0].shape
    declared = operation.results[0].type
    assert isinstance(declared, TensorType)
    element_type = shape_of(TensorType((), declared.element_type)).element_type
    if shape.element_type.is_complex and not element_type.is_complex:
        operand = body.real(operand)
    return [body.convert_element_type(operand, element_type)]


def _cbrt(body: Body, operation: Operation, operands: Ops) -> Ops:
    """The principal cube root of a complex z, e^(log(z) / 3), and 0 for 0."""
    (operand,) = operands
    if not operand.shape.element_type.is_complex:
        return body.row(BY_NAME["cbrt"], operation, operands)
    third = body.constant(np.asarray(1 / 3, operand.shape.element_type.dtype))
    root = body.exp(body.mul(body.log(operand), third))
    zero = body.zeros(operand.shape)
    return [body.select(body.eq(operand, zero), zero, root)]


def _extremum(declaration: type[Maximum | Minimum]) -> Rule:
    """The rule of maximum and minimum; complex numbers are ordered by real, then imaginary part."""

    def rule(body: Body, operation: Operation, operands: Ops) -> XlaOp:
        lhs, rhs = operands
        if not lhs.shape.element_type.is_complex:
            return body._add(declaration(), operands)
        first, second = (lhs, rhs) if declaration is Maximum else (rhs, lhs)
        same = body.eq(body.real(first), body.real(second))
        greater = body.or_(
            body.gt(body.real(first), body.real(second)),
            body.and_(same, body.gt(body.imag(first), body.imag(second))),
        )
        return body.select(greater, lhs, rhs)

    return rule


def _rng_bit_generator(body: Body, operation: Operation, operands: Ops) -> Ops:
    """Converts random bits to floats of the same width: HLO's random bits are integers (RNGBITGENERATOR-8)."""
    state, data = (shape_of(type_) for type_ in operation.result_types)
    kind = data.element_type
    bits = data if not kind.is_float else data.with_element_type(kind.unsigned)
    row = BY_NAME["rng_bit_generator"]
    op = row.declaration(**row.fields(operation.attributes, ()))
    result = body._add(op, operands, Shape.tuple_of([state, bits]))
    values = body.elements(result, 2)
    return values if bits is data else [values[0], body.bitcast_convert_type(values[1], kind)]


def _set_dimension_size(body: Body, operation: Operation, operands: Ops) -> XlaOp:
    operand, size = operands
    value = body.constant_of(size)
    if value is not None:
        size = body.constant(np.int32(value.reshape(())))
    dimension = integer(required(operation.attributes, "dimension"))
    size = body._operand(size, PrimitiveType.S32)
    (declared,) = (shape_of(type_) for type_ in operation.result_types)
    if declared.is_unbounded:
        return body.set_dimension_size(operand, size, dimension)
    # A constant size that is the bound makes the dimension static, or leaves it dynamic: the type says which.
    return body._add(SetDimensionSize(dimension=dimension), (operand, size), declared)


def _sort(body: Body, operation: Operation, operands: Ops) -> Ops:
    """Adds a sort, whose dimension may count from the end."""
    row = BY_NAME["sort"]
    fields = row.fields(operation.attributes, [operand.shape for operand in operands])
    rank = operands[0].shape.rank if operands else 0
    if not -rank <= fields["dimension"] < rank:
        raise ArgumentError(f"dimension {fields['dimension']} must be in [-{rank}, {rank})")
    fields["dimension"] %= rank
    comparator = body.computation(operation.regions[0], "comparator")
    return body.emit(operation, row.declaration(**fields, comparator=comparator), operands)


def _optimization_barrier(body: Body, operation: Operation, operands: Ops) -> Ops:
    if len(operands) == 1:
        return [body.optimization_barrier(operands[0])]
    barrier = body.optimization_barrier(body.tuple(*operands) if operands else body._add(Tuple(), ()))
    return body.elements(barrier, len(operands))


def _create_token(body: Body, operation: Operation, operands: Ops) -> XlaOp:
    return body._add(AfterAll(), ())


def _rng(body: Body, operation: Operation, operands: Ops) -> Ops:
    """Adds an rng; the sizes come from the third operand or the result's type."""
    row = BY_NAME["rng"]
    sizes = dynamic.result_sizes(body, operation, operands[2])
    shape = Shape.array(operands[0].shape.element_type, sizes)
    drawn = body._add(row.declaration(**row.fields(operation.attributes, ())), operands[:2], shape)
    return [dynamic.with_sizes(body, drawn, operands[2])]


RULES: dict[str, Rule] = {
    "stablehlo.constant": _constant,
    "stablehlo.iota": _iota,
    "stablehlo.broadcast_in_dim": _broadcast_in_dim,
    "stablehlo.broadcast": _broadcast,
    "stablehlo.convert": _convert,
    "stablehlo.cbrt": _cbrt,
    "stablehlo.maximum": _extremum(Maximum),
    "stablehlo.minimum": _extremum(Minimum),
    "stablehlo.set_dimension_size": _set_dimension_size,
    "stablehlo.sort": _sort,
    "stablehlo.optimization_barrier": _optimization_barrier,
    "stablehlo.create_token": _create_token,
    "stablehlo.rng": _rng,
    "stablehlo.rng_bit_generator": _rng_bit_generator,
    **dict.fromkeys(("chlo.constant", "arith.constant", "sdy.constant", "shape.const_shape"), _constant),
}
