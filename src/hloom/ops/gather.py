"""gather: slices at start indices, gathered into one array (spec 84)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hloom.affine import Index
from hloom.errors import RunError
from hloom.ops.context import Context
from hloom.ops.index_vectors import IndexVectors, aligned
from hloom.ops.indexing import Indexing, Indices, Read
from hloom.ops.kinds import BOOL, INT, INTS
from hloom.ops.operation import Operation, attribute
from hloom.ops.rules import check_array, check_dimensions
from hloom.ops.traits import Movement
from hloom.shape import Ints, Shape
from hloom.values import Array


class Gather(Movement, Operation, opcode="gather"):
    """Gathers slices of `operand`, each at a start index taken from `start_indices` (GATHER-1 to GATHER-6).

    A start index is a vector along `index_vector_dim`, for the operand dimensions `start_index_map`; it is clamped so
    that the slice is inside (GATHER-7). The result has the batch dimensions of `start_indices` and, at `offset_dims`,
    those of the slices that are neither collapsed nor batching dimensions.
    """

    see_also = ("scatter", "dynamic-slice")
    operands = {
        "operand": "array of which slices are taken",
        "start_indices": "integers: a vector of them says where a slice starts",
    }
    cost = 6
    offset_dims: Ints = attribute(
        INTS, proto="gather_dimension_numbers.offset_dims", doc="result dimensions that walk inside a slice, increasing"
    )
    collapsed_slice_dims: Ints = attribute(
        INTS,
        proto="gather_dimension_numbers.collapsed_slice_dims",
        doc="operand dimensions of slice size 1 that the result leaves out, increasing",
    )
    start_index_map: Ints = attribute(
        INTS,
        proto="gather_dimension_numbers.start_index_map",
        doc="operand dimension to which each number of a start index belongs",
    )
    operand_batching_dims: Ints = attribute(
        INTS,
        default=(),
        proto="gather_dimension_numbers.operand_batching_dims",
        doc="operand dimensions paired with batch dimensions of `start_indices` (GATHER-13)",
    )
    start_indices_batching_dims: Ints = attribute(
        INTS,
        default=(),
        proto="gather_dimension_numbers.start_indices_batching_dims",
        doc="dimensions of `start_indices` paired with the operand's batching dimensions",
    )
    index_vector_dim: int = attribute(
        INT,
        proto="gather_dimension_numbers.index_vector_dim",
        doc="dimension of `start_indices` along which a start index lies; its rank: each number is one",
    )
    slice_sizes: Ints = attribute(INTS, proto="gather_slice_sizes", doc="size of a slice in each operand dimension")
    indices_are_sorted: bool = attribute(
        BOOL, default=False, doc="promise that start indices ascend; no effect here (GATHER-12)"
    )

    @property
    def index_vectors(self) -> IndexVectors:
        """The dimensions of `start_indices`."""
        batching = self.operand_batching_dims, self.start_indices_batching_dims
        return IndexVectors(self.index_vector_dim, self.start_index_map, "start_index_map", *batching)

    def infer(self, operand: Shape, start_indices: Shape) -> Shape:
        check_array(self, "GATHER-11", operand, start_indices)
        if not start_indices.element_type.is_integer:
            self.reject("GATHER-11", f"start_indices are integers, got {start_indices}")
        offsets = iter(self._offset_sizes(operand))
        batch = self.index_vectors.check(self, "GATHER-11", start_indices, operand)
        rank = len(batch) + len(self.offset_dims)
        check_dimensions(self, "GATHER-11", self.offset_dims, rank, "offset_dims", increasing=True)
        batches = ((start_indices.dimensions[d], start_indices.dynamic_dimensions[d]) for d in batch)
        sizes = [next(offsets if d in self.offset_dims else batches) for d in range(rank)]
        return Shape.array(operand.element_type, [size for size, _ in sizes], [is_dynamic for _, is_dynamic in sizes])

    def _offset_sizes(self, operand: Shape) -> list[tuple[int, bool]]:
        """Checks the slices, and returns the size of each offset dimension, and whether it is dynamic."""
        rank, sizes = operand.rank, self.slice_sizes
        check_dimensions(self, "GATHER-11", self.collapsed_slice_dims, rank, "collapsed_slice_dims", increasing=True)
        check_dimensions(self, "GATHER-13", self.operand_batching_dims, rank, "operand_batching_dims", increasing=True)
        collapsed = self._collapsed
        if len(collapsed) != len(self.collapsed_slice_dims) + len(self.operand_batching_dims):
            self.reject("GATHER-13", "collapsed_slice_dims and operand_batching_dims must not share dimensions")
        if rank != len(self.offset_dims) + len(collapsed):
            self.reject(
                "GATHER-11",
                f"the rank of {operand} must be the number of offset_dims {list(self.offset_dims)} and of collapsed "
                f"and batching dimensions {sorted(collapsed)}",
            )
        if len(sizes) != rank:
            self.reject("GATHER-11", f"slice_sizes needs {rank} entries for {operand}, got {list(sizes)}")
        for d, (part, size) in enumerate(zip(sizes, operand.dimensions, strict=True)):
            if not 0 <= part <= size or (d in collapsed and part > 1):
                bound = min(size, 1) if d in collapsed else size
                self.reject("GATHER-11", f"slice size {part} of dimension {d} must be in [0, {bound}]")
            if d in self.collapsed_slice_dims and part != 1:
                self.reject("GATHER-11", f"collapsed dimension {d} has slice size 1, got {part}")
        return [
            (sizes[d], operand.dynamic_dimensions[d] and sizes[d] == operand.dimensions[d])
            for d in range(rank)
            if d not in collapsed
        ]

    def evaluate(self, ctx: Context, operand: Array, start_indices: Array) -> Array:
        sizes = self._actual_sizes(ctx.operand_shapes[0], operand.shape)
        vectors = self.index_vectors
        starts = vectors.columns(start_indices)
        batch_sizes = [n for d, n in enumerate(start_indices.shape) if d != self.index_vector_dim]
        offsets = [d for d in range(operand.ndim) if d not in self._collapsed]
        result_sizes = [*batch_sizes, *(sizes[d] for d in offsets)]
        count, rank = len(batch_sizes), len(result_sizes)
        # An index array for each operand dimension, over the batch dimensions of the result, then its offset
        # dimensions.
        index = []
        for d in range(operand.ndim):
            positions = np.zeros((1,) * rank, np.int64)
            if d in starts:
                positions = aligned(np.clip(starts[d], 0, operand.shape[d] - sizes[d]), range(count), rank)
            elif d in self.operand_batching_dims:
                positions = aligned(np.arange(operand.shape[d]), [vectors.batch_axis(d)], rank)
            if d in offsets:
                positions = positions + aligned(np.arange(sizes[d]), [count + offsets.index(d)], rank)
            index.append(positions)
        gathered = np.broadcast_to(operand[tuple(index)] if index else operand, result_sizes)
        batch_dims = [d for d in range(rank) if d not in self.offset_dims]
        return np.moveaxis(gathered, range(rank), [*batch_dims, *self.offset_dims])

    @property
    def _collapsed(self) -> set[int]:
        """The operand dimensions of which the result has none."""
        return {*self.collapsed_slice_dims, *self.operand_batching_dims}

    def _actual_sizes(self, declared: Shape, actual: Sequence[int]) -> list[int]:
        """Returns the sizes of slices of an operand of an actual size: a dynamic dimension may be taken whole."""
        for d, (part, size) in enumerate(zip(self.slice_sizes, actual, strict=True)):
            is_whole = d not in self._collapsed and part == declared.dimensions[d]
            if size < part and not is_whole:
                raise RunError(f"SETDIMENSIONSIZE-3: gather of {part} elements along dimension {d} from {size}")
        return [*map(min, self.slice_sizes, actual)]

    def indexing(self, at: Indexing, index: Indices) -> list[Read]:
        operand, starts = at.operands
        batch = [i for d, i in enumerate(index) if d not in self.offset_dims]
        inner: list[Index] = [at.space.constant(0)] * operand.rank
        for d, r in zip((d for d in range(operand.rank) if d not in self._collapsed), self.offset_dims, strict=True):
            inner[d] = index[r]
        for component, d in enumerate(self.start_index_map):
            vector = list(batch)
            if self.index_vector_dim < starts.rank:
                vector.insert(self.index_vector_dim, at.space.constant(component))
            start = at.runtime(1, tuple(vector), 0, operand.dimensions[d] - self.slice_sizes[d])
            inner[d] = at.space.add(inner[d], start)
        for d in self.operand_batching_dims:
            inner[d] = batch[self.index_vectors.batch_axis(d)]
        return [Read(0, tuple(inner))]

    def on_blocks(self, whole: Sequence[Shape], blocks: Sequence[Shape], result: Shape) -> Gather:
        sizes = zip(self.slice_sizes, whole[0].dimensions, blocks[0].dimensions, strict=True)
        return self.replace(slice_sizes=tuple(min(part, new) if part == old else part for part, old, new in sizes))
