"""XLA's CPU backend, through jaxlib, as the peer of differential tests.

It runs in a process of its own, since XLA aborts the process on some malformed programs. As a script this file is that
process: it reads requests (HLO text, arrays) and writes answers.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np


class XlaCrash(Exception):
    """The peer's process died on a program."""


class XlaError(Exception):
    """The peer refused a program."""


class XlaPeer:
    """A running peer; `run` gives the flattened results of a program."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None

    def _start(self) -> subprocess.Popen[bytes]:
        if self.process is None or self.process.poll() is not None:
            self.process = subprocess.Popen(
                [sys.executable, str(Path(__file__))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        return self.process

    def call(self, request: tuple[str, Any, Any]) -> Any:
        process = self._start()
        assert process.stdin and process.stdout
        try:
            pickle.dump(request, process.stdin)
            process.stdin.flush()
            kind, reply = pickle.load(process.stdout)
        except (EOFError, BrokenPipeError, pickle.UnpicklingError):
            process.wait()
            raise XlaCrash from None
        if kind == "error":
            raise XlaError(reply)
        return reply

    def run(self, text: str, arrays: list[np.ndarray]) -> list[np.ndarray]:
        """The results of a program on arrays, one array for each leaf."""
        return self.call(("run", text, [_plain(array) for array in arrays]))

    def run_stablehlo(self, text: str, arrays: list[np.ndarray]) -> list[np.ndarray]:
        """The results of a program in StableHLO on arrays, one array for each leaf."""
        return self.call(("run stablehlo", text, [_plain(array) for array in arrays]))

    def from_stablehlo(self, text: str) -> bytes:
        """The serialised module to which the peer converts StableHLO text."""
        return self.call(("from stablehlo", text, None))

    def parse(self, text: str) -> str:
        """The program as the peer prints it."""
        return self.call(("parse", text, None))

    def read_proto(self, content: bytes) -> str:
        """The program in a serialised module as the peer prints it."""
        return self.call(("proto", content, None))

    def close(self) -> None:
        if self.process is not None:
            self.process.kill()


def _plain(array: np.ndarray) -> tuple[str, tuple[int, ...], bytes]:
    return str(array.dtype), array.shape, np.ascontiguousarray(array).tobytes()


def _array(packed: tuple[str, tuple[int, ...], bytes]) -> np.ndarray:
    import ml_dtypes

    name, shape, content = packed
    dtype = np.dtype(getattr(ml_dtypes, name)) if hasattr(ml_dtypes, name) else np.dtype(name)
    return np.frombuffer(content, dtype).reshape(shape)


def _serve() -> None:
    import os

    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    import jax
    from jaxlib import _hlo, _jax, lapack, xla_client

    lapack._lapack.initialize()
    jax.config.update("jax_enable_x64", True)
    device = jax.devices("cpu")[0]

    def stablehlo(text: str) -> str:
        proto = _hlo.hlo_module_from_text(text).as_serialized_hlo_module_proto()
        return _jax.mlir.xla_computation_to_mlir_module(_hlo.XlaComputation(proto))

    def run(mlir: str, packed: list[Any]) -> list[np.ndarray]:
        devices = _jax.DeviceList((device,))
        executable = device.client.compile_and_load(mlir, devices, xla_client.CompileOptions())
        arrays = [jax.device_put(_array(p), device) for p in packed]
        results = executable.execute_sharded(arrays).disassemble_into_single_device_arrays()
        return [np.array(result[0]) for result in results]

    def handle(kind: str, content: Any, extra: Any) -> Any:
        if kind == "run":
            return run(stablehlo(content), extra)
        if kind == "run stablehlo":
            return run(content, extra)
        if kind == "from stablehlo":
            made = _jax.mlir.mlir_module_to_xla_computation(content, use_tuple_args=False, return_tuple=False)
            return made.as_serialized_hlo_module_proto()
        if kind == "parse":
            return _hlo.hlo_module_from_text(content).to_string()
        return _hlo.HloModule.from_serialized_hlo_module_proto(content).to_string()

    out = sys.stdout.buffer
    while True:
        try:
            request = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            reply = ("ok", handle(*request))
        except Exception as error:
            reply = ("error", str(error))
        pickle.dump(reply, out)
        out.flush()


if __name__ == "__main__":
    _serve()
