"""Runs programs that JAX lowers for hloom, without the PJRT plugin."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hloom as hl
from hloom.values import TOKEN_VALUE

jax = pytest.importorskip("jax", reason="needs JAX")


class Lowered:
    """A function as a compiled program, which holds the objects that JAX keeps alive for an executable."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        from hloom.jax_plugin.lowerings import register_lowerings
        from hloom.pjrt.programs import read_stablehlo

        register_lowerings()
        lowered = jax.jit(function).trace(*arguments).lower(lowering_platforms=("hloom",))
        self.text = str(lowered.compiler_ir())
        self.keepalive = lowered._lowering.compile_args["keepalive"]
        self.executable = hl.compile(read_stablehlo(self.text.encode()))

    def __call__(self, *arguments: Any) -> list[np.ndarray]:
        """The array results; tokens are passed and dropped."""
        tokens = [TOKEN_VALUE] * sum(not shape.is_array for shape in self.executable.input_shapes)
        results = self.executable(*tokens, *map(np.asarray, arguments))
        assert isinstance(results, tuple)
        return [value for value in results if isinstance(value, np.ndarray)]


def run(function: Callable[..., Any], *arguments: Any) -> list[np.ndarray]:
    return Lowered(function, *arguments)(*arguments)
