"""The machine of a benchmark: its description, and its peak rates of memory and arithmetic."""

from __future__ import annotations

import ctypes
import functools
import importlib.metadata
import platform
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from hloom.api import compile
from hloom.backends.cpu.kernels.kernel_function import KernelFunction, task_function
from hloom.backends.cpu.llvm.disk_cache import find_program, keep_program
from hloom.backends.cpu.llvm.machine_code import MachineCode, load_object, make_object
from hloom.backends.cpu.llvm.processor import processor
from hloom.backends.cpu.runtime.thread_pool import ThreadPool
from hloom.bench.limits import Bandwidth, Limits, Work
from hloom.lir import I64, PTR, LirModule, Type, Value, constant, type_of
from hloom.runtime.serialization import DataFormat
from hloom.system.machine import core_count, processor_name
from hloom.target import CACHE_LINE

SIZES = tuple(1 << power for power in (14, 18, 20, 21, 22, 23, 24, 25, 26, 27))
"""Sizes in bytes of the arrays that are read and written: from the first cache to memory."""
MIN_STREAMED_BYTES = 1 << 22
"""Bytes of arrays from which non-temporal stores may be faster."""
PASS_BYTES, MIN_PASSES = 128 << 20, 4
"""Bytes that each thread moves in a measurement, and passes over its arrays, beside which its start costs nothing."""
SECONDS = 0.1
"""Duration of each measurement."""
MOMENT = 0.02
"""Duration of each measurement of the machine's present speed."""
CHAINS = 12
"""Independent accumulators, enough to hide the latency of multiply-add instructions."""
SPINS = {"multiply-adds": 1 << 20, "sums": 1 << 20, "quotients": 1 << 17, "roots": 1 << 17}
"""Iterations of a loop of operations, by the operations: one for each accumulator."""
CALLS, FORKS, MAX_POLLS = 2000, 2000, 1 << 20
"""Calls and parallel loops of one measurement, and polls of a task that waits for the others."""
MIN_OCCUPANCY = 0.85
"""The part of the CPUs' time below which a measurement is of a busy machine."""
FORMAT = DataFormat(Limits, Bandwidth)

Seconds = Callable[[str, Sequence[tuple[int, ...]]], float]
"""The time of a function that runs with these arguments, one tuple for each thread."""


def limits_of_machine(improve: bool = False, threads: int | None = None) -> Limits:
    """Returns the limits of all cores or of some, which the first process measures for four seconds and keeps in the
    cache on disk.

    With `improve`, or where other processes had a part of the CPUs, they are measured again, and the better ones are
    kept.
    """
    count = threads or core_count()
    key = f"limits {processor_name()} {count} {processor().vector_bytes} {SIZES}"
    known: Limits | None = find_program(key, FORMAT)
    if known is not None and known.occupancy >= MIN_OCCUPANCY and not improve:
        return known
    found = measure_limits(count) if known is None else known.joined(measure_limits(count))
    keep_program(key, found, FORMAT)
    return found


def least_seconds(work: Work) -> float:
    """Returns the least time of a call, on one thread or all, at the machine's speed of this moment.

    It measures for about a second what the work asks for. The speed of a machine that others share changes within
    minutes, so kernels are measured beside it.
    """
    size = work.reads + work.writes
    sizes = (
        max((s for s in SIZES if s <= size), default=SIZES[0]),
        min((s for s in SIZES if s > size), default=SIZES[-1]),
    )
    return min(measure_limits(count, sizes, MOMENT).seconds(work) for count in {1, core_count()})


def measure_limits(count: int, sizes: Sequence[int] = SIZES, duration: float = SECONDS) -> Limits:
    """Measures the limits of `count` threads, by default for about four seconds."""
    width = processor().vector_bytes // 4
    code = _code(width)
    parts: list[float] = []
    with ThreadPoolExecutor(count) as threads:

        def seconds(name: str, arguments: Sequence[tuple[int, ...]]) -> float:
            function = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * len(arguments[0]))(code.address(f"hloom_{name}"))
            began, before = time.perf_counter(), time.process_time()
            best = _best(lambda: list(threads.map(lambda each: function(*each), arguments)), duration)
            parts.append((time.process_time() - before) / (time.perf_counter() - began))
            return best

        sums = np.zeros((count, 1024), np.float32)
        multiplying, adding, dividing, rooting = (
            count * CHAINS * width * steps / seconds(name, [(row.ctypes.data, steps) for row in sums])
            for name, steps in SPINS.items()
        )
        bandwidths = tuple(_bandwidth(size, width, count, seconds) for size in sizes)
    pool = ThreadPool(count)
    fork = functools.partial(
        ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 4)(code.address("hloom_forks")),
        pool.address, pool.parallel_for_address, count, FORKS,
    )  # fmt: skip
    forking = _best(fork, duration) / FORKS if count > 1 else 0.0
    occupancy = sum(parts) / len(parts) / count
    call = _call_seconds(duration)
    return Limits(count, 2.0 * multiplying, bandwidths, adding, dividing, rooting, call, forking, occupancy)


def _call_seconds(duration: float) -> float:
    """Returns the time of a call that computes nothing."""
    run, array = compile("HloModule m\nENTRY e { x = f32[1] parameter(0) ROOT y = f32[1] negate(x) }"), np.ones(1, "f4")
    return _best(lambda: [run(array) for _ in range(CALLS)], duration) / CALLS


def _bandwidth(size: int, width: int, count: int, seconds: Seconds) -> Bandwidth:
    """Measures traffic with arrays of `size` bytes, a part for each thread; a copy has a source of half the size."""
    floats = size // 4 // count // (16 * width) * (16 * width)
    passes = max(MIN_PASSES, PASS_BYTES // (4 * floats))
    moved = 4.0 * floats * passes * count
    arrays = [_aligned_ones(floats) for _ in range(count)]
    whole = [(array.ctypes.data, array.ctypes.data, floats, passes) for array in arrays]
    halves = [(array.ctypes.data + 2 * floats, array.ctypes.data, floats // 2, passes) for array in arrays]
    forms = ("", "_streaming") if size >= MIN_STREAMED_BYTES else ("",)
    writing, copying = (
        min(seconds(f"{name}{form}", given) for form in forms) for name, given in (("write", whole), ("copy", halves))
    )
    return Bandwidth(size, moved / seconds("read", whole), moved / writing, moved / copying)


def _aligned_ones(size: int) -> np.ndarray[Any, Any]:
    array = np.ones(size + CACHE_LINE, np.float32)
    start = -array.ctypes.data // 4 % (CACHE_LINE // 4)
    return array[start : start + size]


@functools.cache
def _code(width: int) -> MachineCode:
    return load_object(make_object(_kernels(width)))


def _kernels(width: int) -> str:
    """Returns the LLVM IR of the functions that are timed:

    - `hloom_NAME(address, iterations)` does operations on registers;
    - `hloom_read`, `hloom_write` and `hloom_copy` (target, source, floats, passes) traverse arrays;
    - `hloom_forks(pool, parallel_for, chunks, times)` runs loops whose tasks only wait for each other.
    """
    vector = type_of("float", width)
    functions = [_spin(name, vector) for name in SPINS]
    functions += [_traversal(name, vector, is_streaming=False) for name in ("read", "write", "copy")]
    functions += [_traversal(name, vector, is_streaming=True) for name in ("write", "copy")]
    functions.append(_forks())
    for f in functions:
        f.finish().is_exported = True
    return LirModule([*(f.function for f in functions), _meet().finish()]).text()


def _spin(name: str, vector: Type) -> KernelFunction:
    f = KernelFunction(f"hloom_{name}", address=PTR, iterations=I64)
    loaded = f.splat(f.load(f["address"], vector.scalar, 4), vector.width)
    factor = f.binary("fadd", loaded, constant(vector, 1.5))

    def step(k: int, value: Value) -> Value:
        match name:
            case "multiply-adds":
                return f.multiply_add(factor, factor, value)
            case "sums":
                return f.binary("fadd" if k % 2 else "fmul", factor, value)
            case "quotients":
                return f.binary("fdiv", factor, value)
        return f.intrinsic("sqrt", value)

    with f.loop(f["iterations"], carried=[factor] * CHAINS) as loop:
        loop.carried = [step(k, value) for k, value in enumerate(loop.carried)]
    for k, value in enumerate(loop.carried):
        f.store(value, f.at(f["address"], k * vector.width, "float"), 4)
    return f


def _traversal(name: str, vector: Type, *, is_streaming: bool) -> KernelFunction:
    f = KernelFunction(
        f"hloom_{name}{'_streaming' if is_streaming else ''}", target=PTR, source=PTR, floats=I64, passes=I64
    )
    align = 4 * vector.width
    with (
        f.loop(f["passes"], carried=[constant(vector, 0)] * 8) as outer,
        f.loop(f["floats"], 8 * vector.width, carried=outer.carried) as loop,
    ):
        for k in range(8):
            index = f.add(loop.index, k * vector.width)
            if name != "write":
                value = f.load(f.at(f["source"], index, "float"), vector, align)
                loop.carried[k] = f.binary("fadd", loop.carried[k], value) if name == "read" else value
            if name != "read":
                f.store(loop.carried[k], f.at(f["target"], index, "float"), align, is_nontemporal=is_streaming)
        outer.carried = loop.carried
    # The values must be used, or LLVM removes the loads.
    f.store(functools.reduce(lambda a, b: f.binary("fadd", a, b), outer.carried), f["target"], 4)
    return f


def _forks() -> KernelFunction:
    f = KernelFunction("hloom_forks", pool=PTR, parallel_for=PTR, chunks=I64, times=I64)
    counter = f.slot(I64, 1)
    f.store(constant(I64, 0), counter, 8)
    context = f.pack(counter, f["chunks"])
    with f.loop(f["times"]):
        f.run_chunks("hloom_meet", context, f["chunks"], (f["pool"], f["parallel_for"]))
    return f


def _meet() -> KernelFunction:
    """Writes the task that waits until all chunks of its loop have started, or some time has passed."""
    f = task_function("hloom_meet")
    counter, chunks = f.unpack(f["context"], PTR, I64)
    before = f.atomic_update("add", counter, constant(I64, 1))
    all_of_loop = f.binary("mul", f.binary("add", f.binary("udiv", before, chunks), constant(I64, 1)), chunks)
    polls = f.variable(constant(I64, 0))

    def must_wait() -> Value:
        polls.set(f.binary("add", polls.get(), constant(I64, 1)))
        has_time = f.compare("ult", polls.get(), constant(I64, MAX_POLLS))
        arrived = f.load(counter, I64, 8, "monotonic")
        return f.binary("and", has_time, f.compare("ult", arrived, all_of_loop))

    with f.repeat(must_wait):
        pass
    return f


def _best(work: Callable[[], object], duration: float) -> float:
    best, end = float("inf"), time.perf_counter() + duration
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
