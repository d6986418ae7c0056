"""XLA's CPU backend, through jaxlib, in this process."""

from __future__ import annotations

import importlib.util
from importlib import import_module
from typing import Any

import numpy as np

from hloom.ir import Module
from hloom.proto import module_to_bytes
from hloom.values import Array


def has_peer() -> bool:
    """True where jax and jaxlib can be imported."""
    return all(importlib.util.find_spec(name) is not None for name in ("jax", "jaxlib"))


class Peer:
    """XLA's CPU client; `jax` and `jaxlib` are imported when one is made."""

    def __init__(self) -> None:
        self._jax, self._hlo, self._core = (
            import_module("jax"),
            import_module("jaxlib._hlo"),
            import_module("jaxlib._jax"),
        )
        self._options = import_module("jaxlib.xla_client").CompileOptions
        # XLA's calls of LAPACK crash the process without this.
        import_module("jaxlib.lapack")._lapack.initialize()
        self._jax.config.update("jax_enable_x64", True)
        self._device = self._jax.devices("cpu")[0]

    def translate(self, module: Module) -> Any:
        """The module in the form that XLA's client compiles."""
        return self._core.mlir.xla_computation_to_mlir_module(self._hlo.XlaComputation(module_to_bytes(module)))

    def compile(self, translated: Any) -> PeerExecutable:
        executable = self._device.client.compile_and_load(
            translated, self._core.DeviceList((self._device,)), self._options()
        )
        return PeerExecutable(executable)

    def put(self, arrays: list[Array]) -> list[Any]:
        """The arrays in the device's buffers."""
        return [self._jax.device_put(array, self._device).block_until_ready() for array in arrays]


class PeerExecutable:
    """What XLA compiled."""

    def __init__(self, executable: Any) -> None:
        self._executable = executable

    def __call__(self, buffers: list[Any]) -> list[Any]:
        """Runs on the device's buffers, and waits for the buffers of the results."""
        results = self._executable.execute_sharded(buffers).disassemble_into_single_device_arrays()
        return [result[0].block_until_ready() for result in results]

    def arrays(self, buffers: list[Any]) -> list[Array]:
        """The results of a run as NumPy arrays."""
        return [np.array(result) for result in self(buffers)]
