"""Measures the time of one call of a jitted function on hloom and on JAX's CPU backend: x + y of eight floats.

    python tools/measure_jax_dispatch.py

Two processes, one for each platform, time batches of calls alternately, so that both see the same load of the machine.
`call` waits for each result; `issue` waits for the last result of a batch only; `host` converts from and to NumPy.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import click

PLATFORMS = ("cpu", "hloom")
MEASURES = ("call", "issue", "host")
CALLS = 500


def serve() -> None:
    """Times a batch for each line of input, the name of a measure; prints microseconds per call."""
    import jax
    import numpy as np

    add = jax.jit(lambda x, y: x + y)
    host = np.arange(8, dtype=np.float32)
    x = jax.device_put(host)

    def call() -> None:
        for _ in range(CALLS):
            add(x, x).block_until_ready()

    def issue() -> None:
        for _ in range(CALLS):
            result = add(x, x)
        result.block_until_ready()

    def from_host() -> None:
        for _ in range(CALLS):
            np.asarray(add(host, host))

    batches: dict[str, Callable[[], None]] = {"call": call, "issue": issue, "host": from_host}
    for batch in batches.values():
        batch()
    for line in sys.stdin:
        began = time.perf_counter()
        batches[line.strip()]()
        print((time.perf_counter() - began) / CALLS * 1e6, flush=True)


@click.command(help=__doc__)
@click.option("--repetitions", default=40, show_default=True)
def main(repetitions: int) -> None:
    servers = {
        platform: subprocess.Popen(
            [sys.executable, __file__, "serve"],
            env={**os.environ, "JAX_PLATFORMS": platform},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for platform in PLATFORMS
    }
    times: dict[tuple[str, str], list[float]] = {}
    for _ in range(repetitions):
        for measure in MEASURES:
            for platform, server in servers.items():
                times.setdefault((measure, platform), []).append(request_time(server, measure))
    for server in servers.values():
        server.communicate()
    for measure in MEASURES:
        peer, mine = (statistics.median(times[measure, platform]) for platform in PLATFORMS)
        click.echo(f"{measure:6} {peer:7.2f} us on {PLATFORMS[0]}, {mine:7.2f} us on {PLATFORMS[1]}: {mine / peer:.2f}")


def request_time(server: subprocess.Popen[str], measure: str) -> float:
    assert server.stdin and server.stdout
    server.stdin.write(measure + "\n")
    server.stdin.flush()
    return float(server.stdout.readline())


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        serve()
    else:
        main()
