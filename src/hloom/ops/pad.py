"""Padding and concatenation: pad, concatenate (spec 17, 92)."""

from __future__ import annotations

import numpy as np

from hloom.ops.attributes import PaddingDimension
from hloom.ops.context import Context
from hloom.ops.indexing import Indexing, Indices, Range, Read
from hloom.ops.kinds import DIMENSION, PADDING
from hloom.ops.operation import Operation, attribute
from hloom.ops.rules import check_array, check_dimension, check_same_type
from hloom.ops.traits import Movement
from hloom.shape import Shape
from hloom.values import Array


class Pad(Movement, Operation, opcode="pad", builder="pad"):
    """Inserts `padding_value` between elements, then at the edges; negative edges remove elements (PAD-1, PAD-2).

    Interior padding must be >= 0. The size of a dimension becomes low + (size - 1) * (interior + 1) + 1 + high.
    """

    see_also = ("concatenate", "reduce-window")
    operands = {
        "operand": "array to pad",
        "padding_value": "scalar of the operand's type that fills the new positions",
    }
    moved_operands = 2
    padding_config: tuple[PaddingDimension, ...] = attribute(
        PADDING, text="padding", proto="padding_config.dimensions", doc="low_high_interior of each dimension"
    )

    def infer(self, operand: Shape, padding_value: Shape) -> Shape:
        check_array(self, "PAD-3", operand, padding_value)
        if not padding_value.is_scalar or padding_value.element_type is not operand.element_type:
            self.reject("PAD-3", f"the padding value is a scalar {operand.element_type}[], got {padding_value}")
        if len(self.padding_config) != operand.rank:
            self.reject("PAD-3", f"padding needs {operand.rank} entries for {operand}, got {len(self.padding_config)}")
        sizes = []
        for d, (padding, size) in enumerate(zip(self.padding_config, operand.dimensions, strict=True)):
            if padding.interior_padding < 0:
                self.reject("PAD-3", f"interior padding must be >= 0, got {padding.interior_padding}")
            sizes.append(padded_size(size, padding))
            if sizes[-1] < 0:
                self.reject(
                    "PAD-3", f"padding {padding} leaves a negative size {sizes[-1]} in dimension {d} of {operand}"
                )
        return Shape.array(operand.element_type, sizes, operand.dynamic_dimensions)

    def evaluate(self, ctx: Context, operand: Array, padding_value: Array) -> Array:
        sizes = [max(0, padded_size(n, p)) for n, p in zip(operand.shape, self.padding_config, strict=True)]
        result = np.full(sizes, padding_value, operand.dtype)
        source, target = [], []
        for n, size, padding in zip(operand.shape, sizes, self.padding_config, strict=True):
            step, low = padding.interior_padding + 1, padding.edge_padding_low
            # Element i moves to low + i * step: keep those inside the result.
            first = max(0, -(low // step)) if low < 0 else 0
            last = min(n, -(-(size - low) // step)) if size - low > 0 else 0
            last = max(first, last)
            source.append(slice(first, last))
            target.append(slice(low + first * step, low + last * step if last > first else low + first * step, step))
        if all(s.stop > s.start for s in source):
            result[tuple(target)] = operand[tuple(source)]
        return result

    def indexing(self, at: Indexing, index: Indices) -> list[Read]:
        elements = [
            at.dilated(at.space.shift(i, -p.edge_padding_low), size, p.interior_padding + 1)
            for i, p, size in zip(index, self.padding_config, at.operands[0].dimensions, strict=True)
        ]
        conditions = tuple(condition for _, inside in elements for condition in inside)
        return [Read(0, tuple(element for element, _ in elements), conditions), Read(1, ())]


def padded_size(size: int, padding: PaddingDimension) -> int:
    """Returns the size of a dimension after padding (PAD-1)."""
    dilated = (size - 1) * (padding.interior_padding + 1) + 1 if size else 0
    return padding.edge_padding_low + dilated + padding.edge_padding_high


class Concatenate(Movement, Operation, opcode="concatenate"):
    """Concatenates arrays along a dimension, in operand order (CONCATENATE-1)."""

    operands = {"*operands": "arrays of one element type, with equal sizes in the other dimensions"}
    moved_operands = None
    dimension: int = attribute(
        DIMENSION, text="dimensions", proto="dimensions", doc="dimension along which the operands are joined"
    )

    def infer(self, operands: tuple[Shape, ...]) -> Shape:
        if not operands:
            self.reject("CONCATENATE-3", "needs at least one operand")
        check_array(self, "CONCATENATE-3", *operands)
        check_same_type(self, "CONCATENATE-3", *operands)
        first, d = operands[0], self.dimension
        check_dimension(self, "CONCATENATE-3", d, first.rank)
        for shape in operands[1:]:
            if (
                shape.rank != first.rank
                or shape.dimensions[:d] != first.dimensions[:d]
                or shape.dimensions[d + 1 :] != first.dimensions[d + 1 :]
            ):
                self.reject("CONCATENATE-3", f"sizes may differ in dimension {d} alone, got {first} and {shape}")
        sizes = list(first.dimensions)
        sizes[d] = sum(shape.dimensions[d] for shape in operands)
        dynamic = map(any, zip(*(shape.dynamic_dimensions for shape in operands), strict=True))
        return Shape.array(first.element_type, sizes, dynamic)

    def evaluate(self, ctx: Context, operands: tuple[Array, ...]) -> Array:
        return np.concatenate(operands, self.dimension)

    def indexing(self, at: Indexing, index: Indices) -> list[Read]:
        reads, start, d = [], 0, self.dimension
        for k, operand in enumerate(at.operands):
            end = start + operand.dimensions[d]
            inner = (*index[:d], at.space.shift(index[d], -start), *index[d + 1 :])
            reads.append(Read(k, inner, (Range(index[d], start, end),)))
            start = end
        return reads
