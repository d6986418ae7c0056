"""The machine of a benchmark: its description, and its peak rates of memory and arithmetic."""

from __future__ import annotations

import ctypes
import functools
import importlib.metadata
import platform
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from hloom.backends.cpu.kernels.kernel_function import KernelFunction
from hloom.backends.cpu.llvm.disk_cache import find_program, keep_program
from hloom.backends.cpu.llvm.machine_code import load_object, make_object
from hloom.backends.cpu.llvm.processor import processor
from hloom.lir import I64, PTR, LirModule, Type, constant, type_of
from hloom.runtime.serialization import DataFormat
from hloom.system.machine import core_count, processor_name
from hloom.target import CACHE_LINE

SIZES = tuple(1 << power for power in (14, 18, 21, 24, 27))
"""Sizes in bytes of the arrays that are read and written: from the first cache to memory."""
PASS_BYTES = 32 << 20
"""Bytes that each thread moves in one measurement of arrays that fit a cache, in many passes over them."""
SECONDS = 0.1
"""Duration of each measurement."""
CHAINS = 12
"""Independent accumulators, enough to hide the latency of multiply-add instructions."""
ITERATIONS = 1 << 20


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """Bytes per second with arrays of `size` bytes in all; copying counts the bytes read and those written."""

    size: int
    reading: float
    writing: float
    copying: float

    @property
    def best(self) -> float:
        """The largest of the three."""
        return max(self.reading, self.writing, self.copying)


@dataclass(frozen=True, slots=True)
class Limits:
    """Peak rates on all cores: traffic with caches and with memory, by the size of arrays, and f32 operations on
    registers.
    """

    flops_per_second: float
    bandwidths: tuple[Bandwidth, ...]
    """Ordered by size; the last one is that of memory."""

    @property
    def memory(self) -> Bandwidth:
        """Traffic with memory."""
        return self.bandwidths[-1]

    def bytes_per_second(self, size: int) -> float:
        """Returns the limit for kernels that read and write `size` bytes: that of the largest arrays not above it."""
        smaller = [each for each in self.bandwidths if each.size <= size] or [self.bandwidths[0]]
        return max(smaller[-1].best, self.memory.best)

    def joined(self, other: Limits) -> Limits:
        """Returns the larger rates of two measurements: other work on the machine makes rates smaller, never larger."""
        pairs = zip(self.bandwidths, other.bandwidths, strict=True)
        return Limits(
            max(self.flops_per_second, other.flops_per_second),
            tuple(
                Bandwidth(a.size, max(a.reading, b.reading), max(a.writing, b.writing), max(a.copying, b.copying))
                for a, b in pairs
            ),
        )

    def __str__(self) -> str:
        memory, fastest = self.memory, max(each.best for each in self.bandwidths)
        rates = {"reading": memory.reading, "writing": memory.writing, "copying": memory.copying}
        parts = ", ".join(f"{rate / 1e9:.1f} {name}" for name, rate in rates.items())
        return (
            f"memory {memory.best / 1e9:.1f} GB/s ({parts}), caches up to {fastest / 1e9:.0f} GB/s, "
            f"{self.flops_per_second / 1e9:.0f} GFLOP/s (f32, in registers) on {core_count()} threads"
        )


FORMAT = DataFormat(Limits, Bandwidth)


def limits_of_machine(improve: bool = False) -> Limits:
    """Returns the limits, which the first process measures for two seconds and keeps in the cache on disk.

    With `improve` they are measured again, and the larger rates are kept.
    """
    key = f"limits {processor_name()} {core_count()} {processor().vector_bytes} {SIZES}"
    known: Limits | None = find_program(key, FORMAT)
    if known is not None and not improve:
        return known
    found = measure_limits() if known is None else known.joined(measure_limits())
    keep_program(key, found, FORMAT)
    return found


def measure_limits() -> Limits:
    """Measures the limits for about two seconds."""
    width = processor().vector_bytes // 4
    code = load_object(make_object(_kernels(width)))
    with ThreadPoolExecutor(core_count()) as threads:

        def seconds(name: str, arguments: Sequence[tuple[int, ...]]) -> float:
            function = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * len(arguments[0]))(code.address(f"hloom_{name}"))
            return _best(lambda: list(threads.map(lambda each: function(*each), arguments)))

        sums = np.zeros((core_count(), 1024), np.float32)
        spinning = seconds("spin", [(row.ctypes.data, ITERATIONS) for row in sums])
        bandwidths = tuple(_bandwidth(size, width, threads, seconds) for size in SIZES)
    return Limits(core_count() * 2.0 * CHAINS * width * ITERATIONS / spinning, bandwidths)


def _bandwidth(
    size: int, width: int, threads: ThreadPoolExecutor, seconds: Callable[[str, Sequence[tuple[int, ...]]], float]
) -> Bandwidth:
    """Measures traffic with arrays of `size` bytes, a part for each thread; a copy has a source of half the size."""
    floats = size // 4 // core_count() // (16 * width) * (16 * width)
    passes = max(1, PASS_BYTES // (4 * floats))
    moved = 4.0 * floats * passes * core_count()
    arrays = [_aligned_ones(floats) for _ in range(core_count())]
    whole = [(array.ctypes.data, array.ctypes.data, floats, passes) for array in arrays]
    halves = [(array.ctypes.data + 2 * floats, array.ctypes.data, floats // 2, passes) for array in arrays]
    copying = seconds("copy", halves)
    if size == SIZES[-1]:  # the C library may use non-temporal stores
        copying = min(copying, _best(lambda: list(threads.map(_copy_half, arrays))))
    return Bandwidth(size, moved / seconds("read", whole), moved / seconds("write", whole), moved / copying)


def _aligned_ones(size: int) -> np.ndarray[Any, Any]:
    array = np.ones(size + CACHE_LINE, np.float32)
    start = -array.ctypes.data // 4 % (CACHE_LINE // 4)
    return array[start : start + size]


def _copy_half(array: np.ndarray[Any, Any]) -> None:
    half = array.size // 2
    np.copyto(array[half:], array[:half])


def _kernels(width: int) -> str:
    """Returns LLVM IR of `hloom_spin(address, iterations)`, which does multiply-adds, and of `hloom_read`,
    `hloom_write` and `hloom_copy` (target, source, floats, passes), which traverse arrays."""
    vector = type_of("float", width)
    spin = KernelFunction("hloom_spin", address=PTR, iterations=I64)
    factor = spin.splat(spin.load(spin.parameters[0], vector.scalar, 4), width)
    with spin.loop(spin.parameters[1], carried=[constant(vector, 0)] * CHAINS) as loop:
        loop.carried = [spin.multiply_add(factor, factor, each) for each in loop.carried]
    for k, value in enumerate(loop.carried):
        spin.store(value, spin.at(spin.parameters[0], k * width, "float"), 4)
    functions = [spin, *(_traversal(name, vector) for name in ("read", "write", "copy"))]
    for f in functions:
        f.finish().is_exported = True
    return LirModule([f.function for f in functions]).text()


def _traversal(name: str, vector: Type) -> KernelFunction:
    f = KernelFunction(f"hloom_{name}", target=PTR, source=PTR, floats=I64, passes=I64)
    with (
        f.loop(f["passes"], carried=[constant(vector, 0)] * 8) as outer,
        f.loop(f["floats"], 8 * vector.width, carried=outer.carried) as loop,
    ):
        for k in range(8):
            index = f.add(loop.index, k * vector.width)
            if name != "write":
                value = f.load(f.at(f["source"], index, "float"), vector, 4)
                loop.carried[k] = f.binary("fadd", loop.carried[k], value) if name == "read" else value
            if name != "read":
                f.store(loop.carried[k], f.at(f["target"], index, "float"), 4)
        outer.carried = loop.carried
    # The values must be used, or LLVM removes the loads.
    f.store(functools.reduce(lambda a, b: f.binary("fadd", a, b), outer.carried), f["target"], 4)
    return f


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
