"""Runs partitioned programs in tests: shards arrays, joins results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

import hloom as hl
from hloom.files.arrays import difference, flat
from hloom.ops.custom_call import CustomCall
from hloom.passes import clone_module
from hloom.passes.edit import Edit
from hloom.passes.spmd.partitioner import Partitioned, partition
from hloom.runtime.blocks import block_slices, join_partial_sum, partial_sum_indices
from hloom.runtime.blocks import join as joined
from hloom.shape import Shape
from hloom.sharding import Sharding
from hloom.verifier import verify_module

Array = np.ndarray[Any, Any]
COLLECTIVES = ("all-gather", "all-reduce", "reduce-scatter", "all-to-all", "collective-permute", "collective-broadcast")


def shard_array(array: Array, sharding: Sharding, count: int) -> list[Array]:
    """The blocks of an array, padded with noise where they reach over its end.

    Partial sums are small numbers, the first one the remainder.
    """
    found = []
    partial_sums = partial_sum_indices(sharding, count)
    for block, partial_sum in zip(block_slices(sharding, array.shape, count), partial_sums, strict=True):
        whole = np.full([s.stop - s.start for s in block], 1, array.dtype)
        part = array[block]
        if max(partial_sums):
            others = np.array([*range(1, max(partial_sums) + 1)]).astype(array.dtype)
            part = (
                part - others.sum(dtype=array.dtype)
                if partial_sum == 0
                else np.full_like(part, others[partial_sum - 1])
            )
        whole[tuple(slice(0, n) for n in part.shape)] = part
        found.append(whole)
    return found


def join(blocks: Sequence[Array], sharding: Sharding, shape: Sequence[int]) -> Array:
    """The array that blocks make up; copies must be equal, partial sums are added."""
    partial_sums = partial_sum_indices(sharding, len(blocks))
    wholes = {k: join_partial_sum(blocks, sharding, shape, k) for k in {*partial_sums}}
    seen = {k: np.zeros(shape, np.bool_) for k in wholes}
    for block, where, k in zip(blocks, block_slices(sharding, shape, len(blocks)), partial_sums, strict=True):
        part = np.asarray(wholes[k][where])
        kept = np.ascontiguousarray(block[tuple(slice(0, n) for n in part.shape)])
        assert kept.tobytes() == part.tobytes(), "copies differ"
        seen[k][where] = True
    assert all(s.all() for s in seen.values())
    return joined(blocks, sharding, shape)


def run(partitioned: Partitioned, arrays: Sequence[Array], shapes: Sequence[Shape], backend: str) -> list[Array]:
    """The results of a partitioned program, joined; `shapes` are those of the whole results."""
    module = partitioned.module
    count = module.num_partitions
    parts = [shard_array(a, s, count) for a, s in zip(arrays, partitioned.parameters, strict=True)]
    results = hl.compile(module, backend=backend).run_replicas([[part[p] for part in parts] for p in range(count)])
    leaves = [flat(result) for result in results]
    return [
        join([leaf[k] for leaf in leaves], sharding, shape.dimensions)
        for k, (sharding, shape) in enumerate(zip(partitioned.results, shapes, strict=True))
    ]


def collectives(module: hl.Module) -> Counter[str]:
    """The number of collectives of each kind in a program."""
    return Counter(i.opcode for i in module.instructions() if i.opcode in COLLECTIVES)


def check(
    module: hl.Module,
    arrays: Sequence[Array],
    count: int,
    rtol: float = 0.0,
    atol: float = 0.0,
    backend: str = "interpreter",
) -> str | None:
    """The difference between the results of the partitioned program and of the whole one; None if they agree."""
    want = flat(hl.compile(without_markers(module), backend="interpreter")(*arrays))
    partitioned = partition(module, count)
    verify_module(partitioned.module)
    got = run(partitioned, arrays, [*module.entry.result_shape.leaves()], backend)
    for i, (g, w) in enumerate(zip(got, want, strict=True)):
        if found := difference(g, w, rtol, atol):
            return f"result {i} {found}"
    return None


def without_markers(module: hl.Module) -> hl.Module:
    """The module without its constraints, for a single device."""
    copy = clone_module(module)
    for computation in copy.computations:
        edit = Edit(computation)
        for instruction in computation.instructions:
            if isinstance(instruction.op, CustomCall) and instruction.op.target_name == "Sharding":
                edit.replace(instruction, instruction.operands[0])
        edit.finish()
    return copy
