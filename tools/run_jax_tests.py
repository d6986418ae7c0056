"""Runs JAX's own tests on hloom and on JAX's CPU backend, and compares.

    python tools/run_jax_tests.py run path/to/jax --platform cpu     # the peer, once
    python tools/run_jax_tests.py run path/to/jax --platform hloom
    python tools/run_jax_tests.py report

The checkout of JAX must have the installed version. Results are lines of JSON in a folder, a file for each
test file and platform; an interrupted run can be resumed.
"""

from __future__ import annotations

import queue
import sys
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

import json_lines
from jax_tests import results, shards
from jax_tests.results import MINE, PEER, Comparison

FILES = (
    "control_deps_test",
    "custom_partitioning_test",
    "shard_alike_test",
    "layout_test",
    "extend_test",
    "aot_test",
    "pickle_test",
    "debug_nans_test",
    "x64_context_test",
    "multi_device_test",
    "memories_test",
    "array_test",
    "ffi_test",
    "buffer_callback_test",
    "python_callback_test",
    "debugging_primitives_test",
    "error_check_test",
    "checkify_test",
    "jaxpr_effects_test",
    "hijax_test",
    "custom_api_test",
    "state_test",
    "mutable_array_test",
    "export_test",
    "shape_poly_test",
    "linalg_sharding_test",
    "pjit_test",
    "dtypes_test",
    "polynomial_test",
    "generated_fun_test",
    "batching_test",
    "random_impl_test",
    "ann_test",
    "ode_test",
    "lobpcg_test",
    "qdwh_test",
    "stax_test",
    "optimizers_test",
    "scipy_interpolate_test",
    "scipy_optimize_test",
    "scipy_fft_test",
    "sparse_test",
    "sparse_bcoo_bcsr_test",
    "lax_numpy_einsum_test",
    "lax_numpy_vectorize_test",
    "lax_numpy_ufuncs_test",
    "image_test",
    "scipy_signal_test",
    "scipy_ndimage_test",
    "fft_test",
    "nn_test",
    "lax_vmap_op_test",
    "lax_autodiff_test",
    "lax_scipy_test",
    "random_test",
    "random_lax_test",
    "lax_numpy_indexing_test",
    "lax_numpy_reducers_test",
    "lax_control_flow_test",
    "linalg_test",
    "pmap_test",
    "shard_map_test",
    "api_test",
    "scipy_stats_test",
    "lax_test",
    "lax_numpy_operators_test",
    "lax_numpy_test",
)

console = Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else 120)
folder_option = click.option(
    "--results", "folder", type=click.Path(path_type=Path), default="jax-test-results", show_default=True
)
x64_option = click.option("--x64", is_flag=True, help="With JAX_ENABLE_X64=1; results are kept apart.")


@click.group(help=__doc__)
def main() -> None: ...


@main.command()
@click.argument("checkout", type=click.Path(exists=True, file_okay=False, resolve_path=True, path_type=Path))
@click.argument("files", nargs=-1)
@click.option("--platform", type=click.Choice([PEER, MINE]), default=MINE, show_default=True)
@click.option("--sample", type=int, metavar="N", help="N tests of each file, always the same; more include fewer.")
@click.option("--rerun-failed", is_flag=True, help="Run again what failed, crashed or hung.")
@click.option("--seconds", default=120.0, show_default=True, help="A test that takes longer has failed.")
@click.option("--jobs", default=1, show_default=True, help="Worker processes at a time.")
@click.option("--shard", default=250, show_default=True, help="The maximum number of tests in one process.")
@folder_option
@x64_option
def run(
    checkout: Path,
    files: tuple[str, ...],
    platform: str,
    sample: int | None,
    rerun_failed: bool,
    seconds: float,
    jobs: int,
    shard: int,
    folder: Path,
    x64: bool,
) -> None:
    """Run tests of a JAX checkout on one platform, except those that have a result."""
    setting = shards.Setting(checkout, platform, x64, seconds)
    waiting: queue.SimpleQueue[tuple[str, list[str]]] = queue.SimpleQueue()
    for file in map(file_name, files or FILES):
        path = results_path(folder, "collected", x64, file).with_suffix(".json")
        try:
            tests = shards.collected(setting, f"tests/{file}", path)
        except shards.Broken as error:
            click.echo(f"{file} is left out: {error}", err=True)
            continue
        if sample is not None:
            tests = shards.sampled(tests, sample)
        done = results.read(results_path(folder, platform, x64, file))
        tests = [test for test in tests if test not in done or (rerun_failed and done[test].bad)]
        for start in range(0, len(tests), shard):
            waiting.put((file, tests[start : start + shard]))
    workers = [threading.Thread(target=work, args=(waiting, setting, folder)) for _ in range(jobs)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


def work(waiting: queue.SimpleQueue[tuple[str, list[str]]], setting: shards.Setting, folder: Path) -> None:
    """Runs shards until the queue is empty."""
    while True:
        try:
            file, tests = waiting.get_nowait()
        except queue.Empty:
            return
        path, bad, done = results_path(folder, setting.platform, setting.x64, file), 0, 0
        try:
            for result in shards.run(setting, f"tests/{file}", tests):
                json_lines.append(path, result)
                done, bad = done + 1, bad + result.bad
        except shards.Broken as error:
            console.print(f"{file}: {error}", style="red", markup=False)
        console.print(f"{setting.platform} {file}: {done} of {len(tests)} tests ran, {bad} failed", markup=False)


@main.command()
@click.argument("files", nargs=-1)
@click.option("--causes", "most", default=40, show_default=True, help="The maximum number of causes to show.")
@folder_option
@x64_option
def report(files: tuple[str, ...], most: int, folder: Path, x64: bool) -> None:
    """Compare the results: a table of files, and failures on hloom alone, by cause."""
    comparisons = []
    for file in map(file_name, files or FILES):
        peer, mine = (results.read(results_path(folder, platform, x64, file)) for platform in (PEER, MINE))
        comparisons.append(Comparison(file, peer, mine))
    total = results.total(comparisons)
    console.print(table([*comparisons, total]))
    for line in cause_lines(total, most):
        console.print(line, markup=False)
    if not total.expected:
        sys.exit("nothing ran on both platforms")


def table(comparisons: Iterable[Comparison]) -> Table:
    shown = Table(title=f"JAX's tests: of what passes on {PEER}, what passes on {MINE}", box=None)
    for name in ("file", "on both", f"{PEER} passed", f"{MINE} passed of these", "rate", "skipped", "seconds"):
        shown.add_column(name, justify="left" if name == "file" else "right")
    for comparison in comparisons:
        expected, lost = len(comparison.expected), len(comparison.lost)
        skipped, seconds = comparison.skipped(), comparison.seconds()
        shown.add_row(
            comparison.file.removesuffix(".py"),
            str(len(comparison.both)),
            str(expected),
            str(expected - lost),
            f"{comparison.rate:.1%}" if expected else "",
            f"{skipped[0]} / {skipped[1]}",
            f"{seconds[0]:.0f} / {seconds[1]:.0f}",
        )
    return shown


def cause_lines(total: Comparison, most: int) -> Iterator[str]:
    for cause in list(results.causes(total.lost))[:most]:
        yield f"\n{len(cause.results):5} {cause.message}"
        functions = [f"{name} ({count})" for name, count in cause.functions.most_common(4)]
        yield f"      in {', '.join(functions)}" + (", .." if len(cause.functions) > 4 else "")
        yield f"      as {cause.results[0].test}: {cause.results[0].error[:300]}"


def file_name(name: str) -> str:
    """Returns the path within `tests/` of a file given as `nn_test`, `pallas/ops_test` or `tests/nn_test.py`."""
    return Path(name).with_suffix(".py").as_posix().removeprefix("tests/")


def results_path(folder: Path, platform: str, x64: bool, file: str) -> Path:
    return folder / (platform + ("-x64" if x64 else "")) / Path(file).with_suffix(".jsonl")


if __name__ == "__main__":
    main()
