"""Pallas kernels without `interpret`: grids, blocks, scratch memory. Expected values are NumPy's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import special

jax = pytest.importorskip("jax", reason="needs JAX")
import jax.numpy as jnp  # noqa: E402
from jax import lax  # noqa: E402
from jax.experimental import pallas as pl  # noqa: E402
from jax.experimental.pallas import tpu as pltpu  # noqa: E402

import hloom as hl  # noqa: E402
from hloom.backends.cpu.pipeline import cpu_pipeline  # noqa: E402
from hloom.backends.cpu.program.parallel_loops import independent_iterations  # noqa: E402
from hloom.ops.control_flow import While  # noqa: E402
from hloom.passes import run_passes  # noqa: E402
from hloom.pjrt.programs import read_stablehlo  # noqa: E402
from jax_plugin.lowered_programs import Lowered, run  # noqa: E402

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


def test_blocks_of_products_are_computed_in_parallel() -> None:
    call = product_of_blocks(add_up_in_scratch, 64, 160, 64, [pltpu.VMEM((16, 16), np.float32)])
    module = read_stablehlo(Lowered(call, normal(64, 160), normal(160, 64)).text.encode())
    run_passes(module, cpu_pipeline())
    (loop,) = (i for i in module.entry.instructions if isinstance(i.op, While))
    assert independent_iterations(loop) is not None


def test_softmax_of_squeezed_rows() -> None:
    def kernel(x: Any, y: Any) -> None:
        e = jnp.exp(x[...] - x[...].max())
        y[...] = e / e.sum()

    row = pl.BlockSpec((None, 1, 24), lambda i, j: (j, i, 0))
    x = normal(3, 5, 24)
    call = pl.pallas_call(kernel, grid=(5, 3), in_specs=[row], out_specs=row, out_shape=shape(3, 5, 24))
    np.testing.assert_allclose(run(call, x)[0], special.softmax(x, -1), atol=1e-6)


@pytest.mark.parametrize("is_light", [True, False])
def test_the_last_blocks_may_exceed_their_arrays(is_light: bool) -> None:
    def kernel(x: Any, bias: Any, y: Any) -> None:
        y[...] = x[...].T + bias[...] + (0 if is_light else pl.program_id(0) - pl.program_id(0))

    call = pl.pallas_call(
        kernel,
        grid=(2, 3),
        in_specs=[pl.BlockSpec((8, 4), lambda i, j: (j, i)), pl.BlockSpec((8,), lambda i, j: (j,))],
        out_specs=pl.BlockSpec((4, 8), lambda i, j: (i, j)),
        out_shape=shape(7, 18),
    )
    x, bias = normal(18, 7), normal(18)
    np.testing.assert_array_equal(run(call, x, bias)[0], x.T + bias)


@pytest.mark.parametrize("block", [2, 6])
def test_the_only_block_may_be_a_part_or_more(block: int) -> None:
    def kernel(x: Any, y: Any) -> None:
        y[...] = x[0, :4] * 2

    x = normal(3, block)
    spec = pl.BlockSpec((1, max(4, block)), lambda i: (1, 0))
    call = pl.pallas_call(kernel, grid=(1,), in_specs=[spec], out_shape=shape(4))
    np.testing.assert_array_equal(run(call, x)[0][: min(block, 4)], 2 * x[1, :4])


def test_scratch_memory_is_kept_from_one_iteration_to_the_next() -> None:
    def kernel(x: Any, y: Any, total: Any) -> None:
        total[...] = jnp.where(pl.program_id(0) == 0, 0, total[...]) + x[...]
        y[...] = total[...]

    block = pl.BlockSpec((1, 8), lambda i: (i, 0))
    call = pl.pallas_call(
        kernel, grid=(5,), in_specs=[block], out_specs=block, out_shape=shape(5, 8),
        scratch_shapes=[pltpu.VMEM((1, 8), np.float32)],
    )  # fmt: skip
    x = normal(5, 8)
    np.testing.assert_allclose(run(call, x)[0], np.cumsum(x, 0), atol=1e-5)


def test_a_block_of_the_output_may_be_visited_again_after_another() -> None:
    def kernel(x: Any, y: Any) -> None:
        @pl.when(pl.program_id(0) < 2)
        def _() -> None:
            y[...] = jnp.zeros_like(y)

        y[...] += x[...]

    block = pl.BlockSpec((4,), lambda i: (i,))
    out = pl.BlockSpec((4,), lambda i: (i % 2,))
    call = pl.pallas_call(kernel, grid=(6,), in_specs=[block], out_specs=out, out_shape=shape(8))
    x = normal(24)
    np.testing.assert_allclose(run(call, x)[0], x.reshape(3, 8).sum(0), atol=1e-5)


def test_unwritten_parts_keep_the_aliased_input() -> None:
    def kernel(x: Any, y: Any) -> None:
        y[pl.ds(pl.program_id(0), 1)] = -x[pl.ds(pl.program_id(0), 1)]

    block = pl.BlockSpec((4,), lambda i: (i,))
    call = pl.pallas_call(
        kernel, grid=(3,), in_specs=[block], out_specs=block, out_shape=shape(12), input_output_aliases={0: 0}
    )
    x = normal(12)
    expected = x.copy()
    expected[[0, 5, 10]] *= -1
    np.testing.assert_array_equal(run(call, x)[0], expected)


def test_blocks_chosen_by_prefetched_scalars() -> None:
    def kernel(rows: Any, x: Any, y: Any) -> None:
        y[...] = x[...] * rows[pl.program_id(0)]

    call = pl.pallas_call(
        kernel,
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=1,
            grid=(4,),
            in_specs=[pl.BlockSpec((1, 8), lambda i, rows: (rows[i], 0))],
            out_specs=pl.BlockSpec((1, 8), lambda i, rows: (i, 0)),
        ),
        out_shape=shape(4, 8),
    )
    rows, x = np.array([2, 0, 1, 2], np.int32), normal(3, 8)
    np.testing.assert_array_equal(run(call, rows, x)[0], x[rows] * rows[:, None])


def test_grids_of_a_size_known_at_run_time() -> None:
    def kernel(x: Any, y: Any) -> None:
        y[...] = x[...] + pl.program_id(0) * pl.num_programs(0)

    def program(n: Any, x: Any) -> Any:
        block = pl.BlockSpec((2,), lambda i: (i,))
        return pl.pallas_call(
            kernel, grid=(n,), in_specs=[block], out_specs=block, out_shape=shape(6), input_output_aliases={0: 0}
        )(x)

    call = Lowered(program, np.int32(2), normal(6))
    x = normal(6)
    for n in range(4):
        expected = x + np.where(np.arange(6) // 2 < n, np.arange(6) // 2 * n, 0).astype(np.float32)
        np.testing.assert_array_equal(call(np.int32(n), x)[0], expected)


def test_overlapping_windows_of_a_padded_array() -> None:
    def kernel(x: Any, y: Any) -> None:
        y[...] = x[pl.ds(0, 4)] + x[pl.ds(2, 4)]

    call = pl.pallas_call(
        kernel,
        grid=(3,),
        in_specs=[pl.BlockSpec((pl.Element(6, (1, 1)),), lambda i: (4 * i,))],
        out_specs=pl.BlockSpec((4,), lambda i: (i,)),
        out_shape=shape(12),
    )
    x = normal(12)
    np.testing.assert_array_equal(run(call, x)[0][1:-1], x[2:] + x[:-2])


def test_masked_loads_and_stores() -> None:
    def kernel(x: Any, y: Any) -> None:
        at = pl.ds(pl.program_id(0) * 4, 4)
        mask = jnp.arange(4) < 3
        value = pltpu.load(x.at[at], mask=mask)
        y[at] = jnp.full(4, -1.0)
        pltpu.store(y.at[at], value * 2, mask=mask)

    x = normal(12)
    expected = np.where(np.arange(12) % 4 < 3, x * 2, -1)
    np.testing.assert_array_equal(run(pl.pallas_call(kernel, grid=(3,), out_shape=shape(12)), x)[0], expected)


def test_masked_accesses_beyond_the_end() -> None:
    def kernel(x: Any, y: Any) -> None:
        rows = pl.ds(4 * pl.program_id(0), 4)
        mask = (rows.start + jnp.arange(4) < 10)[:, None]
        value = pltpu.load(x.at[rows, 1:3], mask=mask)
        pltpu.store(y.at[rows, pl.ds(0, 2)], value + jnp.arange(4)[:, None], mask=mask)

    x = normal(10, 4)
    call = pl.pallas_call(kernel, grid=(3,), out_shape=shape(10, 2))
    np.testing.assert_array_equal(run(call, x)[0], x[:, 1:3] + np.float32(np.arange(10) % 4)[:, None])


def test_copies_between_memories_with_semaphores() -> None:
    def kernel(x: Any, y: Any, buffer: Any, arrived: Any) -> None:
        i = pl.program_id(0)
        copy = pltpu.make_async_copy(x.at[pl.ds(8 * (3 - i), 8)], buffer, arrived.at[0])
        copy.start()
        copy.wait()
        buffer[...] = -buffer[...]
        pltpu.sync_copy(buffer, y.at[pl.ds(8 * i, 8)])

    anywhere = pl.BlockSpec(memory_space=pl.ANY)
    call = pl.pallas_call(
        kernel, grid=(4,), in_specs=[anywhere], out_specs=anywhere, out_shape=shape(32),
        scratch_shapes=[pltpu.VMEM((8,), np.float32), pltpu.SemaphoreType.DMA((1,))],
    )  # fmt: skip
    x = normal(32)
    np.testing.assert_array_equal(run(call, x)[0], -x.reshape(4, 8)[::-1].reshape(-1))


def test_control_flow_may_depend_on_the_position() -> None:
    def kernel(x: Any, y: Any) -> None:
        @pl.when(x[0] < 100)
        def _() -> None:
            y[...] = x[...] + pl.program_id(0)

        total = lax.fori_loop(0, 2, lambda k, total: total + jax.jit(lambda: pl.program_id(0))(), 0)
        y[...] += lax.while_loop(lambda n: n < pl.program_id(0), lambda n: n + pl.num_programs(0), total - total)

    block = pl.BlockSpec((4,), lambda i: (i,))
    call = pl.pallas_call(kernel, grid=(3,), in_specs=[block], out_specs=block, out_shape=shape(12))
    x = normal(12)
    added = np.array([0, 1 + 3, 2 + 3], np.float32)
    np.testing.assert_allclose(run(call, x)[0], x + added.repeat(4), atol=1e-6)


def test_kernels_may_print(capfd: pytest.CaptureFixture[str]) -> None:
    def kernel(x: Any, y: Any) -> None:
        pl.debug_print("block {}", pl.program_id(0))
        y[...] = x[...]

    block = pl.BlockSpec((4,), lambda i: (i,))
    run(pl.pallas_call(kernel, grid=(2,), in_specs=[block], out_specs=block, out_shape=shape(8)), normal(8))
    assert capfd.readouterr().out == "block 0\nblock 1\n"


def test_kernels_are_modules() -> None:
    x, y = normal(32, 48), normal(48, 64)
    module = hl.from_jax(product_of_blocks(add_up_in_output, 32, 48, 64), x, y)
    np.testing.assert_allclose(hl.compile(module)(x, y), x @ y, atol=1e-4)


def test_batches_of_kernels() -> None:
    def kernel(x: Any, y: Any) -> None:
        y[...] = x[...] + pl.program_id(0)

    block = pl.BlockSpec((4,), lambda i: (i,))
    call = pl.pallas_call(kernel, grid=(2,), in_specs=[block], out_specs=block, out_shape=shape(8))
    x = normal(3, 8)
    np.testing.assert_array_equal(run(jax.vmap(call), x)[0], x + (np.arange(8) // 4).astype(np.float32))


def test_tangents_of_kernels() -> None:
    def kernel(x: Any, y: Any) -> None:
        y[...] = x[...] ** 3

    x, t = normal(8), normal(8)
    y, tangent = run(lambda x, t: jax.jvp(pl.pallas_call(kernel, out_shape=shape(8)), (x,), (t,)), x, t)
    np.testing.assert_allclose(y, x**3, rtol=1e-5)
    np.testing.assert_allclose(tangent, 3 * x**2 * t, rtol=1e-5)
