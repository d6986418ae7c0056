"""A process that runs one program on one platform: `python -m benchmarks.worker PROGRAM RESULTS`.

It replies to the lines `ready`, `compile`, `step SECONDS`, `result` and `memory` with a line of JSON each.
"""

from __future__ import annotations

import functools
import json
import sys
import time
from typing import Any

import jax
import numpy as np

import benchmarks.issues.programs
import benchmarks.programs  # noqa: F401
from benchmarks.program import PROGRAMS
from benchmarks.replies import peak_bytes, plain, times


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
            reply = times(functools.partial(_wait_for, run, *state), float(arguments[0]))
        elif word == "result":
            np.savez(results, *map(plain, jax.tree.leaves(run(*state))))
            reply = results
        else:
            reply = peak_bytes()
        print(json.dumps(reply), flush=True)


def _wait_for(run: Any, *state: Any) -> None:
    jax.block_until_ready(run(*state))


if __name__ == "__main__":
    main(*sys.argv[1:])
