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
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ["HLOOM_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"  # LAPACK has threads of its own

import click

import hloom as hl
import json_lines
from hloom.bench.workloads import Workload, find_workloads
from hloom.comparison import Comparison
from hloom.files.arrays import flat
from hloom.ir import Module
from hloom.system.lazy import cached_property
from hloom.values import Array, Value
from targets import page
from targets.environments import ENVIRONMENTS, Environment, Runner
from targets.page import Run, Status

ROOT = Path(__file__).resolve().parents[1]
CORPUS = ROOT / "tests" / "corpus"
RECORDED = ROOT / "docs" / "targets.json"
RESULTS = ROOT / "build" / "targets.jsonl"
REPETITIONS = 3
"""Number of times that the JIT and a library are measured, alternately, since the speed of memory changes."""


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


@dataclass(frozen=True)
class Subject:
    """A program, and what the JIT makes of it."""

    workload: Workload

    @cached_property
    def module(self) -> Module:
        """The module."""
        return hl.load(self.workload.module)

    @cached_property
    def arguments(self) -> list[Value]:
        """The arguments."""
        return self.workload.arguments(self.module)

    @cached_property
    def compiled(self) -> hl.Executable:
        """The JIT's executable."""
        return hl.compile(self.module)

    @cached_property
    def results(self) -> list[Array]:
        """The JIT's results."""
        return flat(self.compiled(*self.arguments))

    def status(self, got: Sequence[Array]) -> tuple[Status, str]:
        """Returns how results compare with the JIT's, and the first difference that counts."""
        if [each.tobytes() for each in got] == [each.tobytes() for each in self.results]:
            return "same", ""
        if not self.workload.difference(self.module, self.arguments, got, self.results):
            return "close", ""
        # The tolerances of a program are for one processor; a run in double precision decides between two.
        wrong = Comparison(self.module, [self.arguments]).difference(tuple(got), tuple(self.results)) or ""
        return "differs" if wrong else "close", wrong


def run_at(environment: Environment, subject: Subject, runner: Runner, folder: Path, seconds: float) -> Run:
    """Builds, runs and compares a program at an environment."""
    name, limit = subject.workload.name, seconds if environment.is_timed else 0

    def made(status: Status, detail: str = "", size: int = 0, seconds: float = 0, jit_seconds: float = 0) -> Run:
        return Run(f"{environment.name}: {name}", environment.name, name, status, detail, size, seconds, jit_seconds)

    try:
        library = hl.build({"f": subject.module}, target=environment.target, threads=1)
        size = sum(map(len, library.binaries.values()))
        leaves = [leaf for argument in subject.arguments for leaf in flat(argument)]
        got, taken = runner(library, leaves, folder, limit)
        again = float("inf") if limit else 0.0
        for _ in range(REPETITIONS if limit else 0):
            again = min(again, best_time(lambda: subject.compiled(*subject.arguments), limit))
            taken = min(taken, runner(library, leaves, folder, limit)[1])
    except hl.ArgumentError as error:
        return made("refused", str(error).splitlines()[0])
    except TimeoutError:
        return made("slow")
    except subprocess.CalledProcessError as error:
        return made("failed", f"{error} {str(error.stderr)[-500:]}")
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        return made("failed", str(error)[-500:])
    if environment.is_linked_only:
        return made("linked", size=size)
    return made(*subject.status(got), size=size, seconds=taken, jit_seconds=again)


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
@click.option(
    "--seconds", default=0.1, help="Time for each program, side and repetition where times count; 0 measures none."
)
@click.option("--again", is_flag=True, help="Run what has run, or is recorded.")
@click.option("--results", type=click.Path(path_type=Path), default=RESULTS, show_default=True)
def run(environments: tuple[str, ...], match: str, seconds: float, again: bool, results: Path) -> None:
    """Build and run programs at environments, by default at all."""
    workloads = find_workloads([CORPUS], match, all_cases=True)
    done = {} if again else page.recorded(RECORDED) | json_lines.read(results, Run, "key")
    chosen = [each for each in ENVIRONMENTS if not environments or each.name in environments]
    for environment in chosen:
        if not environment.is_here:
            click.echo(f"{environment.name}: there is no {environment.command[0]}")
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        runners = {each: stack.enter_context(each.runner(scratch)) for each in chosen if each.is_here}
        for workload in workloads:
            subject = Subject(workload)
            for environment, runner in runners.items():
                if f"{environment.name}: {workload.name}" in done:
                    continue
                made = run_at(environment, subject, runner, scratch / "program", seconds)
                shutil.rmtree(scratch / "program", ignore_errors=True)
                json_lines.append(results, made)
                click.echo(made.line())


@main.command()
@click.option("--results", type=click.Path(path_type=Path), default=RESULTS, show_default=True)
def report(results: Path) -> None:
    """Add runs to docs/targets.json, and write docs/targets.md from it."""
    runs = page.recorded(RECORDED) | json_lines.read(results, Run, "key")
    page.record(RECORDED, runs)
    RECORDED.with_suffix(".md").write_text(page.written(page.recorded(RECORDED)))


if __name__ == "__main__":
    main()
