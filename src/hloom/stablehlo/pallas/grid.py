"""The loops of a `pallas_call`: over blocks of the outputs, and within each over the iterations that share it.

The axes up to the last one on which the position of a written block depends are one loop, whose iterations each write
blocks of the outputs. The other axes are an inner loop, whose state is these blocks and the scratch memory. If an
iteration of the outer loop depends on no value of an earlier one, its state is the outputs alone, each updated by a
slice: the compiler then finds that these loops are parallel (`backends/cpu/program/parallel_loops.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jax import lax
from jax._src.pallas import core as pallas_core

from hloom.stablehlo.pallas.batched import run_batched
from hloom.stablehlo.pallas.blocks import Blocks, Indices, uninitialized
from hloom.stablehlo.pallas.kernel import Kernel
from hloom.system.records import record

State = list[Any]


def run_grid(
    *arguments: Any, jaxpr: Any, grid_mapping: Any, input_output_aliases: Sequence[tuple[int, int]], **_: Any
) -> list[Any]:
    """Computes the outputs of a `pallas_call` from its arguments, which JAX traces."""
    bounds = iter(arguments[: grid_mapping.num_dynamic_grid_bounds])
    arguments = arguments[grid_mapping.num_dynamic_grid_bounds :]
    grid = [next(bounds) if isinstance(n, pallas_core.DynamicGridDim) else n for n in grid_mapping.grid]
    scalars, inputs = arguments[: grid_mapping.num_index_operands], arguments[grid_mapping.num_index_operands :]
    blocks = [Blocks(mapping) for mapping in grid_mapping.block_mappings]
    aliased = {output: arguments[k] for k, output in input_output_aliases}
    outputs = [
        aliased[k] if k in aliased else uninitialized(each.array_sizes, each.element_type)
        for k, each in enumerate(blocks[len(inputs) :])
    ]
    kernel = Kernel(jaxpr, grid_mapping)
    if (results := run_batched(kernel, grid, blocks, [*inputs, *outputs])) is not None:
        return results
    arrays = [each.pad(array) for each, array in zip(blocks, (*inputs, *outputs), strict=True)]
    results = _Call(kernel, grid, scalars, blocks, arrays).run()
    return [each.unpad(array) for each, array in zip(blocks, results, strict=True)][len(inputs) :]


@record
class _Call:
    kernel: Kernel
    grid: list[Any]
    scalars: Sequence[Any]
    blocks: list[Blocks]
    arrays: list[Any]
    """The inputs, and the outputs before the call, padded to whole blocks."""

    def run(self) -> list[Any]:
        """Runs all iterations; returns the arrays after them."""
        arrays = [*self.arrays]
        count, written = len(self.grid), sorted(self.kernel.written)
        outer = max((1 + axis for k in written for axis in self.blocks[k].axes(count)), default=0)
        needed = self.kernel.needed(dict(enumerate(self.grid[outer:], outer)))
        scratch = [uninitialized(each.shape, each.dtype) for each in self.kernel.scratch]
        carried = [k for k in range(len(scratch)) if len(arrays) + k in needed]

        def iteration(position: Indices, state: State) -> State:
            """Computes a block of each output."""
            now = [*arrays]
            for k, array in zip(written, state, strict=False):
                now[k] = array
            memory = [*scratch]
            for k, value in zip(carried, state[len(written) :], strict=True):
                memory[k] = value
            after, memory = self._inner(outer, position, now, memory, needed)
            return [*(after[k] for k in written), *(memory[k] for k in carried)]

        state = [*(arrays[k] for k in written), *(scratch[k] for k in carried)]
        state = _loop(self.grid[:outer], iteration, state)
        for k, array in zip(written, state, strict=False):
            arrays[k] = array
        return arrays

    def _inner(
        self, outer: int, position: Indices, arrays: list[Any], scratch: list[Any], needed: set[int]
    ) -> tuple[list[Any], list[Any]]:
        """Runs the iterations that share the blocks of outputs; returns arrays and scratch memory."""
        written, first = sorted(self.kernel.written), [*position, *[np.int32(0)] * (len(self.grid) - outer)]
        starts = {k: self.blocks[k].starts(first, self.scalars) for k in written}
        outputs = [self._first(k, starts[k], k in needed, arrays[k], outer) for k in written]

        def iteration(inner: Indices, state: State) -> State:
            at = [*position, *inner]
            now = dict(zip(written, state, strict=False))
            values = [
                now[k] if k in now else each.read(arrays[k], each.starts(at, self.scalars))
                for k, each in enumerate(self.blocks)
            ]
            after, memory = self.kernel(at, self.grid, self.scalars, values, state[len(written) :])
            return [*(after[k] for k in written), *memory]

        state = _loop(self.grid[outer:], iteration, [*outputs, *scratch])
        arrays = [*arrays]
        for k, block in zip(written, state, strict=False):
            arrays[k] = self.blocks[k].write(arrays[k], block, starts[k])
        return arrays, state[len(written) :]

    def _first(self, k: int, starts: Indices, is_needed: bool, array: Any, outer: int) -> Any:
        """The block of an output before the iterations that share it; no others write it if each axis moves it."""
        blocks, axes = self.blocks[k], [axis for axis in range(outer) if not _is_one(self.grid[axis])]
        if not is_needed:
            return uninitialized(blocks.block_sizes, blocks.element_type)
        is_own = {*axes} <= {*(blocks.axis_of_dimensions(len(self.grid)) or [])}
        return blocks.read(self.arrays[k] if is_own else array, starts)


def _loop(grid: Sequence[Any], body: Callable[[Indices, State], State], state: State) -> State:
    """Runs a body for all positions of a grid, the last axis fastest; a counter has the indices as digits."""
    sizes = [n for n in grid if not _is_one(n)]

    def step(carried: tuple[Any, State]) -> tuple[Any, State]:
        counter, state = carried
        digits = iter(_digits(counter, sizes))
        state = body([np.int32(0) if _is_one(n) else next(digits) for n in grid], state)
        return counter + np.int32(1), state

    if not sizes:
        return body([np.int32(0)] * len(grid), state)
    end = _product(sizes)
    # Not fori_loop, whose loops of a constant length have a second counter.
    return lax.while_loop(lambda carried: carried[0] < end, step, (np.int32(0), state))[1]


def _is_one(size: Any) -> bool:
    return isinstance(size, int) and size == 1


def _product(sizes: Sequence[Any]) -> Any:
    if all(isinstance(n, int) for n in sizes):
        return np.int32(math.prod(sizes))
    total: Any = np.int32(1)
    for n in sizes:
        total = total * lax.convert_element_type(n, np.int32)
    return total


def _digits(counter: Any, sizes: Sequence[Any]) -> list[Any]:
    digits: list[Any] = []
    for k, size in enumerate(sizes):
        unit = _product(sizes[k + 1 :])
        digit = counter if k == len(sizes) - 1 else lax.div(counter, unit)
        digits.append(lax.rem(digit, _product([size])) if k else digit)
    return digits
