"""Resharding: moves arrays between shardings, by all-gathers, all-to-alls, slices and sums over groups of partitions.

Every method appends instructions to the computation that is being emitted. The steps from one spec to another are

 1. axes that leave the end of one dimension for the end of another one are moved by an all-to-all;
 2. axes that a dimension no longer has are gathered, from the first one that differs;
 3. axes that a dimension has gained need no communication: each partition slices out its block.

A block or a replicated value becomes a partial sum without communication, too: the other terms are zeros.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from hloom.ir import Computation, Instruction, Module
from hloom.literal import Literal
from hloom.ops.attributes import ComparisonDirection, ReplicaGroups
from hloom.ops.collectives import AllGather, AllReduce, AllToAll, CollectiveBroadcast, CollectivePermute, ReduceScatter
from hloom.ops.compare import Compare
from hloom.ops.device_index import PartitionId
from hloom.ops.pad import Concatenate
from hloom.ops.reshape import Reshape
from hloom.ops.select import Select
from hloom.ops.slice import DynamicSlice, DynamicUpdateSlice
from hloom.ops.structure import Constant
from hloom.passes.op_builder import OpBuilder
from hloom.passes.spmd.shardings.annotations import Annotation
from hloom.passes.spmd.shardings.mesh import Axes, Mesh, Spec
from hloom.shape import Shape


class Resharding:
    """Emits the instructions that move arrays, at the end of one computation."""

    def __init__(self, mesh: Mesh, module: Module, channels: Iterator[int], build: OpBuilder) -> None:
        self.mesh = mesh
        self.replicas = module.replica_count
        self.channels = channels
        self.build = build
        self._partition: Instruction | None = None

    def move(self, value: Instruction, source: Spec, target: Spec) -> Instruction:
        """Reshards an array from the spec `source` to `target`."""
        current = list(source)
        for d, e in itertools.permutations(range(len(source)), 2):
            axes = _exchanged_axes(current, target, d, e)
            if axes and value.shape.dimensions[e] % self.mesh.shard_count(axes) == 0:
                value = self.all_to_all(value, e, d, axes)
                current[d], current[e] = current[d][: -len(axes)], current[e] + axes
        for d, (have, want) in enumerate(zip(current, target, strict=True)):
            kept = _common_prefix(have, want)
            value = self.all_gather(value, d, have[len(kept) :])
            current[d] = kept
        return self.slice_block(value, [want[len(have) :] for have, want in zip(current, target, strict=True)])

    def all_gather(self, value: Instruction, dimension: int, axes: Axes) -> Instruction:
        """Concatenates the blocks along some axes, so that every partition holds the whole dimension."""
        if not axes:
            return value
        sizes = [*value.shape.dimensions]
        sizes[dimension] *= self.mesh.shard_count(axes)
        op = AllGather(
            all_gather_dim=dimension,
            replica_groups=self.groups(axes),
            channel_id=next(self.channels),
            use_global_device_ids=True,
        )
        return self.build(op, value, shape=Shape.array(value.shape.element_type, sizes))

    def all_reduce(self, value: Instruction, axes: Axes, computation: Computation) -> Instruction:
        """Combines the values of the partitions that differ along some axes."""
        if not axes:
            return value
        op = AllReduce(
            computation=computation,
            replica_groups=self.groups(axes),
            channel_id=next(self.channels),
            use_global_device_ids=True,
        )
        return self.build(op, value)

    def reduce_scatter(self, value: Instruction, dimension: int, axes: Axes, computation: Computation) -> Instruction:
        """Combines the values of the partitions that differ along some axes; each partition gets a block."""
        sizes = [*value.shape.dimensions]
        sizes[dimension] //= self.mesh.shard_count(axes)
        op = ReduceScatter(
            scatter_dimension=dimension,
            computation=computation,
            replica_groups=self.groups(axes),
            channel_id=next(self.channels),
            use_global_device_ids=True,
        )
        return self.build(op, value, shape=Shape.array(value.shape.element_type, sizes))

    def all_to_all(self, value: Instruction, split: int, join: int, axes: Axes) -> Instruction:
        """Moves the axes from dimension `join` to dimension `split`, which becomes sharded along them."""
        shard_count = self.mesh.shard_count(axes)
        part = value.shape.dimensions[split] // shard_count
        pieces = [self.build.slice_dimension(value, split, k * part, part) for k in range(shard_count)]
        shape = Shape.tuple_of([pieces[0].shape] * shard_count)
        # All-to-all has no global device ids: its groups are of partitions.
        groups = ReplicaGroups(tuple(map(tuple, self.mesh.groups(axes))))
        sent = self.build(AllToAll(replica_groups=groups, channel_id=next(self.channels)), *pieces, shape=shape)
        return self.build(Concatenate(dimension=join), *self.build.elements(sent))

    def slice_block(self, value: Instruction, axes: Sequence[Axes]) -> Instruction:
        """Each partition's block of a value that is replicated along the axes."""
        if not any(axes):
            return value
        sizes = [n // self.mesh.shard_count(a) for n, a in zip(value.shape.dimensions, axes, strict=True)]
        starts = [
            [self.mesh.block_index(p, a) * n for p in range(self.mesh.count)] for n, a in zip(sizes, axes, strict=True)
        ]
        return self.slice_at(value, starts, sizes)

    def slice_at(self, value: Instruction, starts: Sequence[Sequence[int]], sizes: Sequence[int]) -> Instruction:
        """A slice at an offset that depends on the partition: `starts[dimension][partition]`."""
        indices = [self.select_by_partition(offsets) for offsets in starts]
        return self.build(DynamicSlice(size_indices=tuple(sizes)), value, *indices)

    def select_by_partition(self, values: Sequence[int]) -> Instruction:
        """The element of `values` at the index of this partition: a look-up in a constant table."""
        if len(set(values)) == 1:
            return self.constant(np.asarray(values[0], np.int32))
        table = self.constant(np.asarray(values, np.int32))
        entry = self.build(DynamicSlice(size_indices=(1,)), table, self.partition)
        return self.build(Reshape(), entry, shape=Shape.array(table.shape.element_type))

    @property
    def partition(self) -> Instruction:
        """The partition id, emitted once."""
        if self._partition is None:
            self._partition = self.build(PartitionId())
        return self._partition

    def constant(self, value: np.ndarray[tuple[int, ...], np.dtype[np.int32]]) -> Instruction:
        """Emits an s32 constant."""
        return self.build(Constant(literal=Literal.from_numpy(value)))

    def groups(self, axes: Axes) -> ReplicaGroups:
        """The groups of devices that differ along some axes, for every replica."""
        count = self.mesh.count
        partitions = self.mesh.groups(axes)
        return ReplicaGroups(tuple(tuple(r * count + p for p in g) for r in range(self.replicas) for g in partitions))

    def pad_to_partial_sums(self, value: Instruction, dimension: int, axes: Axes) -> Instruction:
        """Converts blocks along some axes to partial sums of the whole dimension, padded with zeros."""
        if not axes:
            return value
        size = value.shape.dimensions[dimension]
        sizes = [*value.shape.dimensions]
        sizes[dimension] *= self.mesh.shard_count(axes)
        zero = self.build.constant(0, value.shape.element_type)
        zeros = self.build.broadcast(zero, Shape.array(value.shape.element_type, sizes))
        offsets = [self.mesh.block_index(p, axes) * size for p in range(self.mesh.count)]
        starts = [self.select_by_partition(offsets if d == dimension else [0]) for d in range(len(sizes))]
        return self.build(DynamicUpdateSlice(), zeros, value, *starts)

    def keep_one_partial_sum(self, value: Instruction, axes: Axes) -> Instruction:
        """Converts a value that is replicated along some axes to partial sums: the value itself, and zeros."""
        if not axes:
            return value
        block = self.select_by_partition([self.mesh.block_index(p, axes) for p in range(self.mesh.count)])
        first = self.build(Compare(direction=ComparisonDirection.EQ), block, self.constant(np.asarray(0, np.int32)))
        everywhere = self.build.broadcast(first, value.shape)
        zero = self.build.broadcast(self.build.constant(0, value.shape.element_type), value.shape)
        return self.build(Select(), everywhere, value, zero)

    def broadcast_from(self, value: Instruction, device: int) -> Instruction:
        """Broadcasts the value of one partition to all others."""
        others = [p for p in range(self.mesh.count) if p != device]
        op = CollectiveBroadcast(replica_groups=ReplicaGroups(((device, *others),)), channel_id=next(self.channels))
        return self.build(op, value)

    def reverse_blocks(self, value: Instruction, axes: Axes) -> Instruction:
        """Exchanges blocks with the partition at the opposite position along the axes."""
        if not axes:
            return value
        sizes, strides = self.mesh.sizes, [self.mesh.stride(axis) for axis in range(len(self.mesh.sizes))]
        digits = {p: [p // stride % size for stride, size in zip(strides, sizes)] for p in range(self.mesh.count)}
        pairs = []
        for p, slot in digits.items():
            there = [sizes[axis] - 1 - k if axis in axes else k for axis, k in enumerate(slot)]
            pairs.append((p, sum(k * stride for k, stride in zip(there, strides, strict=True))))
        return self.build(CollectivePermute(source_target_pairs=tuple(pairs), channel_id=next(self.channels)), value)

    # Shardings that the mesh cannot express, or whose blocks are not equal

    def assemble(self, value: Instruction, shape: Shape, annotation: Annotation) -> Instruction:
        """Gathers the whole array on every partition, from blocks in an irregular sharding.

        The padding of blocks that reach over the end of the array is dropped.
        """
        block = value.shape
        flat = self.build(Reshape(), value, shape=Shape.array(block.element_type, (1, *block.dimensions)))
        every = tuple(range(len(self.mesh.sizes)))
        gathered = self.all_gather(flat, 0, every)
        order = self.mesh.groups(every)[0]

        def joined(index: tuple[int, ...]) -> Instruction:
            d = len(index)
            if d == shape.rank:
                slot = order.index(int(annotation.assignment[index][0]))
                return self.build(Reshape(), self.build.slice_dimension(gathered, 0, slot, 1), shape=block)
            parts = [joined((*index, k)) for k in range(annotation.tiles[d])]
            return parts[0] if len(parts) == 1 else self.build(Concatenate(dimension=d), *parts)

        whole = joined(())
        for d, size in enumerate(shape.dimensions):
            whole = self.build.slice_dimension(whole, d, 0, size)
        return whole

    def distribute(self, value: Instruction, annotation: Annotation) -> Instruction:
        """Slices each partition's block, in an irregular sharding, out of a replicated array; padded at the end."""
        sizes = [-(-n // tiles) for n, tiles in zip(value.shape.dimensions, annotation.tiles, strict=True)]
        for d, (size, tiles) in enumerate(zip(sizes, annotation.tiles, strict=True)):
            value = self._padded(value, d, size * tiles)
        offsets = {int(p): index for index in np.ndindex(annotation.tiles) for p in annotation.assignment[index]}
        starts = [
            [offsets.get(p, (0,) * len(sizes))[d] * size for p in range(self.mesh.count)]
            for d, size in enumerate(sizes)
        ]
        return self.slice_at(value, starts, sizes)

    def _padded(self, value: Instruction, dimension: int, size: int) -> Instruction:
        missing = size - value.shape.dimensions[dimension]
        if not missing:
            return value
        sizes = [*value.shape.dimensions]
        sizes[dimension] = missing
        zero = self.build.constant(0, value.shape.element_type)
        filling = self.build.broadcast(zero, Shape.array(value.shape.element_type, sizes))
        return self.build(Concatenate(dimension=dimension), value, filling)


def block_shape(shape: Shape, annotation: Annotation) -> Shape:
    """The shape of the blocks of `assemble` and `distribute`."""
    sizes = [-(-n // tiles) for n, tiles in zip(shape.dimensions, annotation.tiles, strict=True)]
    return Shape.array(shape.element_type, sizes, layout=shape.layout)


def _common_prefix(a: Axes, b: Axes) -> Axes:
    """The longest common prefix of two sequences of axes."""
    count = next((k for k, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
    return a[:count]


def _exchanged_axes(current: Sequence[Axes], target: Spec, d: int, e: int) -> Axes:
    """The axes that move from the end of dimension d to the end of dimension e; empty if there are none."""
    removed = current[d][len(_common_prefix(current[d], target[d])) :]
    if not removed or target[d] != current[d][: -len(removed)]:
        return ()
    return removed if target[e][: len(current[e]) + len(removed)] == current[e] + removed else ()


def resharding_cost(mesh: Mesh, shape: Shape, source: Spec, target: Spec) -> float:
    """Estimates the bytes that a partition receives in `Resharding.move`; `shape` is that of the whole array."""
    current, received = list(source), 0.0
    size = float(shape.byte_size) if any(source) and source != target else 0.0
    for d, e in itertools.permutations(range(len(source)), 2):
        axes = _exchanged_axes(current, target, d, e)
        if axes:
            received += size / mesh.shard_count(sum(current, ()))
            current[d], current[e] = current[d][: -len(axes)], current[e] + axes
    for d, want in enumerate(target):
        have, current[d] = current[d], _common_prefix(current[d], want)
        if current[d] != have:
            received += size / mesh.shard_count(sum(current, ()))
    return received
