"""IndexUtil: indices, linear indices and the walk through memory (spec: shapes-and-layout, SL-17 to SL-19)."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hloom as hl
from hloom.index import indices, linear_index, linear_indices, multi_index, next_index
from hloom.shape import TOKEN, tiled_buffer_size
from hloom.text import parse_shape

PADDED = hl.f32[2, 3].with_layout(hl.Layout((0, 1), (3, 5), hl.PaddingValue.ZERO_PAD))


def test_the_padded_array_of_the_specification() -> None:
    """SL-15, SL-17: linear((1, 2)) = 1 + 3*2 = 7 and linear((0, 1)) = 3; and 7 -> (1, 2)."""
    assert linear_index(PADDED, (1, 2)) == 7
    assert linear_index(PADDED, (0, 1)) == 3
    assert multi_index(PADDED, 7) == (1, 2)


@pytest.mark.parametrize(
    ("order", "memory"), [((0, 1), ["a", "d", "b", "e", "c", "f"]), ((1, 0), ["a", "b", "c", "d", "e", "f"])]
)
def test_the_two_orders_of_a_matrix(order: tuple[int, ...], memory: list[str]) -> None:
    """SL-10, SL-11."""
    letters = [["a", "b", "c"], ["d", "e", "f"]]
    shape = hl.f32[2, 3].with_layout(order)
    assert [letters[i][j] for i, j in indices(shape)] == memory
    for i, j in itertools.product(range(2), range(3)):
        assert memory[linear_index(shape, (i, j))] == letters[i][j]


def test_three_dimensions_by_the_formula() -> None:
    """SL-17: linear(i) = i[m0] + w[m0] * (i[m1] + w[m1] * i[m2])."""
    shape = hl.f32[4, 5, 6].with_layout((1, 2, 0))
    assert linear_index(shape, (3, 1, 2)) == 1 + 5 * (2 + 6 * 3)
    assert multi_index(shape, 1 + 5 * (2 + 6 * 3)) == (3, 1, 2)


@pytest.mark.parametrize(
    ("shape", "index", "linear"),
    [
        ("f32[3,5]{1,0:T(2,2)}", (2, 3), 17),
        ("f32[8,8]{1,0:T(2,4)(2,1,1,1)}", (6, 5), 51),
        ("f32[3,5]{1,0:T(2,2)}", (0, 0), 0),
        ("f32[3,5]{1,0:T(2,2)}", (0, 2), 4),
        ("f32[3,5]{1,0:T(2,2)}", (1, 1), 3),
        ("f32[3,5]{0,1:T(2,2)}", (2, 3), 12 + 2),
        ("f32[2,3,5]{2,1,0:T(2,2)}", (1, 2, 3), 24 + 17),
        ("f32[4,3]{1,0:T(*,2)}", (3, 2), 11),
    ],
)
def test_tiled_layouts(shape: str, index: tuple[int, ...], linear: int) -> None:
    """SL-26, SL-27: by the formula, worked by hand; the first two are the clauses' own examples."""
    assert linear_index(parse_shape(shape), index) == linear
    assert multi_index(parse_shape(shape), linear) == index


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ((1,), "has 2 entries"),
        ((0, 0, 0), "has 2 entries"),
        ((2, 0), r"entry 0 must be in \[0, 2\)"),
        ((0, 3), r"entry 1 must be in \[0, 3\)"),
        ((-1, 0), r"entry 0 must be in \[0, 2\)"),
    ],
)
def test_indices_outside_are_refused(index: tuple[int, ...], message: str) -> None:
    """SL-18: negative numbers do not count from the end here."""
    with pytest.raises(hl.RuleError, match=message) as error:
        linear_index(PADDED, index)
    assert error.value.clause == "SL-18"


def test_linear_indices_outside_or_in_the_padding_are_refused() -> None:
    """SL-15, SL-18: six slots of `a d 0 b e 0 c f 0 0 0 0 0 0 0` belong to elements."""
    accepted = []
    for linear in range(-2, 20):
        try:
            accepted.append((linear, multi_index(PADDED, linear)))
        except hl.RuleError as error:
            assert error.clause == "SL-18"
            assert ("padding" in error.message) == (0 <= linear < 15)
    assert accepted == [(0, (0, 0)), (1, (1, 0)), (3, (0, 1)), (4, (1, 1)), (6, (0, 2)), (7, (1, 2))]


def test_scalars_and_empty_arrays() -> None:
    """SL-17, SL-22."""
    assert linear_index(hl.f32[()], ()) == 0 and multi_index(hl.f32[()], 0) == ()
    assert list(indices(hl.f32[()])) == [()] and linear_indices(hl.f32[()]).tolist() == 0
    assert list(indices(hl.f32[3, 0])) == [] and linear_indices(hl.f32[3, 0]).shape == (3, 0)
    with pytest.raises(hl.RuleError, match="SL-18"):
        multi_index(hl.f32[3, 0], 0)


@pytest.mark.parametrize("shape", [TOKEN, hl.Shape.tuple_of([hl.f32[2]])])
def test_only_arrays_have_linear_indices(shape: hl.Shape) -> None:
    """SL-22."""
    for call in (lambda: linear_index(shape, ()), lambda: multi_index(shape, 0), lambda: linear_indices(shape)):
        with pytest.raises(hl.RuleError, match="SL-22"):
            call()


def test_stepping_wraps_in_the_order_given() -> None:
    """SL-19."""
    shape, index = hl.f32[2, 2], [0, 0]
    walk = []
    while next_index(shape, index, (0, 1)):
        walk.append(tuple(index))
    assert walk == [(1, 0), (0, 1), (1, 1)] and index == [0, 0]


@st.composite
def laid_out(draw: Any) -> hl.Shape:
    """An array shape with a random order, widths and up to two tiles."""
    sizes = draw(st.lists(st.integers(1, 4), max_size=3))
    rank = count = len(sizes)
    order = tuple(draw(st.permutations(range(rank))))
    padded = tuple(n + draw(st.integers(0, 2)) for n in sizes) if draw(st.booleans()) else ()
    tiles = []
    for _ in range(draw(st.integers(0, 2)) if rank else 0):
        length = draw(st.integers(1, min(count, 3)))
        leading = [draw(st.sampled_from([1, 2, 3, hl.Tile.COMBINE])) for _ in range(length - 1)]
        tiles.append(hl.Tile((*leading, draw(st.integers(1, 3)))))
        count += length - 2 * leading.count(hl.Tile.COMBINE)
    return hl.f32[tuple(sizes)].with_layout(hl.Layout(order, padded, tiles=tuple(tiles)))


def address(shape: hl.Shape, index: tuple[int, ...]) -> int:
    """The formulas of SL-17, SL-26 and SL-27, one number at a time."""
    layout = shape.layout
    assert layout is not None
    widths = layout.padded_dimensions or shape.dimensions
    e = [index[d] for d in reversed(layout.minor_to_major)]
    d = [widths[k] for k in reversed(layout.minor_to_major)]
    for tile in layout.tiles:
        start = len(d) - len(tile.dimensions)
        lead_e, lead_d = e[:start], d[:start]
        merged_e: list[int] = []
        merged_d: list[int] = []
        extents: list[int] = []
        carry_e, carry_d = 0, 1
        for entry, bound, extent in zip(e[start:], d[start:], tile.dimensions):
            carry_e, carry_d = carry_e * bound + entry, carry_d * bound
            if extent != hl.Tile.COMBINE:
                merged_e.append(carry_e)
                merged_d.append(carry_d)
                extents.append(extent)
                carry_e, carry_d = 0, 1
        e = lead_e + [i // t for i, t in zip(merged_e, extents)] + [i % t for i, t in zip(merged_e, extents)]
        d = lead_d + [-(-n // t) for n, t in zip(merged_d, extents)] + extents
    linear = 0
    for entry, bound in zip(e, d):
        linear = linear * bound + entry
    return linear


@given(laid_out())
def test_linear_indices_follow_the_formulas(shape: hl.Shape) -> None:
    """SL-17, SL-26, SL-27."""
    table = linear_indices(shape)
    for index in itertools.product(*map(range, shape.dimensions)):
        assert linear_index(shape, index) == table[index] == address(shape, index)


@given(laid_out())
def test_the_map_is_injective_and_its_inverse_refuses_the_padding(shape: hl.Shape) -> None:
    """SL-18."""
    taken = {}
    for linear in range(tiled_buffer_size(shape)):
        try:
            taken[linear] = multi_index(shape, linear)
        except hl.RuleError as error:
            assert error.clause == "SL-18"
    assert sorted(taken.values()) == list(itertools.product(*map(range, shape.dimensions)))
    assert all(linear_index(shape, index) == linear for linear, index in taken.items())


@given(st.lists(st.integers(0, 4), max_size=4), st.data())
def test_stepping_visits_the_elements_in_the_order_of_memory(sizes: list[int], data: st.DataObject) -> None:
    """SL-19: with padding too, linear indices ascend."""
    order = data.draw(st.permutations(range(len(sizes))))
    padded = tuple(n + data.draw(st.integers(0, 2)) for n in sizes)
    shape = hl.f32[tuple(sizes)].with_layout(hl.Layout(tuple(order), padded))
    visited = [linear_index(shape, index) for index in indices(shape)]
    assert visited == sorted(set(visited)) and len(visited) == shape.element_count
    assert np.array_equal(np.sort(linear_indices(shape), axis=None), visited)
