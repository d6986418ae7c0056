"""JAX functions as modules: their parameters, and results compared with JAX."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import hloom as hl

jax = pytest.importorskip("jax", reason="traces with JAX")


def run(module: hl.Module, *arguments: Any) -> Any:
    return hl.compile(module)(*map(np.asarray, jax.tree.leaves(arguments)))


def predict(params: dict[str, Any], x: Any, unused: Any = None) -> tuple[Any, Any]:
    y = jax.numpy.tanh(x @ params["w"] + params["b"])
    return y, {"sum": y.sum()}


PARAMS = {"w": np.linspace(-1, 1, 12).astype(np.float32).reshape(3, 4), "b": np.arange(4, dtype=np.float32)}
X = np.linspace(0, 1, 6).astype(np.float32).reshape(2, 3)


def check(module: hl.Module, *arguments: Any) -> None:
    got = run(module, *arguments)
    want = jax.tree.leaves(jax.jit(predict)(*arguments))
    for ours, theirs in zip(got, want, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)


@pytest.mark.parametrize("function", [predict, jax.jit(predict)], ids=["plain", "jitted"])
def test_leaves_in_order_with_their_names_unused_ones_too(function: Any) -> None:
    unused = np.zeros(7, np.int32)
    module = hl.from_jax(function, PARAMS, X, unused)
    parameters = module.entry.parameters
    assert [str(p.shape.without_layout()) for p in parameters] == ["f32[4]", "f32[3,4]", "f32[2,3]", "s32[7]"]
    assert [p.metadata["op_name"] for p in parameters] == ["params['b']", "params['w']", "x", "unused"]
    check(module, PARAMS, X, unused)


def test_shapes_alone_are_enough_and_keywords_are_arguments() -> None:
    shapes = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), PARAMS)
    module = hl.from_jax(predict, shapes, x=jax.ShapeDtypeStruct(X.shape, X.dtype))
    check(module, PARAMS, X)


def test_static_arguments_are_constants_of_the_program() -> None:
    def power(x: Any, n: int) -> Any:
        return x**n

    module = hl.from_jax(power, X, 3, static_argnums=1)
    np.testing.assert_allclose(run(module, X), X**3, rtol=1e-6)
    jitted = functools.partial(jax.jit, static_argnums=(1,), donate_argnums=(0,))(power)
    module = hl.from_jax(jitted, X, 3)
    assert len(module.entry.parameters) == 1 and module.input_output_alias
    np.testing.assert_allclose(run(module, X), X**3, rtol=1e-6)


def test_gradients_loops_and_large_constants() -> None:
    table = np.random.default_rng(0).standard_normal((40, 40)).astype(np.float32) * 0.1

    def loss(x: Any) -> Any:
        return jax.lax.fori_loop(0, 5, lambda i, y: jax.numpy.sin(table @ y) * (i + 1), x).sum()

    x = np.linspace(0, 1, 40).astype(np.float32)
    module = hl.from_jax(jax.value_and_grad(lambda x: jax.numpy.sin(table @ x).sum()), x)
    value, gradient = run(module, x)
    want = jax.value_and_grad(lambda x: jax.numpy.sin(table @ x).sum())(x)
    np.testing.assert_allclose(value, want[0], rtol=1e-4)
    np.testing.assert_allclose(gradient, want[1], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(run(hl.from_jax(loss, x), x), loss(x), rtol=1e-4)


def test_errors_name_the_function_and_keep_the_cause() -> None:
    with pytest.raises(hl.ArgumentError, match="from_jax takes a function, got int"):
        hl.from_jax(3)  # type: ignore[arg-type]
    with pytest.raises(hl.ArgumentError, match="JAX cannot lower predict: TypeError: .*") as caught:
        hl.from_jax(predict, PARAMS, X.T)
    assert caught.value.__cause__ is not None


def test_without_jax_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(hl.ArgumentError, match="pip install jax"):
        hl.from_jax(predict, PARAMS, X)
