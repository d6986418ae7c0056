"""Runs programs that JAX lowers for hloom, without the PJRT plugin."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hloom as hl
from hloom.proto import module_from_bytes
from hloom.values import TOKEN_VALUE

jax = pytest.importorskip("jax", reason="needs JAX")


class Lowered:
    """A function as a compiled program, which holds the objects that JAX keeps alive for an executable."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        from jaxlib._jax import mlir

        from hloom.jax_plugin.lowerings import register_lowerings

        register_lowerings()
        lowered = jax.jit(function).trace(*arguments).lower(lowering_platforms=("hloom",))
        self.text = str(lowered.compiler_ir())
        self.keepalive = lowered._lowering.compile_args["keepalive"]
        computation = mlir.mlir_module_to_xla_computation(self.text, use_tuple_args=False, return_tuple=True)
        self.executable = hl.compile(module_from_bytes(computation.as_serialized_hlo_module_proto()))

    def __call__(self, *arguments: Any) -> list[np.ndarray]:
        """The array results; tokens are passed and dropped."""
        tokens = [TOKEN_VALUE] * sum(not shape.is_array for shape in self.executable.input_shapes)
        results = self.executable(*tokens, *map(np.asarray, arguments))
        assert isinstance(results, tuple)
        return [value for value in results if isinstance(value, np.ndarray)]


def run(function: Callable[..., Any], *arguments: Any) -> list[np.ndarray]:
    return Lowered(function, *arguments)(*arguments)
