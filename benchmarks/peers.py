"""`python -m benchmarks.peers`: products, attention and transforms on hloom, XLA, PyTorch, NumPy and SciPy, in turns.

Peers that are not installed are left out. Each is a process of its own, which makes the same arrays from one seed;
results are compared with hloom's.
"""

from __future__ import annotations

import importlib
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np

ROOT = Path(__file__).parents[1]
TURNS, TURN_SECONDS, REST_SECONDS = 4, 0.3, 0.3
Array = Any


@dataclass(frozen=True)
class Case:
    """Something that is computed: `family` says how, `sizes` of what; `operations` are what one call needs."""

    name: str
    family: str
    type: str
    sizes: tuple[int, ...]
    operations: float


def _product(type: str, m: int, n: int, k: int) -> Case:
    return Case(f"product {type} {m} x {k} x {n}", "product", type, (m, n, k), 2.0 * m * n * k)


def _attention(length: int, causal: bool) -> Case:
    heads = max(1, 4096 // length)
    family = "causal attention" if causal else "attention"
    return Case(f"{family}, {heads} x {length}", family, "f32", (heads, length), 4.0 * 64 * heads * length**2)


def _transform(*sizes: int) -> Case:
    count = math.prod(sizes)
    return Case(f"FFT c64 {' x '.join(map(str, sizes))}", "transform", "c64", sizes, 5 * count * math.log2(count))


CASES = [
    *(_product("f32", n, n, n) for n in (64, 256, 500, 1024, 2048)),
    *(_product("f32", 512, n, k) for n, k in ((3072, 768), (768, 3072))),
    *(_product("bf16", n, n, n) for n in (256, 1024)),
    _product("f64", 1024, 1024, 1024),
    _product("s8", 512, 2048, 2048),
    *(_attention(length, causal) for causal in (False, True) for length in (128, 512, 2048, 8192)),
    *(_transform(n) for n in (1 << 10, 3**7, 1009, 1 << 16, 1 << 20, 1 << 22)),
    _transform(1024, 1024),
    _transform(64, 64, 64),
]
BY_NAME = {case.name: case for case in CASES}


def arrays(case: Case) -> list[Array]:
    """The same in every process."""
    rng = np.random.default_rng(0)
    shapes: list[tuple[int, ...]]
    if case.family == "product":
        m, n, k = case.sizes
        shapes = [(m, k), (k, n)]
    elif case.family == "transform":
        shapes = [case.sizes]
    else:
        shapes = [(1, case.sizes[0], case.sizes[1], 64)] * 3
    if case.type == "s8":
        return [rng.integers(-128, 128, shape).astype(np.int8) for shape in shapes]
    found = [rng.standard_normal(shape) for shape in shapes]
    if case.type == "c64":
        return [(x + 1j * rng.standard_normal(x.shape)).astype(np.complex64) for x in found]
    return [x.astype(np.float64 if case.type == "f64" else np.float32) for x in found]


# What each peer computes: a function of no arguments, whose result NumPy can read

Peer = Callable[[Case, list[Array]], Callable[[], Array]]


def through_jax(case: Case, given: list[Array]) -> Callable[[], Array]:
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", case.type == "f64")
    wanted = {"bf16": jnp.bfloat16}.get(case.type)
    values = [jnp.asarray(x, wanted) for x in given]
    if case.family == "product":
        result = jnp.int32 if case.type == "s8" else None
        f = jax.jit(lambda a, b: jnp.matmul(a, b, preferred_element_type=result))
    elif case.family == "transform":
        f = jax.jit(jnp.fft.fftn)
    else:

        @jax.jit
        def f(q: Array, k: Array, v: Array) -> Array:
            turned = [x.swapaxes(1, 2) for x in (q, k, v)]
            return jax.nn.dot_product_attention(*turned, is_causal=case.family.startswith("causal")).swapaxes(1, 2)

    return lambda: jax.block_until_ready(f(*values))


def through_torch(case: Case, given: list[Array]) -> Callable[[], Array]:
    torch = importlib.import_module("torch")
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    values = [torch.from_numpy(x) for x in given]
    if case.family == "product":
        if case.type == "s8":
            return lambda: torch._int_mm(*values)
        a, b = (x.bfloat16() for x in values) if case.type == "bf16" else values
        return lambda: a @ b
    if case.family == "transform":
        return lambda: torch.fft.fftn(values[0])
    causal = case.family.startswith("causal")
    return lambda: torch.nn.functional.scaled_dot_product_attention(*values, is_causal=causal)


def through_scipy(case: Case, given: list[Array]) -> Callable[[], Array]:
    """Products by NumPy's BLAS, transforms by SciPy on all cores; NotImplementedError for the rest."""
    if case.family == "product" and case.type in ("f32", "f64"):
        return lambda: given[0] @ given[1]
    if case.family == "transform":
        import scipy.fft

        return lambda: scipy.fft.fftn(given[0], workers=-1)
    raise NotImplementedError


PEERS: dict[str, tuple[Peer, dict[str, str]]] = {
    "hloom": (through_jax, {"JAX_PLATFORMS": "hloom"}),
    "XLA": (through_jax, {"JAX_PLATFORMS": "cpu"}),
    "PyTorch": (through_torch, {}),
    "SciPy": (through_scipy, {}),
}


def work(peer: str, folder: str) -> None:
    """A peer's process: answers the lines `load CASE` and `time SECONDS` with a line of JSON each."""
    run: Callable[[], Array] | None = None
    for line in sys.stdin:
        word, _, rest = line.strip().partition(" ")
        if word == "load":
            case = BY_NAME[rest]
            try:
                run = PEERS[peer][0](case, arrays(case))
                result = run()
                path = Path(folder) / f"{peer}.npy"
                np.save(path, _plain(result))
                answer: Any = str(path)
            except (ImportError, NotImplementedError):
                answer = None
        else:
            assert run is not None
            answer = _times(run, float(rest))
        print(json.dumps(answer), flush=True)


def _plain(result: Array) -> Array:
    """An array of a type that files hold."""
    if type(result).__module__.startswith("torch"):
        result = result.float() if str(result.dtype) == "torch.bfloat16" else result
    found = np.asarray(result)
    return found.astype(np.float32) if found.dtype.kind == "V" else found


def _times(run: Callable[[], Array], seconds: float) -> list[float]:
    found: list[float] = []
    while not found or sum(found) < seconds:
        started = time.perf_counter()
        run()
        found.append(time.perf_counter() - started)
    return found


# The measurement


class Process:
    """A peer's process."""

    def __init__(self, peer: str, folder: str) -> None:
        command = [sys.executable, "-m", "benchmarks.peers", "--work", peer, folder]
        environment = {**os.environ, **PEERS[peer][1]}
        self.process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, question: str) -> Any:
        assert self.process.stdin is not None and self.process.stdout is not None
        print(question, file=self.process.stdin, flush=True)
        line = self.process.stdout.readline()
        if not line:
            raise click.ClickException(f"a peer ended when asked to {question}")
        return json.loads(line)


def measure(case: Case, processes: dict[str, Process]) -> dict[str, float]:
    """Seconds of each peer that has the case: the median of the calls of all turns."""
    results = {peer: process.ask(f"load {case.name}") for peer, process in processes.items()}
    able = [peer for peer, result in results.items() if result is not None]
    expected = np.load(results["hloom"])
    for peer in able:
        found = np.load(results[peer])
        error = np.abs(found - expected).max() / max(1e-30, np.abs(expected).max())
        if error > (2e-2 if case.type == "bf16" else 1e-4):
            click.secho(f"{case.name}: {peer} differs by {error:.3g} of the largest number", fg="red", err=True)
    times: dict[str, list[float]] = {peer: [] for peer in able}
    for peer in able * TURNS:
        time.sleep(REST_SECONDS)
        times[peer] += processes[peer].ask(f"time {TURN_SECONDS}")
    return {peer: float(np.median(found)) for peer, found in times.items()}


def table(found: Sequence[tuple[Case, dict[str, float]]]) -> str:
    """In Markdown: hloom's time and rate, and how much longer each peer takes."""
    from hloom.bench.machine import measure_limits

    limit = measure_limits().flops_per_second
    peers = [peer for peer in PEERS if peer != "hloom" and any(peer in times for _, times in found)]
    lines = [f"| | hloom ms | GFLOP/s | of the limit | {' | '.join(f'{peer} / hloom' for peer in peers)} |"]
    lines.append("|---|" + "---|" * (3 + len(peers)))
    for case, times in found:
        own = times["hloom"]
        ratios = [f"{times[peer] / own:.2f}" if peer in times else "" for peer in peers]
        rate = case.operations / own
        # The limit is of f32; of other types only the rate is given.
        share = f"{rate / limit:.0%}" if case.type in ("f32", "c64") else ""
        lines.append(f"| {case.name} | {1e3 * own:.3g} | {rate / 1e9:.0f} | {share} | {' | '.join(ratios)} |")
    means = [_mean([times[peer] / times["hloom"] for _, times in found if peer in times]) for peer in peers]
    lines.append(f"| **geometric mean** | | | | {' | '.join(f'**{mean:.2f}**' for mean in means)} |")
    return "\n".join(lines)


def _mean(values: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--filter", "pattern", default="", metavar="WORD", help="Only cases whose names have this word.")
@click.option("--work", "worker", nargs=2, hidden=True)
def main(pattern: str, worker: tuple[str, str] | None) -> None:
    """Products, attention and transforms on hloom and its peers in turns: a table in Markdown."""
    if worker is not None:
        work(*worker)
        return
    cases = [case for case in CASES if pattern in case.name]
    if not cases:
        raise click.UsageError(f"no case has {pattern!r} in its name; there are: {', '.join(BY_NAME)}")
    with tempfile.TemporaryDirectory() as folder:
        processes = {peer: Process(peer, folder) for peer in PEERS}
        with click.progressbar(cases, item_show_func=lambda case: case.name if case else "", file=sys.stderr) as shown:
            found = [(case, measure(case, processes)) for case in shown]
    click.echo(table(found))


if __name__ == "__main__":
    main()
