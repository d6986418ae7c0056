"""product-slices: which slices dots read where they are."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hloom as hl
from hloom.ops.control_flow import Fusion
from hloom.ops.slice import DynamicSlice, Slice
from hloom.passes.fusion.product_slices import ProductSlices

DYNAMIC = "dynamic-slice(w, k, zero, zero), dynamic_slice_sizes={1,64,64}"


def program(lines: str, root: str = "dot(x, r), lhs_contracting_dims={1}, rhs_contracting_dims={0}") -> hl.Module:
    return hl.parse(f"""HloModule slices
ENTRY e {{ w = f32[8,64,64] parameter(0)
  x = f32[16,64] parameter(1)
  k = s32[] parameter(2)
  zero = s32[] constant(0)
  {lines}
  ROOT p = f32[16,64] {root} }}""")


@pytest.mark.parametrize(
    ("lines", "fused"),
    [
        (f"s = f32[1,64,64] {DYNAMIC}\nr = f32[64,64] reshape(s)", True),
        ("s = f32[1,64,64] slice(w), slice={[3:4],[0:64],[0:64]}\nr = f32[64,64] reshape(s)", True),
        ("v = f32[512,64] reshape(w)\nr = f32[64,64] slice(v), slice={[7:71],[0:64]}", True),
        ("v = f32[512,64] reshape(w)\nr = f32[64,64] slice(v), slice={[0:128:2],[0:64]}", False),  # every second row
        ("v = f32[64,512] reshape(w)\nr = f32[64,64] slice(v), slice={[0:64],[0:64]}", False),  # parts of rows
        (f"s = f32[1,64,64] {DYNAMIC}\nn = f32[1,64,64] negate(s)\nr = f32[64,64] reshape(n)", False),
    ],
)
def test_contiguous_slices_are_read_in_place(lines: str, fused: bool) -> None:
    module = program(lines)
    assert ProductSlices(lambda _: True).run(module) == fused
    entry = [i.op for i in module.entry.instructions]
    assert any(isinstance(op, Fusion) for op in entry) is fused
    assert any(isinstance(op, (Slice, DynamicSlice)) for op in entry) is not fused


def test_slices_with_other_users_and_of_other_products_stay() -> None:
    lines = f"s = f32[1,64,64] {DYNAMIC}\nr = f32[64,64] reshape(s)\nd = f32[16,64] dot(x, r), "
    lines += "lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
    several = program(f"{lines}n = f32[64,64] negate(r)\nt = f32[16,64] slice(n), slice={{[0:16],[0:64]}}", "add(d, t)")
    assert ProductSlices(lambda _: True).run(several) == 0
    assert ProductSlices(lambda _: False).run(program(lines)) == 0  # no code


@pytest.mark.parametrize(("weights", "fused"), [("r", False), ("computed", True)])
def test_the_smaller_operand_stays_where_a_loop_may_pack_the_other_one_once(weights: str, fused: bool) -> None:
    lines = "s = f32[1,16,64] dynamic-slice(w, k, zero, zero), dynamic_slice_sizes={1,16,64}\n"
    lines += "step = f32[16,64] reshape(s)\nr = f32[64,64] parameter(3)\ncomputed = f32[64,64] exponential(r)"
    module = program(lines, f"dot(step, {weights}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}")
    assert ProductSlices(lambda _: True).run(module) == fused


def test_two_products_read_one_slice() -> None:
    lines = f"s = f32[1,64,64] {DYNAMIC}\nr = f32[64,64] reshape(s)\n"
    lines += "a = f32[16,64] dot(x, r), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
    module = program(lines, "dot(a, r), lhs_contracting_dims={1}, rhs_contracting_dims={0}")
    assert ProductSlices(lambda _: True).run(module) == 2


@pytest.mark.parametrize("batch_invariant", [False, True])
def test_layers_of_a_loop_and_an_array_that_it_updates(batch_invariant: bool) -> None:
    """Weights of layers, and rows of an array that each iteration overwrites after it has read them."""
    rng = np.random.default_rng(2)
    w = rng.standard_normal((5, 64, 64), np.float32) / 8
    x = rng.standard_normal((6, 64), np.float32)

    def step(carried: Any, k: jax.Array) -> Any:
        x, w = carried
        x = jnp.tanh(x @ jax.lax.dynamic_index_in_dim(w, k, keepdims=False))
        update = jnp.broadcast_to(x.sum(0), (1, 64, 64))
        return (x, jax.lax.dynamic_update_slice(w, update, (k, 0, 0))), None

    def function(w: jax.Array, x: jax.Array) -> Any:
        after, _ = jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, w)
        return after, *jax.lax.scan(step, (x, w), jnp.array([3, 1, 3, 0, 0, 4]))[0]

    module = hl.from_jax(function, w, x)
    found = hl.compile(module, batch_invariant=batch_invariant)(w, x)
    for got, want in zip(found, jax.jit(function)(w, x), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
