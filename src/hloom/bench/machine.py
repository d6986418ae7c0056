"""The machine that a benchmark ran on: what it is, and how fast it copies and multiplies at best."""

from __future__ import annotations

import importlib.metadata
import platform
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from hloom.runtime.machine import core_count, processor_name

COPIED_BYTES = 128 << 20
"""Far more than caches hold."""
MATRIX_SIZE = 2048
SECONDS = 0.6  # how long each is repeated


@dataclass(frozen=True, slots=True)
class Limits:
    """What the machine reached: bytes read and written by a copy, and f32 operations in a matrix product."""

    bytes_per_second: float
    flops_per_second: float

    def __str__(self) -> str:
        return (
            f"{self.bytes_per_second / 1e9:.1f} GB/s (np.copyto of {COPIED_BYTES >> 20} MiB, {core_count()} threads), "
            f"{self.flops_per_second / 1e9:.0f} GFLOP/s (np.dot of {MATRIX_SIZE}x{MATRIX_SIZE} f32)"
        )


def measure_limits() -> Limits:
    """Measures for about a second and a half."""
    source, target = np.ones(COPIED_BYTES, np.uint8), np.zeros(COPIED_BYTES, np.uint8)
    parts = list(zip(np.array_split(target, core_count()), np.array_split(source, core_count()), strict=True))
    a = np.ones((MATRIX_SIZE, MATRIX_SIZE), np.float32)
    product = np.empty_like(a)
    with ThreadPoolExecutor(core_count()) as threads:
        copying = _best(lambda: list(threads.map(lambda part: np.copyto(*part), parts)))
    multiplying = _best(lambda: np.dot(a, a, product))
    return Limits(2 * COPIED_BYTES / copying, 2 * MATRIX_SIZE**3 / multiplying)


def _best(work: Callable[[], object]) -> float:
    best, end = float("inf"), time.perf_counter() + SECONDS
    while time.perf_counter() < end:
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return best


def describe_machine() -> dict[str, str | int]:
    """The processor, its cores, and the system."""
    return {"processor": processor_name(), "cores": core_count(), "system": platform.platform()}


def versions() -> dict[str, str]:
    """The versions of Python and of the packages that matter for speed, those that are installed."""
    found = {"python": platform.python_version()}
    for package in ("hloom", "numpy", "llvmlite", "jax", "jaxlib"):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
