"""Layouts: the order of an array's elements in memory, and its tiles (spec: shapes-and-layout)."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from html import escape
from typing import TYPE_CHECKING

from hloom.types import PrimitiveType

if TYPE_CHECKING:
    from hloom.shape import Shape


class PaddingValue(Enum):
    """The value that fills the padding of a buffer (SL-14).

    >>> layout = hl.Layout((1, 0), padded_dimensions=(2, 4), padding_value=hl.PaddingValue.ONE_PAD)
    >>> literal = hl.Literal(hl.s8[2, 3].with_layout(layout), np.zeros((2, 3), np.int8))
    >>> np.frombuffer(literal.to_linear_memory(), np.int8)
    array([0, 0, 0, 1, 0, 0, 0, 1], dtype=int8)
    """

    INVALID_PAD = 0
    ZERO_PAD = 1
    ONE_PAD = 2
    LOWEST_PAD = 3
    HIGHEST_PAD = 4
    UNKNOWN_PAD = 5


@dataclass(frozen=True, slots=True)
class Tile:
    """A tile of a tiled layout; `COMBINE` merges a dimension into the next more minor one (SL-26, SL-27).

    >>> hl.parse_shape("f32[3,5]{1,0:T(2,2)}").layout.tiles
    (Tile(dimensions=(2, 2)),)
    """

    COMBINE = -(2**63)

    dimensions: tuple[int, ...]

    def __str__(self) -> str:
        return "(" + ",".join("*" if d == Tile.COMBINE else str(d) for d in self.dimensions) + ")"


@dataclass(frozen=True, slots=True)
class SplitConfig:
    """A split of a dimension over memories, `SC(dimension:index,index)`: kept and printed, otherwise ignored
    (SL-29).
    """

    dimension: int
    split_indices: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """The order of an array's elements in memory: its dimensions from the most minor to the most major, and padding.

    `padded_dimensions` is empty or holds a width for each dimension number. Tiles, and the fields after them, are
    later additions to XLA, of which hloom implements `tiles` and `element_size_in_bits`; the others are kept and
    printed (SL-23, SL-26, SL-29).

    >>> hl.f32[2, 3].with_layout(hl.Layout((0, 1))).layout.minor_to_major
    (0, 1)
    """

    minor_to_major: tuple[int, ...]
    padded_dimensions: tuple[int, ...] = ()
    padding_value: PaddingValue | None = None
    tiles: tuple[Tile, ...] = ()
    element_size_in_bits: int = 0
    memory_space: int = 0
    tail_padding_alignment_in_elements: int = 1
    index_primitive_type: PrimitiveType | None = None
    pointer_primitive_type: PrimitiveType | None = None
    split_configs: tuple[SplitConfig, ...] = ()
    physical_shape: Shape | None = None
    dynamic_shape_metadata_prefix_bytes: int = 0

    def minor(self, k: int) -> int:
        """Returns the k-th most minor dimension, k from 0."""
        return self.minor_to_major[k]

    def major(self, k: int) -> int:
        """Returns the k-th most major dimension: `minor(N - 1 - k)` (SL-21)."""
        return self.minor_to_major[len(self.minor_to_major) - 1 - k]

    @property
    def is_dim0_major(self) -> bool:
        """Whether the order is N-1, .., 1, 0: row-major (SL-11)."""
        return self.minor_to_major == tuple(range(len(self.minor_to_major) - 1, -1, -1))

    @property
    def is_dim0_minor(self) -> bool:
        """Whether the order is 0, 1, .., N-1: column-major (SL-10)."""
        return self.minor_to_major == tuple(range(len(self.minor_to_major)))

    @property
    def is_monotonic(self) -> bool:
        """Whether the order is row-major or column-major."""
        return self.is_dim0_major or self.is_dim0_minor

    @property
    def is_dense_row_major(self) -> bool:
        """Whether linear memory is the elements in row-major order, without padding, tiles or packing."""
        return self.is_dim0_major and not self.padded_dimensions and not self.tiles and not self.element_size_in_bits

    def permute(self, permutation: Sequence[int]) -> Layout:
        """Returns the layout of the same memory after a transpose: new dimension i is the old dimension
        `permutation[i]`.
        """
        new_dimension = {old: new for new, old in enumerate(permutation)}
        padded = tuple(self.padded_dimensions[old] for old in permutation) if self.padded_dimensions else ()
        return replace(
            self, minor_to_major=tuple(new_dimension[d] for d in self.minor_to_major), padded_dimensions=padded
        )

    def __str__(self) -> str:
        """HLO text, which has no syntax for `padded_dimensions` and `padding_value` (SL-24)."""
        return "{" + self._fields_text() + "}"

    def _repr_html_(self) -> str:
        """The text and the order in words, which notebooks display."""
        order = ", then ".join(map(str, self.minor_to_major))
        words = f"dimension {order}: from the one that changes fastest in memory" if order else "of a scalar"
        return f"<code>{escape(str(self))}</code> {words}"

    def _fields_text(self) -> str:
        order = ",".join(map(str, self.minor_to_major))
        parts = ["T" + "".join(map(str, self.tiles))] if self.tiles else []
        if self.tail_padding_alignment_in_elements != 1:
            parts.append(f"L({self.tail_padding_alignment_in_elements})")
        if self.index_primitive_type:
            parts.append(f"#({self.index_primitive_type})")
        if self.pointer_primitive_type:
            parts.append(f"*({self.pointer_primitive_type})")
        if self.element_size_in_bits:
            parts.append(f"E({self.element_size_in_bits})")
        if self.memory_space:
            parts.append(f"S({self.memory_space})")
        for split in self.split_configs:
            parts.append(f"SC({split.dimension}:{','.join(map(str, split.split_indices))})")
        if self.physical_shape:
            parts.append(f"P({self.physical_shape.to_text()})")
        if self.dynamic_shape_metadata_prefix_bytes:
            parts.append(f"M({self.dynamic_shape_metadata_prefix_bytes})")
        return order + (":" + "".join(parts) if parts else "")


@functools.cache
def default_layout(rank: int) -> Layout:
    """Returns the default layout of a rank: row-major, {N-1, .., 1, 0} (SL-12)."""
    return Layout(tuple(range(rank - 1, -1, -1)))


def tiled_dimensions(sizes: Sequence[int], tile: Tile) -> list[int]:
    """Returns the sizes, major to minor, after a tile is applied: tile counts, then the sizes of a tile (SL-27)."""
    merged = merge_tile_dimensions(sizes, tile)
    t = [d for d in tile.dimensions if d != Tile.COMBINE]
    lead = len(merged) - len(t)
    counts = [-(-size // step) for size, step in zip(merged[lead:], t, strict=True)]
    return [*merged[:lead], *counts, *t]


def merge_tile_dimensions(sizes: Sequence[int], tile: Tile) -> list[int]:
    """Merges each dimension that a tile marks with `*` into the next more minor one (SL-27).

    If the tile has more dimensions than `sizes`, the missing sizes are most major and 1.
    """
    merged = [1] * (len(tile.dimensions) - len(sizes)) + list(sizes)
    start = len(merged) - len(tile.dimensions)
    for k in range(len(tile.dimensions) - 1):
        if tile.dimensions[k] == Tile.COMBINE:
            merged[start + k + 1] *= merged[start + k]
    return [size for i, size in enumerate(merged) if i < start or tile.dimensions[i - start] != Tile.COMBINE]
