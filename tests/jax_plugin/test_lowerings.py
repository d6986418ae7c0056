"""Lowering rules and branches by platform: those of "cpu" apply to hloom."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="needs JAX")
from jax import export  # noqa: E402
from jax._src.interpreters import mlir  # noqa: E402
from jax.extend.core import Primitive  # noqa: E402

from hloom.jax_plugin.lowerings import like_cpu, register_lowerings  # noqa: E402
from jax_plugin.lowered_programs import Lowered, run  # noqa: E402

X = np.arange(4, dtype=np.float32)


def test_hloom_takes_the_branch_for_cpu_unless_it_has_its_own() -> None:
    assert like_cpu((("cpu", "cuda"), ("tpu",), None)) == (("cpu", "cuda", "hloom"), ("tpu",), None)
    assert like_cpu((("cpu",), ("hloom",))) == (("cpu",), ("hloom",))
    assert like_cpu((("tpu",), None)) == (("tpu",), None)


@pytest.mark.parametrize(
    ("branches", "added"), [({"cpu": 1, "tpu": 2}, 1), ({"cpu": 1, "hloom": 5}, 5), ({"tpu": 2}, 9)]
)
def test_platform_dependent(branches: dict[str, int], added: int) -> None:
    def function(x: Any) -> Any:
        functions = {name: (lambda x, n=n: x + n) for name, n in branches.items()}
        return jax.lax.platform_dependent(x, default=lambda x: x + 9, **functions)

    np.testing.assert_array_equal(run(function, X)[0], X + added)


def test_rules_that_are_registered_for_cpu_later_apply() -> None:
    register_lowerings()
    primitive = Primitive("later")
    primitive.def_abstract_eval(lambda x: x)
    mlir.register_lowering(primitive, mlir.lower_fun(lambda x: x * 3, multiple_results=False), platform="cpu")
    np.testing.assert_array_equal(run(primitive.bind, X)[0], X * 3)


def test_linear_algebra_uses_lapack() -> None:
    lowered = Lowered(jax.numpy.linalg.cholesky, np.eye(3, dtype=np.float32))
    assert "lapack_spotrf_ffi" in lowered.text


@pytest.mark.parametrize(("sizes", "rows"), [((3,), 3), ((2, 5), 7), ((4, 3, 6), 6), ((0,), 0), ((0,), 4), ((0, 5), 5)])
def test_pivots_swap_rows_without_a_loop(sizes: tuple[int, ...], rows: int) -> None:
    random = np.random.default_rng(0)
    pivots = np.zeros(sizes, np.int32)
    for k in range(sizes[-1]):
        pivots[..., k] = random.integers(k, rows, sizes[:-1])
    expected = np.broadcast_to(np.arange(rows, dtype=np.int32), (*sizes[:-1], rows)).copy()
    for batch in np.ndindex(sizes[:-1]):
        for k, pivot in enumerate(pivots[batch]):
            expected[batch][[k, pivot]] = expected[batch][[pivot, k]]
    lowered = Lowered(lambda p: jax.lax.linalg.lu_pivots_to_permutation(p, rows), pivots)
    assert "while" not in lowered.text
    np.testing.assert_array_equal(lowered(pivots)[0], expected)


def test_pivots_out_of_bounds_reach_no_other_memory() -> None:
    pivots = np.array([9, -7, 2**31 - 1], np.int32)
    (permutation,) = run(lambda p: jax.lax.linalg.lu_pivots_to_permutation(p, 4), pivots)
    assert sorted(permutation) == [0, 1, 2, 3]


@pytest.mark.parametrize("name", ["solve", "inv", "det", "lu", "expm"])
def test_exported_programs_only_call_stable_targets(name: str) -> None:
    """JAX refuses to export calls of other targets; the values are those of JAX."""
    linalg, a = jax.numpy.linalg, np.array([[4, 1, 2], [8, 3, 1], [2, 6, 5]], np.float32)
    functions: dict[str, Any] = {
        "solve": lambda a: linalg.solve(a, a[0]),
        "lu": jax.scipy.linalg.lu,
        "expm": lambda a: jax.scipy.linalg.expm(a / 8),
    }
    function = jax.jit(functions.get(name) or getattr(linalg, name))
    register_lowerings()
    exported = export.export(function, platforms=["cpu", "tpu", "hloom"])(a)
    assert "slaswp" not in exported.mlir_module()
    want = jax.tree.leaves(function(a))
    for got, value in zip(run(exported.call, a), want, strict=True):
        np.testing.assert_allclose(got, value, rtol=1e-4, atol=1e-5)
