"""Proposals for products of matrices, convolutions, transforms and factorisations."""

from __future__ import annotations

import numpy as np

from hloom.fuzz.grammar.body import Body
from hloom.fuzz.grammar.draw import Draw
from hloom.fuzz.grammar.proposals import proposal
from hloom.ir import Instruction
from hloom.ops.attributes import ConvolutionDimensionNumbers, FftType, Precision, Transpose, WindowDimension
from hloom.ops.batch_norm import BatchNormGrad, BatchNormInference, BatchNormTraining
from hloom.ops.convolution import Convolution
from hloom.ops.dot import Dot, RaggedDot, ScaledDot
from hloom.ops.fft import Fft
from hloom.ops.linear_algebra import Cholesky, TriangularSolve
from hloom.ops.operation import Operation
from hloom.shape import Shape
from hloom.types import FLOATS, FLOATS_COMPLEX, NUMERIC, PrimitiveType
from hloom.values import Array

PRECISIONS: tuple[tuple[Precision, ...], ...] = ((), (), (Precision.HIGHEST, Precision.HIGHEST))


@proposal(Dot)
def _dot(body: Body, declaration: type[Dot]) -> Instruction:
    """A dot of any array and one that is made for it; dimensions in any order."""
    draw = body.draw
    lhs = body.array("dot", NUMERIC, fits=lambda s: s.element_count <= 2000)
    roles = draw.shuffled(range(lhs.shape.rank))
    batch = [roles.pop() for _ in range(len(roles)) if draw.chance(0.25)]
    contracted = roles[: draw.between(0, min(2, len(roles)))]
    own = [(None, draw.pick((1, 2, 3, 5, 8, 17))) for _ in range(draw.between(0, 2))]
    rhs_dimensions = draw.shuffled([*((d, lhs.shape.dimensions[d]) for d in (*batch, *contracted)), *own])
    other, result = _types(draw, "dot", lhs.shape.element_type)
    rhs = body.want(Shape.array(other, [size for _, size in rhs_dimensions]))
    at = {d: position for position, (d, _) in enumerate(rhs_dimensions) if d is not None}
    op = Dot(
        lhs_batch_dims=tuple(batch),
        rhs_batch_dims=tuple(at[d] for d in batch),
        lhs_contracting_dims=tuple(contracted),
        rhs_contracting_dims=tuple(at[d] for d in contracted),
        operand_precision=draw.pick(PRECISIONS),
    )
    return body.add(op, lhs, rhs, shape=op.result_shape(lhs.shape, rhs.shape, result))


def _types(draw: Draw, opcode: str, lhs: PrimitiveType) -> tuple[PrimitiveType, PrimitiveType]:
    """Returns the types of the right side and the result of a product: most often those of the left side."""
    if draw.chance(0.7):
        return lhs, lhs
    return draw.pick((lhs, draw.element_type(opcode, NUMERIC))), draw.element_type(f"{opcode} to", NUMERIC)


@proposal(RaggedDot)
def _ragged_dot(body: Body, declaration: type[RaggedDot]) -> Instruction:
    draw = body.draw
    rows, shared, columns, groups = (draw.between(1, 6) for _ in range(4))
    element_type = draw.element_type("ragged-dot", NUMERIC)
    lhs = body.want(Shape.array(element_type, (rows, shared)))
    rhs = body.want(Shape.array(element_type, (groups, shared, columns)))
    ends = sorted(draw.between(0, rows) for _ in range(groups - 1))
    sizes = [b - a for a, b in zip([0, *ends], [*ends, rows], strict=True)]
    group_sizes = body.constant(_array(sizes))
    op = RaggedDot(lhs_contracting_dims=(1,), rhs_contracting_dims=(1,), lhs_ragged_dims=(0,), rhs_group_dims=(0,))
    return body.add(op, lhs, rhs, group_sizes, shape=Shape.array(element_type, (rows, columns)))


def _array(sizes: list[int]) -> Array:
    return np.asarray(sizes, np.int32)


@proposal(ScaledDot)
def _scaled_dot(body: Body, declaration: type[ScaledDot]) -> Instruction:
    draw = body.draw
    rows, blocks, block, columns = (draw.between(1, 4) for _ in range(4))
    element_type = draw.element_type("scaled-dot", FLOATS)
    scale_type = draw.pick((PrimitiveType.F8E8M0FNU, element_type))
    lhs = body.want(Shape.array(element_type, (rows, blocks * block)))
    rhs = body.want(Shape.array(element_type, (columns, blocks * block)))
    scales = [body.want(Shape.array(scale_type, (size, blocks))) for size in (rows, columns)]
    op = ScaledDot(lhs_contracting_dims=(1,), rhs_contracting_dims=(1,))
    return body.add(
        op, lhs, rhs, *scales, shape=Shape.array(draw.pick((PrimitiveType.F32, element_type)), (rows, columns))
    )


@proposal(Convolution)
def _convolution(body: Body, declaration: type[Convolution]) -> Instruction:
    draw = body.draw
    spatial = draw.weighted({0: 0.3, 1: 2, 2: 2, 3: 0.5})
    groups, batch_groups = draw.pick(((1, 1), (1, 1), (2, 1), (3, 1), (1, 2)))
    per_group, outputs = draw.between(1, 3), draw.between(1, 3) * groups * batch_groups
    layout = _dimension_numbers(draw, spatial)
    element_type = draw.element_type("convolution", NUMERIC)
    window = tuple(_window(draw) for _ in range(spatial))
    base = [draw.between(1, 9) for _ in range(spatial)]
    lhs_sizes = _in_order(
        (layout.input_batch_dimension, layout.input_feature_dimension, *layout.input_spatial_dimensions),
        (draw.between(1, 3) * batch_groups, per_group * groups, *base),
    )
    rhs_sizes = _in_order(
        (
            layout.kernel_output_feature_dimension,
            layout.kernel_input_feature_dimension,
            *layout.kernel_spatial_dimensions,
        ),
        (outputs, per_group, *(dimension.size for dimension in window)),
    )
    op = Convolution(
        window=window,
        dimension_numbers=layout,
        feature_group_count=groups,
        batch_group_count=batch_groups,
        operand_precision=draw.pick(PRECISIONS),
    )
    other, result = _types(draw, "convolution", element_type)
    lhs, rhs = body.want(Shape.array(element_type, lhs_sizes)), body.want(Shape.array(other, rhs_sizes))
    return body.add(op, lhs, rhs, shape=op.result_shape(lhs.shape, rhs.shape, result))


def _in_order(dimensions: tuple[int, ...], sizes: tuple[int, ...]) -> list[int]:
    return [size for _, size in sorted(zip(dimensions, sizes, strict=True))]


def _dimension_numbers(draw: Draw, spatial: int) -> ConvolutionDimensionNumbers:
    if draw.chance(0.5):
        return ConvolutionDimensionNumbers.default(spatial)
    lhs, rhs, result = (tuple(draw.shuffled(range(spatial + 2))) for _ in range(3))
    sides = (*lhs[:2], lhs[2:], *rhs[:2], rhs[2:], *result[:2], result[2:])
    return ConvolutionDimensionNumbers(*sides)  # type: ignore[arg-type]


def _window(draw: Draw) -> WindowDimension:
    return WindowDimension(
        size=draw.between(1, 4),
        stride=draw.pick((1, 1, 2, 3)),
        padding_low=draw.between(-1, 2),
        padding_high=draw.between(-1, 2),
        window_dilation=draw.pick((1, 1, 2)),
        base_dilation=draw.pick((1, 1, 2)),
        window_reversal=draw.chance(0.2),
    )


@proposal(Fft)
def _fft(body: Body, declaration: type[Fft]) -> Instruction:
    draw, kind = body.draw, body.draw.pick([*FftType])
    count = draw.between(1, 3)
    lengths = [draw.pick((1, 2, 3, 4, 5, 8, 12, 15)) for _ in range(count)]
    real, wide = draw.pick(((PrimitiveType.F32, PrimitiveType.C64), (PrimitiveType.F64, PrimitiveType.C128)))
    sizes = [*draw.sizes()[:1], *lengths]
    if kind is FftType.IRFFT:
        sizes[-1] = sizes[-1] // 2 + 1
    operand = body.want(Shape.array(real if kind is FftType.RFFT else wide, sizes))
    return body.add(Fft(fft_type=kind, fft_length=tuple(lengths)), operand)


@proposal(Cholesky)
def _cholesky(body: Body, declaration: type[Cholesky]) -> Instruction:
    """A factorisation of x x^H + c, so that there are results."""
    draw, size = body.draw, body.draw.between(1, 5)
    element_type = draw.element_type("cholesky", FLOATS_COMPLEX)
    x = body.want(Shape.array(element_type, (*draw.sizes()[:1], size, size)))
    return body.add(Cholesky(lower=draw.chance(0.5)), x)


@proposal(TriangularSolve)
def _triangular_solve(body: Body, declaration: type[TriangularSolve]) -> Instruction:
    draw, size, count = body.draw, body.draw.between(1, 5), body.draw.between(1, 4)
    element_type = draw.element_type("triangular-solve", FLOATS_COMPLEX)
    batch, left = draw.sizes()[:1], draw.chance(0.5)
    a = body.want(Shape.array(element_type, (*batch, size, size)))
    b = body.want(Shape.array(element_type, (*batch, size, count) if left else (*batch, count, size)))
    flags = {"lower": draw.chance(0.5), "unit_diagonal": draw.chance(0.4), "transpose_a": draw.pick([*Transpose])}
    return body.add(TriangularSolve(left_side=left, **flags), a, b)


@proposal(BatchNormTraining, BatchNormInference, BatchNormGrad)
def _batch_norm(body: Body, declaration: type[Operation]) -> Instruction:
    operand = body.array(declaration.opcode, FLOATS, low=1)
    feature = body.draw.below(operand.shape.rank)
    vector = Shape.array(operand.shape.element_type, (operand.shape.dimensions[feature],))
    others = [body.want(operand.shape if name == "grad_output" else vector) for name in [*declaration.operands][1:]]
    made = body.add(declaration(epsilon=body.draw.pick((0.001, 0.1)), feature_index=feature), operand, *others)
    body.opened(made)
    return made
