"""Builds the programs of the corpus ahead of time for every target, runs them, and compares with the JIT.

    python tools/run_targets.py run                   # all environments that this machine has; resumes
    python tools/run_targets.py run native "wasm32, Node" --match "bench_*" --seconds 0.3
    python tools/run_targets.py report                # adds the runs to docs/targets.json, and writes docs/targets.md

Programs run on one thread. Emulators are those of `qemu-user-static`; pages need Chromium, chromedriver and selenium.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["HLOOM_NUM_THREADS"] = "1"

import click

import hloom as hl
import json_lines
from hloom.bench.workloads import Workload, find_workloads
from hloom.comparison import Comparison
from hloom.files.arrays import flat
from targets import page
from targets.environments import ENVIRONMENTS, Environment, Runner
from targets.page import Run, Status

ROOT = Path(__file__).resolve().parents[1]
CORPUS = ROOT / "tests" / "corpus"
RECORDED = ROOT / "docs" / "targets.json"
RESULTS = ROOT / "build" / "targets.jsonl"


def best_time(call: Callable[[], Any], seconds: float) -> float:
    """Returns the best time of a call, as the C program measures it."""
    best, calls, end = float("inf"), 1, time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        for _ in range(calls):
            call()
        taken = time.perf_counter() - start
        if taken < 2e-4:
            calls *= 2
        else:
            best = min(best, taken / calls)
    return best


def run_at(environment: Environment, workload: Workload, runner: Runner, folder: Path, seconds: float) -> Run:
    """Builds, runs and compares a program at an environment."""
    module = hl.load(workload.module)
    arguments = workload.arguments(module)

    def made(status: Status, detail: str = "", size: int = 0, seconds: float = 0, jit_seconds: float = 0) -> Run:
        key = f"{environment.name}: {workload.name}"
        return Run(key, environment.name, workload.name, status, detail, size, seconds, jit_seconds)

    try:
        library = hl.build({"f": module}, target=environment.target, threads=1)
        size = sum(map(len, library.binaries.values()))
        leaves = [leaf for argument in arguments for leaf in flat(argument)]
        got, taken = runner(library, leaves, folder, seconds if environment.is_timed else 0)
    except hl.ArgumentError as error:
        return made("refused", str(error).splitlines()[0])
    except subprocess.TimeoutExpired:
        return made("failed", "took more than 300 s")
    except subprocess.CalledProcessError as error:
        return made("failed", f"{error} {str(error.stderr)[-500:]}")
    except RuntimeError as error:
        return made("failed", str(error)[-500:])
    if environment.is_linked_only:
        return made("linked", size=size)
    compiled = hl.compile(module)
    want = flat(compiled(*arguments))
    again = best_time(lambda: compiled(*arguments), seconds) if environment.is_timed and seconds else 0.0
    if [each.tobytes() for each in got] == [each.tobytes() for each in want]:
        return made("same", size=size, seconds=taken, jit_seconds=again)
    wrong = workload.difference(module, arguments, got, want)
    if wrong:
        # The tolerances of a program are for one processor; a run in double precision decides between two.
        wrong = Comparison(module, [arguments]).difference(tuple(got), tuple(want)) or ""
    return made("differs" if wrong else "close", wrong, size=size, seconds=taken, jit_seconds=again)


@click.group(help=__doc__)
def main() -> None: ...


@main.command()
@click.argument(
    "environments",
    nargs=-1,
    type=click.Choice([environment.name for environment in ENVIRONMENTS]),
    metavar="[ENVIRONMENTS]...",
)
@click.option("--match", default="*", help="A glob pattern of programs.")
@click.option("--seconds", default=0.1, help="Time for each program and side where times count; 0 measures none.")
@click.option("--again", is_flag=True, help="Run what has run.")
@click.option("--results", type=click.Path(path_type=Path), default=RESULTS, show_default=True)
def run(environments: tuple[str, ...], match: str, seconds: float, again: bool, results: Path) -> None:
    """Build and run programs at environments, by default at all."""
    workloads = find_workloads([CORPUS], match, all_cases=True)
    done = json_lines.read(results, Run, "key")
    for environment in ENVIRONMENTS:
        if environments and environment.name not in environments:
            continue
        if not environment.is_here:
            click.echo(f"{environment.name}: there is no {environment.command[0]}")
            continue
        with tempfile.TemporaryDirectory() as scratch, environment.runner(Path(scratch)) as runner:
            for workload in workloads:
                if not again and f"{environment.name}: {workload.name}" in done:
                    continue
                folder = Path(scratch) / "program"
                made = run_at(environment, workload, runner, folder, seconds)
                shutil.rmtree(folder, ignore_errors=True)
                json_lines.append(results, made)
                click.echo(made.line())


@main.command()
@click.option("--results", type=click.Path(path_type=Path), default=RESULTS, show_default=True)
def report(results: Path) -> None:
    """Add runs to docs/targets.json, and write docs/targets.md from it."""
    runs = page.recorded(RECORDED) | json_lines.read(results, Run, "key")
    page.record(RECORDED, runs)
    RECORDED.with_suffix(".md").write_text(page.written(runs))


if __name__ == "__main__":
    main()
