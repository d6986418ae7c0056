"""Runs the HLO modules in XLA's own tests on hloom and on XLA's CPU backend, and compares.

    python tools/run_xla_tests.py run path/to/xla
    python tools/run_xla_tests.py report

Modules are the raw strings of `*_test.cc` files, the `.hlo` files and the functions of the `.mlir` files of a checkout,
of XLA (the fork ROCm/xla has the same tests, and is small) or of a compiler that takes StableHLO. Each is parsed by
jaxlib and by hloom, printed and parsed again; if XLA's CPU backend runs it, both backends of hloom run it on the
same random arguments. Results are lines of JSON in a folder, a file for each file of the checkout; an interrupted run
can be resumed.
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
from jax_tests.results import FAILED, Result, causes
from xla_tests import modules, results
from xla_tests.compare import Pair
from xla_tests.modules import HloText
from xla_tests.results import Record, Summary

console = Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else 130)
folder_option = click.option(
    "--results", "folder", type=click.Path(path_type=Path), default="xla-test-results", show_default=True
)


@click.group(help=__doc__)
def main() -> None: ...


@main.command()
@click.argument("checkout", type=click.Path(exists=True, file_okay=False, resolve_path=True, path_type=Path))
@click.argument("only", nargs=-1)
@click.option("--digests", default="0123456789abcdef", help="Modules whose SHA-1 begins with one of these digits.")
@click.option("--load-only", is_flag=True, help="Load and print modules, but run none.")
@click.option("--rerun-failed", is_flag=True, help="Run again modules that differed from XLA.")
@click.option("--seconds", default=60.0, show_default=True, help="A step that takes longer has failed.")
@click.option("--jobs", default=1, show_default=True, help="Pairs of processes at a time; 1 for valid timings.")
@folder_option
def run(
    checkout: Path,
    only: tuple[str, ...],
    digests: str,
    load_only: bool,
    rerun_failed: bool,
    seconds: float,
    jobs: int,
    folder: Path,
) -> None:
    """Compare the modules of a checkout that have no result, in files whose paths contain one of ONLY."""
    waiting: queue.SimpleQueue[tuple[str, list[HloText]]] = queue.SimpleQueue()
    for file in modules.files(checkout):
        if only and not any(part in file for part in only):
            continue
        done = results.read(results_path(folder, file))
        texts = [text for text in modules.modules(checkout, file) if text.digest[0] in digests]
        texts = [t for t in texts if t.digest not in done or (rerun_failed and done[t.digest].verdict)]
        if texts:
            waiting.put((file, texts))
    workers = [threading.Thread(target=work, args=(waiting, folder, load_only, seconds)) for _ in range(jobs)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


def work(waiting: queue.SimpleQueue[tuple[str, list[HloText]]], folder: Path, load_only: bool, seconds: float) -> None:
    """Compares the modules of one file after the other, until the queue is empty."""
    pair = Pair(seconds, load_only)
    while True:
        try:
            file, texts = waiting.get_nowait()
        except queue.Empty:
            break
        bad = 0
        for text in texts:
            record = pair.compare(text)
            json_lines.append(results_path(folder, file), record)
            bad += bool(record.verdict)
        console.print(f"{file}: {len(texts)} modules, {bad} not as XLA does", markup=False)
    pair.close()


@main.command()
@click.argument("only", nargs=-1)
@click.option("--causes", "most", default=60, show_default=True, help="The maximum number of causes to show.")
@folder_option
def report(only: tuple[str, ...], most: int, folder: Path) -> None:
    """Show a table of files, and differences from XLA, by cause."""
    files: dict[str, list[Record]] = {}
    for path in sorted(folder.rglob("*.jsonl")):
        name = str(path.relative_to(folder)).removesuffix(".jsonl")
        if not only or any(part in name for part in only):
            files[name] = list(results.read(path).values())
    every = [record for records in files.values() for record in records]
    if not every:
        sys.exit("nothing was compared yet")
    console.print(table({**files, "total": every}))
    for line in cause_lines(every, most):
        console.print(line, markup=False)


def table(files: dict[str, list[Record]]) -> Table:
    shown = Table(title="The modules of XLA's tests", box=None)
    for name in ("file", "modules", "XLA accepts", "loads", "comes back", "XLA runs", "same", "slow", "calls back"):
        shown.add_column(name, justify="left" if name == "file" else "right")
    for file, records in files.items():
        counts = Summary.of(records)
        shown.add_row(file, *map(str, vars(counts).values()))
    return shown


def cause_lines(records: Iterable[Record], most: int) -> Iterator[str]:
    failures = [Result(f"{r.file}:{r.line}", FAILED, 0.0, r.verdict) for r in records if r.verdict]
    for cause in list(causes(failures))[:most]:
        yield f"\n{len(cause.results):5} {cause.message}"
        for example in cause.results[:3]:
            yield f"      at {example.test}: {example.error[:300]}"


def results_path(folder: Path, file: str) -> Path:
    return folder / f"{file}.jsonl"


if __name__ == "__main__":
    main()
