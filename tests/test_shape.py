"""Shapes and layouts (spec: shapes-and-layout)."""

from __future__ import annotations

import copy
import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hloom as hl
from hloom.layout import default_layout, tiled_dimensions
from hloom.proto import schema
from hloom.shape import TOKEN, normalize_dimension, scalar, tiled_buffer_size
from hloom.text import parse_shape
from hloom.types import BY_NAME, BY_NUMBER, Kind, PrimitiveType


def test_rank_and_true_rank() -> None:
    """SL-2."""
    assert (hl.f32[1, 5, 1].rank, hl.f32[1, 5, 1].true_rank) == (3, 1)
    assert (hl.f32[()].rank, hl.f32[()].true_rank) == (0, 0)
    assert (hl.f32[0, 3].rank, hl.f32[0, 3].true_rank) == (2, 1)


def test_negative_dimensions_count_from_the_end() -> None:
    """SL-5."""
    shape = hl.f32[2, 3, 4]
    assert [shape.dimension_size(d) for d in (-3, -2, -1, 0)] == [2, 3, 4, 2]
    for wrong in (-4, 3):
        with pytest.raises(hl.RuleError, match=r"SL-5.*outside \[-3, 3\)"):
            shape.dimension_size(wrong)


def test_layout_queries() -> None:
    """SL-10, SL-11, SL-12, SL-21."""
    row, column = default_layout(3), hl.Layout((0, 1, 2))
    assert row.minor_to_major == (2, 1, 0) and row.is_dim0_major and not row.is_dim0_minor and row.is_monotonic
    assert column.is_dim0_minor and not column.is_dim0_major and column.is_monotonic
    mixed = hl.Layout((1, 2, 0))
    assert not mixed.is_monotonic
    assert [mixed.minor(k) for k in range(3)] == [1, 2, 0] and [mixed.major(k) for k in range(3)] == [0, 2, 1]


def test_sizes_count_padding_tiles_and_bounds() -> None:
    """SL-16, SL-23, SL-25, SL-26."""
    padded = hl.f32[2, 3].with_layout(hl.Layout((0, 1), (3, 5)))
    assert padded.element_count == 6 and padded.byte_size == 60
    assert parse_shape("f32[3,5]{1,0:T(2,2)}").byte_size == 4 * 4 * 6
    assert parse_shape("f32[<=10,2]").element_count == 20
    assert parse_shape("s4[5]{0:E(4)}").byte_size == 3 and hl.s4[5].byte_size == 5
    assert hl.Shape.tuple_of([hl.f32[2], hl.s8[3], TOKEN]).byte_size == 11


def test_inserting_deleting_and_permuting_dimensions_updates_the_layout() -> None:
    """SL-20."""
    shape = hl.f32[2, 3, 4].with_layout((0, 2, 1))
    assert shape.permute_dimensions((2, 0, 1)).to_text() == "f32[4,2,3]{1,0,2}"
    assert shape.delete_dimensions([1]).to_text() == "f32[2,4]{0,1}"
    assert shape.insert_dimension(1, 7).to_text() == "f32[2,7,3,4]{0,3,2,1}"
    assert shape.without_layout() == hl.f32[2, 3, 4]
    assert hl.f32[1, 1].is_effective_scalar and not hl.f32[2].is_effective_scalar and scalar(hl.f32).is_scalar


def test_compatibility_does_not_see_layouts() -> None:
    """SL-16."""
    a, b = hl.f32[2, 3], hl.f32[2, 3].with_layout((0, 1))
    assert a != b and a.compatible(b) and not a.compatible(hl.s32[2, 3]) and not a.compatible(parse_shape("f32[<=2,3]"))
    assert hl.Shape.tuple_of([a]).compatible(hl.Shape.tuple_of([b]))


def test_subshapes_and_leaves() -> None:
    """SL-20."""
    shape = parse_shape("(f32[2], (s32[], pred[3]))")
    assert shape.subshape([1, 1]) == hl.pred[3] and shape.subshape([]) is shape
    assert list(map(str, shape.leaves())) == ["f32[2]", "s32[]", "pred[3]"]
    with pytest.raises(hl.RuleError, match="SL-20"):
        shape.subshape([0, 0])


@pytest.mark.parametrize(
    ("make", "clause"),
    [
        (lambda: hl.f32[-1], "SL-22"),
        (lambda: hl.f32[2**40, 2**40], "SL-22"),
        (lambda: hl.f32[2, 3].with_layout((0, 0)), "SL-9"),
        (lambda: hl.f32[2, 3].with_layout((0,)), "SL-9"),
        (lambda: hl.f32[2, 3].with_layout(hl.Layout((1, 0), (4,))), "SL-13"),
        (lambda: hl.f32[2, 3].with_layout(hl.Layout((1, 0), (1, 3))), "SL-13"),
        (lambda: hl.c64[2].with_layout(hl.Layout((0,), (4,), hl.PaddingValue.LOWEST_PAD)), "SL-14"),
        (lambda: hl.f32[2].with_layout(hl.Layout((0,), tiles=(hl.Tile((0,)),))), "SL-26"),
        (lambda: hl.f32[1.5], "SL-1"),
        (lambda: TOKEN.insert_dimension(0, 1), "SL-22"),
        (lambda: hl.Shape(hl.PrimitiveType.TUPLE, layout=default_layout(0)), "SL-22"),
    ],
)
def test_shapes_that_are_refused(make: object, clause: str) -> None:
    with pytest.raises(hl.RuleError) as error:
        make()  # type: ignore[operator]
    assert error.value.clause == clause


def test_sizes_are_in_dimension_order() -> None:
    """SL-3, SL-4, SL-7: the layout does not reorder the sizes."""
    for order in itertools.permutations(range(4)):
        shape = hl.f32[5, 6, 7, 8].with_layout(order)
        assert shape.dimensions == (5, 6, 7, 8)
        assert [shape.dimension_size(d) for d in range(4)] == [5, 6, 7, 8]


def test_a_new_shape_has_the_default_layout() -> None:
    """SL-12."""
    for rank in range(5):
        shape = hl.Shape.array(hl.f32, range(1, rank + 1))
        assert shape.layout is not None
        assert shape.layout.minor_to_major == tuple(range(rank - 1, -1, -1))


def test_major_counts_from_the_other_end_than_minor() -> None:
    """SL-21: major(k) = minor(N-1-k)."""
    for order in itertools.permutations(range(4)):
        layout = hl.Layout(order)
        assert [layout.major(k) for k in range(4)] == [layout.minor(3 - k) for k in range(4)]


@pytest.mark.parametrize(
    ("order", "dim0_major", "dim0_minor"),
    [((), True, True), ((0,), True, True), ((1, 0), True, False), ((0, 1), False, True), ((0, 2, 1), False, False)],
)
def test_monotonic_layouts(order: tuple[int, ...], dim0_major: bool, dim0_minor: bool) -> None:
    """SL-10, SL-11, SL-21: at ranks 0 and 1 there is one order, which is both."""
    layout = hl.Layout(order)
    assert (layout.is_dim0_major, layout.is_dim0_minor) == (dim0_major, dim0_minor)
    assert layout.is_monotonic == (dim0_major or dim0_minor)


def test_a_layout_is_copied_to_a_shape_of_the_same_structure_and_cleared() -> None:
    """SL-21."""
    source = hl.f32[2, 3].with_layout((0, 1))
    copied = hl.s8[4, 5].with_layout(source.layout)
    assert copied.layout == source.layout and copied.dimensions == (4, 5)
    assert copied.with_layout(None) == hl.s8[4, 5]


@pytest.mark.parametrize(
    ("name", "width"),
    [
        ("pred", 1), ("s2", 1), ("s4", 1), ("s8", 1), ("s16", 2), ("s32", 4), ("s64", 8),
        ("u2", 1), ("u4", 1), ("u8", 1), ("u16", 2), ("u32", 4), ("u64", 8),
        ("f16", 2), ("bf16", 2), ("f32", 4), ("f64", 8), ("c64", 8), ("c128", 16), ("f4e2m1fn", 1),
        ("f8e5m2", 1), ("f8e4m3", 1), ("f8e4m3fn", 1), ("f8e4m3b11fnuz", 1), ("f8e5m2fnuz", 1),
        ("f8e4m3fnuz", 1), ("f8e3m4", 1), ("f8e8m0fnu", 1),
    ],
)  # fmt: skip
def test_bytes_of_an_element(name: str, width: int) -> None:
    """SL-23."""
    element_type = BY_NAME[name]
    assert str(element_type) == name and element_type.byte_width == width
    assert element_type[7].byte_size == 7 * width and element_type.dtype.itemsize == width


def test_element_types_have_the_values_of_the_proto() -> None:
    """SL-23: the values of PrimitiveType in xla_data.proto."""
    proto_values = {"PRED": 1, "S8": 2, "S32": 4, "U8": 6, "F16": 10, "F32": 11, "F64": 12, "TUPLE": 13, "C64": 15}
    proto_values |= {"BF16": 16, "TOKEN": 17, "C128": 18, "F8E5M2": 19, "F8E4M3FN": 20, "S4": 21, "U4": 22}
    for name, number in proto_values.items():
        assert BY_NUMBER[number] is PrimitiveType[name] and PrimitiveType[name].value == number
    assert {t for t in PrimitiveType if t.kind is Kind.OTHER} == {
        BY_NAME[n] for n in ("tuple", "opaque", "token", "buffer")
    }


def test_arrays_without_elements_have_an_empty_buffer() -> None:
    """SL-22: size 0 is legal, and the other sizes do not count then."""
    shape = hl.f32[0, 2**40, 2**40]
    assert (shape.element_count, shape.byte_size, shape.rank) == (0, 0, 3)


def test_the_largest_shapes_that_int64_can_count() -> None:
    """SL-22."""
    assert hl.s8[2**63 - 1].byte_size == 2**63 - 1
    assert hl.f32[2**61 - 1].byte_size == 2**63 - 4
    for too_large in (lambda: hl.s8[2**63], lambda: hl.f32[2**61], lambda: hl.c128[2**30, 2**30]):
        with pytest.raises(hl.RuleError, match=r"SL-22.*int64"):
            too_large()
    with pytest.raises(hl.RuleError, match=r"SL-22.*padded buffer"):
        hl.f32[2, 2].with_layout(hl.Layout((1, 0), (2**31, 2**31)))


def test_messages_show_the_shape_as_text() -> None:
    """SL-22, SL-24."""
    with pytest.raises(hl.RuleError, match=r"f32\[2, -3\]|f32\[2,-3\]"):
        hl.f32[2, -3]
    with pytest.raises(hl.RuleError, match=r"\(f32\[2\], token\[\]\)"):
        parse_shape("(f32[2], token[])").subshape([7])
    assert str(hl.f32[2, 3]) == "f32[2,3]" and repr(hl.f32[2, 3]) == "Shape(f32[2,3])"
    assert str(hl.f32[2, 3].with_layout((0, 1))) == "f32[2,3]{0,1}"
    assert hl.f32[2, 3].to_text() == "f32[2,3]{1,0}" and hl.f32[2, 3].to_text(layouts=False) == "f32[2,3]"


def test_long_tuples_mark_every_fifth_element() -> None:
    """SL-24: as XLA prints them; the marks are comments, so the text reads back."""
    shape = hl.Shape.tuple_of([hl.f32[()]] * 11)
    text = shape.to_text()
    assert text.count("/*index=") == 2 and "/*index=5*/f32[]" in text and "/*index=10*/f32[]" in text
    assert parse_shape(text) == shape


def test_dynamic_dimensions_count_with_their_bound() -> None:
    """SL-25."""
    shape = hl.Shape.array(hl.f32, (10, 3), (True, False))
    assert shape.to_text() == "f32[<=10,3]{1,0}" and shape.element_count == 30 and shape.byte_size == 120
    assert shape.is_dynamic and hl.Shape.tuple_of([shape]).is_dynamic and not shape.static().is_dynamic
    assert shape.static() == hl.f32[10, 3]
    assert not shape.compatible(hl.f32[10, 3])
    assert shape.delete_dimensions([0]) == hl.f32[3]
    assert shape.permute_dimensions((1, 0)).dynamic_dimensions == (False, True)
    assert shape.insert_dimension(0, 2).dynamic_dimensions == (False, True, False)


def test_queries_of_tuples_and_tokens() -> None:
    """SL-20, SL-22."""
    shape = parse_shape("(f32[2], ())")
    assert shape.is_tuple and not shape.is_array and not shape.is_scalar and not shape.is_effective_scalar
    assert TOKEN.is_token and not TOKEN.is_array and TOKEN.byte_size == 0 and list(TOKEN.leaves()) == [TOKEN]
    assert hl.Shape.tuple_of([]).byte_size == 0 and list(hl.Shape.tuple_of([]).leaves()) == []
    for operation in (
        lambda: shape.permute_dimensions(()),
        lambda: shape.delete_dimensions([]),
        lambda: shape.insert_dimension(0, 1),
    ):
        with pytest.raises(hl.RuleError, match="SL-22"):
            operation()


def test_shapes_are_values() -> None:
    """SL-20: equal shapes are equal keys, and nothing changes them."""
    a, b = hl.f32[2, 3], hl.Shape.array(hl.f32, [2, 3])
    assert a == b and hash(a) == hash(b) and copy.copy(a) == a
    with pytest.raises(AttributeError):
        a.dimensions = (1,)  # type: ignore[misc]
    assert a.same_dimensions(hl.s32[2, 3]) and not a.same_dimensions(hl.f32[3, 2])
    assert a.with_element_type(hl.s32) == hl.s32[2, 3]


def test_tiles_after_tiles() -> None:
    """SL-26, SL-27: the bounds that the examples of the clauses name."""
    assert tiled_dimensions([3, 5], hl.Tile((2, 2))) == [2, 3, 2, 2]
    once = tiled_dimensions([8, 8], hl.Tile((2, 4)))
    assert once == [4, 2, 2, 4] and tiled_dimensions(once, hl.Tile((2, 1, 1, 1))) == [2, 2, 2, 4, 2, 1, 1, 1]
    assert tiled_dimensions([7, 3, 5], hl.Tile((2,))) == [7, 3, 3, 2]
    assert tiled_dimensions([4, 3], hl.Tile((hl.Tile.COMBINE, 2))) == [6, 2]


def test_dimensions_from_the_end() -> None:
    """SL-5."""
    assert [normalize_dimension(d, 3) for d in range(-3, 3)] == [0, 1, 2, 0, 1, 2]
    for rank, wrong in ((0, 0), (0, -1), (2, 2), (2, -3)):
        with pytest.raises(hl.RuleError, match="SL-5"):
            normalize_dimension(wrong, rank)


@given(st.lists(st.integers(0, 6), max_size=4), st.data())
def test_permuting_dimensions_and_back_gives_the_shape(sizes: list[int], data: st.DataObject) -> None:
    """SL-20: memory stays as it is, so the sizes from minor to major do too."""
    rank = len(sizes)
    order = data.draw(st.permutations(range(rank)))
    padded = tuple(size + data.draw(st.integers(0, 2)) for size in sizes)
    shape = hl.f32[tuple(sizes)].with_layout(hl.Layout(tuple(order), padded))
    permutation = data.draw(st.permutations(range(rank)))
    permuted = shape.permute_dimensions(permutation)
    assert shape.layout is not None and permuted.layout is not None
    in_memory = [shape.buffer_dimensions[d] for d in shape.layout.minor_to_major]
    assert [permuted.buffer_dimensions[d] for d in permuted.layout.minor_to_major] == in_memory
    assert permuted.byte_size == shape.byte_size == 4 * math.prod(padded)
    inverse = [permutation.index(d) for d in range(rank)]
    assert permuted.permute_dimensions(inverse) == shape


@given(st.lists(st.integers(1, 6), max_size=4), st.data())
def test_an_inserted_dimension_can_be_deleted(sizes: list[int], data: st.DataObject) -> None:
    """SL-20."""
    order = data.draw(st.permutations(range(len(sizes))))
    shape = hl.f32[tuple(sizes)].with_layout(tuple(order))
    position, size = data.draw(st.integers(0, len(sizes))), data.draw(st.integers(0, 5))
    wider = shape.insert_dimension(position, size)
    assert wider.dimension_size(position) == size and wider.rank == shape.rank + 1
    assert wider.delete_dimensions([position]) == shape


@given(st.lists(st.integers(0, 7), min_size=1, max_size=3), st.data())
def test_a_tiled_buffer_has_whole_tiles(sizes: list[int], data: st.DataObject) -> None:
    """SL-26: each tiled dimension is rounded up to a multiple of its tile."""
    rank = len(sizes)
    k = data.draw(st.integers(1, rank))
    tile = data.draw(st.lists(st.integers(1, 4), min_size=k, max_size=k))
    order = data.draw(st.permutations(range(rank)))
    shape = hl.f32[tuple(sizes)].with_layout(hl.Layout(tuple(order), tiles=(hl.Tile(tuple(tile)),)))
    physical = [sizes[d] for d in reversed(order)]
    whole = [-(-n // t) * t for n, t in zip(physical[rank - k :], tile)]
    assert tiled_buffer_size(shape) == math.prod(physical[: rank - k]) * math.prod(whole)


def test_dimensions_are_integers_not_letters() -> None:
    """SL-6: x, y, z and p are habits of messages and diagrams: no shape knows them, and the last dimension stays last."""
    with pytest.raises(hl.ParseError):
        hl.parse_shape("f32[y=2,x=3]")
    assert not {"x", "y", "z", "p"} & set(dir(hl.f32[2, 3]))
    assert str(hl.f32[2, 3].dimension_size(-1)) == "3"


def test_a_layout_needs_only_its_order() -> None:
    """SL-8; the numbers of the three fields in the message."""
    assert hl.Layout((1, 0)) == hl.Layout((1, 0), (), None)
    with pytest.raises(TypeError):
        hl.Layout()
    fields = schema.message_class("LayoutProto").DESCRIPTOR.fields_by_name
    assert [fields[name].number for name in ("minor_to_major", "padded_dimensions", "padding_value")] == [1, 2, 3]
