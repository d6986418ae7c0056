"""Shape and Layout: what an array, tuple or token is, and how an array lies in memory (spec: shapes-and-layout)."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from html import escape
from typing import NoReturn

from hloom.errors import RuleError
from hloom.types import PrimitiveType

INT64_MAX = 2**63 - 1
UNBOUNDED = -(2**63)
"""The size of a dynamic dimension without a bound, as protos have it."""
Ints = tuple[int, ...]
_NO_TYPES: frozenset[PrimitiveType] = frozenset()
_put = object.__setattr__


class PaddingValue(Enum):
    """What fills the padding of a buffer (SL-14)."""

    INVALID_PAD = 0
    ZERO_PAD = 1
    ONE_PAD = 2
    LOWEST_PAD = 3
    HIGHEST_PAD = 4
    UNKNOWN_PAD = 5


@dataclass(frozen=True, slots=True)
class Tile:
    """One tile of a tiled layout; `COMBINE` merges a dimension into the next more minor one (SL-26, SL-27)."""

    COMBINE = -(2**63)

    dimensions: tuple[int, ...]

    def __str__(self) -> str:
        return "(" + ",".join("*" if d == Tile.COMBINE else str(d) for d in self.dimensions) + ")"


@dataclass(frozen=True, slots=True)
class SplitConfig:
    """Where a dimension is split over memories: `SC(dimension:index,index)`; kept, not acted on (SL-29)."""

    dimension: int
    split_indices: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """How an array lies in memory: the dimension numbers from the most minor to the most major, and padding.

    `padded_dimensions` is empty or has a width for each dimension number. Tiles, and the fields after them, are
    additions of today's XLA; of these only `tiles` and `element_size_in_bits` are acted on (SL-23, SL-26, SL-29).
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
        """The k-th most minor dimension number."""
        return self.minor_to_major[k]

    def major(self, k: int) -> int:
        """The k-th most major dimension number: `minor(N - 1 - k)` (SL-21)."""
        return self.minor_to_major[len(self.minor_to_major) - 1 - k]

    @property
    def is_dim0_major(self) -> bool:
        """N-1 down to 0, like row-major (SL-11)."""
        return self.minor_to_major == tuple(range(len(self.minor_to_major) - 1, -1, -1))

    @property
    def is_dim0_minor(self) -> bool:
        """0 up to N-1, like column-major (SL-10)."""
        return self.minor_to_major == tuple(range(len(self.minor_to_major)))

    @property
    def is_monotonic(self) -> bool:
        """Whether dimensions are ordered from the first to the last, or the other way round."""
        return self.is_dim0_major or self.is_dim0_minor

    @property
    def is_dense_row_major(self) -> bool:
        """True where linear memory is the row-major order of the elements, one whole slot each."""
        return self.is_dim0_major and not self.padded_dimensions and not self.tiles and not self.element_size_in_bits

    def permute(self, permutation: Sequence[int]) -> Layout:
        """The layout that the array has in memory when its dimension i is renamed from `permutation[i]`."""
        new_dimension = {old: new for new, old in enumerate(permutation)}
        padded = tuple(self.padded_dimensions[old] for old in permutation) if self.padded_dimensions else ()
        return replace(
            self, minor_to_major=tuple(new_dimension[d] for d in self.minor_to_major), padded_dimensions=padded
        )

    def __str__(self) -> str:
        """The text form without `padded_dimensions` and `padding_value`, which have none (SL-24)."""
        return "{" + self._fields_text() + "}"

    def _repr_html_(self) -> str:
        """In notebooks: the text, and the order in words."""
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
    """Major to minor: {N-1, .., 1, 0} (SL-12)."""
    return Layout(tuple(range(rank - 1, -1, -1)))


def _fits_open_sizes(a: Shape, b: Shape) -> bool:
    """Whether two arrays differ in sizes alone that one of them leaves open (SL-25)."""
    if len(a.dimensions) != len(b.dimensions) or (UNBOUNDED not in a.dimensions and UNBOUNDED not in b.dimensions):
        return False
    pairs = zip(
        zip(a.dimensions, a.dynamic_dimensions, strict=True), zip(b.dimensions, b.dynamic_dimensions, strict=True)
    )
    return all(x == y or UNBOUNDED in (x[0], y[0]) for x, y in pairs)


@dataclass(frozen=True, slots=True)
class Shape:
    """An array's element type, sizes and layout; or a tuple of shapes; or a token or opaque value (SL-1).

    `dimensions[i]` is the size of dimension i; where `dynamic_dimensions[i]` it is the upper bound of a size that is
    known at run time (SL-25). `layout` is None exactly where the shape is no array. Make shapes with `Shape.array`,
    `Shape.tuple_of`, `hl.f32[2, 3]`; the class checks itself and raises `RuleError` (SL-9, SL-13, SL-22).
    """

    element_type: PrimitiveType
    dimensions: tuple[int, ...] = ()
    dynamic_dimensions: tuple[bool, ...] = ()
    layout: Layout | None = None
    elements: tuple[Shape, ...] = ()
    is_dynamic: bool = field(init=False, repr=False, compare=False)
    """True where some dimension's size is known only at run time, here or in a tuple element."""
    is_unbounded: bool = field(init=False, repr=False, compare=False)
    """True where some dynamic dimension has no bound, `f32[?]`, here or in a tuple element."""
    leaf_types: frozenset[PrimitiveType] = field(init=False, repr=False, compare=False)
    """The element types of its leaves. Known once, as the two above: each user of a long tuple asks."""

    def __hash__(self) -> int:
        # Without the layout: passes hash shapes all the time, and few differ in nothing else.
        return hash((self.element_type, self.dimensions, self.elements))

    @staticmethod
    def array(
        element_type: PrimitiveType,
        dimensions: Iterable[int] = (),
        dynamic_dimensions: Iterable[bool] = (),
        layout: Layout | None = None,
    ) -> Shape:
        """An array shape; without `layout` the default one, without `dynamic_dimensions` a static one."""
        sizes = tuple(dimensions)
        dynamic = tuple(dynamic_dimensions) or (False,) * len(sizes)
        return Shape(element_type, sizes, dynamic, layout or default_layout(len(sizes)))

    @staticmethod
    def tuple_of(elements: Iterable[Shape]) -> Shape:
        return Shape(PrimitiveType.TUPLE, elements=tuple(elements))

    @staticmethod
    def buffer_of(element: Shape) -> Shape:
        """The shape of a buffer that holds an array: `b(f32[4])`, what XLA's custom calls that pin memory give."""
        return Shape(PrimitiveType.BUFFER, elements=(element,))

    def __post_init__(self) -> None:
        self._check()
        elements = self.elements
        dynamic, unbounded = True in self.dynamic_dimensions, UNBOUNDED in self.dimensions
        if elements:
            dynamic, unbounded = True in [e.is_dynamic for e in elements], True in [e.is_unbounded for e in elements]
        types = self.element_type.singleton
        if self.element_type is PrimitiveType.TUPLE:
            types = _NO_TYPES.union(*[e.leaf_types for e in elements])
        _put(self, "is_dynamic", dynamic)
        _put(self, "is_unbounded", unbounded)
        _put(self, "leaf_types", types)

    def _check(self) -> None:
        if not self.element_type.is_array:
            if self.layout is not None or self.dimensions:
                _reject("SL-22", f"a {self.element_type} has neither dimensions nor a layout")
            return
        if self.elements:
            _reject("SL-22", f"an array of {self.element_type} has no tuple elements")
        if len(self.dynamic_dimensions) != len(self.dimensions):
            _reject("SL-25", f"{self.dimensions} needs a dynamic flag for each dimension")
        for size in self.dimensions:
            if type(size) is not int:
                _reject("SL-1", f"sizes are integers, got {size!r}")
            if size < 0 and size != UNBOUNDED:
                _reject("SL-22", f"sizes must be >= 0, got {self.element_type}{list(self.dimensions)}")
        if self.layout is None:
            _reject("SL-8", "an array shape needs a layout: use Shape.array for the default one")
        if UNBOUNDED in self.dimensions:
            self._check_unbounded(self.layout)
            return
        if 0 not in self.dimensions and self.element_count * self.element_type.byte_width > INT64_MAX:
            _reject("SL-22", f"{self.element_type}{list(self.dimensions)} has more bytes than int64 can count")
        if self.layout != default_layout(len(self.dimensions)):
            _check_layout(self, self.layout)

    def _check_unbounded(self, layout: Layout) -> None:
        """A size without a bound is dynamic; such an array has no size in memory."""
        _check_order(layout, self.rank)
        for size, dynamic in zip(self.dimensions, self.dynamic_dimensions, strict=True):
            if size == UNBOUNDED and not dynamic:
                _reject("SL-25", "a size without a bound is dynamic")

    # Queries

    @property
    def rank(self) -> int:
        """The number of dimensions."""
        return len(self.dimensions)

    @property
    def true_rank(self) -> int:
        """The number of dimensions whose size is greater than 1 (SL-2)."""
        return sum(size > 1 for size in self.dimensions)

    @property
    def is_array(self) -> bool:
        """Whether it is an array, rather than a tuple, a token or opaque."""
        return self.layout is not None

    @property
    def is_tuple(self) -> bool:
        """Whether it is a tuple."""
        return self.element_type is PrimitiveType.TUPLE

    @property
    def is_token(self) -> bool:
        """Whether it is a token."""
        return self.element_type is PrimitiveType.TOKEN

    @property
    def is_scalar(self) -> bool:
        """Whether it is an array without dimensions."""
        return self.layout is not None and not self.dimensions

    @property
    def is_effective_scalar(self) -> bool:
        """Rank 0, or all sizes 1 (SL-20)."""
        return self.layout is not None and all(size == 1 for size in self.dimensions)

    @property
    def is_static(self) -> bool:
        """Whether it is an array of fixed sizes, or a tuple of nothing else."""
        return not self.is_dynamic and all(type.is_array for type in self.leaf_types)

    @property
    def element_count(self) -> int:
        """The number of elements; dynamic dimensions count with their bound (SL-25)."""
        return math.prod(self.dimensions)

    @property
    def buffer_dimensions(self) -> tuple[int, ...]:
        """The widths of the buffer by dimension number: the padded ones where given, else the sizes (SL-17)."""
        return (self.layout.padded_dimensions if self.layout else ()) or self.dimensions

    @property
    def byte_size(self) -> int:
        """Bytes of the buffer, padding and tiles included (SL-16); of a tuple the sum over its elements."""
        if self.layout is None:
            return sum(element.byte_size for element in self.elements)
        slots = tiled_buffer_size(self)
        if self.layout.element_size_in_bits:
            return (slots * self.layout.element_size_in_bits + 7) // 8
        return slots * self.element_type.byte_width

    @property
    def data_size(self) -> int:
        """Bytes of the elements alone, one whole slot each: without padding and tiles."""
        return self.element_count * self.element_type.byte_width

    def dimension_size(self, dimension: int) -> int:
        """The size of a dimension; negative numbers count from the end as in Python (SL-5)."""
        return self.dimensions[normalize_dimension(dimension, self.rank)]

    def subshape(self, index: Iterable[int]) -> Shape:
        """The shape at an index path into nested tuples; the empty path gives the shape itself."""
        shape = self
        for i in index:
            if not shape.is_tuple or not 0 <= i < len(shape.elements):
                _reject("SL-20", f"{shape} has no tuple element {i}")
            shape = shape.elements[i]
        return shape

    def leaves(self) -> Iterator[Shape]:
        """The non-tuple shapes in order."""
        if self.is_tuple:
            for element in self.elements:
                yield from element.leaves()
        else:
            yield self

    def same_dimensions(self, other: Shape) -> bool:
        """Equal sizes and dynamic flags, whatever the element types and layouts."""
        return self.dimensions == other.dimensions and self.dynamic_dimensions == other.dynamic_dimensions

    def compatible(self, other: Shape) -> bool:
        """Equal but for layouts (SL-16): what operations require of each other. A size without a bound fits any."""
        return self is other or (
            self.element_type is other.element_type
            and (
                (self.dimensions == other.dimensions and self.dynamic_dimensions == other.dynamic_dimensions)
                or _fits_open_sizes(self, other)
            )
            and len(self.elements) == len(other.elements)
            and all(a.compatible(b) for a, b in zip(self.elements, other.elements, strict=True))
        )

    # Derived shapes

    def with_element_type(self, element_type: PrimitiveType) -> Shape:
        """The same dimensions and layout with elements of another type."""
        return replace(self, element_type=element_type)

    def with_layout(self, layout: Layout | Sequence[int] | None) -> Shape:
        """This array shape with a layout, given as such or as `minor_to_major`; None means the default one."""
        if layout is not None and not isinstance(layout, Layout):
            layout = Layout(tuple(layout))
        return Shape.array(self.element_type, self.dimensions, self.dynamic_dimensions, layout)

    def without_layout(self) -> Shape:
        """The same shape with default layouts throughout."""
        if self.is_tuple:
            return Shape.tuple_of(element.without_layout() for element in self.elements)
        return self.with_layout(None) if self.is_array else self

    def static(self) -> Shape:
        """The same shape with every dimension static, at its bound."""
        if self.is_tuple:
            return Shape.tuple_of(element.static() for element in self.elements)
        return replace(self, dynamic_dimensions=(False,) * self.rank) if self.is_array else self

    def insert_dimension(self, position: int, size: int) -> Shape:
        """A dimension of `size` inserted before `position`; it becomes the most major one in memory."""
        order = tuple(d + (d >= position) for d in self._layout.minor_to_major)
        dimensions = (*self.dimensions[:position], size, *self.dimensions[position:])
        dynamic = (*self.dynamic_dimensions[:position], False, *self.dynamic_dimensions[position:])
        padded = self._layout.padded_dimensions
        if padded:
            padded = (*padded[:position], size, *padded[position:])
        layout = replace(self._layout, minor_to_major=(*order, position), padded_dimensions=padded)
        return Shape.array(self.element_type, dimensions, dynamic, layout)

    def delete_dimensions(self, dimensions: Iterable[int]) -> Shape:
        """The shape without the dimensions named; those left keep their order, in memory too."""
        deleted = set(dimensions)
        kept = [d for d in range(self.rank) if d not in deleted]
        new_dimension = {old: new for new, old in enumerate(kept)}
        padded = self._layout.padded_dimensions
        layout = replace(
            self._layout,
            minor_to_major=tuple(new_dimension[d] for d in self._layout.minor_to_major if d in new_dimension),
            padded_dimensions=tuple(padded[d] for d in kept) if padded else (),
        )
        return Shape.array(
            self.element_type,
            (self.dimensions[d] for d in kept),
            (self.dynamic_dimensions[d] for d in kept),
            layout,
        )

    def permute_dimensions(self, permutation: Sequence[int]) -> Shape:
        """Dimension i of the result is dimension `permutation[i]` of this shape; memory stays as it is."""
        return Shape.array(
            self.element_type,
            (self.dimensions[d] for d in permutation),
            (self.dynamic_dimensions[d] for d in permutation),
            self._layout.permute(permutation),
        )

    @property
    def _layout(self) -> Layout:
        if self.layout is None:
            _reject("SL-22", f"{self} is no array")
        return self.layout

    # Text

    def to_text(self, layouts: bool = True) -> str:
        """HLO text (SL-24): `f32[2,<=3]{1,0}`, `(f32[2]{0}, token[])`; scalars show no layout."""
        if self.is_tuple:
            # XLA marks every fifth element of long tuples with its index; the marks help to count.
            texts = (element.to_text(layouts) for element in self.elements)
            return (
                "("
                + ", ".join(f"/*index={i}*/{text}" if i and i % 5 == 0 else text for i, text in enumerate(texts))
                + ")"
            )
        if self.element_type is PrimitiveType.BUFFER:
            return f"b({self.elements[0].to_text(layouts)})"
        if self.layout is None:
            return f"{self.element_type}[]"
        sizes = ",".join(
            ("?" if size == UNBOUNDED else f"<={size}") if dynamic else str(size)
            for size, dynamic in zip(self.dimensions, self.dynamic_dimensions, strict=True)
        )
        fields = self.layout._fields_text() if layouts else ""
        return f"{self.element_type}[{sizes}]" + (f"{{{fields}}}" if fields else "")

    def __str__(self) -> str:
        """The short form of messages: the layout only where it is not the default one."""
        if self.is_tuple:
            return "(" + ", ".join(map(str, self.elements)) + ")"
        is_default = self.layout is None or self.layout == default_layout(self.rank)
        return self.to_text(layouts=not is_default)

    def __repr__(self) -> str:
        return f"Shape({self})"

    def _repr_html_(self) -> str:
        """In notebooks: the text, and for a small array where its elements lie in memory."""
        from hloom.display import shape_svg

        return f"<code>{escape(self.to_text())}</code><br>{shape_svg(self)}"


TOKEN = Shape(PrimitiveType.TOKEN)


def scalar(element_type: PrimitiveType) -> Shape:
    return Shape.array(element_type)


def normalize_dimension(dimension: int, rank: int) -> int:
    """A dimension number in [-rank, rank) as a number in [0, rank) (SL-5)."""
    if not -rank <= dimension < rank:
        _reject("SL-5", f"dimension {dimension} is outside [{-rank}, {rank}) for rank {rank}")
    return dimension % rank


def tiled_buffer_size(shape: Shape) -> int:
    """The number of element slots in the buffer of an array shape, padding and incomplete tiles included."""
    sizes = [shape.buffer_dimensions[d] for d in reversed(shape.layout.minor_to_major)] if shape.layout else []
    for tile in shape.layout.tiles if shape.layout else ():
        sizes = tiled_dimensions(sizes, tile)
    return math.prod(sizes)


def tiled_dimensions(sizes: Sequence[int], tile: Tile) -> list[int]:
    """The sizes, major to minor, after a tile has been applied: tile counts, then places in a tile (SL-27)."""
    merged = merge_tile_dimensions(sizes, tile)
    t = [d for d in tile.dimensions if d != Tile.COMBINE]
    lead = len(merged) - len(t)
    counts = [-(-size // step) for size, step in zip(merged[lead:], t, strict=True)]
    return [*merged[:lead], *counts, *t]


def merge_tile_dimensions(sizes: Sequence[int], tile: Tile) -> list[int]:
    """Merges each dimension that a tile marks with `*` into the next more minor one (SL-27).

    Where a tile has more dimensions than there are, those missing are most major ones of size 1.
    """
    merged = [1] * (len(tile.dimensions) - len(sizes)) + list(sizes)
    start = len(merged) - len(tile.dimensions)
    for k in range(len(tile.dimensions) - 1):
        if tile.dimensions[k] == Tile.COMBINE:
            merged[start + k + 1] *= merged[start + k]
    return [size for i, size in enumerate(merged) if i < start or tile.dimensions[i - start] != Tile.COMBINE]


def _check_order(layout: Layout, rank: int) -> None:
    if len(layout.minor_to_major) != rank or set(layout.minor_to_major) != set(range(rank)):
        order = list(layout.minor_to_major)
        _reject("SL-9", f"minor_to_major must be a permutation of 0 .. {rank - 1} for rank {rank}, got {order}")


def _check_layout(shape: Shape, layout: Layout) -> None:
    rank = shape.rank
    _check_order(layout, rank)
    if layout.padded_dimensions:
        if len(layout.padded_dimensions) != rank:
            _reject("SL-13", f"padded_dimensions needs {rank} widths, got {list(layout.padded_dimensions)}")
        for d, (width, size) in enumerate(zip(layout.padded_dimensions, shape.dimensions, strict=True)):
            if width < size:
                _reject("SL-13", f"padded width {width} of dimension {d} is less than its size {size}")
    if shape.element_type.is_complex and layout.padding_value in (PaddingValue.LOWEST_PAD, PaddingValue.HIGHEST_PAD):
        _reject("SL-14", f"{shape.element_type} has no order, so no {layout.padding_value.name}")
    bits = layout.element_size_in_bits
    if bits and bits != shape.element_type.bits and bits != 8 * shape.element_type.byte_width:
        _reject("SL-23", f"E({bits}) is not the width of {shape.element_type}, {shape.element_type.bits} bits")
    for tile in layout.tiles:
        if any(d <= 0 and d != Tile.COMBINE for d in tile.dimensions) or tile.dimensions[-1:] == (Tile.COMBINE,):
            _reject("SL-26", f"tile {tile}: sizes must be >= 1, and the last is no '*'")
    if tiled_buffer_size(shape) * shape.element_type.byte_width > INT64_MAX:
        _reject("SL-22", "the padded buffer has more bytes than int64 can count")


def _reject(clause: str, message: str) -> NoReturn:
    raise RuleError("shape", clause, message)
