"""`hloom run`: runs a module on given or random inputs, shows the result and compares it."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import click
import numpy as np

from hloom.api import compile, prepare
from hloom.backends.interpreter.debug import StoppedError, combine, describe, print_values, stop_at, summary
from hloom.backends.interpreter.executable import InterpreterExecutable
from hloom.cli.arguments import given_tolerance, load_with_snapshot, missing_arguments, with_tolerance
from hloom.cli.examples import examples
from hloom.cli.output import terminal
from hloom.cli.progress import progress
from hloom.cli.traffic import show_traffic
from hloom.comparison import Comparison
from hloom.errors import ArgumentError, counted
from hloom.files.arrays import Arrays, flat, random_value, read_arrays, take_value, write_arrays
from hloom.system.records import record

if TYPE_CHECKING:
    from rich.console import Console

    from hloom.files.snapshot import Snapshot
    from hloom.ir import Module
    from hloom.runtime.executable import Executable

Group = TypeVar("Group")
"""Options that belong together."""


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
@with_tolerance
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
def run(module: str, **options: Any) -> None:
    """Run MODULE and show the result.

    MODULE is HLO text, StableHLO or a proto, detected by its content. An HloSnapshot runs on its own arguments, and
    its result is compared with the stored one, unless other arguments are given.

    The exit status is 0 if the run succeeds and the result is as expected, 1 if it is not or --stop-at stops the run, 2
    for errors.
    """
    console = terminal(highlight=False, soft_wrap=True)
    loaded, snapshot = load_with_snapshot(module)
    expected = _group(Expected, options)
    if expected.input_path is not None or expected.random_seed is not None:
        snapshot = None
    try:
        good = _run(
            console,
            loaded,
            snapshot,
            expected,
            _group(Setup, options),
            _group(Watch, options),
            _group(Outputs, options),
        )
    except StoppedError as found:
        console.print(str(found), style="red")
        good = False
    sys.exit(0 if good else 1)


def _group(kind: type[Group], options: dict[str, Any]) -> Group:
    return kind(**{name: options[name] for name in kind.__annotations__})


@record
class Setup:
    """Options of the compilation, and of the devices."""

    backend: str | None
    replicas: int | None
    partitions: int | None
    distributed: bool
    fill_elided: int | None
    seed: int | None
    replica_timeout: float
    timeout: float | None

    def compile(self, module: Module, backend: str, **options: Any) -> Any:
        """Compiles a module for a backend, with further options."""
        return compile(
            module,
            backend,
            replicas=self.replicas,
            seed=self.seed,
            timeout=self.replica_timeout,
            fill_elided=self.fill_elided,
            **options,
        )


@record
class Watch:
    """Options that watch single instructions, on the interpreter."""

    stop: str | None
    patterns: tuple[str, ...]
    step_limit: int | None

    def options(self, console: Console) -> dict[str, Any]:
        """The options of `compile`; none if nothing is watched."""
        observers = [stop_at(self.stop)] if self.stop else []
        if self.patterns:
            observers.append(print_values(self.patterns, console.print))
        limit = {} if self.step_limit is None else {"step_limit": self.step_limit}
        return {**limit, **({"observer": combine(observers)} if observers else {})}


@record
class Expected:
    """Options of the arguments and of the results to expect."""

    input_path: str | None
    random_seed: int | None
    compare: str | None
    expect_path: str | None
    rtol: float | None
    atol: float | None


@record
class Outputs:
    """Files to write."""

    output_path: str | None
    snapshot_path: str | None


def _run(
    console: Console,
    module: Module,
    snapshot: Snapshot | None,
    expected: Expected,
    setup: Setup,
    watch: Watch,
    outputs: Outputs,
) -> bool:
    """Runs the module, shows and writes the results; returns whether they are as expected."""
    watching = watch.options(console)
    backend = setup.backend or ("interpreter" if watching else "cpu")
    given = None if expected.expect_path is None else read_arrays(expected.expect_path)
    started = time.perf_counter()
    with progress("compiling"):
        options = {"partitions": setup.partitions, "distributed": setup.distributed, **watching}
        executable = setup.compile(module, backend, **options)
    compiling = time.perf_counter() - started
    inputs = _inputs(executable, expected) if snapshot is None else [snapshot.arguments]
    started = time.perf_counter()
    with progress("running", lambda: _position(executable)):
        results = executable.gather(executable.run_replicas(executable.local_lists(inputs), setup.timeout))
    if executable.rank:
        return True  # the first process shows the results of all
    running = time.perf_counter() - started
    _show(console, results)
    console.print(_summary(executable, compiling, running), style="dim")
    if setup.partitions is not None:
        show_traffic(console, executable.module, executable.blocks.device_count)
    if outputs.output_path:
        write_arrays(outputs.output_path, results)
    if outputs.snapshot_path:
        _save_snapshot(outputs.snapshot_path, module, inputs, results)
    filled = module if setup.fill_elided is None else prepare(module, setup.fill_elided)
    comparison = Comparison(filled, inputs, given_tolerance(expected.rtol, expected.atol))
    good = True
    for arrays in _expected_results(module, snapshot, setup, expected.compare, inputs):
        good = _compare(console, comparison, results, arrays) and good
    if given is not None:
        good = _compare(console, comparison, results, given) and good
    return good


def _expected_results(
    module: Module, snapshot: Snapshot | None, setup: Setup, backend: str | None, inputs: list[list[Any]]
) -> Iterator[Arrays]:
    """Yields the results to compare with, by name: of a snapshot, and of another backend."""
    if snapshot is not None and snapshot.result is not None:
        yield _named([snapshot.result])
    if backend:
        with progress(f"running {backend}"):
            reference = setup.compile(module, backend).run_replicas(inputs)
        yield _named(reference)


def _save_snapshot(path: str, module: Module, inputs: list[list[Any]], results: list[Any]) -> None:
    if len(results) != 1:
        raise ArgumentError(f"a snapshot holds the arguments of one device, and the module ran on {len(results)}")
    from hloom.files.snapshot import Snapshot

    Snapshot(module, inputs[0], results[0]).save(path)


def _inputs(executable: Executable, expected: Expected) -> list[list[Any]]:
    shapes, devices = executable.input_shapes, executable.total_count
    path, seed = expected.input_path, expected.random_seed
    if path is not None and seed is not None:
        raise ArgumentError("give --input or --random, not both")
    if path is not None:
        arrays = read_arrays(path)
        return [_take_inputs(arrays, shapes, device, devices) for device in range(devices)]
    if shapes and seed is None:
        raise ArgumentError(missing_arguments(shapes))
    rng = np.random.default_rng(seed)
    return [[random_value(rng, shape) for shape in shapes] for _ in range(devices)]


def _take_inputs(arrays: Arrays, shapes: list[Any], device: int, devices: int) -> list[Any]:
    counter = iter(range(1 << 30))
    suffix = f"_rep{device}" if devices > 1 else ""
    return [take_value(arrays, shape, counter, "p", suffix) for shape in shapes]


def _position(executable: Executable) -> str:
    """The position of the interpreter in a run."""
    execution = executable.executions.get(0) if isinstance(executable, InterpreterExecutable) else None
    if execution is None or execution.current is None:
        return ""
    return f"{counted(execution.steps, 'instruction')}, now %{execution.current.name}"


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
        return f"{name}: {counted(steps, 'instruction')} in {running:.3f} s"
    calls = len(executable.report())
    host = f", {counted(calls, 'instruction')} left to the interpreter" if calls else ""
    return f"{name}: compiled in {compiling:.3f} s, run in {1e3 * running:.3f} ms{host}"


def _compare(console: Console, comparison: Comparison, results: list[Any], expected: Arrays) -> bool:
    good, named = True, _named(results)
    for index, (name, leaf) in enumerate(named.items()):
        message: str | None = "is not in the expected file"
        if name in expected:
            message = comparison.array_difference(index, leaf, expected[name])
        console.print(f"{name} {message or 'is as expected'}", style="red" if message else "green")
        good = good and message is None
    missing = sorted(set(expected) - named.keys())
    if missing:
        console.print(f"the result lacks {', '.join(missing)}", style="red")
    return good and not missing
