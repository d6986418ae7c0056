"""Random Pallas kernels: hloom's results are those of JAX's interpreter on the CPU, unwritten elements included."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="needs JAX")
import jax.numpy as jnp  # noqa: E402
from jax import lax  # noqa: E402
from jax.experimental import pallas as pl  # noqa: E402

from jax_plugin.lowered_programs import run  # noqa: E402

CASES = int(os.environ.get("HLOOM_CASES", "400")) // 4


class Case:
    """A kernel of two inputs and an output, with random grid, blocks, index maps, memory and body."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.grid = tuple(self.number(1, 4) for _ in range(self.number(1, 3)))
        self.width = self.number(2, 5)
        self.inputs = [self.array(is_output=False) for _ in range(2)]
        self.output = self.array(is_output=True)
        self.has_scratch = bool(self.number(0, 1))
        self.is_aliased = self.inputs[0][0] == self.output[0] and bool(self.number(0, 1))
        self.body = self.random.choice(["map", "sum", "rows", "choose", "loop"])
        self.condition = self.number(0, 2)

    def number(self, low: int, high: int) -> int:
        return int(self.random.integers(low, high + 1))

    def array(self, is_output: bool) -> tuple[tuple[int, int], Any]:
        """The sizes of an array of rows and its blocks; all blocks have one size, so that the body fits each."""
        rows, columns = self.index(is_output), self.index(is_output)
        sizes = (3 * rows[0] - self.number(0, 2), self.width * columns[0] - self.number(0, 1))
        maps = rows[1], columns[1]
        return sizes, pl.BlockSpec((3, self.width), lambda *ids: (maps[0](*ids), maps[1](*ids)))

    def index(self, is_output: bool) -> tuple[int, Callable[..., Any]]:
        """The number of blocks in a dimension, and the block of an iteration."""
        axis = self.number(0, len(self.grid) - 1)
        count, kind = self.grid[axis], self.number(0, 3)
        if kind == 0:
            return self.number(1, 2), lambda *ids: 0
        if kind == 1 and not is_output:
            return count + 1, lambda *ids: ids[axis] + 1
        if kind == 2:
            return count, lambda *ids: lax.rem(ids[axis], 2)
        return count, lambda *ids: ids[axis]

    def kernel(self, x: Any, y: Any, z: Any, *scratch: Any) -> None:
        axis = len(self.grid) - 1
        memory = scratch[0] if scratch else z

        if self.condition:

            @pl.when(pl.program_id(axis) == 0 if self.condition == 1 else pl.program_id(0) < 1)
            def _() -> None:
                memory[...] = jnp.zeros_like(memory)

        match self.body:
            case "map":
                memory[...] = jnp.sin(x[...]) + y[...]
            case "sum":
                memory[...] += x[...] * y[...]
            case "rows":
                memory[pl.ds(pl.program_id(axis) % 2, 2)] = x[:2] - y[1:]
            case "choose":
                memory[...] = jnp.where(x[...] > 0, memory[...], y[...] + pl.program_id(0))
            case "loop":
                memory[...] = lax.fori_loop(0, pl.program_id(axis), lambda k, total: total + x[...] * k, y[...])
        if scratch:

            @pl.when(pl.program_id(axis) == pl.num_programs(axis) - 1)
            def _() -> None:
                z[...] = memory[...]

    def call(self, interpret: bool) -> Callable[..., Any]:
        return pl.pallas_call(
            self.kernel,
            grid=self.grid,
            in_specs=[spec for _, spec in self.inputs],
            out_specs=self.output[1],
            out_shape=jax.ShapeDtypeStruct(self.output[0], np.float32),
            scratch_shapes=[pl.MemorySpace.ANY((3, self.width), np.float32)] if self.has_scratch else [],
            input_output_aliases={0: 0} if self.is_aliased else {},
            interpret=interpret,
        )


@pytest.mark.long
@pytest.mark.parametrize("seed", range(CASES))
def test_random_kernels(seed: int) -> None:
    case = Case(seed)
    arrays = [case.random.standard_normal(sizes, dtype=np.float32) for sizes, _ in case.inputs]
    expected = np.asarray(jax.jit(case.call(interpret=True))(*arrays))
    np.testing.assert_allclose(run(case.call(interpret=False), *arrays)[0], expected, rtol=1e-5, atol=1e-6)
