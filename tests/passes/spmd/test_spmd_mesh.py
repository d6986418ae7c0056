"""Shardings as specs over one mesh, and the forms in which they are read."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
from hloom.errors import ArgumentError
from hloom.passes.spmd.partitioner import partition
from hloom.passes.spmd.shardings.annotations import Shardy, read_sharding
from hloom.passes.spmd.shardings.mesh import Mesh, Placement, SubAxis, sub_axes_of
from hloom.shape import Shape
from hloom.sharding import Sharding
from hloom.text.scanner import Scanner
from hloom.text.sharding import scan_sharding

MESH = Mesh((4, 2))


def sharding(text: str) -> Sharding:
    return scan_sharding(Scanner(text))


def test_partitions_have_coordinates_in_the_mesh() -> None:
    assert MESH.count == 8 and [MESH.stride(a) for a in (0, 1)] == [2, 1]
    assert [MESH.block_index(p, (1, 0)) for p in range(8)] == [0, 4, 1, 5, 2, 6, 3, 7]
    assert MESH.groups((0,)) == [[0, 2, 4, 6], [1, 3, 5, 7]]
    assert MESH.groups((1, 0)) == [[0, 2, 4, 6, 1, 3, 5, 7]]


@pytest.mark.parametrize(
    ("sub_axes", "sizes"),
    [
        ([], (8,)),
        ([SubAxis(2, 4), SubAxis(1, 2)], (4, 2)),
        ([SubAxis(2, 4), SubAxis(1, 4)], (2, 2, 2)),
        ([SubAxis(4, 2), SubAxis(3, 2)], (2, 4)),  # a stride of 3 does not go with one of 4
    ],
)
def test_the_mesh_is_the_coarsest_with_all_sub_axes(sub_axes: list[SubAxis], sizes: tuple[int, ...]) -> None:
    assert Mesh.over(8, sub_axes).sizes == sizes


def test_sub_axes_that_a_mesh_lacks_have_no_axes() -> None:
    assert MESH.axes_of(SubAxis(1, 8)) == (0, 1)
    assert MESH.axes_of(SubAxis(1, 4)) is None


@pytest.mark.parametrize(
    ("text", "sub_axes"),
    [
        ("{devices=[4,2]<=[8]}", ((SubAxis(2, 4),), (SubAxis(1, 2),))),
        ("{devices=[2,4]<=[4,2]T(1,0)}", ((SubAxis(1, 2),), (SubAxis(2, 4),))),
        ("{devices=[8,1]<=[2,2,2]T(0,2,1)}", ((SubAxis(4, 2), SubAxis(1, 2), SubAxis(2, 2)), ())),
        ("{devices=[1,2,4]<=[4,2]T(1,0) last_tile_dim_replicate}", ((), (SubAxis(1, 2),))),
        ("{devices=[2,1,4]0,1,2,3,4,5,6,7 last_tile_dim_replicate}", ((SubAxis(4, 2),), ())),
        ("{devices=[8,1]0,1,2,3,7,6,5,4}", None),
        ("{replicated}", ((), ())),
    ],
)
def test_assignments_are_read_as_sub_axes(text: str, sub_axes: object) -> None:
    assert read_sharding(sharding(text), 2, 8).sub_axes == sub_axes


@pytest.mark.parametrize("spec", [((), ()), ((0,), ()), ((1,), (0,)), ((1, 0), ()), ((), (0, 1))])
def test_a_spec_and_its_annotation_are_equivalent(spec: tuple[tuple[int, ...], ...]) -> None:
    annotation = read_sharding(MESH.sharding(Placement(spec)), 2, 8)
    assert annotation.sub_axes is not None
    read = tuple(
        tuple(a for sub_axis in sub_axes for a in MESH.axes_of(sub_axis) or ()) for sub_axes in annotation.sub_axes
    )
    assert [MESH.shard_count(axes) for axes in read] == [MESH.shard_count(axes) for axes in spec]
    for block in np.ndindex(annotation.tiles):
        for partition_id in annotation.assignment[block]:
            assert tuple(MESH.block_index(int(partition_id), axes) for axes in spec) == block


def test_manual_sub_axes_are_separate() -> None:
    annotation = read_sharding(sharding("{devices=[1,2,4]<=[4,2]T(1,0) last_tile_dims={manual}}"), 2, 8)
    assert annotation.sub_axes == ((), (SubAxis(1, 2),)) and annotation.manual == (SubAxis(2, 4),)
    assert read_sharding(sharding("{manual}"), 2, 8).manual == (SubAxis(1, 8),)


SHARDY = Shardy(
    '{mesh = #sdy.mesh<["x"=4, "y"=2]>, swapped = #sdy.mesh<["z"=8], device_ids=[1,0,2,3,4,5,6,7]>, '
    'transposed = #sdy.mesh<["x"=2, "y"=4], device_ids=[0,2,4,6,1,3,5,7]>}',
    8,
)
TABLE = Shape.array(hl.f32, [8, 8])


@pytest.mark.parametrize(
    ("text", "sub_axes", "is_open"),
    [
        ('#sdy.sharding<@mesh, [{"x"}, {"y"}]>', ((SubAxis(2, 4),), (SubAxis(1, 2),)), (False, False)),
        ('#sdy.sharding<@mesh, [{?}, {"y", ?}]>', ((), (SubAxis(1, 2),)), (True, True)),
        ('#sdy.sharding<@mesh, [{"x", "y"}p0, {}]>', ((SubAxis(1, 8),), ()), (False, False)),
        ('#sdy.sharding<@mesh, [{"y", "x"}, {}]>', ((SubAxis(1, 2), SubAxis(2, 4)), ()), (False, False)),
        ('#sdy.sharding<@mesh, [{"x":(1)2}, {"x":(2)2}]>', ((SubAxis(4, 2),), (SubAxis(2, 2),)), (False, False)),
        ('#sdy.sharding_per_value<[<@mesh, [{}, {"x"}], replicated={"y"}>]>', ((), (SubAxis(2, 4),)), (False, False)),
        ('#sdy.sharding<@swapped, [{"z"}, {}]>', None, (False, False)),
    ],
)
def test_shardy_attributes(text: str, sub_axes: object, is_open: tuple[bool, ...]) -> None:
    (annotation,) = SHARDY.read(text, [TABLE])
    assert annotation.sub_axes == sub_axes and annotation.open == is_open


@pytest.mark.parametrize(
    ("text", "unreduced"),
    [
        ('#sdy.sharding<@mesh, [{}, {"x"}], unreduced={"y"}>', (SubAxis(1, 2),)),
        ('#sdy.sharding<@mesh, [{}, {}], unreduced={"x":(1)2, "y"}>', (SubAxis(4, 2), SubAxis(1, 2))),
        ('#sdy.sharding<@transposed, [{}, {}], unreduced={"x"}>', (SubAxis(1, 2),)),
    ],
)
def test_shardy_attributes_name_the_axes_of_partial_sums(text: str, unreduced: tuple[SubAxis, ...]) -> None:
    assert SHARDY.read(text, [TABLE])[0].unreduced == unreduced


def test_shardy_attributes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ArgumentError, match="declares no mesh @other; it has: mesh, swapped, transposed"):
        SHARDY.read('#sdy.sharding<@other, [{"x"}, {}]>', [TABLE])
    with pytest.raises(ArgumentError, match="has 1 shardings for 2 values"):
        SHARDY.read('#sdy.sharding<@mesh, [{"x"}, {}]>', [TABLE, TABLE])


def test_irregular_assignments_have_no_sub_axes() -> None:
    assert sub_axes_of(np.array([[0, 2], [1, 3]])) == [(SubAxis(1, 2),), (SubAxis(2, 2),)]
    assert sub_axes_of(np.array([[0, 1], [3, 2]])) is None
    assert sub_axes_of(np.array([1, 0])) is None


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
    assert tuple(a for sub_axis in unreduced for a in MESH.axes_of(sub_axis) or ()) == placement.unreduced


@pytest.mark.parametrize(
    ("annotation", "message"),
    [
        (
            "{devices=[4,2]0,1,3,2,4,5,6,7 last_tile_dims={unreduced}}",
            r"listed in the order of a mesh, got \[0, 1, 3, 2,",
        ),
        (
            "{devices=[4,2]<=[8] last_tile_dims={unreduced}}",
            r"an array f32\[6\] of partial sums .* have the mesh \[4, 2\]",
        ),
    ],
)
def test_partial_sums_that_no_mesh_expresses_are_refused(annotation: str, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        partition(hl.parse(f"HloModule m\nENTRY e {{ ROOT x = f32[6] parameter(0), sharding={annotation} }}"), 8)
