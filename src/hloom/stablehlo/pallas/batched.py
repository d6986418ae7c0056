"""Grids of independent, light iterations as dimensions of arrays: the kernel is applied to all blocks at once.

An iteration without control flow or products, such as that of a softmax, takes about as long as starting it. Such
kernels are written as operations on whole arrays, and the compiler chooses the loops. Each dimension of an array
becomes two, that of its blocks and that within a block.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax import lax
from jax._src import core

from hloom.stablehlo.pallas.blocks import Blocks, uninitialized
from hloom.stablehlo.pallas.kernel import Kernel
from hloom.system.records import record

_HEAVY = """
cond while scan dot_general ragged_dot_general conv_general_dilated dynamic_slice dynamic_update_slice gather scatter
program_id num_programs
"""
"""Operations that are better executed block by block, or depend on the iteration."""


def run_batched(
    kernel: Kernel, grid: Sequence[Any], blocks: Sequence[Blocks], arrays: Sequence[Any]
) -> list[Any] | None:
    """Returns the outputs of all iterations; None if the iterations depend on each other or are better as a loop.

    `arrays` are the inputs, and the outputs before the call, not padded.
    """
    count = kernel.mapping.num_outputs
    outputs = range(len(blocks) - count, len(blocks))
    if not all(isinstance(n, int) and n > 0 for n in grid) or kernel.scratch or kernel.mapping.num_index_operands:
        return None
    if kernel.written != {*outputs} or not _is_light(kernel.jaxpr):
        return None
    found = [_layout(each, grid) for each in blocks]
    layouts = [layout for layout in found if layout is not None]
    if len(layouts) < len(blocks) or not all(_covers(layouts[k]) for k in outputs):
        return None

    def iteration(*values: Any) -> list[Any]:
        return kernel([0] * len(grid), grid, (), values, ())[0][outputs.start :]

    parts = [layout.split(array) for layout, array in zip(layouts, arrays, strict=True)]
    for axis in reversed(range(len(grid))):
        where = tuple(0 if axis in layout.axes else None for layout in layouts)
        iteration = jax.vmap(iteration, in_axes=where, axis_size=grid[axis])
    return [layouts[k].join(results) for k, results in zip(outputs, iteration(*parts), strict=True)]


def _layout(blocks: Blocks, grid: Sequence[int]) -> _Layout | None:
    axes = blocks.axis_of_dimensions(len(grid))
    return None if axes is None else _Layout(blocks, axes, grid)


def _is_light(jaxpr: Any) -> bool:
    return all(
        equation.primitive.name not in _HEAVY.split()
        and not equation.effects
        and all(map(_is_light, core.jaxprs_in_params(equation.params)))
        for equation in jaxpr.eqns
    )


def _covers(layout: _Layout) -> bool:
    """Whether each element belongs to exactly one iteration."""
    axes = sorted(axis for axis in layout.axes if axis is not None)
    return axes == [*range(len(layout.grid))] and all(map(operator.ge, layout.covered, layout.blocks.array_sizes))


@record
class _Layout:
    """An array as its blocks, for each axis of the grid that numbers them, in the order of the axes."""

    blocks: Blocks
    axes: Sequence[int | None]
    """The axis that numbers the blocks in each dimension of the array."""
    grid: Sequence[int]

    @property
    def counts(self) -> list[int]:
        """The number of blocks in each dimension."""
        return [1 if axis is None else self.grid[axis] for axis in self.axes]

    @property
    def covered(self) -> list[int]:
        """The elements that the blocks cover, in each dimension."""
        return [count * size for count, size in zip(self.counts, self.blocks.sizes, strict=True)]

    def split(self, array: Any) -> Any:
        """The blocks of an array, which ends with uninitialized elements where they exceed it."""
        ends = [(0, size - old, 0) for size, old in zip(self.covered, array.shape, strict=True)]
        array = lax.pad(array, uninitialized((), array.dtype), ends) if any(map(any, ends)) else array
        pairs = lax.reshape(array, [n for pair in zip(self.counts, self.blocks.sizes, strict=True) for n in pair])
        return lax.squeeze(lax.transpose(pairs, self._order), self._single)

    def join(self, parts: Any) -> Any:
        """The array whose blocks are given."""
        array = lax.transpose(lax.expand_dims(parts, self._single), np.argsort(self._order))
        return lax.slice(lax.reshape(array, self.covered), [0] * len(self.axes), self.blocks.array_sizes)

    @property
    def _order(self) -> list[int]:
        """The order of the dimensions of blocks and those within blocks, which alternate in the array."""
        rank = len(self.axes)
        by_axis = sorted(range(rank), key=lambda d: (self.axes[d] is None, self.axes[d] or 0))
        return [*(2 * d for d in by_axis), *range(1, 2 * rank, 2)]

    @property
    def _single(self) -> list[int]:
        """Dimensions of size 1, in this order, that neither the grid nor the kernel has."""
        rank, first = len(self.axes), sum(axis is not None for axis in self.axes)
        return [*range(first, rank), *(rank + d for d in self.blocks.squeezed)]
