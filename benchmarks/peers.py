"""`python -m benchmarks.peers`: kernels on hloom, XLA, PyTorch, NumPy with SciPy, and IREE, alternately.

Peers that are not installed are skipped. Each is a process of its own, which creates the same arrays from one seed and
copies them in each repetition, because the speed of memory depends on addresses. hloom is called through JAX, as XLA
is, and directly with NumPy arrays, as the others are. Results are compared with hloom's, and stored as lines of JSON,
so that an interrupted run can be resumed. With `--sweep`, many more kernels are timed briefly, on hloom and XLA.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import math
import os
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np

from benchmarks.kernels import KERNELS, Array, Kernel
from benchmarks.process import Process
from benchmarks.swept import SWEPT

REPETITIONS, REPETITION_SECONDS, REST_SECONDS = 4, 0.3, 0.3
MAX_SECONDS = 30.0
"""The maximum time of a reply, in seconds; a peer that takes longer skips the kernel."""

# The implementation of a kernel by each peer: a function whose result NumPy can read, and a conversion of arguments

Prepared = tuple[Callable[..., Array], Callable[[Array], Any]]
Peer = Callable[[Kernel, list[Array]], Prepared]


def through_jax(kernel: Kernel, given: list[Array]) -> Prepared:
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", given[0].dtype == np.float64)
    f = jax.jit(kernel.jax)
    return lambda *values: jax.block_until_ready(f(*values)), jnp.asarray


def directly(kernel: Kernel, given: list[Array]) -> Prepared:
    """hloom without JAX, which is only used for tracing."""
    import jax

    import hloom

    jax.config.update("jax_enable_x64", given[0].dtype == np.float64)
    return hloom.compile(hloom.from_jax(kernel.jax, *given)), lambda x: x


def through_torch(kernel: Kernel, given: list[Array]) -> Prepared:
    torch = importlib.import_module("torch")
    if kernel.torch is None:
        raise NotImplementedError
    torch.set_num_threads(len(os.sched_getaffinity(0)))

    def tensor(x: Array) -> Any:
        is_narrow = x.dtype.kind == "V"
        return torch.from_numpy(x.astype(np.float32)).bfloat16() if is_narrow else torch.from_numpy(x)

    return kernel.torch, tensor


def through_numpy(kernel: Kernel, given: list[Array]) -> Prepared:
    """NumPy, its BLAS, and SciPy, on all cores where these use them."""
    if kernel.numpy is None:
        raise NotImplementedError
    return kernel.numpy, lambda x: x


def through_iree(kernel: Kernel, given: list[Array]) -> Prepared:
    """IREE, which compiles the lowered function for this processor; NotImplementedError if it refuses."""
    compiler, runtime = importlib.import_module("iree.compiler"), importlib.import_module("iree.runtime")
    import jax

    jax.config.update("jax_enable_x64", given[0].dtype == np.float64)
    text = jax.jit(kernel.jax).lower(*given).as_text()
    options = ["--iree-llvmcpu-target-cpu=host", "--iree-opt-level=O3", "--iree-input-demote-f64-to-f32=false"]
    try:
        program = compiler.compile_str(text, target_backends=["llvm-cpu"], input_type="stablehlo", extra_args=options)
    except compiler.CompilerToolError as error:
        raise NotImplementedError from error
    config = runtime.Config("local-task")
    module = runtime.load_vm_module(runtime.VmModule.copy_buffer(config.vm_instance, program), config)
    return lambda *values: module.main(*values).to_host(), lambda x: runtime.asdevicearray(config.device, x)


DIRECT = "direct"
LIMIT = "limit"
"""The least time of a kernel on this machine, which is measured in turns with its times."""
PEERS: dict[str, tuple[Peer, dict[str, str]]] = {
    "hloom": (through_jax, {"JAX_PLATFORMS": "hloom"}),
    DIRECT: (directly, {"JAX_PLATFORMS": "cpu"}),
    "XLA": (through_jax, {"JAX_PLATFORMS": "cpu"}),
    "PyTorch": (through_torch, {}),
    "SciPy": (through_numpy, {}),
    "IREE": (through_iree, {"JAX_PLATFORMS": "cpu"}),
}


def work(peer: str, folder: str) -> None:
    """The main loop of a peer's process: replies to the lines `load KERNEL` and `time SECONDS` with a line of JSON
    each.
    """
    # Some peers write to standard output, which is therefore redirected.
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    run: Prepared | None = None
    given: list[Array] = []
    for line in sys.stdin:
        word, _, rest = line.strip().partition(" ")
        if word == LIMIT:
            reply: Any = _least_seconds(KERNELS[rest])
        elif word == "load":
            kernel = (KERNELS | SWEPT)[rest]
            reply = None
            with contextlib.suppress(ImportError, NotImplementedError):
                given = kernel.arrays(np.random.default_rng(0))
                run = PEERS[peer][0](kernel, given)
                reply = str(Path(folder) / f"{peer}.npy")
                np.save(reply, _plain(_bound(run, given)()))
        else:
            assert run is not None
            reply = _times(_bound(run, [x.copy() for x in given]), float(rest))
        print(json.dumps(reply), file=replies, flush=True)


def _bound(prepared: Prepared, given: list[Array]) -> Callable[[], Array]:
    run, argument = prepared
    values = [argument(x) for x in given]
    return lambda: run(*values)


def _plain(result: Array) -> Array:
    """Converts a result to an array that np.save can store."""
    if type(result).__module__.startswith("torch"):
        result = result.float() if str(result.dtype) == "torch.bfloat16" else result
    found = np.asarray(result)
    return found.astype(np.float32) if found.dtype.kind == "V" else found


def _least_seconds(kernel: Kernel) -> float:
    from hloom.bench.machine import least_seconds

    assert kernel.least is not None
    return least_seconds(kernel.least)


def _times(run: Callable[[], Array], seconds: float) -> list[float]:
    """Times calls for a number of seconds, after an untimed one, which touches new arrays first."""
    run()
    found: list[float] = []
    while not found or sum(found) < seconds:
        started = time.perf_counter()
        run()
        found.append(time.perf_counter() - started)
    return found


# The measurement


class Seconds(NamedTuple):
    """The times of a kernel's calls."""

    median: float
    shortest: float


class Worker:
    """A peer's process, which is restarted if it does not reply in time."""

    def __init__(self, peer: str, folder: str) -> None:
        self.peer, self.folder = peer, folder
        self._start()

    def _start(self) -> None:
        self.process = Process("benchmarks.peers", "--work", self.peer, self.folder, **PEERS[self.peer][1])

    def request(self, command: str) -> Any:
        """Returns the reply; None if there is none."""
        try:
            return self.process.request(command, MAX_SECONDS)
        except RuntimeError as error:
            click.secho(f"{self.peer}: {error}", fg="red", err=True)
            self._start()
            return None


def measure(kernel: Kernel, workers: dict[str, Worker]) -> dict[str, Seconds]:
    """Returns the times of each peer that has the kernel, over all calls, and the machine's limit."""
    results = {peer: worker.request(f"load {kernel.name}") for peer, worker in workers.items()}
    able = [peer for peer, result in results.items() if result is not None]
    expected = np.load(results["hloom"])
    for peer in able:
        found = np.load(results[peer])
        error = np.abs(found - expected).max() / max(1e-30, np.abs(expected).max())
        if not error <= kernel.tolerance:
            click.secho(f"{kernel.name}: {peer} differs by {error:.3g} of the largest number", fg="red", err=True)
    times = defaultdict[str, list[float]](list)
    for _ in range(REPETITIONS):
        for peer in able:
            time.sleep(REST_SECONDS)
            times[peer] += workers[peer].request(f"time {REPETITION_SECONDS}") or []
        if kernel.least and DIRECT in able:
            times[LIMIT].append(workers[DIRECT].request(f"{LIMIT} {kernel.name}"))
    return {side: Seconds(float(np.median(found)), min(found)) for side, found in times.items() if found}


def table(found: Sequence[tuple[Kernel, dict[str, Seconds]]]) -> str:
    """Returns a table in Markdown: hloom's time, its share of the machine's limit, and the ratio of each peer's
    time.
    """
    peers = [peer for peer in PEERS if peer not in ("hloom", DIRECT) and any(peer in times for _, times in found)]
    lines = [f"| | hloom ms | of the limit | through JAX ms | {' | '.join(f'{peer} / hloom' for peer in peers)} |"]
    lines.append("|---|" + "---|" * (3 + len(peers)))
    shares: list[float] = []
    for kernel, times in found:
        own = _own(times, DIRECT)
        ratios = [f"{_ratio(times, peer):.2f}" if peer in times else "" for peer in peers]
        share = ""
        if LIMIT in times:
            shares.append(times[LIMIT].shortest / own.shortest)
            share = f"{shares[-1]:.0%}"
        cells = f"{1e3 * own.median:.3g} | {share} | {1e3 * times['hloom'].median:.3g}"
        lines.append(f"| {kernel.name} | {cells} | {' | '.join(ratios)} |")
    means = [_mean([_ratio(times, peer) for _, times in found if peer in times]) for peer in peers]
    whole = f"**{_mean([min(1.0, share) for share in shares]):.0%}**" if shares else ""
    lines.append(f"| **geometric mean** | | {whole} | | {' | '.join(f'**{mean:.2f}**' for mean in means)} |")
    return "\n".join(lines)


def _ratio(times: dict[str, Seconds], peer: str) -> float:
    """The ratio of a peer's time to hloom's, called in the same way."""
    return times[peer].median / _own(times, peer).median


def _own(times: dict[str, Seconds], peer: str) -> Seconds:
    """hloom's time, called as a peer is: the sweep calls it through JAX alone."""
    return times["hloom"] if peer == "XLA" else times.get(DIRECT, times["hloom"])


def _mean(values: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--filter", "word", default="", metavar="WORD", help="Only kernels whose names have this word.")
@click.option("--results", type=click.Path(path_type=Path), help="A results file; kernels in it are not run again.")
@click.option("--sweep", is_flag=True, help="Kernels of all families on hloom and XLA alone, the slowest first.")
@click.option("--work", "process", nargs=2, hidden=True)
def main(word: str, results: Path | None, sweep: bool, process: tuple[str, str] | None) -> None:
    """Kernels on hloom and its peers alternately: a table in Markdown."""
    if process is not None:
        work(*process)
        return
    all_kernels = SWEPT if sweep else KERNELS
    kernels = [kernel for kernel in all_kernels.values() if word in kernel.name]
    if not kernels:
        raise click.UsageError(f"no kernel has {word!r} in its name; there are: {', '.join(all_kernels)}")
    known: dict[str, dict[str, Seconds]] = {}
    if results is not None and results.exists():
        for name, sides in map(json.loads, results.read_text().splitlines()):
            known[name] = {side: Seconds(*seconds) for side, seconds in sides.items()}
    with tempfile.TemporaryDirectory() as folder:
        workers = {peer: Worker(peer, folder) for peer in (("hloom", "XLA") if sweep else PEERS)}
        with click.progressbar(kernels, item_show_func=lambda k: k.name if k else "", file=sys.stderr) as shown:
            for kernel in shown:
                if kernel.name not in known:
                    known[kernel.name] = measure(kernel, workers)
                    if results is not None:
                        with results.open("a") as file:
                            print(json.dumps((kernel.name, known[kernel.name])), file=file)
    if sweep:
        kernels.sort(key=lambda kernel: _ratio(known[kernel.name], "XLA") if "XLA" in known[kernel.name] else math.inf)
    click.echo(table([(kernel, known[kernel.name]) for kernel in kernels]))


if __name__ == "__main__":
    main()
