"""Rules of CHLO ops that are not HLO operations.

CHLO ops that are HLO operations (`chlo.erf`, `chlo.acos` ..) are rows of `stablehlo/operations.py`; special functions
are in `stablehlo/special_functions/`. `broadcast_add` and the like broadcast as NumPy does, or along
`broadcast_dimensions`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hloom.broadcasting import Broadcasting
from hloom.builder import XlaOp
from hloom.errors import ArgumentError
from hloom.ops.attributes import ComparisonDirection, ComparisonType
from hloom.ops.compare import Compare
from hloom.ops.elementwise_binary import Binary
from hloom.ops.operation import OPERATIONS
from hloom.ops.operation import Operation as HloOperation
from hloom.ops.scan import Scan
from hloom.ops.select import Select
from hloom.stablehlo.attributes.values import COMPARE_TYPE, DIRECTION, boolean, integer, integers, required
from hloom.stablehlo.importer.body import Body, Rule
from hloom.stablehlo.mlir.ir import DenseElements, Operation
from hloom.stablehlo.special_functions import FUNCTIONS
from hloom.stablehlo.special_functions.typed import scalar_like
from hloom.types import PrimitiveType

Ops = list[XlaOp]


# Broadcasting


def _broadcast(body: Body, operation: Operation, operands: Ops) -> Ops:
    """Broadcasts operands to their joint sizes, aligned at the last dimension or by `broadcast_dimensions`."""
    rank = max(operand.shape.rank for operand in operands)
    given = operation.attributes.get("broadcast_dimensions")
    dimension_maps: list[list[int]] = []
    for operand in operands:
        operand_rank = operand.shape.rank
        explicit = given is not None and operand_rank < rank
        dimension_maps.append(list(integers(given)) if explicit else list(range(rank - operand_rank, rank)))
        if len(dimension_maps[-1]) != operand_rank or any(not 0 <= d < rank for d in dimension_maps[-1]):
            raise ArgumentError(f"broadcast_dimensions {dimension_maps[-1]} do not fit {operand.shape}")
    sizes = [1] * rank
    for operand, dimensions in zip(operands, dimension_maps, strict=True):
        for size, d in zip(operand.shape.dimensions, dimensions, strict=True):
            if size != 1 and sizes[d] not in (1, size):
                raise ArgumentError(f"cannot broadcast {', '.join(str(o.shape) for o in operands)}")
            sizes[d] = size if size != 1 else sizes[d]
    return [
        body._widen(operand, Broadcasting.in_dim(operand.shape, sizes, dimensions))
        for operand, dimensions in zip(operands, dimension_maps, strict=True)
    ]


def _broadcasting(declaration: type[HloOperation]) -> Rule:
    def rule(body: Body, operation: Operation, operands: Ops) -> XlaOp:
        return body._add(declaration(), _broadcast(body, operation, operands))

    return rule


def _broadcast_function(function: Any) -> Rule:
    def rule(body: Body, operation: Operation, operands: Ops) -> XlaOp:
        if len(operands) != 2:
            raise ArgumentError(f"takes 2 operands, got {len(operands)}")
        return function(*_broadcast(body, operation, operands))

    return rule


def _broadcast_compare(body: Body, operation: Operation, operands: Ops) -> XlaOp:
    direction: ComparisonDirection = DIRECTION.read(required(operation.attributes, "comparison_direction"))
    given = operation.attributes.get("compare_type")
    kind: ComparisonType | None = None if given is None else COMPARE_TYPE.read(given)
    lhs, rhs = _broadcast(body, operation, operands)
    op = Compare(direction=direction, type=kind).canonical([lhs.shape, rhs.shape])
    return body._add(op, [lhs, rhs])


# Element-wise functions


def _function(function: Any, count: int = 1) -> Rule:
    """The rule of an op that is a function of `count` XlaOps."""

    def rule(body: Body, operation: Operation, operands: Ops) -> XlaOp:
        if len(operands) != count:
            raise ArgumentError(f"takes {count} operands, got {len(operands)}")
        return function(*operands)

    return rule


def _constant_like(body: Body, operation: Operation, operands: Ops) -> XlaOp:
    """Broadcasts the attribute's value to the sizes of the operand."""
    (operand,) = operands
    value = required(operation.attributes, "value")
    if isinstance(value, DenseElements):
        scalar = body.constant(value.values.reshape(-1)[:1].reshape(()))
    else:
        scalar = body.scalar(value, operation.results[0].type)
    return body.broadcast(scalar, operand.shape.dimensions)


def _square(x: XlaOp) -> XlaOp:
    return x.builder.mul(x, x)


def _conj(x: XlaOp) -> XlaOp:
    b = x.builder
    return b.complex(b.real(x), b.neg(b.imag(x))) if x.shape.element_type.is_complex else x


def _atan(x: XlaOp) -> XlaOp:
    """atan2(x, 1); for a complex z, (log(1 + iz) - log(1 - iz)) / 2i = -i atanh(iz)."""
    b = x.builder
    if not x.shape.element_type.is_complex:
        return b.atan2(x, b.broadcast(scalar_like(x, 1.0), x.shape.dimensions))
    atanh_iz = b.atanh(b.complex(b.neg(b.imag(x)), b.real(x)))
    return b.complex(b.imag(atanh_iz), b.neg(b.real(atanh_iz)))


def _is_inf(x: XlaOp) -> XlaOp:
    return x.builder.eq(x.builder.abs(x), scalar_like(x, np.inf))


def _is_positive_inf(x: XlaOp) -> XlaOp:
    return x.builder.eq(x, scalar_like(x, np.inf))


def _is_negative_inf(x: XlaOp) -> XlaOp:
    return x.builder.eq(x, scalar_like(x, -np.inf))


def _next_after(x: XlaOp, y: XlaOp) -> XlaOp:
    """The floating-point number next to x in the direction of y: the bit pattern plus or minus 1 (C's nextafter)."""
    b, bits = x.builder, x.shape.element_type.bits
    kind = PrimitiveType[f"S{bits}"]
    minimum = -(1 << bits - 1)

    def integer_like(value: int) -> XlaOp:
        return b.constant(np.asarray(value, kind.dtype))

    x_bits, y_bits = b.bitcast_convert_type(x, kind), b.bitcast_convert_type(y, kind)
    x_size, y_size = (b.and_(v, integer_like(~minimum)) for v in (x_bits, y_bits))
    x_sign, y_sign = (b.and_(v, integer_like(minimum)) for v in (x_bits, y_bits))
    shrinks = b.or_(b.gt(x_size, y_size), b.ne(x_sign, y_sign))
    stepped = b.add(
        x_bits, b.select(shrinks, b.broadcast(integer_like(-1), x.shape.dimensions), _ones(x_bits, integer_like(1)))
    )
    from_zero = b.select(b.eq(y_size, integer_like(0)), y_bits, b.or_(y_sign, integer_like(1)))
    moved = b.select(b.eq(x_size, integer_like(0)), from_zero, stepped)
    result = b.bitcast_convert_type(b.select(b.eq(x, y), y_bits, moved), x.shape.element_type)
    unordered = b.or_(b.ne(x, x), b.ne(y, y))
    nan = b.broadcast(scalar_like(x, np.nan), x.shape.dimensions)
    return b.select(unordered, nan, result)


def _ones(like: XlaOp, one: XlaOp) -> XlaOp:
    return like.builder.broadcast(one, like.shape.dimensions)


# Others


def _scan(body: Body, operation: Operation, operands: Ops) -> Ops:
    """Rule of `chlo.scan` and `mhlo.scan`, of inputs and initial carries; results are outputs and final carries."""
    attributes = operation.attributes
    segments = integers(required(attributes, "operandSegmentSizes"))
    fields: dict[str, Any] = {
        "scan_dimension": integer(required(attributes, "dimension")),
        "is_reverse": boolean(attributes.get("is_reverse", False)),
        "num_carries": segments[1],
        "computation": body.computation(operation.regions[0], "scan"),
    }
    if "is_associative" in attributes:
        fields["is_associative"] = f"TRI_STATE_{str(boolean(attributes['is_associative'])).upper()}"
    return body.emit(operation, Scan(**fields), operands)


RULES: dict[str, Rule] = {
    **{
        f"chlo.broadcast_{opcode.replace('-', '_')}": _broadcasting(declaration)
        for opcode, declaration in OPERATIONS.items()
        if issubclass(declaration, (Binary, Select))
    },
    "chlo.broadcast_compare": _broadcast_compare,
    "chlo.broadcast_next_after": _broadcast_function(_next_after),
    "chlo.broadcast_polygamma": _broadcast_function(FUNCTIONS["polygamma"]),
    "chlo.broadcast_zeta": _broadcast_function(FUNCTIONS["zeta"]),
    "chlo.constant_like": _constant_like,
    "chlo.square": _function(_square),
    "chlo.conj": _function(_conj),
    "chlo.atan": _function(_atan),
    "chlo.tan": _function(lambda x: x.builder.tan(x)),
    "chlo.is_inf": _function(_is_inf),
    "chlo.is_pos_inf": _function(_is_positive_inf),
    "chlo.is_neg_inf": _function(_is_negative_inf),
    "chlo.next_after": _function(_next_after, 2),
    **{f"chlo.{name}": _function(FUNCTIONS[name]) for name in ("lgamma", "digamma", "erfc", "erf_inv", "bessel_i1e")},
    **{f"chlo.{name}": _function(FUNCTIONS[name], 2) for name in ("zeta", "polygamma")},
    "chlo.scan": _scan,
    "mhlo.scan": _scan,
}
