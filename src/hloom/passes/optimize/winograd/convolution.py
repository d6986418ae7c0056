"""winograd-convolution: convolutions with 3 x 3 windows in 16 products per tile of 2 x 2 outputs, instead of 36.

The products are summed over features, so they are 16 matrix products of all tiles by all features. The gradient of the
window is a convolution too, with a window of the size of the image and 3 x 3 outputs: 16 products replace the 36 of a
tile of 2 x 2 elements of the window, and are summed over tiles. Images and rows are processed in blocks, so that
intermediate values stay in the cache.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import ClassVar

from hloom.ir import Computation, Instruction, Module
from hloom.ops.attributes import PaddingDimension, SliceDimension
from hloom.ops.control_flow import Call
from hloom.ops.convolution import Convolution
from hloom.ops.dot import Dot
from hloom.ops.elementwise_binary import Add, Divide, Multiply, Remainder
from hloom.ops.pad import Pad
from hloom.ops.slice import DynamicSlice, DynamicUpdateSlice, Slice
from hloom.ops.transpose import Reverse
from hloom.passes.op_builder import OpBuilder, counted_loop, expand_each, new_computation
from hloom.passes.optimize.winograd.filtering import factors, results, side_by_side
from hloom.passes.optimize.winograd.tiling import Blocks, Tiling, tiling_of
from hloom.shape import Shape
from hloom.system.records import record
from hloom.types import PrimitiveType

S32 = PrimitiveType.S32


@record
class WinogradConvolution:
    """Before: convolution(%image, %window) with a window of 3 x 3, or with 3 x 3 outputs of a large window. After: sums
    of neighbours in %image and in %window, a dot over the features with a batch for each of 16 products, and sums of
    its results, in a loop over blocks if they are large.

    Needs strides and dilations of 1, no groups, the default precision, and enough features to be faster. Rounding
    errors are smaller than those of direct sums, but the outputs of a tile are not independent: a NaN, or a value much
    larger than its neighbours, affects all four.
    """

    name: ClassVar[str] = "winograd-convolution"
    optional: ClassVar[bool] = True
    operations: ClassVar[tuple[type, ...]] = (Convolution,)
    move_cost: int = 8
    """Cost of moving a factor of the image or a product, in multiply-adds."""
    window_cost: int = 48
    """Cost of a factor of the window, in multiply-adds: it is a sum of up to nine elements, mostly from memory, and is
    packed."""
    per_image: bool = False
    """Whether the choice is that for a single image, so that it does not depend on the size of the batch."""
    block_bytes: int = 4 << 20
    """Bytes of the factors and products of a block; up to twice as many are not split into blocks."""

    def run(self, module: Module) -> int:
        """Expands the convolutions; returns their number."""
        products = _Products(module)
        return expand_each(module, Convolution, lambda op, build, old, _: self._expanded(op, build, old, products))

    def _expanded(self, op: Convolution, build: OpBuilder, old: Instruction, products: _Products) -> Instruction | None:
        tiling = tiling_of(op, old)
        if tiling is None or not (tiling.of_image if self.per_image else tiling).pays(self.move_cost, self.window_cost):
            return None
        element_type = old.shape.element_type
        blocks = Blocks.of(tiling, element_type.computation_type.byte_width, self.block_bytes)
        whole = (_window_gradient if tiling.sums_tiles else _filtered)(op, build, products, old, tiling, blocks)
        n = op.dimension_numbers
        batch, axes = n.output_batch_dimension, n.output_spatial_dimensions
        order = *((*axes, batch) if tiling.sums_tiles else (batch, *axes)), n.output_feature_dimension
        wanted = _first(build, whole, [old.shape.dimensions[d] for d in order])
        return build.convert(build.transpose(wanted, tuple(map(order.index, range(len(order))))), element_type)


# The operands, padded with zeros to whole blocks


def _image(op: Convolution, build: OpBuilder, old: Instruction, tiling: Tiling, blocks: Blocks) -> Instruction:
    """Returns the padded image as [images, axes.., channels]."""
    n = op.dimension_numbers
    sides = n.input_batch_dimension, n.input_feature_dimension
    outer, inner = reversed(sides) if tiling.sums_tiles else sides
    image = build.convert(old.operands[0], old.shape.element_type.computation_type)
    image = build.transpose(image, (outer, *n.input_spatial_dimensions, inner))
    images, *tiles = _whole(tiling, blocks)
    reach = [(t - 1) * f.step + f.products for t, f in zip(tiles, tiling.filterings, strict=True)]
    return _padded(build, image, [0, *(w.padding_low for w in op.window), 0], [images, *reach, tiling.channels])


def _window(op: Convolution, build: OpBuilder, old: Instruction) -> Instruction:
    """Returns the window without reversed dimensions, in its own order of dimensions."""
    window = build.convert(old.operands[1], old.shape.element_type.computation_type)
    axes = zip(op.dimension_numbers.kernel_spatial_dimensions, op.window, strict=True)
    backward = tuple(d for d, w in axes if w.window_reversal)
    return build(Reverse(dimensions=backward), window) if backward else window


def _large_window(op: Convolution, build: OpBuilder, old: Instruction, tiling: Tiling, blocks: Blocks) -> Instruction:
    """Returns the window of the gradient, padded, as [images, axes.., features]."""
    n = op.dimension_numbers
    order = n.kernel_input_feature_dimension, *n.kernel_spatial_dimensions, n.kernel_output_feature_dimension
    window = build.transpose(_window(op, build, old), order)
    images, *tiles = _whole(tiling, blocks)
    lengths = [t * f.step for t, f in zip(tiles, tiling.filterings, strict=True)]
    return _padded(build, window, [0] * len(order), [images, *lengths, tiling.features])


def _whole(tiling: Tiling, blocks: Blocks) -> tuple[int, ...]:
    """Returns the number of images, and of tiles along each axis, in all blocks."""
    return blocks.counts[0] * blocks.images, blocks.counts[1] * blocks.rows, *tiling.tiles[1:]


def _padded(build: OpBuilder, operand: Instruction, low: Sequence[int], sizes: Sequence[int]) -> Instruction:
    dims = operand.shape.dimensions
    edges = [PaddingDimension(before, size - n - before) for before, n, size in zip(low, dims, sizes, strict=True)]
    if not any(edge.edge_padding_low or edge.edge_padding_high for edge in edges):
        return operand
    return build(Pad(padding_config=tuple(edges)), operand, build.constant(0, operand.shape.element_type))


def _first(build: OpBuilder, operand: Instruction, sizes: Sequence[int]) -> Instruction:
    """Slices the array to the first elements along each dimension."""
    if operand.shape.dimensions == tuple(sizes):
        return operand
    return build(Slice(slice=tuple(SliceDimension(0, size, 1) for size in sizes)), operand)


# The products, in a loop over blocks


Body = Callable[[OpBuilder, Instruction, Instruction], Instruction]
"""Builds the body of a computation of two operands."""


@record
class _Products:
    """A cache of the computations of products: convolutions with equal tiling and shapes share one.

    Calling it builds a call of the computation for `tiles` and the shapes of the operands.
    """

    module: Module
    made: dict[object, Computation] = field(default_factory=dict)

    def __call__(
        self, build: OpBuilder, tiles: tuple[object, ...], operands: tuple[Instruction, Instruction], body: Body
    ) -> Instruction:
        shapes = tuple(operand.shape for operand in operands)
        if (tiles, shapes) not in self.made:
            computation = self.made[tiles, shapes] = new_computation(self.module, "winograd")
            within = OpBuilder.of(computation)
            image, window = (within.parameter(k, shape) for k, shape in enumerate(shapes))
            body(within, image, window)
        return build(Call(computation=self.made[tiles, shapes]), *operands)


def _filtered(
    op: Convolution, build: OpBuilder, products: _Products, old: Instruction, tiling: Tiling, blocks: Blocks
) -> Instruction:
    """Returns the convolution, as [images, axes.., features]."""
    n = op.dimension_numbers
    contracting = 1 if n.kernel_input_feature_dimension < n.kernel_output_feature_dimension else 2
    windows = [f.window for f in tiling.filterings]
    factor = factors(build, _window(op, build, old), n.kernel_spatial_dimensions, windows, [1] * len(windows))
    sizes = blocks.images, blocks.rows, *tiling.tiles[1:], tiling.features
    high = tiling.outputs[0] if blocks.counts[1] == 1 else blocks.rows * len(tiling.filterings[0].result)
    result_sizes = [blocks.images, high, *tiling.outputs[1:], tiling.features]

    def block(build: OpBuilder, image: Instruction, factor: Instruction) -> Instruction:
        steps = [f.step for f in tiling.filterings]
        tiles = factors(build, image, tiling.axes, [f.image for f in tiling.filterings], steps)
        dot = build(_batches(2, contracting), tiles, factor)
        found = side_by_side(build, results(build, dot, [f.result for f in tiling.filterings]), sizes)
        return _first(build, found, result_sizes)

    def write_block(
        build: OpBuilder, step: Instruction, image: Instruction, factor: Instruction, total: Instruction
    ) -> Instruction:
        result = block(build, _image_block(build, image, step, tiling, blocks), factor)
        return build(DynamicUpdateSlice(), total, result, *_starts(build, step, blocks, high, total.shape.rank))

    def in_blocks(build: OpBuilder, image: Instruction, factor: Instruction) -> Instruction:
        images, rows = map(operator.mul, result_sizes, blocks.counts)
        return _loop_over_blocks(
            build, products.module, blocks, (image, factor), (images, rows, *result_sizes[2:]), write_block
        )

    operands = _image(op, build, old, tiling, blocks), factor
    return products(build, (tiling, blocks, contracting), operands, block if blocks.count == 1 else in_blocks)


def _window_gradient(
    op: Convolution, build: OpBuilder, products: _Products, old: Instruction, tiling: Tiling, blocks: Blocks
) -> Instruction:
    """Returns the gradient of the window, as [axes.., channels, features]."""
    steps = [f.step for f in tiling.filterings]

    def block(build: OpBuilder, image: Instruction, window: Instruction) -> Instruction:
        left = factors(build, image, tiling.axes, [f.image for f in tiling.filterings], steps)
        right = factors(build, window, tiling.axes, [f.window for f in tiling.filterings], steps)
        return build(_batches(1, 1), left, right)

    def add_block(
        build: OpBuilder, step: Instruction, image: Instruction, window: Instruction, total: Instruction
    ) -> Instruction:
        part = _rows_block(build, window, step, blocks, steps[0], blocks.rows * steps[0])
        return build(Add(), total, block(build, _image_block(build, image, step, tiling, blocks), part))

    def in_blocks(build: OpBuilder, image: Instruction, window: Instruction) -> Instruction:
        sizes = tiling.products, tiling.channels, tiling.features
        return _loop_over_blocks(build, products.module, blocks, (image, window), sizes, add_block)

    def whole(build: OpBuilder, image: Instruction, window: Instruction) -> Instruction:
        sums = (block if blocks.count == 1 else in_blocks)(build, image, window)
        return results(build, sums, [f.result for f in tiling.filterings])

    operands = _image(op, build, old, tiling, blocks), _large_window(op, build, old, tiling, blocks)
    return products(build, (tiling, blocks), operands, whole)


def _loop_over_blocks(
    build: OpBuilder,
    module: Module,
    blocks: Blocks,
    operands: tuple[Instruction, Instruction],
    sizes: tuple[int, ...],
    process_block: Callable[[OpBuilder, Instruction, Instruction, Instruction, Instruction], Instruction],
) -> Instruction:
    """Builds a loop over the blocks; returns the array that starts as zeros and gets the result of each block.

    `process_block(build, step, *operands, total)` returns the array after the block `step`.
    """

    def body(build: OpBuilder, step: Instruction, values: list[Instruction]) -> list[Instruction]:
        image, other, total = values
        return [image, other, process_block(build, step, image, other, total)]

    empty = Shape.array(operands[0].shape.element_type, sizes)
    zeros = build.broadcast(build.constant(0, empty.element_type), empty)
    return counted_loop(build, module, "winograd", blocks.count, [*operands, zeros], body)[-1]


def _batches(*contracting: int) -> Dot:
    """Returns a dot of two arrays [products, .., ..], given the contracting dimension of each."""
    lhs, rhs = contracting
    return Dot(lhs_batch_dims=(0,), rhs_batch_dims=(0,), lhs_contracting_dims=(lhs,), rhs_contracting_dims=(rhs,))


def _image_block(
    build: OpBuilder, image: Instruction, step: Instruction, tiling: Tiling, blocks: Blocks
) -> Instruction:
    """Slices a block of the image; the tiles of neighbouring blocks overlap."""
    first = tiling.filterings[0]
    return _rows_block(build, image, step, blocks, first.step, (blocks.rows - 1) * first.step + first.products)


def _rows_block(
    build: OpBuilder, operand: Instruction, step: Instruction, blocks: Blocks, row: int, size: int
) -> Instruction:
    """Slices the block of an iteration, of `size` elements along the first axis; `row` is the distance of its tiles."""
    dims = operand.shape.dimensions
    starts = _starts(build, step, blocks, blocks.rows * row, len(dims))
    return build(DynamicSlice(size_indices=(blocks.images, size, *dims[2:])), operand, *starts)


def _starts(build: OpBuilder, step: Instruction, blocks: Blocks, row_step: int, rank: int) -> list[Instruction]:
    """Returns the start indices of the block of an iteration; `row_step` is the distance of blocks along the rows."""
    rows = build.constant(blocks.counts[1], S32)
    image = build(Multiply(), build(Divide(), step, rows), build.constant(blocks.images, S32))
    row = build(Multiply(), build(Remainder(), step, rows), build.constant(row_step, S32))
    return [image, row, *(build.constant(0, S32) for _ in range(rank - 2))]
