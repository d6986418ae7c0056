"""The machine of a benchmark: its description, and its peak rates of memory and arithmetic."""

from __future__ import annotations

import ctypes
import functools
import importlib.metadata
import platform
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from hloom.backends.cpu.kernels.kernel_function import KernelFunction
from hloom.backends.cpu.llvm.machine_code import load_object, make_object
from hloom.backends.cpu.llvm.processor import processor
from hloom.lir import I64, PTR, LirModule, constant, type_of
from hloom.system.machine import core_count, processor_name

ARRAY_BYTES = 128 << 20
"""Size of the arrays in bytes, much larger than caches."""
SECONDS = 0.3
"""Duration of each measurement."""
CHAINS = 12
"""Independent accumulators, enough to hide the latency of multiply-add instructions."""
ITERATIONS = 1 << 20


@dataclass(frozen=True, slots=True)
class Limits:
    """Peak rates on all cores: memory traffic, and f32 operations on registers.

    `bytes_per_second` is the maximum of reading, writing and copying (which counts both); 0 means not measured.
    """

    bytes_per_second: float
    flops_per_second: float
    reading: float = 0.0
    writing: float = 0.0
    copying: float = 0.0

    def __str__(self) -> str:
        rates = [f"{rate / 1e9:.1f} {name}" for name, rate in self._rates().items() if rate]
        memory = f"{self.bytes_per_second / 1e9:.1f} GB/s" + (f" ({', '.join(rates)})" if rates else "")
        return f"{memory}, {self.flops_per_second / 1e9:.0f} GFLOP/s (f32, in registers) on {core_count()} threads"

    def _rates(self) -> dict[str, float]:
        return {"reading": self.reading, "writing": self.writing, "copying": self.copying}


@functools.cache
def measure_limits() -> Limits:
    """Measures the limits for about 1.5 seconds, once in a process."""
    width = processor().vector_bytes // 4
    code = load_object(make_object(_kernels(width)))
    call = functools.partial(ctypes.CFUNCTYPE, None, ctypes.c_void_p, ctypes.c_int64)
    spin, read, write = (call()(code.address(f"hloom_{name}")) for name in ("spin", "read", "write"))
    source, target = np.ones(ARRAY_BYTES, np.uint8), np.ones(ARRAY_BYTES, np.uint8)
    parts = [np.array_split(array.view(np.float32), core_count()) for array in (source, target)]
    sums = np.zeros((core_count(), 1024), np.float32)
    with ThreadPoolExecutor(core_count()) as threads:

        def on_each(function: Callable[[int, int], object], arrays: Iterable[np.ndarray[Any, Any]], size: int) -> float:
            work = [(array.ctypes.data, size or array.size // (8 * width) * width * 8) for array in arrays]
            return _best(lambda: list(threads.map(lambda each: function(*each), work)))

        spinning = on_each(spin, sums, ITERATIONS)
        reading, writing = on_each(read, parts[0], 0), on_each(write, parts[1], 0)
        pairs = list(zip(parts[1], parts[0], strict=True))
        copying = _best(lambda: list(threads.map(lambda pair: np.copyto(*pair), pairs)))
    flops = core_count() * 2.0 * CHAINS * width * ITERATIONS / spinning
    rates = [ARRAY_BYTES / reading, ARRAY_BYTES / writing, 2 * ARRAY_BYTES / copying]
    return Limits(max(rates), flops, *rates)


def _kernels(width: int) -> str:
    """LLVM IR of `hloom_spin(address, iterations)`, which does multiply-adds, and of `hloom_read` and `hloom_write`,
    which traverse an array (address, number of floats)."""
    vector, functions = type_of("float", width), []
    spin = KernelFunction("hloom_spin", address=PTR, iterations=I64)
    factor = spin.splat(spin.load(spin.parameters[0], vector.scalar, 4), width)
    with spin.loop(spin.parameters[1], carried=[constant(vector, 0)] * CHAINS) as loop:
        loop.carried = [spin.multiply_add(factor, factor, each) for each in loop.carried]
    for k, value in enumerate(loop.carried):
        spin.store(value, spin.at(spin.parameters[0], k * width, "float"), 4)
    functions.append(spin)
    for name in ("read", "write"):
        f = KernelFunction(f"hloom_{name}", address=PTR, floats=I64)
        with f.loop(f.parameters[1], 8 * width, carried=[constant(vector, 0)] * 8) as loop:
            addresses = [f.at(f.parameters[0], f.add(loop.index, k * width), "float") for k in range(8)]
            for k, address in enumerate(addresses):
                if name == "read":
                    loop.carried[k] = f.binary("fadd", loop.carried[k], f.load(address, vector, 4))
                else:
                    f.store(loop.carried[k], address, 4)
        # The values must be used, or LLVM removes the loads.
        f.store(functools.reduce(lambda a, b: f.binary("fadd", a, b), loop.carried), f.parameters[0], 4)
        functions.append(f)
    for f in functions:
        f.finish().is_exported = True
    return LirModule([f.function for f in functions]).text()


def _best(work: Callable[[], object]) -> float:
    best, end = float("inf"), time.perf_counter() + SECONDS
    while time.perf_counter() < end:
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return best


def describe_machine() -> dict[str, str | int]:
    """Processor, number of cores and operating system."""
    return {"processor": processor_name(), "cores": core_count(), "system": platform.platform()}


def versions() -> dict[str, str]:
    """Versions of Python and of the installed packages that affect speed."""
    found = {"python": platform.python_version()}
    for package in ("hloom", "numpy", "llvmlite", "jax", "jaxlib"):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
