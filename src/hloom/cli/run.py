"""`hloom run`: runs a module on given or random inputs, shows the result and compares it."""

from __future__ import annotations

import math
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from hloom.api import compile
from hloom.backends.interpreter.debug import combine, describe, print_values, stop_at, summary
from hloom.backends.interpreter.executable import InterpreterExecutable
from hloom.cli.arguments import load_with_snapshot
from hloom.cli.examples import examples
from hloom.cli.output import terminal
from hloom.cli.traffic import show_traffic
from hloom.errors import ArgumentError
from hloom.files.arrays import Arrays, difference, flat, random_value, read_arrays, take_value, write_arrays

if TYPE_CHECKING:
    from rich.console import Console

    from hloom.ir import Module
    from hloom.runtime.executable import Executable


@click.command(
    epilog=examples(
        "hloom run module.hlo --random 0 --compare interpreter    # native code against the reference",
        "hloom run module.hlo --input x.npz --expect y.npz        # exit status 0 if the result is as expected",
        "hloom run dump.hlo --random 0 --fill-elided 0            # random values for elided constants",
        "hloom run module.hlo --random 0 --stop-at nan            # the first NaN, with its operands",
        "hloom run module.hlo --random 0 --print 'dot*'           # values of chosen instructions",
        "hloom run dump.hlo_snapshot.pb                           # a snapshot: its arguments and result",
        "hloom run sharded.hlo --random 0 --partitions 8          # with a table of the communication",
        "mpiexec -n 4 hloom run sharded.hlo --random 0 --partitions 8 --distributed",
    )
)
@click.argument("module", type=click.Path())
@click.option(
    "--input",
    "input_path",
    type=click.Path(),
    help="Read inputs p0, p1, .. (p0_rep0, .. of replicas) from an .npz file.",
)
@click.option("--random", "random_seed", type=int, metavar="SEED", help="Use random inputs with this seed.")
@click.option("--output", "output_path", type=click.Path(), help="Write the results r0, r1, .. to an .npz file.")
@click.option(
    "--backend",
    type=click.Choice(["cpu", "interpreter"]),
    help="Native code or the interpreter. Default: cpu; interpreter with --stop-at, --print and --step-limit.",
)
@click.option("--compare", type=click.Choice(["interpreter"]), help="Also run the interpreter and compare the results.")
@click.option("--expect", "expect_path", type=click.Path(), help="Compare the results with r0, r1, .. of an .npz file.")
@click.option(
    "--rtol", type=float, default=1e-5, show_default=True, help="Relative tolerance of --expect and --compare."
)
@click.option(
    "--atol", type=float, default=1e-6, show_default=True, help="Absolute tolerance of --expect and --compare."
)
@click.option("--replicas", type=int, help="Number of replicas; by default that of the module.")
@click.option(
    "--partitions", type=int, help="Partition the module by its shardings; inputs and results are not sharded."
)
@click.option(
    "--distributed", is_flag=True, help="Distribute the devices over the processes of `mpiexec -n N hloom run ..`."
)
@click.option("--fill-elided", type=int, metavar="SEED", help="Use random values for constants that the text omits.")
@click.option("--seed", type=int, help="Seed of rng instructions; by default a random one.")
@click.option(
    "--stop-at",
    "stop",
    type=click.Choice(["nan", "inf", "any"]),
    help="Stop at the first instruction that produces one.",
)
@click.option("--print", "patterns", multiple=True, metavar="NAME", help="Print the values of these instructions.")
@click.option("--step-limit", type=int, help="Fail after this number of instructions.")
@click.option("--timeout", type=float, metavar="SECONDS", help="Fail if the run takes longer.")
@click.option(
    "--replica-timeout", type=float, default=30.0, show_default=True, help="Seconds to wait for other replicas."
)
@click.option(
    "--save-snapshot", "snapshot_path", type=click.Path(), help="Write module, arguments and result as an HloSnapshot."
)
def run(module: str, input_path: str | None, random_seed: int | None, **options: Any) -> None:
    """Run MODULE and show the result.

    MODULE is HLO text, StableHLO or a proto, detected by its content. An HloSnapshot runs on its own arguments, and
    its result is compared with the stored one, unless other arguments are given.

    The exit status is 0 if the run succeeds and the result is as expected, else 1.
    """
    console = terminal(highlight=False, soft_wrap=True)
    if not _run(console, module, input_path, random_seed, **options):
        sys.exit(1)


def _run(
    console: Console,
    path: str,
    input_path: str | None,
    random_seed: int | None,
    output_path: str | None,
    backend: str | None,
    compare: str | None,
    expect_path: str | None,
    rtol: float,
    atol: float,
    replicas: int | None,
    partitions: int | None,
    distributed: bool,
    fill_elided: int | None,
    seed: int | None,
    stop: str | None,
    patterns: tuple[str, ...],
    step_limit: int | None,
    timeout: float | None,
    replica_timeout: float,
    snapshot_path: str | None,
) -> bool:
    module, snapshot = load_with_snapshot(path)
    if input_path is not None or random_seed is not None:
        snapshot = None
    observers = [stop_at(stop)] if stop else []
    if patterns:
        observers.append(print_values(patterns, lambda text: console.print(text)))
    watched = bool(observers) or step_limit is not None
    started = time.perf_counter()
    executable: Any = compile(
        module,
        backend or ("interpreter" if watched else "cpu"),
        replicas=replicas,
        partitions=partitions,
        distributed=distributed,
        seed=seed,
        step_limit=math.inf if step_limit is None else step_limit,
        timeout=replica_timeout,
        observer=combine(observers),
        fill_elided=fill_elided,
    )
    inputs = [snapshot.arguments] if snapshot is not None else _inputs(executable, input_path, random_seed)
    compiled = time.perf_counter()
    with _progress(console, executable):
        results = executable.gather(executable.run_replicas(executable.local_lists(inputs), timeout))
    if executable.rank:
        return True  # the first process shows the results of all
    _show(console, results)
    ended = time.perf_counter()
    console.print(_summary(executable, compiled - started, ended - compiled), style="dim")
    if partitions is not None:
        show_traffic(console, executable.module, executable.blocks.device_count)
    if output_path:
        write_arrays(output_path, results)
    if snapshot_path:
        _save_snapshot(snapshot_path, module, inputs, results)
    good = True
    if snapshot is not None and snapshot.result is not None:
        good = _compare(console, results, _named([snapshot.result]), rtol, atol)
    if compare:
        reference = compile(
            module, compare, replicas=replicas, seed=seed, timeout=replica_timeout, fill_elided=fill_elided
        ).run_replicas(inputs)
        good = _compare(console, results, _named(reference), rtol, atol) and good
    if expect_path is not None:
        good = _compare(console, results, read_arrays(expect_path), rtol, atol) and good
    return good


def _save_snapshot(path: str, module: Module, inputs: list[list[Any]], results: list[Any]) -> None:
    if len(results) != 1:
        raise ArgumentError(f"a snapshot holds the arguments of one device, and the module ran on {len(results)}")
    from hloom.files.snapshot import Snapshot

    Snapshot(module, inputs[0], results[0]).save(path)


def _inputs(executable: Executable, path: str | None, seed: int | None) -> list[list[Any]]:
    shapes, devices = executable.input_shapes, executable.total_count
    if path is not None and seed is not None:
        raise ArgumentError("give --input or --random, not both")
    if path is not None:
        arrays = read_arrays(path)
        return [_take_inputs(arrays, shapes, device, devices) for device in range(devices)]
    if shapes and seed is None:
        wanted = ", ".join(map(str, shapes))
        raise ArgumentError(f"the module takes {len(shapes)} arguments ({wanted}): give --input FILE or --random SEED")
    rng = np.random.default_rng(seed)
    return [[random_value(rng, shape) for shape in shapes] for _ in range(devices)]


def _take_inputs(arrays: Arrays, shapes: list[Any], device: int, devices: int) -> list[Any]:
    counter = iter(range(1 << 30))
    suffix = f"_rep{device}" if devices > 1 else ""
    return [take_value(arrays, shape, counter, "p", suffix) for shape in shapes]


@contextmanager
def _progress(console: Console, executable: Executable) -> Iterator[None]:
    """Shows the progress of the interpreter on a terminal, for runs of more than a second."""
    done = threading.Event()

    def show() -> None:
        if done.wait(1.0):
            return
        with console.status("running") as status:
            while not done.wait(0.2):
                execution = executable.executions.get(0) if isinstance(executable, InterpreterExecutable) else None
                if execution is not None and execution.current is not None:
                    status.update(f"{execution.steps:,} instructions, now %{execution.current.name}")

    thread = threading.Thread(target=show, daemon=True) if console.is_terminal else None
    if thread:
        thread.start()
    try:
        yield
    finally:
        done.set()
        if thread:
            thread.join()


def _show(console: Console, results: list[Any]) -> None:
    named = _named(results)
    for name, leaf in named.items():
        console.print(name, style="bold", end=" ")
        console.print(describe(leaf))
        console.print(summary(leaf))
    if not named:
        console.print("()")


def _named(results: list[Any]) -> Arrays:
    """Arrays of the results of all devices by name: r0, r1, .., or r0_rep0, .. for several devices."""
    return {
        f"r{i}" + (f"_rep{device}" if len(results) > 1 else ""): leaf
        for device, result in enumerate(results)
        for i, leaf in enumerate(flat(result))
    }


def _summary(executable: Executable, compiling: float, running: float) -> str:
    """Summary of a run: instructions or compilation, and their time."""
    name = executable.module.name
    if isinstance(executable, InterpreterExecutable):
        steps = sum(execution.steps for execution in executable.executions.values())
        return f"{name}: {steps:,} instructions in {running:.3f} s"
    calls = len(executable.report())
    host = f", {calls} instructions call back into the interpreter" if calls else ""
    return f"{name}: compiled in {compiling:.3f} s, run in {1e3 * running:.3f} ms{host}"


def _compare(console: Console, results: list[Any], expected: Arrays, rtol: float, atol: float) -> bool:
    good, named = True, _named(results)
    for name, leaf in named.items():
        if name not in expected:
            message: str | None = "is not in the expected file"
        else:
            message = difference(leaf, expected[name], rtol, atol)
        console.print(f"{name} {message or 'is as expected'}", style="red" if message else "green")
        good = good and message is None
    missing = sorted(set(expected) - named.keys())
    if missing:
        console.print(f"the result lacks {', '.join(missing)}", style="red")
    return good and not missing
