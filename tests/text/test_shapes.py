"""Shapes as text (spec: shapes-and-layout, SL-24 to SL-29)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hloom as hl
from hloom.layout import SplitConfig
from hloom.shape import TOKEN
from hloom.text import parse_shape
from hloom.types import PrimitiveType

ARRAY_TYPES = [t for t in PrimitiveType if t.is_array]


def test_sizes_and_layout() -> None:
    """SL-24: the braces hold minor_to_major; without them the default layout is meant."""
    assert parse_shape("f32[2,3]") == hl.f32[2, 3] == parse_shape("f32[2,3]{1,0}")
    assert parse_shape("f32[2,3]{0,1}") == hl.f32[2, 3].with_layout((0, 1))
    assert parse_shape("f32[]") == hl.f32[()] == parse_shape("f32[]{}")
    assert parse_shape("pred[0]") == hl.pred[0]


def test_tuples_tokens_and_opaques() -> None:
    """SL-23, SL-24: tuples nest and may be empty."""
    assert parse_shape("()") == hl.Shape.tuple_of([])
    assert parse_shape("(f32[2], (s32[], ()), token[])") == hl.Shape.tuple_of(
        [hl.f32[2], hl.Shape.tuple_of([hl.s32[()], hl.Shape.tuple_of([])]), TOKEN]
    )
    assert parse_shape("token[]").is_token and parse_shape("opaque[]").element_type is PrimitiveType.OPAQUE


def test_white_space_and_comments_do_not_count() -> None:
    assert parse_shape(" ( f32[ 2 , 3 ]{ 1 , 0 } , /*index=1*/ s32[] ) ") == parse_shape("(f32[2,3]{1,0},s32[])")


def test_dynamic_sizes() -> None:
    """SL-25."""
    shape = parse_shape("f32[<=10,3,<=0]{0,1,2}")
    assert shape.dimensions == (10, 3, 0) and shape.dynamic_dimensions == (True, False, True)
    assert shape.to_text() == "f32[<=10,3,<=0]{0,1,2}"


def test_every_layout_field() -> None:
    """SL-26, SL-29."""
    text = "s4[8,4]{1,0:T(2,4)(*,1)L(8)#(u32)*(u16)E(4)S(5)SC(0:2,3)SC(1:1)P((f32[3]{0}, s32[]))M(16)}"
    layout = parse_shape(text).layout
    assert layout == hl.Layout(
        (1, 0),
        tiles=(hl.Tile((2, 4)), hl.Tile((hl.Tile.COMBINE, 1))),
        tail_padding_alignment_in_elements=8,
        index_primitive_type=hl.u32,
        pointer_primitive_type=hl.u16,
        element_size_in_bits=4,
        memory_space=5,
        split_configs=(SplitConfig(0, (2, 3)), SplitConfig(1, (1,))),
        physical_shape=hl.Shape.tuple_of([hl.f32[3], hl.s32[()]]),
        dynamic_shape_metadata_prefix_bytes=16,
    )
    assert parse_shape(text).to_text() == text


def test_fields_without_an_order_keep_the_default_order() -> None:
    """SL-24."""
    assert parse_shape("f32[2,3]{:S(1)}") == parse_shape("f32[2,3]{1,0:S(1)}")
    assert parse_shape("f32[]{:S(1)}").to_text() == "f32[]{:S(1)}"


def test_the_text_of_a_padded_layout_leaves_the_padding_out() -> None:
    """SL-24: padded_dimensions and padding_value have no text form."""
    padded = hl.f32[2, 3].with_layout(hl.Layout((0, 1), (3, 5), hl.PaddingValue.ONE_PAD))
    assert parse_shape(padded.to_text()) == hl.f32[2, 3].with_layout((0, 1))


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("", 1, "expected a shape, got ''"),
        ("f33[2]", 1, "expected a shape, got 'f33[2]'"),
        ("F32[2]", 1, "expected a shape"),
        ("tuple[]", 1, "expected a shape"),
        ("f32", 4, "expected '[' with the sizes of a shape, got the end of the text"),
        ("f32 2", 5, "expected '['"),
        ("f32[", 5, "expected a size, got the end of the text"),
        ("f32[2", 6, "expected ',' between sizes"),
        ("f32[2;3]", 6, "expected ',' between sizes, got ';3]'"),
        ("f32[2,]", 7, "expected a size, got ']'"),
        ("f32[-1]", 5, "expected a size"),
        ("f32[<2]", 5, "expected a size"),
        ("f32[<=?]", 5, "a size is '?', or has a bound as in <=10"),
        ("f32[9223372036854775808]", 5, "size 9223372036854775808 does not fit 64 bits"),
        ("f32[4611686018427387904]", 1, "SL-22"),
        ("f32[2] x", 8, "expected the end of the shape, got 'x'"),
        ("f32[2]{0", 9, "expected '}' at the end of a layout, got the end of the text"),
        ("f32[2,3]{1 0}", 12, "expected ',' between dimension numbers, got '0}'"),
        ("f32[2,3]{1,x}", 12, "expected a dimension number, got 'x}'"),
        ("f32[2,3]{1}", 1, "SL-9]: minor_to_major must be a permutation of 0 .. 1 for rank 2, got [1]"),
        ("f32[2,3]{1,1}", 1, "SL-9"),
        ("f32[2]{0:Q(1)}", 10, "expected a layout field T, L, #, *, E, S, SC, P or M, got 'Q(1)}'"),
        ("f32[2]{0:T(2}", 13, "expected ',' between tile sizes, got '}'"),
        ("f32[2]{0:T(x)}", 12, "expected a tile size, got 'x)}'"),
        ("f32[2]{0:T(0)}", 1, "SL-26"),
        ("f32[2]{0:T(*)}", 1, "SL-26"),
        ("f32[2]{0:S(a)}", 12, "expected an integer, got 'a)}'"),
        ("f32[2]{0:S(1}", 13, "expected ')', got '}'"),
        ("f32[2]{0:#(u99)}", 12, "there is no element type 'u99'"),
        ("f32[2]{0:SC(0)}", 14, "expected ':', got ')}'"),
        ("(f32[2]", 8, "expected ',' between tuple elements, got the end of the text"),
        ("(f32[2] f32[2])", 9, "expected ',' between tuple elements, got 'f32[2])'"),
        ("(f32[2],)", 9, "expected a shape"),
        ("token[2]", 1, "token has no dimensions"),
        ("(" * 500, 202, "tuples nest more than 200 deep"),
    ],
)
def test_damaged_shapes(text: str, column: int, message: str) -> None:
    """GEN-3: line, column, caret and words."""
    with pytest.raises(hl.ParseError) as error:
        parse_shape(text)
    assert message in str(error.value)
    assert (error.value.line, error.value.column) == (1, column)


@st.composite
def layouts(draw: Any, rank: int) -> hl.Layout:
    order = tuple(draw(st.permutations(range(rank))))
    tiles = []
    if rank:
        for _ in range(draw(st.integers(0, 2))):
            leading = draw(st.lists(st.sampled_from([1, 2, 128]), max_size=rank - 1))
            tiles.append(hl.Tile((*leading, draw(st.sampled_from([1, 8, 128])))))
    return hl.Layout(
        order,
        tiles=tuple(tiles),
        tail_padding_alignment_in_elements=draw(st.sampled_from([1, 1, 16])),
        index_primitive_type=draw(st.sampled_from([None, hl.u32])),
        pointer_primitive_type=draw(st.sampled_from([None, hl.u16])),
        memory_space=draw(st.sampled_from([0, 0, 1, 5])),
        split_configs=tuple(
            SplitConfig(draw(st.integers(0, 3)), tuple(draw(st.lists(st.integers(0, 99), min_size=1, max_size=3))))
            for _ in range(draw(st.integers(0, 2)))
        ),
        dynamic_shape_metadata_prefix_bytes=draw(st.sampled_from([0, 64])),
    )


@st.composite
def arrays(draw: Any) -> hl.Shape:
    sizes = draw(st.lists(st.integers(0, 1000), max_size=4))
    dynamic = [draw(st.booleans()) for _ in sizes]
    return hl.Shape.array(draw(st.sampled_from(ARRAY_TYPES)), sizes, dynamic, draw(layouts(len(sizes))))


shapes = st.recursive(
    st.one_of(arrays(), st.just(TOKEN)), lambda inner: st.lists(inner, max_size=7).map(hl.Shape.tuple_of), max_leaves=12
)


@given(shapes)
def test_printing_and_parsing_are_inverse(shape: hl.Shape) -> None:
    """SL-24, SL-29: every field is kept."""
    text = shape.to_text()
    assert parse_shape(text) == shape
    assert parse_shape(text).to_text() == text


@given(arrays())
def test_the_text_without_layouts_means_the_default_ones(shape: hl.Shape) -> None:
    """SL-24."""
    assert parse_shape(shape.to_text(layouts=False)) == shape.without_layout()


@pytest.mark.parametrize("types", ["D(D,D)", "D(D,C)", "D(C+,S~)", "D(H, D+~)", "D()", "D(D,D)T(8,128)"])
def test_storage_of_sparse_dimensions_is_ignored(types: str) -> None:
    """SL-29: XLA's parser takes these types of older releases, and keeps none of them."""
    assert parse_shape(f"f32[4,4]{{1,0:{types}}}") == parse_shape(f"f32[4,4]{{1,0:{types.partition(')')[2]}}}")


@pytest.mark.parametrize("types", ["D(X)", "D(D", "T(8)D(D)"])
def test_other_storage_is_no_layout(types: str) -> None:
    with pytest.raises(hl.ParseError):
        parse_shape(f"f32[4]{{0:{types}}}")
