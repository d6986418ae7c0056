"""Which convolutions are made of tiles, whether that pays, and how many tiles are computed at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from hloom.ir import Instruction
from hloom.ops.attributes import Precision
from hloom.ops.convolution import Convolution
from hloom.passes.expand.winograd.filtering import ONE_OUTPUT, THREE_OUTPUTS, TWO_OUTPUTS, Filtering


@dataclass(frozen=True)
class Tiling:
    """A convolution in tiles: `images` and `channels` of the image, `features` of the window's other side."""

    filterings: tuple[Filtering, ...]
    tiles: tuple[int, ...]
    outputs: tuple[int, ...]
    """Along the axes."""
    images: int
    channels: int
    features: int
    direct_products: int
    """Of direct sums, for an image and each pair of channel and feature."""
    sums_tiles: bool
    """Whether images are what is summed over: the gradient of a window."""

    @property
    def axes(self) -> range:
        """In an array of images."""
        return range(1, 1 + len(self.tiles))

    @property
    def products(self) -> int:
        """Of a tile, for each pair of channel and feature."""
        return math.prod(f.products for f in self.filterings)

    def pays(self, move_cost: int, window_cost: int) -> bool:
        """Whether fewer products are worth what is moved for them, at costs in multiply-adds for each factor."""
        pairs, tiles = self.channels * self.features, self.images * math.prod(self.tiles)
        saved = (self.images * self.direct_products - tiles * self.products) * pairs
        moved = move_cost * tiles * (self.channels + self.features) + window_cost * pairs
        return saved > self.products * moved


_BY_WINDOW = {1: ONE_OUTPUT, 3: TWO_OUTPUTS}
_BY_OUTPUTS = {1: ONE_OUTPUT, 3: THREE_OUTPUTS}


def tiling_of(convolution: Instruction) -> Tiling | None:
    """The tiles of a convolution; None where it has no plain windows of three, or must be precise."""
    op, out = convolution.op, convolution.shape
    assert isinstance(op, Convolution)
    lhs, rhs = convolution.operand_shapes
    if op.feature_group_count > 1 or op.batch_group_count > 1 or not all(w.is_plain for w in op.window):
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


@dataclass(frozen=True)
class Blocks:
    """How many images, and rows of tiles along the first axis, are computed at once, and how many such blocks there
    are of each; the last ones may be partly empty."""

    images: int
    rows: int
    counts: tuple[int, int]

    @property
    def count(self) -> int:
        return math.prod(self.counts)

    @staticmethod
    def of(tiling: Tiling, byte_width: int, block_bytes: int) -> Blocks:
        """Blocks of so many bytes of factors and products, where there are more than two of them.

        Sums over tiles are as large as the window's factors, and go over the blocks: these are not smaller than that.
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
    """At most so many, and such that little is left over."""
    limit = max(1, min(count, limit))
    return min(range((limit + 1) // 2, limit + 1), key=lambda size: (-count % size, -size))
