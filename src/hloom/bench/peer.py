"""XLA's CPU backend in this process, through jaxlib."""

from __future__ import annotations

import importlib.util
from importlib import import_module
from typing import Any

import numpy as np

from hloom.ir import Module
from hloom.proto import module_from_bytes, module_to_bytes
from hloom.values import Array


def has_peer() -> bool:
    """Whether jax and jaxlib are installed."""
    return all(importlib.util.find_spec(name) is not None for name in ("jax", "jaxlib"))


class Peer:
    """XLA's CPU client; the constructor imports jax and jaxlib."""

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
        """Converts a module to MLIR, which XLA's client compiles."""
        return self.translate_bytes(module_to_bytes(module))

    def translate_bytes(self, content: bytes) -> Any:
        """Converts a serialised module."""
        return self._core.mlir.xla_computation_to_mlir_module(self._hlo.XlaComputation(content))

    def translate_text(self, text: str) -> Any:
        """Converts HLO text, which XLA's own parser reads."""
        return self.translate_bytes(self.read_text(text).as_serialized_hlo_module_proto())

    def read_text(self, text: str) -> Any:
        """Reads HLO text to XLA's own module."""
        return self._hlo.hlo_module_from_text(text)

    def module_of_stablehlo(self, text: str) -> bytes:
        """Converts StableHLO text to a serialised module."""
        made = self._core.mlir.mlir_module_to_xla_computation(text, use_tuple_args=False, return_tuple=False)
        return made.as_serialized_hlo_module_proto()

    def print_text(self, text: str) -> str:
        """Reads HLO text and prints it."""
        return self.read_text(text).to_string()

    def print_bytes(self, content: bytes) -> str:
        """Prints a serialised module."""
        return self._hlo.HloModule.from_serialized_hlo_module_proto(content).to_string()

    def compile(self, translated: Any) -> PeerExecutable:
        """Compiles a translated module."""
        executable = self._device.client.compile_and_load(
            translated, self._core.DeviceList((self._device,)), self._options()
        )
        return PeerExecutable(executable)

    def put(self, arrays: list[Array]) -> list[Any]:
        """Copies arrays to buffers of the device."""
        return [self._jax.device_put(array, self._device).block_until_ready() for array in arrays]


class PeerExecutable:
    """A program compiled by XLA."""

    def __init__(self, executable: Any) -> None:
        self._executable = executable

    def __call__(self, buffers: list[Any]) -> list[Any]:
        """Runs the program on buffers, and waits for the buffers of the results."""
        results = self._executable.execute_sharded(buffers).disassemble_into_single_device_arrays()
        return [result[0].block_until_ready() for result in results]

    @property
    def module(self) -> Module:
        """The module as XLA optimised it."""
        return module_from_bytes(self._executable.hlo_modules()[0].as_serialized_hlo_module_proto())

    def arrays(self, buffers: list[Any]) -> list[Array]:
        """Runs the program and returns its results as NumPy arrays."""
        return [np.array(result) for result in self(buffers)]
