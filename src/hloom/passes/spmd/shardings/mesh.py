"""The mesh: a factorisation of the partition ids, along whose axes the dimensions of arrays are sharded.

All shardings of a module are expressed over one mesh. A partition id is written in mixed radix: axis 0 is its most
significant digit, and the product of the axis sizes is the number of partitions. A `Spec` gives for every dimension of
an array the axes along which it is sharded into equal blocks, major axis first. The digits of its id along these axes
select the block that a partition holds. Along axes that the spec does not name there are copies of the block, or
partial sums: a `Placement` tells which.

    8 partitions as a mesh of axes 0, 1, 2 of size 2: partition 6 = (1, 1, 0)
    f32[8, 4] with the spec ((0, 1), ()): four blocks of f32[2, 4]; partitions 6 and 7 hold block 3
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from hloom.shape import Shape
from hloom.sharding import Sharding, ShardingType, simplest_iota
from hloom.system.records import record

Axes = tuple[int, ...]
"""Axes of the mesh, major first."""

Spec = tuple[Axes, ...]
"""The axes along which each dimension of an array is sharded."""


@record(slots=True)
class Placement:
    """The distribution of an array over the partitions.

    Along the axes `unreduced`, which are not in `spec`, each partition holds a partial sum of the array.
    """

    spec: Spec
    unreduced: Axes = ()

    @staticmethod
    def replicated(rank: int) -> Placement:
        """The placement of an array that every partition holds whole."""
        return Placement(((),) * rank)


@record(slots=True)
class SubAxis:
    """The digit (partition // stride) % size of partition ids, as shardings of a module name it before the mesh is
    known.
    """

    stride: int
    size: int


@record
class Mesh:
    """A mesh of partitions: `sizes[axis]` is the radix of one digit of the partition id, the most significant first."""

    sizes: tuple[int, ...]

    @staticmethod
    def over(count: int, sub_axes: Iterable[SubAxis]) -> Mesh:
        """Returns the coarsest mesh of `count` partitions that can express the sub-axes.

        Earlier sub-axes take precedence over later ones that are incompatible with them, as strides 2 and 3 are.
        """
        bounds = [1, count]
        for sub_axis in sub_axes:
            wanted = sorted({*bounds, sub_axis.stride, sub_axis.stride * sub_axis.size})
            if all(large % small == 0 for small, large in zip(wanted, wanted[1:])):
                bounds = wanted
        return Mesh(tuple(large // small for small, large in zip(bounds, bounds[1:]))[::-1])

    @property
    def count(self) -> int:
        """The number of partitions."""
        return math.prod(self.sizes)

    def stride(self, axis: int) -> int:
        """The distance between the ids of partitions that are neighbours along an axis."""
        return math.prod(self.sizes[axis + 1 :])

    def shard_count(self, axes: Axes) -> int:
        """The number of blocks into which a dimension is sharded along the axes."""
        return math.prod(self.sizes[axis] for axis in axes)

    def axes_of(self, sub_axis: SubAxis) -> Axes | None:
        """The axes that make up a sub-axis; None if this mesh cannot express it."""
        axes = tuple(
            axis
            for axis in range(len(self.sizes))
            if sub_axis.stride <= self.stride(axis)
            and self.stride(axis) * self.sizes[axis] <= sub_axis.stride * sub_axis.size
        )
        return axes if self.shard_count(axes) == sub_axis.size else None

    def block_index(self, partition: int, axes: Axes) -> int:
        """The index of the block that a partition holds of a dimension sharded along the axes."""
        block_index = 0
        for axis in axes:
            block_index = block_index * self.sizes[axis] + partition // self.stride(axis) % self.sizes[axis]
        return block_index

    def groups(self, axes: Axes) -> list[list[int]]:
        """Groups of the partitions that differ only along the axes, ordered by the index of their blocks."""
        groups: dict[tuple[int, ...], list[int]] = {}
        rest = [axis for axis in range(len(self.sizes)) if axis not in axes]
        for partition in sorted(range(self.count), key=lambda p: self.block_index(p, axes)):
            groups.setdefault(tuple(self.block_index(partition, (axis,)) for axis in rest), []).append(partition)
        return list(groups.values())

    def local_shape(self, shape: Shape, spec: Spec) -> Shape:
        """The shape of one block of an array."""
        if not any(spec):
            return shape
        sizes = [size // self.shard_count(axes) for size, axes in zip(shape.dimensions, spec, strict=True)]
        return Shape.array(shape.element_type, sizes, shape.dynamic_dimensions, shape.layout)

    def divides(self, size: int, axes: Axes) -> bool:
        """Whether a dimension can be sharded along the axes into equal blocks that are not empty."""
        return size > 0 and size % self.shard_count(axes) == 0

    def sharding(self, placement: Placement) -> Sharding:
        """Returns the GSPMD annotation that is equivalent to a placement."""
        used = tuple(axis for axes in placement.spec for axis in axes)
        rest = tuple(axis for axis in range(len(self.sizes)) if axis not in (*used, *placement.unreduced))
        last = [(ShardingType.REPLICATED, rest), (ShardingType.UNREDUCED, placement.unreduced)]
        last = [(kind, axes) for kind, axes in last if axes]
        if not used and len(last) <= 1:
            return Sharding(last[0][0] if last else ShardingType.REPLICATED)
        order = used + sum((axes for _, axes in last), ())
        sizes, transpose = simplest_iota(self.sizes, order)
        return Sharding(
            ShardingType.OTHER,
            (*map(self.shard_count, placement.spec), *(self.shard_count(axes) for _, axes in last)),
            iota_reshape_dims=sizes,
            iota_transpose_perm=transpose,
            replicate_on_last_tile_dim=bool(rest) and not placement.unreduced,
            last_tile_dims=tuple(kind for kind, _ in last) if placement.unreduced else (),
        )


def sub_axes_of(assignment: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> list[tuple[SubAxis, ...]] | None:
    """The sub-axes along which the partition ids of an assignment grow, per dimension; None if it is irregular."""
    origin = (0,) * assignment.ndim
    along = [np.moveaxis(assignment, d, -1)[origin[1:]] for d in range(assignment.ndim)]
    total = sum((line.reshape([-1 if d == k else 1 for k in range(assignment.ndim)]) for d, line in enumerate(along)))
    if assignment[origin] != 0 or not np.array_equal(total, assignment):
        return None
    digits = [_sub_axes_along(line.tolist()) for line in along]
    return None if any(d is None for d in digits) else [d for d in digits if d is not None]


def _sub_axes_along(line: Sequence[int]) -> tuple[SubAxis, ...] | None:
    """Returns the sub-axes, major first, of ids that start at 0 and count in mixed radix; None for other ids."""
    found: list[SubAxis] = []
    while len(line) > 1:
        step = line[1]
        run = next((n for n in range(2, len(line)) if line[n] != n * step), len(line))
        if step <= 0 or len(line) % run:
            return None
        if any(line[n] != line[n - n % run] + n % run * step for n in range(len(line))):
            return None
        found.append(SubAxis(step, run))
        line = line[::run]
    return tuple(reversed(found))
