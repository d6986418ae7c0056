"""Builder methods for operations that move elements or create arrays (spec 9, 10, 15, 17, 27, 28, 84, 86, 89, 100,
110).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hloom.broadcasting import Broadcasting
from hloom.builder.arguments import ints, makes, sequence, shape_of
from hloom.builder.core import BuilderCore
from hloom.builder.xla_op import XlaOp
from hloom.errors import ArgumentError, RuleError
from hloom.ops.attributes import SliceDimension
from hloom.ops.operation import OPERATIONS
from hloom.ops.reshape import kept_dimensions
from hloom.ops.structure import Constant
from hloom.shape import Shape, normalize_dimension
from hloom.types import PrimitiveType


class ShapeMethods(BuilderCore):
    """Methods for operations that move elements or create arrays."""

    @makes("broadcast", broadcast_sizes="sizes of the new major dimensions")
    def broadcast(self, operand: Any, broadcast_sizes: Sequence[int]) -> XlaOp:
        """Broadcasts to new major dimensions of the given sizes (BROADCAST-1)."""
        operand = self._array(operand, "broadcast", "BROADCAST-3")
        sizes = ints("broadcast", "broadcast_sizes", broadcast_sizes)
        if any(size < 0 for size in sizes):
            raise RuleError("broadcast", "BROADCAST-3", f"sizes must be >= 0, got {sizes}")
        shape = operand.shape
        if not sizes:
            return operand
        result = Shape.array(
            shape.element_type, (*sizes, *shape.dimensions), (*[False] * len(sizes), *shape.dynamic_dimensions)
        )
        targets = range(len(sizes), len(sizes) + shape.rank)
        return self._add(OPERATIONS["broadcast"](broadcast_dimensions=targets), (operand,), result)

    @makes("broadcast", out_dim_size="sizes of the result")
    def broadcast_in_dim(self, operand: Any, out_dim_size: Sequence[int], broadcast_dimensions: Sequence[int]) -> XlaOp:
        """Broadcasts operand dimension i to dimension `broadcast_dimensions[i]`; sizes of 1 grow (BROADCASTINDIM-1)."""
        operand = self._array(operand, "broadcast", "BROADCASTINDIM-3")
        sizes = ints("broadcast", "out_dim_size", out_dim_size)
        targets = ints("broadcast", "broadcast_dimensions", broadcast_dimensions)
        plan = Broadcasting.in_dim(operand.shape, sizes, targets)
        return self._widen(operand, plan)

    @makes("reshape", dimensions="sizes of the result")
    def reshape(self, operand: Any, dimensions: Sequence[int]) -> XlaOp:
        """Arranges the elements, in row-major order, in other dimensions (RESHAPE-1)."""
        operand = self._array(operand, "reshape", "RESHAPE-2")
        sizes = ints("reshape", "dimensions", dimensions)
        if any(size < 0 for size in sizes):
            raise RuleError("reshape", "RESHAPE-2", f"sizes must be >= 0 (there is no -1 for the rest), got {sizes}")
        shape = Shape.array(operand.shape.element_type, sizes)
        if operand.shape.is_dynamic:
            shape = _reshaped_dynamic(operand.shape, shape)
        return self._add(OPERATIONS["reshape"](), (operand,), shape)

    @makes("reshape", dimensions="consecutive dimensions that become one")
    def collapse(self, operand: Any, dimensions: Sequence[int]) -> XlaOp:
        """Merges consecutive dimensions into one (COLLAPSE-1)."""
        operand = self._array(operand, "collapse", "COLLAPSE-2")
        run = ints("collapse", "dimensions", dimensions)
        rank, sizes = operand.shape.rank, operand.shape.dimensions
        if run and (run != list(range(run[0], run[0] + len(run))) or run[0] < 0 or run[-1] >= rank):
            raise RuleError(
                "collapse", "COLLAPSE-2", f"dimensions are consecutive and increasing in [0, {rank}), got {run}"
            )
        if len(run) < 2:
            return operand
        product = 1
        for d in run:
            product *= sizes[d]
        return self.reshape(operand, [*sizes[: run[0]], product, *sizes[run[-1] + 1 :]])

    @makes("concatenate")
    def concat_in_dim(self, operands: Sequence[Any], dimension: int) -> XlaOp:
        """Concatenates arrays along a dimension (CONCATENATE-1)."""
        return self._add(OPERATIONS["concatenate"](dimension=dimension), self._list(operands))

    @makes(
        "slice",
        start_indices="first index in each dimension",
        limit_indices="index before which each dimension ends",
        strides="step in each dimension; 1 if not given",
    )
    def slice(
        self,
        operand: Any,
        start_indices: Sequence[int],
        limit_indices: Sequence[int],
        strides: Sequence[int] | None = None,
    ) -> XlaOp:
        """Takes the elements start, start + stride, .. below limit in each dimension (SLICE-1)."""
        starts = ints("slice", "start_indices", start_indices)
        limits = ints("slice", "limit_indices", limit_indices)
        steps = [1] * len(starts) if strides is None else ints("slice", "strides", strides)
        if not len(starts) == len(limits) == len(steps):
            raise RuleError(
                "slice", "SLICE-3", f"needs as many starts as limits and strides: {starts}, {limits}, {steps}"
            )
        parts = tuple(map(SliceDimension, starts, limits, steps))
        return self._add(OPERATIONS["slice"](slice=parts), (self._operand(operand),))

    @makes("dynamic-slice")
    def dynamic_slice(self, operand: Any, start_indices: Sequence[Any], size_indices: Sequence[int]) -> XlaOp:
        """Takes the sub-array of the given sizes at start indices known at run time (DYNAMICSLICE-1)."""
        starts = self._starts(start_indices)
        return self._add(OPERATIONS["dynamic-slice"](size_indices=size_indices), (self._operand(operand), *starts))

    @makes("dynamic-update-slice")
    def dynamic_update_slice(self, operand: Any, update: Any, start_indices: Sequence[Any]) -> XlaOp:
        """Overwrites a part of `operand` with `update`, at start indices known at run time (DYNAMICUPDATESLICE-1)."""
        operand, update = self._operands(operand, update)
        return self._add(OPERATIONS["dynamic-update-slice"](), (operand, update, *self._starts(start_indices)))

    def _starts(self, start_indices: Any) -> list[XlaOp]:
        if isinstance(start_indices, XlaOp):
            return [start_indices]
        starts = sequence("dynamic-slice", "start_indices", start_indices)
        return [self._operand(start, PrimitiveType.S32) for start in starts]

    def _index(self, operand: XlaOp, index: tuple[Any, ...]) -> XlaOp:
        """Indexes an array as NumPy does, by integers, slices and `...`."""
        rank = operand.shape.rank
        if sum(entry is Ellipsis for entry in index) > 1 or len([e for e in index if e is not Ellipsis]) > rank:
            raise RuleError("slice", "SLICE-3", f"{index} has too many indices for {operand.shape}")
        if Ellipsis in index:
            at = index.index(Ellipsis)
            index = (*index[:at], *[slice(None)] * (rank - len(index) + 1), *index[at + 1 :])
        index = (*index, *[slice(None)] * (rank - len(index)))
        starts, limits, strides, kept = [], [], [], []
        for entry, size in zip(index, operand.shape.dimensions, strict=True):
            if isinstance(entry, slice):
                start, limit, step = entry.indices(size)
                if step < 1:
                    raise RuleError("slice", "SLICE-3", f"strides are >= 1 (use rev to reverse), got {step}")
                starts.append(start)
                limits.append(max(start, limit))
                strides.append(step)
                kept.append(True)
            elif isinstance(entry, int) and not isinstance(entry, bool):
                position = normalize_dimension(entry, size)
                starts.append(position)
                limits.append(position + 1)
                strides.append(1)
                kept.append(False)
            else:
                raise ArgumentError(f"XlaOps are indexed by integers, slices and '...', got {entry!r}")
        sliced = self.slice(operand, starts, limits, strides)
        sizes = [size for size, keep in zip(sliced.shape.dimensions, kept, strict=True) if keep]
        return sliced if all(kept) else self.reshape(sliced, sizes)

    @makes("gather")
    def gather(
        self,
        operand: Any,
        start_indices: Any,
        index_vector_dim: int,
        offset_dims: Sequence[int],
        slice_sizes: Sequence[int],
        collapsed_slice_dims: Sequence[int],
        start_index_map: Sequence[int],
        indices_are_sorted: bool = False,
        operand_batching_dims: Sequence[int] = (),
        start_indices_batching_dims: Sequence[int] = (),
    ) -> XlaOp:
        """Gathers slices of the operand at start indices into one array (GATHER-1)."""
        op = OPERATIONS["gather"](
            offset_dims=offset_dims,
            collapsed_slice_dims=collapsed_slice_dims,
            start_index_map=start_index_map,
            operand_batching_dims=operand_batching_dims,
            start_indices_batching_dims=start_indices_batching_dims,
            index_vector_dim=index_vector_dim,
            slice_sizes=slice_sizes,
            indices_are_sorted=indices_are_sorted,
        )
        return self._add(op, (self._operand(operand), self._operand(start_indices)))

    @makes("iota", shape="shape of the result")
    def iota(self, shape: Shape, iota_dimension: int) -> XlaOp:
        """Creates an array that counts 0, 1, 2, .. along a dimension (IOTA-1)."""
        return self._add(OPERATIONS["iota"](iota_dimension=iota_dimension), (), shape_of(shape))

    @makes("set-dimension-size")
    def set_dimension_size(self, operand: Any, size: Any, dimension: int) -> XlaOp:
        """Makes a dimension dynamic, with a size known at run time (SETDIMENSIONSIZE-1)."""
        operand = self._array(operand, "set-dimension-size", "SETDIMENSIONSIZE-5")
        size = self._operand(size, PrimitiveType.S32)
        shape = operand.shape
        op = OPERATIONS["set-dimension-size"](dimension=dimension)
        is_dynamic = True
        if isinstance(constant := size.instruction.op, Constant) and 0 <= dimension < shape.rank:
            # The bound as a constant makes the dimension static again (SETDIMENSIONSIZE-5).
            value = constant.literal.value
            is_dynamic = value.ndim != 0 or int(value) != shape.dimensions[dimension]
        return self._add(op, (operand, size), shape.with_dynamic(dimension, is_dynamic))


def _reshaped_dynamic(operand: Shape, shape: Shape) -> Shape:
    """The shape with the operand's dynamic dimensions that the reshape keeps (SETDIMENSIONSIZE-3)."""
    flagged = Shape.array(shape.element_type, shape.dimensions, [True] * shape.rank)
    kept = kept_dimensions(operand, flagged)
    dynamic = [False] * shape.rank
    for d, target in kept.items():
        dynamic[target] = operand.dynamic_dimensions[d]
    return Shape.array(shape.element_type, shape.dimensions, dynamic)
