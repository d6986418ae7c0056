"""Runs the test programs of a StableHLO checkout through hloom: those in `tests/interpret` and `testdata`.

    python tools/run_stablehlo_tests.py path/to/stablehlo [--backend cpu] [--jobs 2] [--only abs] [--results FOLDER]

A file may hold several programs, separated by `// -----`; it passes if all its checks hold. `check.*` ops and the
`interpreter.*` ops that run a program on several devices are implemented by `stablehlo_checks.py`. Prints a line for
each file that fails, with the cause, and the rates; exits with 1 if a rate is below `--rate`. `--results` also writes a
line of JSON for each file, `BACKEND/FOLDER.jsonl` in a folder.
"""

from __future__ import annotations

import argparse
import queue
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import json_lines
from jax_tests.results import FAILED, PASSED, SKIPPED, Result
from processes import Died, Handler, Process, TookTooLong

FOLDERS = ("stablehlo/tests/interpret", "stablehlo/testdata")


def make_handler(backend: str) -> Handler:
    """Returns the handler of a worker process, which runs a file."""
    from stablehlo_checks import run_file

    return lambda file: run_file(Path(file), backend)


@dataclass
class Tally:
    """The counts of a folder: files that passed or were skipped, and the causes of failures by file."""

    passed: int = 0
    skipped: int = 0
    failures: dict[str, str] = field(default_factory=dict)

    @property
    def rate(self) -> float:
        total = self.passed + len(self.failures)
        return self.passed / total if total else 1.0


def run_all(files: list[Path], backend: str, jobs: int, limit: float) -> Iterator[tuple[Path, str]]:
    """Yields each file with its outcome: "" if it passed, else the cause."""
    idle: queue.SimpleQueue[Process] = queue.SimpleQueue()
    for _ in range(jobs):
        idle.put(Process(partial(make_handler, backend)))

    def run(file: Path) -> tuple[Path, str]:
        process = idle.get()
        try:
            return file, process.call(str(file), limit)
        except (Died, TookTooLong) as error:
            return file, str(error)
        finally:
            idle.put(process)

    with ThreadPoolExecutor(jobs) as pool:
        yield from pool.map(run, files)
    for _ in range(jobs):
        idle.get().stop()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path, help="the root of a StableHLO checkout")
    parser.add_argument("--backend", default="interpreter", choices=("interpreter", "cpu"))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--limit", type=float, default=60.0, help="seconds a file may take")
    parser.add_argument("--rate", type=float, default=0.95, help="the minimum share of each folder that must pass")
    parser.add_argument("--only", default="", help="run the files whose names contain this")
    parser.add_argument("--results", type=Path, help="a folder for the results, as lines of JSON")
    arguments = parser.parse_args()
    rates: list[float] = []
    for folder in FOLDERS:
        root = arguments.checkout / folder
        files = sorted(file for file in root.rglob("*.mlir") if arguments.only in file.name)
        if not files:
            print(f"{folder}: no files")
            continue
        tally, start = Tally(), time.monotonic()
        for file, outcome in run_all(files, arguments.backend, arguments.jobs, arguments.limit):
            if arguments.results:
                record(arguments.results / arguments.backend / f"{folder}.jsonl", file.relative_to(root), outcome)
            if outcome == "no checks":
                tally.skipped += 1
            elif outcome:
                tally.failures[str(file.relative_to(root))] = outcome
                print(f"  FAIL  {file.relative_to(root)}: {outcome}", flush=True)
            else:
                tally.passed += 1
        report(folder, tally, arguments.backend, time.monotonic() - start)
        rates.append(tally.rate)
    return 0 if rates and min(rates) >= arguments.rate else 1


def record(path: Path, file: Path, outcome: str) -> None:
    """Appends the outcome of a file to a file of results."""
    kind = SKIPPED if outcome == "no checks" else FAILED if outcome else PASSED
    json_lines.append(path, Result(file.as_posix(), kind, 0.0, outcome))


def report(folder: str, tally: Tally, backend: str, seconds: float) -> None:
    """Prints the summary of one folder, and the causes by frequency."""
    total = tally.passed + len(tally.failures)
    print(
        f"{folder}: {tally.passed} of {total} files pass ({tally.rate:.1%}) with {backend} in {seconds:.0f} s", end=""
    )
    print(f"; {tally.skipped} without checks" if tally.skipped else "")
    causes = Counter(cause.split(": ")[-1][:80] for cause in tally.failures.values())
    for cause, count in causes.most_common(20):
        print(f"  {count:5}  {cause}")


if __name__ == "__main__":
    sys.exit(main())
