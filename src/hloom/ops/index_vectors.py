"""Index vectors: gather and scatter read where a slice starts along one dimension of their indices (GATHER-5)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from hloom.ops.operation import Operation
from hloom.ops.rules import check_dimensions
from hloom.shape import Ints, Shape
from hloom.values import Array


@dataclass(frozen=True)
class IndexVectors:
    """The dimensions of indices, and those of the operand to which they belong."""

    vector_dim: int
    """The dimension along which a vector lies; the rank of the indices: each of them is a vector of one component."""
    index_map: Ints
    """The dimension of the operand to which each component of a vector belongs."""
    map_name: str
    operand_batching: Ints
    """Dimensions of the operand that are paired with `indices_batching`."""
    indices_batching: Ints

    def check(self, op: Operation, clause: str, indices: Shape, operand: Shape) -> list[int]:
        """Checks the dimensions for an operation; returns the batch dimensions, those of `indices` without vectors."""
        if not 0 <= self.vector_dim <= indices.rank:
            op.reject(clause, f"index_vector_dim {self.vector_dim} must be in [0, {indices.rank}] for {indices}")
        length = indices.dimensions[self.vector_dim] if self.vector_dim < indices.rank else 1
        if len(self.index_map) != length:
            op.reject(clause, f"{self.map_name} needs {length} entries for {indices}, got {list(self.index_map)}")
        check_dimensions(op, clause, self.index_map, operand.rank, self.map_name)
        check_dimensions(op, clause, self.indices_batching, indices.rank, "indices batching dimensions")
        if len(self.operand_batching) != len(self.indices_batching) or self.vector_dim in self.indices_batching:
            pair = f"{list(self.operand_batching)} and {list(self.indices_batching)}"
            op.reject(clause, f"batching dimensions {pair} must pair up")
        if shared := set(self.index_map) & set(self.operand_batching):
            op.reject(clause, f"{self.map_name} has batching dimensions of the operand: {sorted(shared)}")
        for d, e in zip(self.operand_batching, self.indices_batching, strict=True):
            if operand.dimensions[d] != indices.dimensions[e]:
                op.reject(clause, f"batching dimension {d} of {operand} and {e} of {indices} must have one size")
        return [d for d in range(indices.rank) if d != self.vector_dim]

    def batch_axis(self, d: int) -> int:
        """Returns the ordinal of the batch dimension that is paired with a batching dimension of the operand."""
        paired = self.indices_batching[self.operand_batching.index(d)]
        return paired - (paired > self.vector_dim)

    def columns(self, indices: Array) -> dict[int, Array]:
        """Returns, by operand dimension, the int64 array of starts over the batch dimensions (GATHER-5, steps 1, 2)."""
        if self.vector_dim == indices.ndim:
            indices = indices[..., None]
        vectors = np.moveaxis(indices, self.vector_dim, 0)
        if indices.dtype == np.uint64:
            # Indices beyond int64 are out of bounds anyway.
            vectors = np.minimum(vectors, np.uint64(2**63 - 1))
        return {d: vectors[k].astype(np.int64) for k, d in enumerate(self.index_map)}


def aligned(values: Array, axes: Iterable[int], rank: int) -> Array:
    """Reshapes an array so that its dimensions become `axes` (increasing) of `rank` dimensions."""
    sizes = [1] * rank
    for axis, size in zip(axes, values.shape, strict=True):
        sizes[axis] = size
    return values.reshape(sizes)
