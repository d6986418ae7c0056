"""Conversion between multidimensional and linear indices for every layout, as XLA's IndexUtil (SL-17 to SL-19,
SL-26).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

import numpy as np

from hloom.errors import RuleError
from hloom.layout import Layout, Tile, default_layout, merge_tile_dimensions, tiled_dimensions
from hloom.shape import Shape, tiled_buffer_size

IndexArray = np.ndarray[Any, np.dtype[np.int64]]


def linear_index(shape: Shape, index: Sequence[int]) -> int:
    """Returns the offset of an element in the buffer of its array, in elements (SL-17).

    Raises RuleError[SL-18] for an index with the wrong number of entries or an entry outside [0, size), and
    RuleError[SL-17] for entries that are not integers.
    """
    layout = _layout(shape)
    try:
        index = [operator.index(entry) for entry in index]
    except TypeError:
        _reject("SL-17", f"an index into {shape} is a list of {shape.rank} integers, got {index!r}")
    if len(index) != shape.rank:
        _reject("SL-18", f"an index into {shape} has {shape.rank} entries, got {index}")
    for d, (i, size) in enumerate(zip(index, shape.dimensions, strict=True)):
        if not 0 <= i < size:
            _reject("SL-18", f"index {list(index)} is outside {shape}: entry {d} must be in [0, {size})")
    physical = [np.int64(index[d]) for d in reversed(layout.minor_to_major)]
    return int(_linearize(physical, _physical_sizes(shape), layout.tiles))


def multi_index(shape: Shape, linear: int) -> tuple[int, ...]:
    """Returns the multidimensional index of the element at a linear index; the inverse of `linear_index` (SL-17).

    Raises RuleError[SL-18] for a linear index outside the buffer or in its padding.
    """
    layout = _layout(shape)
    size = tiled_buffer_size(shape)
    try:
        linear = operator.index(linear)
    except TypeError:
        _reject("SL-17", f"a linear index into {shape} is an integer, got {linear!r}")
    if not 0 <= linear < size:
        _reject("SL-18", f"linear index {linear} is outside the buffer of {shape}: must be in [0, {size})")
    sizes = [_physical_sizes(shape)]
    for tile in layout.tiles:
        sizes.append(tiled_dimensions(sizes[-1], tile))
    physical = _split(linear, sizes[-1])
    for tile, before in zip(reversed(layout.tiles), reversed(sizes[:-1]), strict=True):
        physical = _untile(physical, before, tile)
    index = [0] * shape.rank
    for entry, d in zip(physical, reversed(layout.minor_to_major), strict=True):
        index[d] = entry
    if any(i >= size for i, size in zip(index, shape.dimensions, strict=True)) or (
        layout.tiles and linear_index(shape, index) != linear
    ):
        _reject("SL-18", f"linear index {linear} lies in the padding of {shape}{layout}: it belongs to no element")
    return tuple(index)


def linear_indices(shape: Shape) -> IndexArray:
    """Returns the linear index of every element: an int64 array of the shape's sizes."""
    layout = _layout(shape)
    grid = np.ogrid[tuple(slice(size) for size in shape.dimensions)] if shape.rank else []
    physical = [grid[d].astype(np.int64) for d in reversed(layout.minor_to_major)]
    linear = _linearize(physical, _physical_sizes(shape), layout.tiles)
    return np.broadcast_to(np.asarray(linear, np.int64), shape.dimensions)


def next_index(shape: Shape, index: list[int], order: Sequence[int] | None = None) -> bool:
    """Advances `index` in place, `order[0]` changing fastest; returns False after the last index, which becomes zeros
    (SL-19).

    The default order is the layout's `minor_to_major`, which visits the elements in the order of linear memory.
    """
    if 0 in shape.dimensions:
        return False
    for d in _layout(shape).minor_to_major if order is None else order:
        index[d] += 1
        if index[d] < shape.dimensions[d]:
            return True
        index[d] = 0
    return False


def indices(shape: Shape) -> Iterator[tuple[int, ...]]:
    """Yields all indices of an array in the order of linear memory."""
    if shape.element_count:
        index = [0] * shape.rank
        yield tuple(index)
        while next_index(shape, index):
            yield tuple(index)


def _physical_sizes(shape: Shape) -> list[int]:
    """Returns the widths of the buffer from the most major to the most minor dimension."""
    return [shape.buffer_dimensions[d] for d in reversed(_layout(shape).minor_to_major)]


def _linearize(index: list[Any], sizes: list[int], tiles: Sequence[Tile]) -> Any:
    """Returns the linear index of index entries (scalars or arrays, major to minor) after all tiles."""
    for tile in tiles:
        index = _apply_tile(index, sizes, tile)
        sizes = tiled_dimensions(sizes, tile)
    linear: Any = np.int64(0)
    for entry, size in zip(index, sizes, strict=True):
        linear = linear * size + entry
    return linear


def _apply_tile(index: list[Any], sizes: list[int], tile: Tile) -> list[Any]:
    missing = [0] * (len(tile.dimensions) - len(sizes))
    merged, widths = [*missing, *index], [1] * len(missing) + sizes
    start = len(widths) - len(tile.dimensions)
    for k, extent in enumerate(tile.dimensions[:-1]):
        if extent == Tile.COMBINE:
            merged[start + k + 1] = merged[start + k] * widths[start + k + 1] + merged[start + k + 1]
            widths[start + k + 1] *= widths[start + k]
    kept = [e for i, e in enumerate(merged) if i < start or tile.dimensions[i - start] != Tile.COMBINE]
    extents = [extent for extent in tile.dimensions if extent != Tile.COMBINE]
    lead = len(kept) - len(extents)
    counts = [entry // extent for entry, extent in zip(kept[lead:], extents, strict=True)]
    offsets = [entry % extent for entry, extent in zip(kept[lead:], extents, strict=True)]
    return [*kept[:lead], *counts, *offsets]


def _untile(index: list[int], sizes: list[int], tile: Tile) -> list[int]:
    """Returns the index before a tile was applied; entries past `sizes` are in the padding."""
    extents = [extent for extent in tile.dimensions if extent != Tile.COMBINE]
    lead = len(index) - 2 * len(extents)
    counts, offsets = index[lead : lead + len(extents)], index[lead + len(extents) :]
    kept = [*index[:lead], *(c * e + p for c, e, p in zip(counts, extents, offsets, strict=True))]
    missing = max(0, len(tile.dimensions) - len(sizes))
    sizes = [1] * missing + sizes
    start = len(sizes) - len(tile.dimensions)
    merged = merge_tile_dimensions(sizes, tile)
    result: list[int] = []
    source = iter(zip(kept, merged, strict=True))
    run: list[int] = []
    for i, size in enumerate(sizes):
        run.append(size)
        if i >= start and tile.dimensions[i - start] == Tile.COMBINE:
            continue
        entry, _ = next(source)
        result.extend(_split(entry, run) if len(run) > 1 and entry < math.prod(run) else [0] * (len(run) - 1) + [entry])
        run = []
    return result[missing:]


def _split(linear: int, sizes: Sequence[int]) -> list[int]:
    index = []
    for size in reversed(sizes):
        index.append(linear % size if size else 0)
        linear = linear // size if size else 0
    return index[::-1]


def _layout(shape: Shape) -> Layout:
    if shape.layout is None:
        _reject("SL-22", f"{shape} is not an array: it has no linear index")
    return shape.layout if shape.layout is not None else default_layout(shape.rank)


def _reject(clause: str, message: str) -> NoReturn:
    raise RuleError("index", clause, message)
