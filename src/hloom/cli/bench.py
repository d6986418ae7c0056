"""`hloom bench`: times modules on hloom and on XLA's CPU backend."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hloom.api import compile
from hloom.cli.collectives import bench_collectives
from hloom.cli.examples import examples
from hloom.cli.output import print_table, terminal, with_json, write_json, write_text
from hloom.cli.progress import progress
from hloom.errors import ArgumentError

if TYPE_CHECKING:
    from hloom.bench.limits import Limits
    from hloom.bench.measure import Result
    from hloom.bench.workloads import Workload

DEFAULT_BACKEND = "cpu"


@click.command(
    epilog=examples(
        "hloom bench module.hlo --plot ratios.svg",
        "mpiexec -n 2 hloom bench --collectives --cluster here.toml",
    )
)
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path), metavar="DIR_OR_MODULE...")
@click.option("--filter", "pattern", default="*", metavar="GLOB", help="Only run workloads whose names match.")
@click.option("--all", "all_cases", is_flag=True, help="Run all cases of a corpus, not only those tagged bench.")
@click.option("--backend", default=DEFAULT_BACKEND, show_default=True, help="Backend of hloom.compile.")
@click.option("--peer/--no-peer", default=None, help="Also time XLA; by default if jax and jaxlib are installed.")
@click.option(
    "--repeats", type=click.IntRange(1), default=30, show_default=True, help="Number of samples of each workload."
)
@click.option(
    "--seconds",
    type=float,
    default=2.0,
    show_default=True,
    help="Time limit for the samples of a workload; at least 3 are taken.",
)
@click.option(
    "--timeout", type=float, default=300.0, show_default=True, help="Seconds after which a workload is aborted."
)
@with_json
@click.option("--plot", "plot_path", type=click.Path(path_type=Path), help="Draw the ratios as an .svg file.")
@click.option("--collectives", is_flag=True, help="Time collectives between ranks instead: mpiexec -n N hloom bench ..")
@click.option(
    "--cluster",
    type=click.Path(path_type=Path),
    help="With --collectives, write a cluster description for hloom show --cost.",
)
def bench(
    paths: tuple[Path, ...],
    json_path: Path | None,
    plot_path: Path | None,
    collectives: bool,
    cluster: Path | None,
    **options: Any,
) -> None:
    """Time modules on hloom and, alternately in the same process, on XLA's CPU backend.

    DIR_OR_MODULE is a module file (HLO text or HloModuleProto), which gets random arguments; the folder of a case, with
    module.hlo, meta.json and its arguments; or a corpus, which is a folder of cases. Of a corpus, the cases tagged
    bench are run.

    Compilation is timed once, without parsing. Runs of hloom and XLA are sampled alternately, and the medians are
    shown: for hloom with NumPy arrays, for XLA with buffers on its device. The results are compared. GB/s counts
    arguments and results, GFLOP/s the operations in the HLO, both in the fastest sample; percentages are of the memory
    and arithmetic throughput of the machine, which are measured first.

    The exit status is 0 if every workload ran and produced XLA's result, 1 if not, 2 for errors.
    """
    if collectives:
        bench_collectives(json_path, plot_path, cluster, options["peer"] is not False)
        return
    if not paths:
        raise ArgumentError("give a module, a case or a folder of cases, or --collectives")
    results = _bench(paths, json_path, plot_path, **options)
    if any(result.status != "ok" for result in results):
        sys.exit(1)


def _bench(
    paths: tuple[Path, ...],
    json_path: Path | None,
    plot_path: Path | None,
    pattern: str,
    all_cases: bool,
    backend: str,
    peer: bool | None,
    repeats: int,
    seconds: float,
    timeout: float,
) -> list[Result]:
    from hloom.bench.isolated import measure_isolated
    from hloom.bench.machine import limits_of_machine
    from hloom.bench.measure import TRIVIAL, Settings
    from hloom.bench.peer import has_peer
    from hloom.bench.report import as_json
    from hloom.bench.workloads import find_workloads

    _check_outputs(json_path, plot_path)
    if peer and not has_peer():
        raise ArgumentError("--peer needs XLA's CPU backend: pip install jax")
    compile(TRIVIAL, backend)  # an unknown backend is an error here rather than in every workload
    settings = Settings(backend, has_peer() if peer is None else peer, repeats, seconds)
    workloads = find_workloads(paths, pattern, all_cases)
    with progress("measuring the machine"):
        limits = limits_of_machine()
    measured = (measure_isolated(workload, settings, timeout) for workload in workloads)
    results = list(_with_progress(workloads, measured))
    if json_path:
        write_json(json_path, as_json(results, limits, settings))
    if str(json_path) != "-":
        _show(results, limits)
    if plot_path:
        _plot(results, plot_path)
    return results


def _check_outputs(json_path: Path | None, plot_path: Path | None) -> None:
    """Raises errors of the output paths before the measurements rather than after them."""
    if plot_path and plot_path.suffix != ".svg":
        raise ArgumentError(f"--plot draws .svg files, got {plot_path}")
    for path in (json_path, plot_path):
        if path and not path.parent.is_dir():
            raise ArgumentError(f"there is no folder {path.parent} to write {path.name} to")


def _with_progress(workloads: Sequence[Workload], measured: Iterator[Result]) -> Iterator[Result]:
    """Forwards the results; on a terminal, shows the current workload."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = terminal(stderr=True)
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}", markup=False))
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(workloads[0].name, total=len(workloads))
        for following, result in zip([*workloads[1:], None], measured, strict=True):
            bar.update(task, advance=1, description=following.name if following else "")
            yield result


def _show(results: list[Result], limits: Limits) -> None:

    from hloom.bench.report import notes, summary, table

    console = terminal(highlight=False)
    shown = table(results, limits)
    print_table(console, shown)
    console.print()
    for note in notes(results):
        console.print(note, style="red", soft_wrap=True)
    for line in filter(None, (summary(results), f"100 % are {limits}")):
        console.print(line, soft_wrap=True)


def _plot(results: list[Result], path: Path) -> None:
    from hloom.bench.chart import ratio_chart
    from hloom.bench.report import summary

    ratios = [(result.workload, result.ratio) for result in results if result.ratio is not None]
    if not ratios:
        raise ArgumentError("there is nothing to plot: no workload has times of both hloom and XLA")
    write_text(path, ratio_chart(ratios, "hloom's speed as a multiple of XLA CPU's", summary(results)))
