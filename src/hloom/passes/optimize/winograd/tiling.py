"""Tiling of Winograd convolutions: applicability, the cost model, and the number of tiles per block."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from hloom.ir import Instruction
from hloom.ops.attributes import Precision
from hloom.ops.convolution import Convolution
from hloom.passes.optimize.winograd.filtering import ONE_OUTPUT, THREE_OUTPUTS, TWO_OUTPUTS, Filtering
from hloom.system.records import record


@record
class Tiling:
    """A convolution in tiles.

    The image has the dimensions images, axes.. and channels, and the result has features in place of channels. For the
    gradient of a window, images are the input features, and channels the batch dimension of the convolution.
    """

    filterings: tuple[Filtering, ...]
    """The filtering along each axis."""
    tiles: tuple[int, ...]
    """Number of tiles along each axis."""
    outputs: tuple[int, ...]
    """Number of outputs along each axis."""
    images: int
    channels: int
    features: int
    direct_products: int
    """Number of products of direct sums, for each image, channel and feature."""
    sums_tiles: bool
    """Whether products are summed over images and tiles, as for the gradient of a window."""

    @property
    def axes(self) -> range:
        """Dimensions of the axes in [images, axes.., channels]."""
        return range(1, 1 + len(self.tiles))

    @property
    def products(self) -> int:
        """Number of products of a tile, for each channel and feature."""
        return math.prod(f.products for f in self.filterings)

    @property
    def of_image(self) -> Tiling:
        """The tiling of the first image of the batch alone."""
        return replace(self, channels=1) if self.sums_tiles else replace(self, images=1)

    def pays(self, move_cost: int, window_cost: int) -> bool:
        """Whether the products saved outweigh the costs, in multiply-adds, of each factor of image and window."""
        pairs, tiles = self.channels * self.features, self.images * math.prod(self.tiles)
        saved = (self.images * self.direct_products - tiles * self.products) * pairs
        moved = move_cost * tiles * (self.channels + self.features) + window_cost * pairs
        return saved > self.products * moved


_BY_WINDOW = {1: ONE_OUTPUT, 3: TWO_OUTPUTS}
_BY_OUTPUTS = {1: ONE_OUTPUT, 3: THREE_OUTPUTS}


def tiling_of(op: Convolution, convolution: Instruction) -> Tiling | None:
    """Returns the tiling of a convolution; None if there is none.

    It needs a window or an output of size 3 along an axis (1 or 3 along the others), strides and dilations of 1, no
    groups, floating-point results, and the default precision.
    """
    out = convolution.shape
    lhs, rhs = convolution.operand_shapes
    if op.has_groups or not all(w.is_plain for w in op.window):
        return None
    if not out.element_type.is_float or any(p is not Precision.DEFAULT for p in op.operand_precision):
        return None
    n = op.dimension_numbers
    windows = tuple(w.size for w in op.window)
    outputs = tuple(out.dimensions[d] for d in n.output_spatial_dimensions)
    images, channels = lhs.dimensions[n.input_batch_dimension], lhs.dimensions[n.input_feature_dimension]
    features = rhs.dimensions[n.kernel_output_feature_dimension]
    direct = math.prod(windows + outputs)
    if 3 in windows and _BY_WINDOW.keys() >= {*windows}:
        filterings = tuple(_BY_WINDOW[size] for size in windows)
        tiles = _ceil_divide(outputs, [len(f.result) for f in filterings])
        return Tiling(filterings, tiles, outputs, images, channels, features, direct, sums_tiles=False)
    if 3 in outputs and _BY_OUTPUTS.keys() >= {*outputs}:
        filterings = tuple(_BY_OUTPUTS[size] for size in outputs)
        tiles = _ceil_divide(windows, [len(f.window[0]) for f in filterings])
        return Tiling(filterings, tiles, outputs, channels, images, features, direct, sums_tiles=True)
    return None


def _ceil_divide(sizes: Sequence[int], parts: Sequence[int]) -> tuple[int, ...]:
    return tuple(-(-size // part) for size, part in zip(sizes, parts, strict=True))


@record
class Blocks:
    """A partition of the images and of the rows of tiles along the first axis into blocks that are computed at once.

    The last block along either may be partly empty.
    """

    images: int
    """Images of a block."""
    rows: int
    """Rows of tiles of a block."""
    counts: tuple[int, int]
    """Number of blocks along images and rows."""

    @property
    def count(self) -> int:
        """Total number of blocks."""
        return math.prod(self.counts)

    @staticmethod
    def of(tiling: Tiling, byte_width: int, block_bytes: int) -> Blocks:
        """Chooses blocks of about `block_bytes` of factors and products; a single block up to twice that.

        If products are summed over tiles, each block adds to an array of the size of the window's factors, so a block
        is not smaller than that.
        """
        count, (rows, *others) = tiling.images, tiling.tiles
        of_product = tiling.products * byte_width
        row_bytes = of_product * math.prod(others) * (tiling.channels + tiling.features)
        if tiling.sums_tiles:
            block_bytes = max(block_bytes, of_product * tiling.channels * tiling.features)
        if count * rows * row_bytes <= 2 * block_bytes:
            return Blocks(count, rows, (1, 1))
        images = _block_size(count, block_bytes // (rows * row_bytes))
        block_rows = _block_size(rows, block_bytes // row_bytes)
        return Blocks(images, block_rows, (-(-count // images), -(-rows // block_rows)))


def _block_size(count: int, limit: int) -> int:
    """Returns a block size in [limit / 2, limit] with the fewest empty elements in the last block."""
    limit = max(1, min(count, limit))
    return min(range((limit + 1) // 2, limit + 1), key=lambda size: (-count % size, -size))
