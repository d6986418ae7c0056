"""`python -m benchmarks.cores`: the time of kernels over the number of threads, measured and predicted.

The model takes a kernel's time on one thread and the number of its parallel loops. On more threads, the work takes less
time by the ratio of their rates of arithmetic (threads that share a core, or its power, are not so many cores), but at
least the time in which they move its bytes; each loop adds the time of a fork and a join. All are measured
(`hloom.bench.machine`) for as many threads as the machine has. For more threads, arithmetic, the bandwidth of caches of
a core and forks are extrapolated linearly, and the bandwidth of memory does not grow.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import click
import numpy as np

from benchmarks.kernels import KERNELS, Kernel
from benchmarks.process import Process
from hloom.bench.limits import Bandwidth, Limits, Work

FAMILIES = {
    "products": "product f32 1024 x 1024 x 1024",
    "small products": "product f32 256 x 256 x 256",
    "attention": "attention, 8 x 512",
    "Fourier transforms": "FFT c64 1048576",
    "elements": "a x + y, 16M",
    "rows": "softmax 4096 x 1024",
    "columns": "sums of columns 4096 x 4096",
    "running sums": "running sums, 1M",
    "transposes": "transpose 4096 x 4096",
    "sorts": "sort, 1M",
    "gathers": "rows by their numbers, 200k of 64",
    "scatters": "sums by rows' numbers, 200k of 64",
    "convolutions": "convolution 8 x 56 x 56 x 64, 3 x 3",
    "factorisations": "Cholesky 512 x 512",
    "batches of small matrices": "solve 10000 x 4 x 4",
}
CORE_BYTES = 1 << 20
"""Bytes of the caches of a core."""
SECONDS = 0.5


@dataclass(frozen=True)
class Sample:
    """The median time of a call in seconds, and its parallel loops."""

    seconds: float
    forks: int


def predicted(one: Sample, forks: int, work: Work | None, alone: Limits, together: Limits) -> float:
    """Returns the seconds of a call on threads with limits `together`, from the time on one, with `alone`."""
    cores = together.flops_per_second / alone.flops_per_second
    own = one.seconds - alone.call_seconds
    moving = together.moving_seconds(work) if work else 0.0
    return together.call_seconds + forks * together.fork_seconds + max(own / cores, moving)


def extrapolated(known: dict[int, Limits], threads: int) -> Limits:
    """Returns the limits of more threads than were measured, from those of one and of the most."""
    most = max(known)
    last, growth = known[most], threads / most
    fork = last.fork_seconds * (threads - 1) / max(1, most - 1)
    rates = tuple(_grown(each, growth if each.size <= CORE_BYTES * most else 1.0) for each in last.bandwidths)
    return replace(last, flops_per_second=growth * last.flops_per_second, bandwidths=rates, fork_seconds=fork)


def _grown(rates: Bandwidth, growth: float) -> Bandwidth:
    return Bandwidth(rates.size * growth, growth * rates.reading, growth * rates.writing, growth * rates.copying)


def work(name: str) -> None:
    """Times a kernel on the threads of this process, and writes a sample to standard output."""
    import hloom
    from hloom.backends.cpu.llvm.native.vocabulary import MONOTONIC
    from hloom.backends.cpu.runtime.thread_pool import shared_pool

    kernel = KERNELS[name]
    given = kernel.arrays(np.random.default_rng(0))
    run = hloom.compile(hloom.from_jax(kernel.jax, *given))
    pool, found = shared_pool().memory, list[float]()
    run(*given)
    before, end = pool.state.load(MONOTONIC) >> 32, time.perf_counter() + SECONDS
    while not found or time.perf_counter() < end:
        started = time.perf_counter()
        run(*given)
        found.append(time.perf_counter() - started)
    forks = ((pool.state.load(MONOTONIC) >> 32) - before) // len(found)
    print(json.dumps([float(np.median(found)), forks]), flush=True)


def measure(name: str, threads: int) -> Sample:
    """Times a kernel in a process of its own."""
    environment = {"JAX_PLATFORMS": "cpu", "HLOOM_NUM_THREADS": str(threads)}
    with Process("benchmarks.cores", "--work", name, **environment) as process:
        return Sample(*process.request("", 60.0))


def row(family: str, kernel: Kernel, limits: dict[int, Limits], more: Sequence[int]) -> str:
    """Measures a kernel on each number of threads, and returns its row of the table."""
    samples = {threads: measure(kernel.name, threads) for threads in limits}
    one, forks = samples[1], samples[max(limits)].forks
    cells = [f"{1e3 * one.seconds:.3g}", str(forks)]
    for threads in [*limits, *more]:
        if threads > 1:
            at = limits.get(threads) or extrapolated(limits, threads)
            model = one.seconds / predicted(one, forks, kernel.least, limits[1], at)
            found = f"{one.seconds / samples[threads].seconds:.1f} / " if threads in samples else ""
            cells.append(f"{found}{model:.1f}")
    return f"| {family} | {' | '.join(cells)} |"


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--more", default="16,64", metavar="COUNTS", help="Numbers of threads that are only predicted.")
@click.option("--work", "own", hidden=True)
def main(more: str, own: str | None) -> None:
    """Speed of each family of kernels over that of one thread: measured / predicted, as a table in Markdown."""
    if own is not None:
        work(own)
        return
    from hloom.bench.machine import limits_of_machine

    cores = len(os.sched_getaffinity(0))
    counts = sorted({cores, *(4**power for power in range(int(math.log(cores, 4)) + 1))})
    limits = {threads: limits_of_machine(threads=threads) for threads in counts}
    for threads, each in limits.items():
        click.echo(f"{threads}: fork and join {1e6 * each.fork_seconds:.1f} us, {each}", err=True)
    predicted_counts = [int(count) for count in more.split(",") if int(count) > cores]
    headings = [f"{threads} threads" for threads in [*counts[1:], *predicted_counts]]
    click.echo(f"| | ms on one | loops | {' | '.join(headings)} |")
    click.echo("|---|" + "---|" * (2 + len(headings)))
    for family, name in FAMILIES.items():
        click.echo(row(family, KERNELS[name], limits, predicted_counts))


if __name__ == "__main__":
    main()
