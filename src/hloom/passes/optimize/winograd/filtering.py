"""Winograd's minimal filtering: a one-dimensional convolution in 4 products for 2 outputs of a window of 3, not 6.

    outputs = R [(K window) * (I image)]

for a tile of the image, with the matrices of a `Filtering`. With several axes the matrices are applied along one after
the other. The coefficients are 0, 1 and 1/2 with either sign: sums of values with few bits are exact.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

from hloom.ir import Instruction
from hloom.ops.attributes import SliceDimension
from hloom.ops.elementwise_binary import Add, Multiply, Subtract
from hloom.ops.elementwise_unary import Negate
from hloom.ops.pad import Concatenate
from hloom.ops.slice import Slice
from hloom.ops.transpose import Transpose
from hloom.passes.op_builder import OpBuilder
from hloom.system.records import record

Matrix = tuple[tuple[float, ...], ...]
Pieces = Mapping[tuple[int, ...], Instruction]
"""Arrays of one shape by an index with a component for each axis: of an element in its tile, or of a product."""


@record
class Filtering:
    """The matrices of one axis; tiles of the image lie `step` elements apart."""

    step: int
    image: Matrix
    window: Matrix
    result: Matrix

    @property
    def products(self) -> int:
        """Number of products of a tile, and of elements of the image that it reads."""
        return len(self.image)


def _transposed(matrix: Matrix) -> Matrix:
    return tuple(zip(*matrix, strict=True))


_IMAGE: Matrix = ((1, 0, -1, 0), (0, 1, 1, 0), (0, -1, 1, 0), (0, 1, 0, -1))
_THREE: Matrix = ((1, 0, 0), (0.5, 0.5, 0.5), (0.5, -0.5, 0.5), (0, 0, 1))
_TWO: Matrix = ((1, 0), (1, 1), (1, -1), (0, -1))

TWO_OUTPUTS = Filtering(2, _IMAGE, _THREE, _transposed(_TWO))
"""Two outputs of a window of three."""
THREE_OUTPUTS = Filtering(2, _IMAGE, _TWO, _transposed(_THREE))
"""Three outputs of a part of a window, of two."""
ONE_OUTPUT = Filtering(1, ((1,),), ((1,),), ((1,),))
"""An axis without windows."""


def factors(
    build: OpBuilder, operand: Instruction, axes: Sequence[int], matrices: Sequence[Matrix], steps: Sequence[int]
) -> Instruction:
    """Computes the factors of each tile: [outer, axes.., inner] -> [products, outer x tiles, inner].

    The number of elements of a tile along an axis is the number of columns of its matrix, and `steps` has the distance
    of tiles. If there is only one tile, the axes may be any dimensions.
    """
    lengths = [len(matrix[0]) for matrix in matrices]
    counts = [1 + (operand.shape.dimensions[d] - n) // s for d, n, s in zip(axes, lengths, steps, strict=True)]
    elements = {}
    for index in itertools.product(*map(range, lengths)):
        parts = [SliceDimension(0, size, 1) for size in operand.shape.dimensions]
        for d, first, count, step in zip(axes, index, counts, steps, strict=True):
            parts[d] = SliceDimension(first, first + (count - 1) * step + 1, step)
        elements[index] = build(Slice(slice=tuple(parts)), operand)
    outer, inner = (size for d, size in enumerate(operand.shape.dimensions) if d not in axes)
    made = _transformed(build, elements, matrices).values()
    return build.reshape(build(Concatenate(dimension=0), *made), (len(made), outer * math.prod(counts), inner))


def results(build: OpBuilder, products: Instruction, matrices: Sequence[Matrix]) -> Instruction:
    """Combines the products of each row: [products, rows, inner] -> [results.., rows, inner]."""
    _, rows, inner = products.shape.dimensions
    indices = itertools.product(*(range(len(matrix[0])) for matrix in matrices))
    others = SliceDimension(0, rows, 1), SliceDimension(0, inner, 1)
    parts = {
        index: build(Slice(slice=(SliceDimension(k, k + 1, 1), *others)), products) for k, index in enumerate(indices)
    }
    joined = build(Concatenate(dimension=0), *_transformed(build, parts, matrices).values())
    return build.reshape(joined, (*map(len, matrices), rows, inner))


def side_by_side(build: OpBuilder, results: Instruction, sizes: tuple[int, ...]) -> Instruction:
    """Puts the results of each tile next to each other: [results.., outer x tiles, inner] -> [outer, axes.., inner].

    `sizes` are (outer, tiles.., inner).
    """
    outer, *tiles, inner = sizes
    axes = len(tiles)
    lengths = results.shape.dimensions[:axes]
    apart = build.reshape(results, (*lengths, *sizes))
    beside = [d for axis in range(axes) for d in (axis + axes + 1, axis)]
    whole = build(Transpose(permutation=(axes, *beside, 2 * axes + 1)), apart)
    return build.reshape(whole, (outer, *(t * n for t, n in zip(tiles, lengths, strict=True)), inner))


def _transformed(build: OpBuilder, pieces: Pieces, matrices: Sequence[Matrix]) -> Pieces:
    """Multiplies the pieces by a matrix along each axis."""
    for axis, matrix in enumerate(matrices):
        made = {}
        for index in sorted({index[:axis] + index[axis + 1 :] for index in pieces}):
            line = [pieces[*index[:axis], k, *index[axis:]] for k in range(len(matrix[0]))]
            for k, row in enumerate(matrix):
                made[*index[:axis], k, *index[axis:]] = _combined(build, row, line)
        pieces = made
    return dict(sorted(pieces.items()))


def _combined(build: OpBuilder, row: Sequence[float], terms: Sequence[Instruction]) -> Instruction:
    """Builds the sum of terms times coefficients; terms with coefficients of the same magnitude are added first."""
    total: tuple[float, Instruction] | None = None
    for size in sorted({abs(c) for c in row if c}):
        sign, part = _signed_sum(
            build, [(c / size, term) for c, term in zip(row, terms, strict=True) if abs(c) == size]
        )
        if size != 1:
            factor = build.constant(size, part.shape.element_type)
            part = build(Multiply(), part, build.broadcast(factor, part.shape))
        total = (sign, part) if total is None else _signed_sum(build, [(sign, part), total])
    assert total is not None
    return total[1] if total[0] > 0 else build(Negate(), total[1])


def _signed_sum(build: OpBuilder, terms: Sequence[tuple[float, Instruction]]) -> tuple[float, Instruction]:
    """Builds a sum of signed terms, up to a common sign; returns the sign, 1 if any term is added, and the sum."""
    (first, total), *others = sorted(terms, key=lambda term: -term[0])
    for sign, term in others:
        total = build(Add() if sign == first else Subtract(), total, term)
    return first, total
