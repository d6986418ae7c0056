"""Shardings as specs over one mesh, and the forms in which they are read."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
from hloom.errors import ArgumentError
from hloom.passes.spmd import partition
from hloom.passes.spmd.annotations import Shardy, read_sharding
from hloom.passes.spmd.mesh import Cut, Mesh, Placement, cuts_of
from hloom.shape import Shape
from hloom.sharding import Sharding
from hloom.text.scanner import Scanner
from hloom.text.sharding import scan_sharding

MESH = Mesh((4, 2))


def sharding(text: str) -> Sharding:
    return scan_sharding(Scanner(text))


def test_partitions_are_numbers_with_digits() -> None:
    assert MESH.count == 8 and [MESH.stride(a) for a in (0, 1)] == [2, 1]
    assert [MESH.block(p, (1, 0)) for p in range(8)] == [0, 4, 1, 5, 2, 6, 3, 7]
    assert MESH.groups((0,)) == [[0, 2, 4, 6], [1, 3, 5, 7]]
    assert MESH.groups((1, 0)) == [[0, 2, 4, 6, 1, 3, 5, 7]]


@pytest.mark.parametrize(
    ("cuts", "sizes"),
    [
        ([], (8,)),
        ([Cut(2, 4), Cut(1, 2)], (4, 2)),
        ([Cut(2, 4), Cut(1, 4)], (2, 2, 2)),
        ([Cut(4, 2), Cut(3, 2)], (2, 4)),  # a stride of 3 does not go with one of 4
    ],
)
def test_the_mesh_is_the_coarsest_that_expresses_the_cuts(cuts: list[Cut], sizes: tuple[int, ...]) -> None:
    assert Mesh.over(8, cuts).sizes == sizes


def test_cuts_that_a_mesh_lacks_have_no_axes() -> None:
    assert MESH.axes_of(Cut(1, 8)) == (0, 1)
    assert MESH.axes_of(Cut(1, 4)) is None


@pytest.mark.parametrize(
    ("text", "cuts"),
    [
        ("{devices=[4,2]<=[8]}", ((Cut(2, 4),), (Cut(1, 2),))),
        ("{devices=[2,4]<=[4,2]T(1,0)}", ((Cut(1, 2),), (Cut(2, 4),))),
        ("{devices=[8,1]<=[2,2,2]T(0,2,1)}", ((Cut(4, 2), Cut(1, 2), Cut(2, 2)), ())),
        ("{devices=[1,2,4]<=[4,2]T(1,0) last_tile_dim_replicate}", ((), (Cut(1, 2),))),
        ("{devices=[2,1,4]0,1,2,3,4,5,6,7 last_tile_dim_replicate}", ((Cut(4, 2),), ())),
        ("{devices=[8,1]0,1,2,3,7,6,5,4}", None),
        ("{replicated}", ((), ())),
    ],
)
def test_assignments_are_read_as_digits(text: str, cuts: object) -> None:
    assert read_sharding(sharding(text), 2, 8).cuts == cuts


@pytest.mark.parametrize("spec", [((), ()), ((0,), ()), ((1,), (0,)), ((1, 0), ()), ((), (0, 1))])
def test_a_spec_and_its_annotation_say_the_same(spec: tuple[tuple[int, ...], ...]) -> None:
    annotation = read_sharding(MESH.sharding(Placement(spec)), 2, 8)
    assert annotation.cuts is not None
    read = tuple(tuple(a for cut in cuts for a in MESH.axes_of(cut) or ()) for cuts in annotation.cuts)
    assert [MESH.ways(axes) for axes in read] == [MESH.ways(axes) for axes in spec]
    for block in np.ndindex(annotation.tiles):
        for partition_number in annotation.assignment[block]:
            assert tuple(MESH.block(int(partition_number), axes) for axes in spec) == block


def test_manual_subgroups_are_kept_apart() -> None:
    annotation = read_sharding(sharding("{devices=[1,2,4]<=[4,2]T(1,0) last_tile_dims={manual}}"), 2, 8)
    assert annotation.cuts == ((), (Cut(1, 2),)) and annotation.manual == (Cut(2, 4),)
    assert read_sharding(sharding("{manual}"), 2, 8).manual == (Cut(1, 8),)


SHARDY = Shardy(
    '{mesh = #sdy.mesh<["x"=4, "y"=2]>, swapped = #sdy.mesh<["z"=8], device_ids=[1,0,2,3,4,5,6,7]>, '
    'turned = #sdy.mesh<["x"=2, "y"=4], device_ids=[0,2,4,6,1,3,5,7]>}',
    8,
)
TABLE = Shape.array(hl.f32, [8, 8])


@pytest.mark.parametrize(
    ("text", "cuts", "open_"),
    [
        ('#sdy.sharding<@mesh, [{"x"}, {"y"}]>', ((Cut(2, 4),), (Cut(1, 2),)), (False, False)),
        ('#sdy.sharding<@mesh, [{?}, {"y", ?}]>', ((), (Cut(1, 2),)), (True, True)),
        ('#sdy.sharding<@mesh, [{"x", "y"}p0, {}]>', ((Cut(1, 8),), ()), (False, False)),
        ('#sdy.sharding<@mesh, [{"y", "x"}, {}]>', ((Cut(1, 2), Cut(2, 4)), ()), (False, False)),
        ('#sdy.sharding<@mesh, [{"x":(1)2}, {"x":(2)2}]>', ((Cut(4, 2),), (Cut(2, 2),)), (False, False)),
        ('#sdy.sharding_per_value<[<@mesh, [{}, {"x"}], replicated={"y"}>]>', ((), (Cut(2, 4),)), (False, False)),
        ('#sdy.sharding<@swapped, [{"z"}, {}]>', None, (False, False)),
    ],
)
def test_shardy_attributes(text: str, cuts: object, open_: tuple[bool, ...]) -> None:
    (annotation,) = SHARDY.read(text, [TABLE])
    assert annotation.cuts == cuts and annotation.open == open_


@pytest.mark.parametrize(
    ("text", "unreduced"),
    [
        ('#sdy.sharding<@mesh, [{}, {"x"}], unreduced={"y"}>', (Cut(1, 2),)),
        ('#sdy.sharding<@mesh, [{}, {}], unreduced={"x":(1)2, "y"}>', (Cut(4, 2), Cut(1, 2))),
        ('#sdy.sharding<@turned, [{}, {}], unreduced={"x"}>', (Cut(1, 2),)),
    ],
)
def test_shardy_attributes_name_the_axes_of_summands(text: str, unreduced: tuple[Cut, ...]) -> None:
    assert SHARDY.read(text, [TABLE])[0].unreduced == unreduced


def test_shardy_attributes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ArgumentError, match="declares no mesh @other; it has: mesh, swapped, turned"):
        SHARDY.read('#sdy.sharding<@other, [{"x"}, {}]>', [TABLE])
    with pytest.raises(ArgumentError, match="has 1 shardings for 2 values"):
        SHARDY.read('#sdy.sharding<@mesh, [{"x"}, {}]>', [TABLE, TABLE])


def test_cuts_of_numbers_that_do_not_count() -> None:
    assert cuts_of(np.array([[0, 2], [1, 3]])) == [(Cut(1, 2),), (Cut(2, 2),)]
    assert cuts_of(np.array([[0, 1], [3, 2]])) is None
    assert cuts_of(np.array([1, 0])) is None


@pytest.mark.parametrize(
    ("placement", "text"),
    [
        (Placement(((), ()), (0, 1)), "{unreduced}"),
        (Placement(((), ()), (1,)), "{devices=[1,1,4,2]<=[8] last_tile_dims={replicated, unreduced}}"),
        (Placement(((0,), ()), (1,)), "{devices=[4,1,2]<=[8] last_tile_dims={unreduced}}"),
        (Placement(((), (1,)), (0,)), "{devices=[1,2,4]<=[4,2]T(1,0) last_tile_dims={unreduced}}"),
    ],
)
def test_partial_sums_are_reported_as_they_are_read(placement: Placement, text: str) -> None:
    assert MESH.sharding(placement) == sharding(text)
    unreduced = read_sharding(sharding(text), 2, 8).unreduced
    assert tuple(a for cut in unreduced for a in MESH.axes_of(cut) or ()) == placement.unreduced


@pytest.mark.parametrize(
    ("annotation", "message"),
    [
        (
            "{devices=[4,2]0,1,3,2,4,5,6,7 last_tile_dims={unreduced}}",
            r"listed in the order of a mesh, got \[0, 1, 3, 2,",
        ),
        ("{devices=[4,2]<=[8] last_tile_dims={unreduced}}", r"an array f32\[6\] of which .* have the mesh \[4, 2\]"),
    ],
)
def test_partial_sums_that_no_mesh_places_are_refused(annotation: str, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        partition(hl.parse(f"HloModule m\nENTRY e {{ ROOT x = f32[6] parameter(0), sharding={annotation} }}"), 8)
