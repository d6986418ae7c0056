"""Shapes: the types of values (spec: shapes-and-layout)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from typing import NoReturn

from hloom.errors import RuleError
from hloom.layout import Layout, PaddingValue, Tile, default_layout, tiled_dimensions
from hloom.types import PrimitiveType

INT64_MAX = 2**63 - 1
UNBOUNDED = -(2**63)
"""The size of an unbounded dynamic dimension, as in protos."""
Ints = tuple[int, ...]
_NO_TYPES: frozenset[PrimitiveType] = frozenset()
_put = object.__setattr__


def _fits_open_sizes(a: Shape, b: Shape) -> bool:
    """Whether two array shapes of one rank agree except where one of them has an unbounded dimension (SL-25)."""
    if len(a.dimensions) != len(b.dimensions) or (UNBOUNDED not in a.dimensions and UNBOUNDED not in b.dimensions):
        return False
    pairs = zip(
        zip(a.dimensions, a.dynamic_dimensions, strict=True), zip(b.dimensions, b.dynamic_dimensions, strict=True)
    )
    return all(x == y or UNBOUNDED in (x[0], y[0]) for x, y in pairs)


@dataclass(frozen=True, slots=True)
class Shape:
    """The type of a value: an array's element type, sizes and layout, a tuple of shapes, a token or opaque (SL-1).

    `dimensions[i]` is the size of dimension i; if `dynamic_dimensions[i]`, it is the upper bound of a size that is
    known at run time (SL-25). `layout` is None exactly if the shape is not an array. Create shapes with `Shape.array`,
    `Shape.tuple_of` or `hl.f32[2, 3]`; the constructor validates its arguments and raises RuleError (SL-1, SL-8, SL-9,
    SL-13, SL-14, SL-22, SL-23, SL-25, SL-26).

    >>> shape = hl.f32[2, 3]
    >>> shape.dimensions, shape.element_count, shape.byte_size
    ((2, 3), 6, 24)
    >>> hl.Shape.tuple_of([shape, hl.s32[()]])
    Shape((f32[2,3], s32[]))
    """

    element_type: PrimitiveType
    dimensions: tuple[int, ...] = ()
    dynamic_dimensions: tuple[bool, ...] = ()
    layout: Layout | None = None
    elements: tuple[Shape, ...] = ()
    is_dynamic: bool = field(init=False, repr=False, compare=False)
    """Whether the size of some dimension is known only at run time, here or in a tuple element."""
    is_unbounded: bool = field(init=False, repr=False, compare=False)
    """Whether some dynamic dimension has no bound, `f32[?]`, here or in a tuple element."""
    leaf_types: frozenset[PrimitiveType] = field(init=False, repr=False, compare=False)
    """The element types of the leaves. Computed once, as the two fields above, because every user of a long tuple reads
    it.
    """

    def __hash__(self) -> int:
        # Without the layout: passes hash shapes often, and few shapes differ in the layout alone.
        return hash((self.element_type, self.dimensions, self.elements))

    @staticmethod
    def array(
        element_type: PrimitiveType,
        dimensions: Iterable[int] = (),
        dynamic_dimensions: Iterable[bool] = (),
        layout: Layout | None = None,
    ) -> Shape:
        """Returns an array shape, with the default layout and without dynamic dimensions unless given."""
        sizes = tuple(dimensions)
        dynamic = tuple(dynamic_dimensions) or (False,) * len(sizes)
        return Shape(element_type, sizes, dynamic, layout or default_layout(len(sizes)))

    @staticmethod
    def tuple_of(elements: Iterable[Shape]) -> Shape:
        """Returns the shape of a tuple; `elements` may be empty and nest."""
        return Shape(PrimitiveType.TUPLE, elements=tuple(elements))

    @staticmethod
    def buffer_of(element: Shape) -> Shape:
        """Returns the shape of a buffer, `b(f32[4])`, as XLA's custom call `Pin` returns it."""
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
        """Checks that unbounded sizes are dynamic; the size of such an array in memory is not known."""
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
    def non_degenerate_dimensions(self) -> tuple[int, ...]:
        """The sizes of the dimensions, but for those of size 1."""
        return tuple(size for size in self.dimensions if size != 1)

    @property
    def is_array(self) -> bool:
        """Whether this is the shape of an array, not of a tuple, a token or an opaque value."""
        return self.layout is not None

    @property
    def is_tuple(self) -> bool:
        """Whether this is the shape of a tuple."""
        return self.element_type is PrimitiveType.TUPLE

    @property
    def is_token(self) -> bool:
        """Whether this is the shape of a token."""
        return self.element_type is PrimitiveType.TOKEN

    @property
    def is_scalar(self) -> bool:
        """Whether this is an array of rank 0."""
        return self.layout is not None and not self.dimensions

    @property
    def is_effective_scalar(self) -> bool:
        """Whether this is an array all of whose sizes are 1, or of rank 0 (SL-20)."""
        return self.layout is not None and all(size == 1 for size in self.dimensions)

    @property
    def is_static(self) -> bool:
        """Whether all leaves are arrays of static sizes."""
        return not self.is_dynamic and all(type.is_array for type in self.leaf_types)

    @property
    def element_count(self) -> int:
        """The number of elements of an array; dynamic dimensions count with their bound (SL-25)."""
        return math.prod(self.dimensions)

    @property
    def buffer_dimensions(self) -> tuple[int, ...]:
        """The width of the buffer along each dimension: `padded_dimensions` if given, else the sizes (SL-17)."""
        return (self.layout.padded_dimensions if self.layout else ()) or self.dimensions

    @property
    def byte_size(self) -> int:
        """The size of the buffer in bytes, padding and tiles included (SL-16); for a tuple, the sum over its
        elements.
        """
        if self.layout is None:
            return sum(element.byte_size for element in self.elements)
        slots = tiled_buffer_size(self)
        if self.layout.element_size_in_bits:
            return (slots * self.layout.element_size_in_bits + 7) // 8
        return slots * self.element_type.byte_width

    @property
    def data_size(self) -> int:
        """The size of the elements in bytes without padding, tiles and packing: each takes `byte_width` bytes."""
        return self.element_count * self.element_type.byte_width

    def dimension_size(self, dimension: int) -> int:
        """Returns the size of a dimension, which may be negative as in Python. Raises RuleError[SL-5] outside [-rank,
        rank).
        """
        return self.dimensions[normalize_dimension(dimension, self.rank)]

    def subshape(self, index: Iterable[int]) -> Shape:
        """Returns the shape at an index path into nested tuples; the empty path gives the shape itself.

        Raises RuleError[SL-20] if there is no such element.
        """
        shape = self
        for i in index:
            if not shape.is_tuple or not 0 <= i < len(shape.elements):
                _reject("SL-20", f"{shape} has no tuple element {i}")
            shape = shape.elements[i]
        return shape

    def leaves(self) -> Iterator[Shape]:
        """Yields the shapes inside nested tuples that are not tuples, in order; for an array, itself."""
        if self.is_tuple:
            for element in self.elements:
                yield from element.leaves()
        else:
            yield self

    def same_dimensions(self, other: Shape) -> bool:
        """Whether sizes and dynamic flags are equal, whatever the element types and layouts."""
        return self.dimensions == other.dimensions and self.dynamic_dimensions == other.dynamic_dimensions

    def compatible(self, other: Shape) -> bool:
        """Whether two shapes are equal up to layouts (SL-16), as operations require. An unbounded size matches any
        size.
        """
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
        """Returns the shape with another element type and the same dimensions and layout."""
        return self if element_type is self.element_type else replace(self, element_type=element_type)

    def with_layout(self, layout: Layout | Sequence[int] | None) -> Shape:
        """Returns the array shape with another layout, given as a Layout or as `minor_to_major`; None is the default
        layout.
        """
        if layout is not None and not isinstance(layout, Layout):
            layout = Layout(tuple(layout))
        return Shape.array(self.element_type, self.dimensions, self.dynamic_dimensions, layout)

    def without_layout(self) -> Shape:
        """Returns the shape with default layouts, in tuple elements too."""
        if self.is_tuple:
            elements = [element.without_layout() for element in self.elements]
            unchanged = all(a is b for a, b in zip(elements, self.elements, strict=True))
            return self if unchanged else Shape.tuple_of(elements)
        if not self.is_array or self.layout == default_layout(len(self.dimensions)):
            return self
        return self.with_layout(None)

    def static(self) -> Shape:
        """Returns the shape with all dimensions static, at their bounds."""
        if self.is_tuple:
            return Shape.tuple_of(element.static() for element in self.elements)
        return replace(self, dynamic_dimensions=(False,) * self.rank) if self.is_array else self

    def with_dynamic(self, dimension: int, is_dynamic: bool = True) -> Shape:
        """Returns the shape, in the default layout, with one dimension dynamic or static at its bound."""
        flags = [is_dynamic if d == dimension else flag for d, flag in enumerate(self.dynamic_dimensions)]
        return Shape.array(self.element_type, self.dimensions, flags)

    def insert_dimension(self, position: int, size: int) -> Shape:
        """Returns the array shape with a static dimension of `size` inserted before `position`, the most major one in
        memory.
        """
        order = tuple(d + (d >= position) for d in self._layout.minor_to_major)
        dimensions = (*self.dimensions[:position], size, *self.dimensions[position:])
        dynamic = (*self.dynamic_dimensions[:position], False, *self.dynamic_dimensions[position:])
        padded = self._layout.padded_dimensions
        if padded:
            padded = (*padded[:position], size, *padded[position:])
        layout = replace(self._layout, minor_to_major=(*order, position), padded_dimensions=padded)
        return Shape.array(self.element_type, dimensions, dynamic, layout)

    def delete_dimensions(self, dimensions: Iterable[int]) -> Shape:
        """Returns the array shape without some dimensions; the others keep their order, in memory too."""
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
        """Returns the shape whose dimension i is dimension `permutation[i]` of this one, over the same memory."""
        return Shape.array(
            self.element_type,
            (self.dimensions[d] for d in permutation),
            (self.dynamic_dimensions[d] for d in permutation),
            self._layout.permute(permutation),
        )

    @property
    def _layout(self) -> Layout:
        if self.layout is None:
            _reject("SL-22", f"{self} is not an array")
        return self.layout

    # Text

    def to_text(self, layouts: bool = True) -> str:
        """Returns HLO text (SL-24): `f32[2,<=3]{1,0}`, `(f32[2]{0}, token[])`; scalars show no layout."""
        if self.is_tuple:
            # As XLA does, every fifth element of a long tuple is preceded by its index.
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
        """Short text for messages: a layout is shown only if it is not the default one."""
        if self.is_tuple:
            return "(" + ", ".join(map(str, self.elements)) + ")"
        is_default = self.layout is None or self.layout == default_layout(self.rank)
        return self.to_text(layouts=not is_default)

    def __repr__(self) -> str:
        return f"Shape({self})"

    def _repr_html_(self) -> str:
        """The text, and a drawing of the memory of a small array, which notebooks display."""
        from hloom.display import shape_svg

        return f"<code>{escape(self.to_text())}</code><br>{shape_svg(self)}"


TOKEN = Shape(PrimitiveType.TOKEN)


def scalar(element_type: PrimitiveType) -> Shape:
    """Returns the shape of a scalar."""
    return Shape.array(element_type)


def normalize_dimension(dimension: int, rank: int) -> int:
    """Returns a dimension in [-rank, rank) as one in [0, rank). Raises RuleError[SL-5] outside (SL-5)."""
    if not -rank <= dimension < rank:
        _reject("SL-5", f"dimension {dimension} is outside [{-rank}, {rank}) for rank {rank}")
    return dimension % rank


def tiled_buffer_size(shape: Shape) -> int:
    """Returns the number of element slots in the buffer of an array, padding and incomplete tiles included."""
    layout, widths = shape.layout, shape.buffer_dimensions
    if layout is None or not layout.tiles:
        return math.prod(widths)
    sizes = [widths[d] for d in reversed(layout.minor_to_major)]
    for tile in layout.tiles:
        sizes = tiled_dimensions(sizes, tile)
    return math.prod(sizes)


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
