"""Estimated costs of convolutions, in cycles of a multiply-add."""

from __future__ import annotations

import operator
from collections.abc import Iterable

from hloom.backends.cpu.kernels.convolution.geometry import Geometry, Mode, Role
from hloom.backends.cpu.kernels.products.tiles.tile import Tile
from hloom.target import L2_BYTES

PASS_BYTES = 2 * L2_BYTES  # of the images that a pass copies
MIN_SUMS = 8  # of a tile, to hide the latency of multiply-adds
LOAD_COST = 0.1


def cheapest_tile(g: Geometry, tiles: Iterable[Tile]) -> tuple[float, Tile]:
    """Returns the cheapest of some tiles, and the cost of all of this kind: products, loads, and stores of sums."""
    form, of_vector = g.form, _vector_cost(g)
    steps = form.taps / form.classes * form.inputs * form.parts  # of an output, on average
    of_store = 2 if g.result.has_contiguous_rows else 2 * g.width
    rows = form.classes * g.groups * g.images * g.outer

    def cost(tile: Tile) -> float:
        sums, (row_tiles, column_tiles) = tile.rows * tile.vectors, g.tiles(tile)
        products = steps * (max(sums, MIN_SUMS) + LOAD_COST * (tile.rows + tile.vectors * of_vector))
        return rows * row_tiles * column_tiles * (products + sums * of_store)

    return min(((cost(tile), tile) for tile in tiles), key=operator.itemgetter(0))


def _vector_cost(g: Geometry) -> int:
    """Returns the loads that a vector of the tile counts as.

    Vectors of the kernel mostly come from the L2 cache; unaligned ones of positions straddle two cache lines.
    """
    if g.mode is Mode.ROWS:
        return 3
    return 2 if g.mode is Mode.COLUMNS and g.form.taps > 1 else 1


def copy_cost(g: Geometry) -> float:
    """Returns the cost of copying all images."""
    cache_penalty = 4 if g.image_size * g.size > PASS_BYTES else 1
    return g.images * g.image_size * cache_penalty * (2 / g.width if _is_copied_in_vectors(g) else 2)


def _is_copied_in_vectors(g: Geometry) -> bool:
    """Whether elements that are contiguous in the image are contiguous in the input."""
    form = g.form
    match next(reversed(g.extents)).role:
        case Role.FEATURE:
            return form.input_stride == form.parts
        case Role.BATCH:
            return form.batch_strides[0] == 1
        case Role.LANE:
            return form.group_strides[0] == 1 and form.outputs == 1
    return bool(form.axes) and form.axes[-1].input_stride == 1 and form.axes[-1].step == 1
