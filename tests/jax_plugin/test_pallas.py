"""Pallas kernels without `interpret`: grids, blocks, scratch memory. Expected values are NumPy's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="needs JAX")
import jax.numpy as jnp  # noqa: E402
from jax.experimental import pallas as pl  # noqa: E402
from jax.experimental.pallas import tpu as pltpu  # noqa: E402

from jax_plugin.lowered_programs import run  # noqa: E402

RANDOM = np.random.default_rng(0)


def normal(*sizes: int) -> np.ndarray:
    return RANDOM.standard_normal(sizes, dtype=np.float32)


def shape(*sizes: int, dtype: Any = np.float32) -> Any:
    return jax.ShapeDtypeStruct(sizes, dtype)


def product_of_blocks(kernel: Callable[..., None], m: int, k: int, n: int, scratch: Any = ()) -> Callable[..., Any]:
    """A product of matrices in blocks of 16, summed over the last axis of the grid."""
    return pl.pallas_call(
        kernel,
        grid=(m // 16, n // 16, k // 16),
        in_specs=[pl.BlockSpec((16, 16), lambda i, j, k: (i, k)), pl.BlockSpec((16, 16), lambda i, j, k: (k, j))],
        out_specs=pl.BlockSpec((16, 16), lambda i, j, k: (i, j)),
        out_shape=shape(m, n),
        scratch_shapes=scratch,
    )


def add_up_in_output(x: Any, y: Any, z: Any) -> None:
    @pl.when(pl.program_id(2) == 0)
    def _() -> None:
        z[...] = jnp.zeros_like(z)

    z[...] += x[...] @ y[...]


def add_up_in_scratch(x: Any, y: Any, z: Any, total: Any) -> None:
    @pl.when(pl.program_id(2) == 0)
    def _() -> None:
        total[...] = jnp.zeros_like(total)

    total[...] += x[...] @ y[...]

    @pl.when(pl.program_id(2) == pl.num_programs(2) - 1)
    def _() -> None:
        z[...] = total[...]


def test_product_summed_in_the_output() -> None:
    x, y = normal(32, 48), normal(48, 64)
    np.testing.assert_allclose(run(product_of_blocks(add_up_in_output, 32, 48, 64), x, y)[0], x @ y, atol=1e-4)


def test_product_summed_in_scratch_memory() -> None:
    x, y = normal(32, 48), normal(48, 64)
    call = product_of_blocks(add_up_in_scratch, 32, 48, 64, [pltpu.VMEM((16, 16), np.float32)])
    np.testing.assert_allclose(run(call, x, y)[0], x @ y, atol=1e-4)
