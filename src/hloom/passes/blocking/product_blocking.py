"""product-blocking: attention without its matrix of scores, and other computations on large products."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import ClassVar

from hloom.ir import Computation, Module
from hloom.ops.dot import Dot
from hloom.passes.blocking.block_loop import make_loop
from hloom.passes.blocking.masks import masking_of
from hloom.passes.blocking.online_softmax import make_online_softmax
from hloom.passes.blocking.regions import Region, find_regions
from hloom.passes.blocking.softmax import Softmax, find_softmax
from hloom.passes.blocking.tiling import BlockSizes, Tiling, block_size, choose_tiling
from hloom.passes.edit import callees_first_of, running_computations
from hloom.system.records import record

MASKED_BLOCKS = 8
"""Blocks of keys, at least, where a mask hides some of them."""
MIN_MASKED_GROWTH = 1.0
"""Scores, at least, for each element of queries and keys, where a mask hides some."""
MIN_SIDE = 64
"""Rows or keys of a block that products compute at full speed."""


@record
class ProductBlocking:
    """Before: a product with a small contracted dimension and a large result, which others reduce to small results.
    After: a loop over blocks of its batches and rows, with an inner loop over keys where rows pass through one softmax.
    The large values are never stored whole. Keys that a mask hides from all rows of a block are skipped where that does
    not change results.

    Requires a module without calls, simplified. A gradient that reads the large values recomputes them. Masks and other
    cheap values are recomputed in the loop; sums over the tiled dimension are accumulated over blocks, in at least f32.
    Products are left alone if a large value has other uses, or no dimension can be tiled.
    """

    name: ClassVar[str] = "product-blocking"
    optional: ClassVar[bool] = True
    operations: ClassVar[tuple[type, ...]] = (Dot,)
    min_bytes: int = 64 << 20
    """The minimum size of a product that is tiled, in bytes."""
    block_bytes: int = 16 << 20
    """The size of a block of the product, in bytes."""
    min_repeated_bytes: int = 16 << 20
    """The minimum size in bytes of one matrix of a product that a gradient recomputes."""
    min_rows: int = 64
    """The minimum number of rows of a block."""
    softmax_rows: int = 256
    """The number of rows of a block whose product passes through a softmax."""
    softmax_keys: int = 256
    """The number of keys of such a block."""
    min_softmax_bytes: int = 8 << 20
    """The minimum size in bytes of a product that passes through a softmax, if there are at most `max_small` of them.

    Each loop takes long to compile.
    """
    min_masked_bytes: int = 1 << 20
    """The minimum size where a mask hides keys: skipped blocks save work even if scores fit the cache."""
    in_parts: bool = True
    """Whether sums may be divided among blocks: those over keys, and those over the tiled dimension."""
    max_small: int = 2
    """The maximum number of softmaxes that are tiled although their products are below `min_bytes`."""

    def run(self, module: Module) -> int:
        """Tiles the large products of all computations; returns the number of regions that were changed."""
        changes = 0
        for computation in running_computations(module):
            changes += sum(self._block(module, computation, region) for region in self._regions(computation))
        if changes:
            module.computations = callees_first_of(module)
        return changes

    def _regions(self, computation: Computation) -> Iterator[Region]:
        yield from find_regions(computation, self.min_bytes, self.min_repeated_bytes)
        smaller = find_regions(computation, self.min_softmax_bytes, self.min_repeated_bytes)
        softmaxes = [*islice((region for region in smaller if find_softmax(region)), self.max_small + 1)]
        if len(softmaxes) > self.max_small:
            return
        yield from softmaxes
        masked = find_regions(computation, self.min_masked_bytes, self.min_repeated_bytes, MIN_MASKED_GROWTH)
        found = [*islice(filter(_is_masked, masked), self.max_small + 1)]
        yield from found if len(softmaxes) + len(found) <= self.max_small else ()

    def _block(self, module: Module, computation: Computation, region: Region) -> bool:
        """Rewrites a region to nested loops, until a block is small enough."""
        softmax = find_softmax(region)
        tiling = self._choose_tiling(region, softmax)
        if tiling is not None:
            self._block(module, *make_loop(module, computation, region, tiling, self._choose_next))
            return True
        if softmax is None or not (self.in_parts and softmax.can_be_in_blocks):
            return False
        keys = _side(softmax, self.softmax_keys)
        if softmax.extent <= keys:
            return False
        make_online_softmax(module, computation, region, softmax, block_size(softmax.extent, keys))
        return True

    def _choose_next(self, region: Region) -> Tiling | None:
        return self._choose_tiling(region, find_softmax(region))

    def _choose_tiling(self, region: Region, softmax: Softmax | None) -> Tiling | None:
        sizes = BlockSizes(self.block_bytes, self.min_rows)
        if softmax is not None:
            row = softmax.extent * softmax.scores.shape.element_type.byte_width
            rows = _side(softmax, self.softmax_rows)
            sizes = BlockSizes(row * rows, rows)
        tiling = choose_tiling(region, sizes)
        return tiling if tiling is None or self.in_parts or not tiling.sums else None


def _is_masked(region: Region) -> bool:
    """Whether a region has a softmax of which a mask hides keys."""
    softmax = find_softmax(region)
    return softmax is not None and masking_of(softmax.scores) is not None


def _side(softmax: Softmax, limit: int) -> int:
    """Returns the limit of the rows or keys of a block: smaller where a mask hides keys, of which whole blocks are
    skipped.
    """
    return limit if masking_of(softmax.scores) is None else min(limit, max(MIN_SIDE, softmax.extent // MASKED_BLOCKS))
