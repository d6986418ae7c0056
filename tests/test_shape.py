"""Shapes and layouts (spec: shapes-and-layout)."""

from __future__ import annotations

import pytest

import hloom as hl
from hloom.shape import TOKEN, default_layout, scalar
from hloom.text import parse_shape


def test_rank_and_true_rank() -> None:
    """SL-2."""
    assert (hl.f32[1, 5, 1].rank, hl.f32[1, 5, 1].true_rank) == (3, 1)
    assert (hl.f32[()].rank, hl.f32[()].true_rank) == (0, 0)
    assert (hl.f32[0, 3].rank, hl.f32[0, 3].true_rank) == (2, 1)


def test_negative_dimension_numbers_count_from_the_end() -> None:
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


def test_dimensions_inserted_deleted_and_permuted_take_the_layout_along() -> None:
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
        (lambda: hl.f32[2].with_layout(hl.Layout((0,), tiles=(hl.Tile((2, 2)),))), "SL-26"),
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
