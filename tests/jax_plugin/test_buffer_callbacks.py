"""Python functions that fill the memory of a program's results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="needs JAX")
from jax.experimental import buffer_callback as jax_buffers  # noqa: E402

from hloom.errors import RunError  # noqa: E402
from jax_plugin.lowered_programs import Lowered, run  # noqa: E402

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def test_results_are_what_the_function_wrote() -> None:
    def fill(context: Any, out: dict[str, Any], x: Any, *, scale: Any) -> None:
        assert context.stage == jax_buffers.ExecutionStage.EXECUTE
        with pytest.raises(jax.errors.JaxRuntimeError, match="GPU context is not available"):
            _ = context.stream
        assert (x.dtype, x.shape, x.ndim, x.writeable) == (X.dtype, (2, 3), 2, False)
        assert out["sum"].writeable and out["sum"].shape == (2,)
        np.asarray(out["scaled"])[...] = np.asarray(x) * np.asarray(scale)
        np.asarray(out["sum"])[...] = np.from_dlpack(x).sum(axis=1)
        with pytest.raises(ValueError, match="read-only"):
            np.asarray(x)[...] = 0

    shapes = {"scaled": jax.ShapeDtypeStruct((2, 3), np.float32), "sum": jax.ShapeDtypeStruct((2,), np.float32)}
    function = jax_buffers.buffer_callback(fill, shapes)
    scaled, sums = run(lambda x, scale: function(x, scale=scale), X, np.float32(2))
    np.testing.assert_array_equal(scaled, 2 * X)
    np.testing.assert_array_equal(sums, X.sum(axis=1))


def test_an_alias_is_updated_in_place() -> None:
    def double(context: Any, out: Any, x: Any) -> None:
        assert np.asarray(out).ctypes.data == np.asarray(x).ctypes.data
        np.asarray(out)[...] *= 2

    function = jax_buffers.buffer_callback(
        double, jax.ShapeDtypeStruct((2, 3), np.float32), input_output_aliases={0: 0}
    )
    doubled, before = run(lambda x: (function(x), x), X)
    np.testing.assert_array_equal(doubled, 2 * X)
    np.testing.assert_array_equal(before, X)


def test_a_function_must_not_return_anything() -> None:
    function = jax_buffers.buffer_callback(lambda context, out, x: x, jax.ShapeDtypeStruct((2, 3), np.float32))
    with pytest.raises(RunError, match="must not return any values"):
        Lowered(function, X)(X)
