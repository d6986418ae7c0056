"""A process that runs one program on one platform: `python -m benchmarks.worker PROGRAM RESULTS`.

It replies to the lines `ready`, `compile`, `step SECONDS`, `result` and `memory` with a line of JSON each.
"""

from __future__ import annotations

import functools
import json
import sys
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

import benchmarks.issues.programs
import benchmarks.programs  # noqa: F401
from benchmarks.program import PROGRAMS


def main(name: str, results: str) -> None:
    program = PROGRAMS[name]
    jax.config.update("jax_enable_x64", program.x64)
    key = jax.block_until_ready(jax.random.key(0))
    # Initialise the platform, which is not part of the program's compilation.
    jax.block_until_ready(jax.jit(lambda x: x + 1)(np.ones(3, np.float32)))
    run: Any = None
    state: Any = None
    for line in sys.stdin:
        word, *arguments = line.split()
        if word == "compile":
            started = time.perf_counter()
            state = jax.block_until_ready(jax.jit(program.initialise)(key))
            initialised = time.perf_counter()
            traced = jax.jit(program.step).lower(*state)
            lowered = time.perf_counter()
            run = traced.compile()
            reply: Any = {"initialise": initialised - started, "compile": time.perf_counter() - lowered}
        elif word == "ready":
            reply = name
        elif word == "step":
            reply = _times(functools.partial(run, *state), float(arguments[0]))
        elif word == "result":
            np.savez(results, *map(_plain, jax.tree.leaves(run(*state))))
            reply = results
        else:
            reply = _peak_bytes()
        print(json.dumps(reply), flush=True)


def _times(work: Any, seconds: float) -> list[float]:
    """Times calls until a number of seconds have passed, at least one."""
    times: list[float] = []
    while not times or sum(times) < seconds:
        started = time.perf_counter()
        jax.block_until_ready(work())
        times.append(time.perf_counter() - started)
    return times


def _peak_bytes() -> int:
    """The peak memory of this process in bytes. (That of `getrusage` starts with the parent's.)"""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1])


def _plain(array: Any) -> Any:
    """Converts an array to one that np.savez can store."""
    array = np.asarray(array)
    return array.astype(np.float32) if array.dtype.kind == "V" else array


if __name__ == "__main__":
    main(*sys.argv[1:])
