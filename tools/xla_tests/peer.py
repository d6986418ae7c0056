"""XLA's side of the comparison, through jaxlib: parsing, compiling and running, in a process of its own."""

from __future__ import annotations

import os
import statistics
import time
from typing import Any

DEVICES = 8
RUNS, SECONDS = 5, 0.3


def make() -> Any:
    """Returns the handler of a peer's process."""
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={DEVICES}"
    import jax
    from jaxlib import lapack

    lapack._lapack.initialize()
    jax.config.update("jax_enable_x64", True)
    jax.devices()
    return handle


def handle(request: tuple[Any, ...]) -> Any:
    kind, *rest = request
    try:
        return {"parse": _parse, "compile": _compile, "run": _run}[kind](*rest)
    except Exception as error:
        return {"error": " ".join(str(error).split())[:600]}


def _parse(text: str) -> dict[str, Any]:
    """Returns the text that XLA prints, with all constants; None for a text with elided ones, which XLA reads as
    zeros.
    """
    from jaxlib import _hlo

    module = _module(text)
    if "..." in text:
        return {"text": None}
    options = _hlo.HloPrintOptions()
    options.print_large_constants = True
    return {"text": module.to_string(options)}


def _module(text: str) -> Any:
    """Parses HLO or StableHLO text to XLA's module."""
    from jaxlib import _hlo, _jax

    from hloom.files.formats import Format, text_format

    if text_format(text) is Format.MLIR:
        computation = _jax.mlir.mlir_module_to_xla_computation(text)
        computation.as_hlo_text()  # fails for types that became invalid ones
        return computation.as_hlo_module()
    return _hlo.hlo_module_from_text(text)


def _compile(text: str) -> dict[str, Any]:
    """Compiles a text for one device."""
    _compiled(text, 1, 1)
    return {}


def _compiled(text: str, replicas: int, partitions: int) -> Any:
    import jax
    from jaxlib import _hlo, _jax, xla_client

    proto = _module(text).as_serialized_hlo_module_proto()
    mlir = _jax.mlir.xla_computation_to_mlir_module(_hlo.XlaComputation(proto))
    devices = jax.devices("cpu")[: replicas * partitions]
    options = xla_client.CompileOptions()
    options.num_replicas, options.num_partitions = replicas, partitions
    return devices[0].client.compile_and_load(mlir, _jax.DeviceList(tuple(devices)), options)


def _run(text: str, replicas: int, partitions: int, arguments: list[list[Any]]) -> dict[str, Any]:
    """Returns the results of each device, flattened, and the median time of a run in seconds."""
    import jax

    executable = _compiled(text, replicas, partitions)
    devices = jax.devices("cpu")[: replicas * partitions]
    seconds, results = [], []
    end = time.perf_counter() + SECONDS
    while len(seconds) < 2 or (len(seconds) < RUNS and time.perf_counter() < end):
        buffers = [  # new for each run: the program may reuse their memory for its results
            _sharded([jax.device_put(mine[i], device) for mine, device in zip(arguments, devices, strict=True)])
            for i in range(len(arguments[0]))
        ]
        start = time.perf_counter()
        results = executable.execute_sharded(buffers).disassemble_into_single_device_arrays()
        for shards in results:
            for shard in shards:
                shard.block_until_ready()
        seconds.append(time.perf_counter() - start)
    import numpy as np

    of_devices = [[np.array(shards[d]) for shards in results] for d in range(len(devices))]
    return {"results": of_devices, "seconds": statistics.median(seconds)}


def _sharded(shards: list[Any]) -> Any:
    """Joins the devices' arrays to one sharded array, as XLA takes the arguments of several devices."""
    if len(shards) == 1:
        return shards[0]
    import jax
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    mesh = Mesh(np.array([next(iter(shard.devices())) for shard in shards]), ("devices",))
    if shards[0].ndim == 0:
        sharding, shape = NamedSharding(mesh, PartitionSpec()), ()
    else:
        sharding = NamedSharding(mesh, PartitionSpec("devices"))
        shape = (shards[0].shape[0] * len(shards), *shards[0].shape[1:])
    return jax.make_array_from_single_device_arrays(shape, sharding, shards)
