"""Winograd's minimal filtering: what a window of three makes of a line, in 4 products for 2 outputs in place of 6.

    outputs = R [(K window) * (I image)]

for a tile of the image, with the matrices of a `Filtering`. Along several axes all three are transformed along one
after the other. The coefficients are 0, 1 and 1/2: sums of numbers with few bits stay exact.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hloom.ir import Instruction
from hloom.ops.attributes import SliceDimension
from hloom.ops.elementwise_binary import Add, Multiply, Subtract
from hloom.ops.elementwise_unary import Negate
from hloom.ops.pad import Concatenate
from hloom.ops.slice import Slice
from hloom.ops.transpose import Transpose
from hloom.passes.op_builder import OpBuilder

Matrix = tuple[tuple[float, ...], ...]
Pieces = Mapping[tuple[int, ...], Instruction]
"""Arrays of one shape by their index along each axis: of an element in its tile, or of a product."""


@dataclass(frozen=True)
class Filtering:
    """The matrices of one axis; tiles of the image lie `step` elements apart."""

    step: int
    image: Matrix
    window: Matrix
    result: Matrix

    @property
    def products(self) -> int:
        """Of a tile; and the elements of the image that it meets."""
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
    """[outer, axes.., inner] -> [products, outer x tiles, inner]: what is multiplied for each tile.

    Tiles have as many elements along an axis as its matrix has columns. Where there is one tile, the axes may be any.
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
    """[products, rows, inner] -> [results.., rows, inner]: the sums of each row's products."""
    _, rows, inner = products.shape.dimensions
    indices = itertools.product(*(range(len(matrix[0])) for matrix in matrices))
    others = SliceDimension(0, rows, 1), SliceDimension(0, inner, 1)
    parts = {
        index: build(Slice(slice=(SliceDimension(k, k + 1, 1), *others)), products) for k, index in enumerate(indices)
    }
    joined = build(Concatenate(dimension=0), *_transformed(build, parts, matrices).values())
    return build.reshape(joined, (*map(len, matrices), rows, inner))


def side_by_side(build: OpBuilder, results: Instruction, sizes: tuple[int, ...]) -> Instruction:
    """[results.., outer x tiles, inner] -> [outer, axes.., inner], where results of a tile are neighbours.

    `sizes` are outer, tiles.. and inner.
    """
    outer, *tiles, inner = sizes
    axes = len(tiles)
    lengths = results.shape.dimensions[:axes]
    apart = build.reshape(results, (*lengths, *sizes))
    beside = [d for axis in range(axes) for d in (axis + axes + 1, axis)]
    whole = build(Transpose(permutation=(axes, *beside, 2 * axes + 1)), apart)
    return build.reshape(whole, (outer, *(t * n for t, n in zip(tiles, lengths, strict=True)), inner))


def _transformed(build: OpBuilder, pieces: Pieces, matrices: Sequence[Matrix]) -> Pieces:
    """The pieces, multiplied by a matrix along each axis."""
    for axis, matrix in enumerate(matrices):
        made = {}
        for index in sorted({index[:axis] + index[axis + 1 :] for index in pieces}):
            line = [pieces[*index[:axis], k, *index[axis:]] for k in range(len(matrix[0]))]
            for k, row in enumerate(matrix):
                made[*index[:axis], k, *index[axis:]] = _combined(build, row, line)
        pieces = made
    return dict(sorted(pieces.items()))


def _combined(build: OpBuilder, row: Sequence[float], terms: Sequence[Instruction]) -> Instruction:
    """The sum of terms with coefficients: of those that have like ones first."""
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
    """A sum of terms with signs, and its own sign: it begins with one that is added, if any is."""
    (first, total), *others = sorted(terms, key=lambda term: -term[0])
    for sign, term in others:
        total = build(Add() if sign == first else Subtract(), total, term)
    return first, total
