"""Patterns: groups of operations that passes and kernels recognise, which single draws seldom put together.

    @pattern
    def _softmax(body: Body) -> Instruction: ...

`grow` draws one now and then. Operands, sizes and types are drawn as for operations.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from hloom.fuzz.grammar.applied import monoid, running_window, sort
from hloom.fuzz.grammar.body import Body
from hloom.fuzz.grammar.control import loop
from hloom.fuzz.grammar.draw import Draw
from hloom.fuzz.grammar.proposals import grow, pattern
from hloom.fuzz.grammar.steps import (
    broadcast,
    cast,
    comparison,
    index_along,
    integer,
    number,
    product,
    reduction,
    row_of,
    shifted,
)
from hloom.ir import Instruction
from hloom.ops.attributes import ComparisonDirection, ConvolutionDimensionNumbers, FftType, WindowDimension
from hloom.ops.convolution import Convolution
from hloom.ops.elementwise_binary import (
    Add,
    And,
    Divide,
    Maximum,
    Minimum,
    Multiply,
    Remainder,
    ShiftRightLogical,
    Subtract,
)
from hloom.ops.elementwise_unary import Exponential, Logistic, Rsqrt, Tanh
from hloom.ops.fft import Fft
from hloom.ops.gather import Gather
from hloom.ops.linear_algebra import Cholesky, TriangularSolve
from hloom.ops.pad import Concatenate
from hloom.ops.reduce_window import ReduceWindow
from hloom.ops.reshape import Reshape
from hloom.ops.scatter import Scatter
from hloom.ops.select import Select
from hloom.ops.slice import DynamicSlice, DynamicUpdateSlice
from hloom.ops.sort import TopK
from hloom.ops.transpose import Transpose
from hloom.shape import Shape, scalar
from hloom.types import FLOATS, REALS, Kind, PrimitiveType

WIDE = (PrimitiveType.F32, PrimitiveType.F32, PrimitiveType.BF16, PrimitiveType.F64, PrimitiveType.F16)
"""Element types of layers."""
NARROW = tuple(PrimitiveType[name] for name in ("S8", "S8", "U8", "S4", "U4", "F8E4M3FN", "F8E5M2", "S2"))
"""Element types of quantised weights."""
IMAGES = ConvolutionDimensionNumbers(0, 3, (1, 2), 3, 2, (0, 1), 0, 3, (1, 2))
"""The dimensions of images, windows and results, channels last."""
TRANSFORMS = (7, 11, 16, 24, 31, 32, 37, 64, 74, 97, 128, 243, 512)
"""Lengths of Fourier transforms: small radices, large ones, products of both, and primes without a kernel."""


def _size(draw: Draw, small: Sequence[int], large: Sequence[int]) -> int:
    return draw.pick(large if draw.is_large else small)


@pattern
def _softmax(body: Body) -> Instruction:
    return _softmax_of(body, body.array("softmax", FLOATS, low=1))


def _softmax_of(body: Body, x: Instruction) -> Instruction:
    """Exponentials, less the largest one of each row, divided by their sum."""
    last = (x.shape.rank - 1,)
    largest = broadcast(body, reduction(body, Maximum, x, last), x.shape, last)
    e = body.add(Exponential(), body.add(Subtract(), x, largest))
    return body.add(Divide(), e, broadcast(body, reduction(body, Add, e, last), x.shape, last))


@pattern
def _attention(body: Body) -> Instruction:
    """Products of queries and keys, scaled and masked, whose softmax weights values."""
    draw, element_type = body.draw, body.draw.pick(WIDE)
    batch = tuple(draw.between(1, 3) for _ in range(draw.below(2)))
    rows, keys = (_size(draw, (1, 2, 5, 17), (1, 33, 64, 65)) for _ in range(2))
    depth, d = _size(draw, (1, 4, 8), (16, 64)), len(batch)
    q, k, v = (body.want(Shape.array(element_type, (*batch, size, depth))) for size in (rows, keys, keys))
    scores = product(body, q, k, (d + 1, d + 1), d)
    if draw.chance(0.4):
        scores = body.add(Multiply(), scores, broadcast(body, body.want(scalar(element_type)), scores.shape))
    if draw.chance(0.4):
        indices = [index_along(body, scores.shape, d + side) for side in range(2)]
        hidden = number(body, draw.pick((-1e4, -np.inf)), scores.shape)
        scores = body.add(Select(), comparison(body, ComparisonDirection.GE, *indices), scores, hidden)
    return product(body, _softmax_of(body, scores), v, (d + 1, d), d)


@pattern
def _normalised(body: Body) -> Instruction:
    """Layer normalisation: x less its mean, times the reciprocal root of the variance."""
    x = body.array("normalised", FLOATS, low=1)
    dimensions = body.draw.some(range(x.shape.rank), 0.6) or (x.shape.rank - 1,)
    centred = body.add(Subtract(), x, broadcast(body, _mean(body, x, dimensions), x.shape, dimensions))
    variance = _mean(body, body.add(Multiply(), centred, centred), dimensions)
    root = body.add(Rsqrt(), body.add(Add(), variance, number(body, 0.01, variance.shape)))
    return body.add(Multiply(), centred, broadcast(body, root, x.shape, dimensions))


def _mean(body: Body, x: Instruction, dimensions: Sequence[int]) -> Instruction:
    total = reduction(body, Add, x, dimensions)
    count = max(1, math.prod(x.shape.dimensions[d] for d in dimensions))
    return body.add(Divide(), total, number(body, count, total.shape))


@pattern
def _quantised_product(body: Body) -> Instruction:
    """Rows times narrow weights that are converted, shifted by zero points and scaled, per column or per group."""
    draw, element_type = body.draw, body.draw.pick(WIDE)
    rows, terms = draw.pick((1, 1, 2, 3, 4, 8, 17)), draw.below(2)
    shared, columns = (_size(draw, (4, 8, 24), (64, 129, 160)) for _ in range(2))
    sizes = (columns, shared) if terms else (shared, columns)
    weights = cast(body, _narrow_weights(body, sizes), element_type)
    for declaration in draw.some((Subtract, Multiply)):
        weights = body.add(declaration(), weights, _per_column(body, weights.shape, terms))
    x = body.want(Shape.array(element_type, (rows, shared)))
    made = product(body, x, weights, (1, terms))
    return _activated(body, made) if draw.chance(0.5) else made


def _narrow_weights(body: Body, sizes: tuple[int, ...]) -> Instruction:
    """Numbers of a narrow type, or the two halves of bytes, unpacked by a shift and a mask."""
    draw = body.draw
    if sizes[-1] % 2 or draw.chance(0.7):
        return body.want(Shape.array(draw.pick(NARROW), sizes))
    packed = body.want(Shape.array(PrimitiveType.U8, (sizes[0], sizes[1] // 2)))
    halves = [
        body.add(And(), packed, number(body, 15, packed.shape)),
        body.add(ShiftRightLogical(), packed, number(body, 4, packed.shape)),
    ]
    parted = packed.shape.insert_dimension(2, 1)
    joined = body.add(Concatenate(dimension=2), *(body.add(Reshape(), half, shape=parted) for half in halves))
    return body.add(Reshape(), joined, shape=Shape.array(PrimitiveType.U8, sizes))


def _per_column(body: Body, weights: Shape, terms: int) -> Instruction:
    """Numbers for each column of weights, or for each group of four terms in it."""
    if weights.dimensions[terms] % 4 or body.draw.chance(0.6):
        vector = body.want(Shape.array(weights.element_type, (weights.dimensions[1 - terms],)))
        return broadcast(body, vector, weights, (terms,))
    sizes = list(weights.dimensions)
    sizes[terms] //= 4
    groups = body.want(Shape.array(weights.element_type, sizes))
    spread = broadcast(body, groups, groups.shape.insert_dimension(terms + 1, 4), (terms + 1,))
    return body.add(Reshape(), spread, shape=weights)


@pattern
def _integer_product(body: Body) -> Instruction:
    """A product of bytes whose sums are s32."""
    draw = body.draw
    rows, shared, columns = (_size(draw, (1, 3, 8, 17), (1, 17, 64, 129)) for _ in range(3))
    lhs = body.want(Shape.array(draw.pick((PrimitiveType.S8, PrimitiveType.U8)), (rows, shared)))
    rhs = body.want(Shape.array(PrimitiveType.S8, (columns, shared)))
    return product(body, lhs, rhs, (1, 1), result=PrimitiveType.S32)


@pattern
def _layer(body: Body) -> Instruction:
    """Products of one array with several matrices, each with a bias and an activation, side by side."""
    draw, element_type = body.draw, body.draw.pick(WIDE)
    rows, shared = _size(draw, (1, 3, 8), (1, 17, 64)), _size(draw, (2, 8), (31, 64, 100))
    x = body.want(Shape.array(element_type, (rows, shared)))
    widths = [_size(draw, (1, 4, 9), (16, 65, 128)) for _ in range(draw.pick((1, 1, 2, 3)))]
    weights = [body.want(Shape.array(element_type, (shared, width))) for width in widths]
    parts = [_activated(body, product(body, x, w, (1, 0))) for w in weights]
    return parts[0] if len(parts) == 1 else body.add(Concatenate(dimension=1), *parts)


def _activated(body: Body, value: Instruction) -> Instruction:
    """Adds a bias to the columns of a product, and applies an activation."""
    bias = body.want(Shape.array(value.shape.element_type, value.shape.dimensions[-1:]))
    value = body.add(Add(), value, broadcast(body, bias, value.shape, range(value.shape.rank - 1)))
    if body.draw.chance(0.5):
        return body.add(body.draw.pick((Tanh, Logistic))(), value)
    return body.add(Maximum(), value, number(body, 0, value.shape))


@pattern
def _transposed_product(body: Body) -> Instruction:
    """A product of a transposed array, transposed or not."""
    draw, element_type = body.draw, body.draw.pick(WIDE)
    n, k, m = (_size(draw, (1, 3, 8), (17, 64, 100)) for _ in range(3))
    lhs = body.add(Transpose(permutation=(1, 0)), body.want(Shape.array(element_type, (k, n))))
    made = product(body, lhs, body.want(Shape.array(element_type, (k, m))), (1, 0))
    return body.add(Transpose(permutation=(1, 0)), made) if draw.chance(0.5) else made


@pattern
def _running(body: Body) -> Instruction:
    """A running sum, maximum or minimum, from either end."""
    x = body.array("running", REALS, low=1)
    combined = monoid(body, body.draw.pick((Add, Add, Maximum, Minimum)), x.shape.element_type)
    window = running_window(x.shape.dimensions, body.draw.below(x.shape.rank), body.draw.chance(0.3))
    op = ReduceWindow(window=window, computation=combined.computation)
    return body.add(op, x, body.constant(combined.identities[0]))


@pattern
def _stencil(body: Body) -> Instruction:
    """Neighbours of each element, of an array that is rolled, combined."""
    draw, x = body.draw, body.array("stencil", FLOATS | {Kind.SIGNED}, low=1)
    value = x
    for _ in range(draw.between(1, 4)):
        value = body.add(draw.pick((Add, Multiply, Maximum))(), value, shifted(body, x, draw.below(x.shape.rank)))
    return value


@pattern
def _long_rows(body: Body) -> Instruction:
    """A sort, a running sum, a sum or the largest elements of long rows."""
    draw, rows = body.draw, body.draw.pick((1, 1, 2, 5))
    x = body.want(Shape.array(draw.element_type("sort", REALS), (rows, draw.pick((70, 300, 700, 4099)))))
    if draw.chance(0.5):
        return sort(body, [x, *(index_along(body, x.shape, 1) for _ in range(draw.below(2)))], 1)
    if draw.chance(0.5):
        return reduction(body, draw.pick((Add, Maximum)), x, draw.pick(((1,), (0, 1), (0,))))
    return body.add(TopK(k=draw.pick((1, 3, 8, 40)), largest=draw.chance(0.7)), x)


@pattern
def _filtered(body: Body) -> Instruction:
    """A convolution of images with a small window, each channel apart or all together."""
    draw, element_type = body.draw, body.draw.pick(WIDE)
    channels, width = draw.pick((1, 3, 4, 8, 16)), draw.pick((1, 3, 3, 5))
    apart = draw.chance(0.3)
    sizes = (draw.between(1, 2), *(draw.pick((4, 6, 7, 14)) for _ in range(2)), channels)
    window = WindowDimension(
        size=width, padding_low=width // 2, padding_high=width // 2, stride=draw.pick((1, 1, 1, 2))
    )
    op = Convolution(
        window=(window, window),
        dimension_numbers=IMAGES,
        feature_group_count=channels if apart else 1,
    )
    outputs = channels if apart else draw.pick((1, 4, 16))
    kernel = Shape.array(element_type, (width, width, 1 if apart else channels, outputs))
    made = body.add(op, body.want(Shape.array(element_type, sizes)), body.want(kernel))
    return _activated(body, made) if draw.chance(0.5) else made


@pattern
def _rows_by_index(body: Body) -> Instruction:
    """Rows of a table at some indices, or rows combined with those of a table there."""
    draw, element_type = body.draw, body.draw.element_type("gather")
    rows, width, count = _size(draw, (2, 5, 9), (100, 900)), draw.pick((1, 3, 8, 17)), _size(draw, (1, 4, 9), (33, 200))
    table = body.want(Shape.array(element_type, (rows, width)))
    indices = body.indices(PrimitiveType.S32, (count, 1), rows)
    if draw.chance(0.5):
        op = Gather(
            offset_dims=(1,),
            collapsed_slice_dims=(0,),
            start_index_map=(0,),
            index_vector_dim=1,
            slice_sizes=(1, width),
        )
        return body.add(op, table, indices)
    fitting = [o for o in (Add, Maximum, Minimum, Multiply, And) if element_type.kind in o.kinds]
    scatter = Scatter(
        update_window_dims=(1,),
        inserted_window_dims=(0,),
        scatter_dims_to_operand_dims=(0,),
        index_vector_dim=1,
        update_computation=monoid(body, draw.pick(fitting), element_type).computation,
    )
    return body.add(scatter, table, indices, body.want(Shape.array(element_type, (count, width))))


@pattern
def _steps(body: Body) -> Instruction:
    """A loop over the rows of an array that carries a state and writes rows: jax.lax.scan."""
    draw, xs = body.draw, body.array("steps", low=1, fits=lambda s: s.rank > 0 and 0 < s.dimensions[0] <= 24)
    carried = body.want(Shape.array(draw.element_type("steps"), draw.sizes()))

    def step(inner: Body, counter: Instruction, state: list[Instruction]) -> list[Instruction]:
        row = row_of(inner, state[1], counter)
        grow(inner, draw.between(1, 4))
        update = inner.add(Reshape(), inner.computed(row.shape), shape=row.shape.insert_dimension(0, 1))
        return [inner.computed(carried.shape), state[1], _with_row(inner, state[2], update, counter)]

    return loop(body, integer(body, xs.shape.dimensions[0]), [carried, xs, body.want(xs.shape)], step)


def _with_row(body: Body, whole: Instruction, row: Instruction, index: Instruction) -> Instruction:
    starts = [index, *(integer(body, 0) for _ in range(whole.shape.rank - 1))]
    return body.add(DynamicUpdateSlice(), whole, row, *starts)


@pattern
def _counted(body: Body) -> Instruction:
    """A loop that counts from any number in any steps, and reads and writes rows at functions of its counter."""
    draw, rows = body.draw, body.draw.pick((4, 9, 16))
    whole = Shape.array(draw.pick(WIDE), (rows, draw.pick((1, 5, 64))))
    increment, start = draw.pick((1, 1, 1, 2, 3, -1, -2)), draw.between(-20, 12)
    part = (min(rows, draw.pick((1, 1, 2, 4))), whole.dimensions[1])

    def step(inner: Body, counter: Instruction, state: list[Instruction]) -> list[Instruction]:
        indices = [counter]
        for _ in range(draw.below(4)):
            indices.append(_index_from(inner, draw.pick(indices)))
        source, target, last = state
        read, written = (draw.pick(indices[-2:]) for _ in range(2))
        value = inner.add(DynamicSlice(size_indices=part), source, read, integer(inner, 0))
        if draw.chance(0.6):
            before = inner.add(DynamicSlice(size_indices=part), target, written, integer(inner, 0))
            value = inner.add(Maximum(), value, draw.pick((before, last)))
        if draw.chance(0.4):
            value = inner.add(Add(), value, broadcast(inner, cast(inner, counter, whole.element_type), value.shape))
        return [source, _with_row(inner, target, value, written), value]

    limit = integer(body, start + increment * draw.between(0, 18) - draw.below(2))
    target = number(body, 7, whole) if draw.chance(0.5) else body.want(whole)
    first = number(body, 0, Shape.array(whole.element_type, part))
    return loop(body, limit, [body.want(whole), target, first], step, start, increment)


def _index_from(body: Body, index: Instruction) -> Instruction:
    """An index and a constant, combined."""
    declaration = body.draw.pick((Add, Subtract, Multiply, Divide, Remainder, Maximum, Minimum))
    operands = [index, integer(body, body.draw.pick((1, 2, 3, 4, 8, -1, 5)))]
    return body.add(
        declaration(), *(operands if body.draw.chance(0.8) or declaration in (Divide, Remainder) else operands[::-1])
    )


@pattern
def _accumulated(body: Body) -> Instruction:
    """A loop that adds to a row of an array in each iteration, as an update of zeros: the gradient of a loop."""
    draw = body.draw
    total = Shape.array(draw.pick(WIDE), (draw.between(1, 6), draw.pick((1, 3, 17))))

    def step(inner: Body, counter: Instruction, state: list[Instruction]) -> list[Instruction]:
        part = inner.add(DynamicSlice(size_indices=(1, total.dimensions[1])), state[1], counter, integer(inner, 0))
        update = _with_row(inner, number(inner, 0, total), inner.add(Multiply(), part, part), counter)
        return [inner.add(Add(), state[0], update), state[1]]

    return loop(body, integer(body, total.dimensions[0]), [number(body, 0, total), body.want(total)], step)


@pattern
def _transform(body: Body) -> Instruction:
    """A Fourier transform of longer sequences."""
    draw, kind = body.draw, body.draw.pick([*FftType])
    length = draw.pick(TRANSFORMS)
    real, wide = draw.pick(((PrimitiveType.F32, PrimitiveType.C64), (PrimitiveType.F64, PrimitiveType.C128)))
    sizes = (draw.pick((1, 3, 8, 17)), length // 2 + 1 if kind is FftType.IRFFT else length)
    operand = body.want(Shape.array(real if kind is FftType.RFFT else wide, sizes))
    return body.add(Fft(fft_type=kind, fft_length=(length,)), operand)


@pattern
def _factorisation(body: Body) -> Instruction:
    """The factor of x x^T + c, which is positive definite, and a system that it solves."""
    draw, element_type = body.draw, body.draw.pick((PrimitiveType.F32, PrimitiveType.F64))
    order = _size(draw, (1, 4, 7, 16), (17, 64, 100))
    count = 1 if order > 64 else draw.pick((1, 1, 4, 9))
    x = body.want(Shape.array(element_type, (count, order, order)))
    square = product(body, x, x, (2, 2), 1)
    equal = comparison(body, ComparisonDirection.EQ, *(index_along(body, square.shape, d) for d in (1, 2)))
    diagonal = body.add(Multiply(), cast(body, equal, element_type), number(body, 10 * order, square.shape))
    lower = draw.chance(0.5)
    factor = body.add(Cholesky(lower=lower), body.add(Add(), square, diagonal))
    b = body.want(Shape.array(element_type, (count, order, draw.pick((1, 3, 17)))))
    return body.add(TriangularSolve(left_side=True, lower=lower), factor, b)


@pattern
def _chosen_rows(body: Body) -> Instruction:
    """A product with the rows of the identity at some indices: an embedding by jax.nn.one_hot."""
    draw, element_type = body.draw, body.draw.pick(WIDE)
    count, classes, width = draw.pick((1, 4, 9)), _size(draw, (2, 5, 9), (33, 100)), draw.pick((1, 3, 8))
    whole = Shape.array(PrimitiveType.S32, (count, classes))
    indices = broadcast(body, body.indices(PrimitiveType.S32, (count,), classes), whole, (1,))
    equal = comparison(body, ComparisonDirection.EQ, indices, index_along(body, whole, 1))
    table = body.want(Shape.array(element_type, (classes, width)))
    return product(body, cast(body, equal, element_type), table, (1, 0))
