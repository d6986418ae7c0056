"""scatter: windows of updates combined into an array at indices (spec 105)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hloom.ops.context import Computation, Context
from hloom.ops.index_vectors import IndexVectors, aligned
from hloom.ops.kinds import BOOL, COMPUTATION, INT, INTS
from hloom.ops.operation import Operation, attribute
from hloom.ops.rules import check_array, check_computation, check_dimensions, reduction_signature, result_shape
from hloom.ops.traits import AppliesScalar, Update
from hloom.shape import Ints, Shape
from hloom.values import Array, Value


class Scatter(Update, AppliesScalar, Operation, opcode="scatter"):
    """Combines windows of `updates` into `operands` at `scatter_indices` by `update_computation` (SCATTER-1 to -5).

    A window that is partly outside is skipped (SCATTER-6). Updates are applied in row-major order (SCATTER-7). The
    result has the operands' shapes, and is a tuple if there are several.
    """

    see_also = ("dynamic-update-slice", "select-and-scatter")
    operands = {
        "*operands": "arrays of equal dimensions into which windows are combined",
        "scatter_indices": "integers: a vector of them says where a window starts",
        "*updates": "windows, for each operand",
    }
    update_window_dims: Ints = attribute(
        INTS,
        proto="scatter_dimension_numbers.update_window_dims",
        doc="dimensions of `updates` that walk inside a window, increasing",
    )
    inserted_window_dims: Ints = attribute(
        INTS,
        proto="scatter_dimension_numbers.inserted_window_dims",
        doc="operand dimensions of size 1 in a window that `updates` leave out, increasing",
    )
    scatter_dims_to_operand_dims: Ints = attribute(
        INTS,
        proto="scatter_dimension_numbers.scatter_dims_to_operand_dims",
        doc="operand dimension to which each number of a scatter index belongs",
    )
    input_batching_dims: Ints = attribute(
        INTS,
        default=(),
        proto="scatter_dimension_numbers.input_batching_dims",
        doc="operand dimensions paired with batch dimensions of `scatter_indices` (SCATTER-11)",
    )
    scatter_indices_batching_dims: Ints = attribute(
        INTS,
        default=(),
        proto="scatter_dimension_numbers.scatter_indices_batching_dims",
        doc="dimensions of `scatter_indices` paired with the operands' batching dimensions",
    )
    index_vector_dim: int = attribute(
        INT,
        proto="scatter_dimension_numbers.index_vector_dim",
        doc="dimension of `scatter_indices` along which an index lies; its rank: each number is one",
    )
    indices_are_sorted: bool = attribute(
        BOOL, default=False, doc="promise that indices ascend; no effect on the result (SCATTER-9)"
    )
    unique_indices: bool = attribute(
        BOOL, default=False, doc="promise that no element is hit twice; no effect on the result (SCATTER-9)"
    )
    update_computation: Computation = attribute(
        COMPUTATION,
        text="to_apply",
        proto="called_computation_ids",
        doc="combiner of old elements and updates: a scalar of each operand, then one of each update",
    )

    @property
    def index_vectors(self) -> IndexVectors:
        """The dimensions of `scatter_indices`."""
        batching, name = (self.input_batching_dims, self.scatter_indices_batching_dims), "scatter_dims_to_operand_dims"
        return IndexVectors(self.index_vector_dim, self.scatter_dims_to_operand_dims, name, *batching)

    def infer(self, operands: tuple[Shape, ...], scatter_indices: Shape, updates: tuple[Shape, ...]) -> Shape:
        if not operands:
            self.reject("SCATTER-1", "needs at least one operand")
        check_array(self, "SCATTER-1", *operands, scatter_indices, *updates)
        operand, update = operands[0], updates[0]
        for a, b in zip(operands, updates, strict=True):
            if a.dimensions != operand.dimensions or b.dimensions != update.dimensions:
                self.reject("SCATTER-1", "all operands have one set of dimensions, and all updates one")
            if a.element_type is not b.element_type:
                self.reject("SCATTER-1", f"updates have the operand's type, got {a} and {b}")
        if not scatter_indices.element_type.is_integer:
            self.reject("SCATTER-10", f"scatter_indices are integers, got {scatter_indices}")
        self._check_dimensions(operand, scatter_indices, update)
        parameters, result = reduction_signature([shape.element_type for shape in operands])
        check_computation(self, "SCATTER-2", self.update_computation, parameters, result)
        shapes = [shape.without_layout() for shape in operands]
        return result_shape(shapes)

    def _check_dimensions(self, operand: Shape, indices: Shape, update: Shape) -> None:
        window, inserted = self.update_window_dims, self.inserted_window_dims
        check_dimensions(self, "SCATTER-10", inserted, operand.rank, "inserted_window_dims", increasing=True)
        check_dimensions(
            self, "SCATTER-11", self.input_batching_dims, operand.rank, "input_batching_dims", increasing=True
        )
        collapsed = {*inserted, *self.input_batching_dims}
        if len(collapsed) != len(inserted) + len(self.input_batching_dims) or operand.rank != len(window) + len(
            collapsed
        ):
            self.reject(
                "SCATTER-10",
                f"the rank of {operand} must be the number of update_window_dims {list(window)}, inserted_window_dims "
                f"{list(inserted)} and input_batching_dims {list(self.input_batching_dims)}, which are distinct",
            )
        batch = self.index_vectors.check(self, "SCATTER-10", indices, operand)
        self._check_update(update, operand, [d for d in range(operand.rank) if d not in collapsed], indices, batch)

    def _check_update(
        self, update: Shape, operand: Shape, targets: Sequence[int], indices: Shape, batch: Sequence[int]
    ) -> None:
        """Checks the sizes of windows against the dimensions `targets` of the operand, others against the indices."""
        window = self.update_window_dims
        if update.rank != len(window) + len(batch):
            self.reject(
                "SCATTER-10",
                f"updates need rank {len(window) + len(batch)} = windows + scatter dimensions, got {update}",
            )
        check_dimensions(self, "SCATTER-10", window, update.rank, "update_window_dims", increasing=True)
        for u, d in zip(window, targets, strict=True):
            if update.dimensions[u] > operand.dimensions[d]:
                self.reject("SCATTER-10", f"window size {update.dimensions[u]} exceeds dimension {d} of {operand}")
        scatter_dims = [u for u in range(update.rank) if u not in window]
        for u, e in zip(scatter_dims, batch, strict=True):
            if update.dimensions[u] != indices.dimensions[e]:
                self.reject("SCATTER-10", f"dimension {u} of {update} must equal dimension {e} of {indices}")

    def evaluate(
        self, ctx: Context, operands: tuple[Array, ...], scatter_indices: Array, updates: tuple[Array, ...]
    ) -> Value:
        targets, inside = self._targets(operands[0], scatter_indices, updates[0])
        # Window by window, in the order of the index vectors (SCATTER-7).
        window = self.update_window_dims
        order = [*(u for u in range(targets.ndim) if u not in window), *window]
        flat_inside = inside.transpose(order).reshape(-1)
        where = targets.transpose(order).reshape(-1)[flat_inside]
        results = [operand.flatten() for operand in operands]
        values = [update.transpose(order).reshape(-1)[flat_inside] for update in updates]
        apply_updates(ctx, self.update_computation, results, where, values)
        shaped = tuple(result.reshape(operands[0].shape) for result in results)
        return shaped if len(shaped) > 1 else shaped[0]

    def _targets(self, operand: Array, indices: Array, update: Array) -> tuple[Array, Array]:
        """The linear index in the operand of each element of `update`, and whether the element's whole window is
        inside.
        """
        starts = self.index_vectors.columns(indices)
        scatter_dims = [u for u in range(update.ndim) if u not in self.update_window_dims]
        collapsed = {*self.inserted_window_dims, *self.input_batching_dims}
        windowed = [d for d in range(operand.ndim) if d not in collapsed]
        linear = np.zeros((1,) * update.ndim, np.int64)
        inside = np.ones((1,) * update.ndim, bool)
        for d in range(operand.ndim):
            position = np.zeros((1,) * update.ndim, np.int64)
            extent = 1
            if d in starts:
                position = position + aligned(starts[d], scatter_dims, update.ndim)
            elif d in self.input_batching_dims:
                axis = scatter_dims[self.index_vectors.batch_axis(d)]
                position = position + aligned(np.arange(operand.shape[d]), [axis], update.ndim)
            if d in windowed:
                extent = update.shape[self.update_window_dims[windowed.index(d)]]
            inside = inside & (position >= 0) & (position <= operand.shape[d] - extent)
            if d in windowed:
                axis = self.update_window_dims[windowed.index(d)]
                position = position + aligned(np.arange(extent), [axis], update.ndim)
            linear = linear * operand.shape[d] + position
        return np.broadcast_to(linear, update.shape), np.broadcast_to(inside, update.shape)


def apply_updates(
    ctx: Context, computation: Computation, results: list[Array], targets: Array, values: list[Array]
) -> None:
    """Combines values into flat results, in place and in order: result[target] = computation(result[target], value).

    The k-th updates of all targets are combined at once, so the number of passes is the maximum number of updates of a
    target.
    """
    for indices, ordinals in _batches(targets):
        current = [result[indices] for result in results]
        combined = ctx.map(computation, *current, *(value[ordinals] for value in values))
        for result, new in zip(results, combined if len(results) > 1 else (combined,), strict=True):
            result[indices] = new


def _batches(targets: Array) -> list[tuple[Array, Array]]:
    """Groups updates into batches with one update of each target: batch k holds their k-th updates.

    A batch is the array of its targets and that of the ordinals of its updates.
    """
    if not targets.size:
        return []
    order = np.argsort(targets, kind="stable")
    ordered = targets[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    counts = np.diff(np.r_[starts, len(ordered)])
    if counts.max() == 1:
        return [(ordered, order)]
    batch = np.arange(len(ordered)) - np.repeat(starts, counts)
    by_batch = np.argsort(batch, kind="stable")
    ends = np.cumsum(np.bincount(batch))
    return [
        (ordered[by_batch[start:end]], order[by_batch[start:end]])
        for start, end in zip(np.r_[0, ends[:-1]], ends, strict=True)
    ]
