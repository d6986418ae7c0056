"""The page of targets, `docs/targets.md`: for each program and environment whether it ran, and how fast."""

from __future__ import annotations

import itertools
import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from targets.environments import EMULATED_SECONDS, ENVIRONMENTS, Environment

Status = Literal["same", "close", "differs", "linked", "refused", "failed", "slow"]


@dataclass(frozen=True)
class Run:
    """A program at an environment: whether its results are those of the JIT, and times."""

    key: str
    environment: str
    program: str
    status: Status
    detail: str = ""
    size: int = 0
    """Bytes of the object files or of the WebAssembly file."""
    seconds: float = 0.0
    jit_seconds: float = 0.0
    """The time of the JIT's executable, called from Python on one thread."""

    @property
    def ratio(self) -> float | None:
        """The speed beside the JIT: above 1 is faster."""
        return self.jit_seconds / self.seconds if self.seconds else None

    def line(self) -> str:
        """The run as a line."""
        ratio = f" {self.ratio:.2f}" if self.ratio else ""
        return f"{self.key}: {self.status}{ratio} {self.detail}"

    @property
    def cell(self) -> str:
        """The run in the table."""
        words = {"same": "=", "close": "~", "linked": "linked", "slow": f"> {EMULATED_SECONDS} s"}
        word = words.get(self.status, f"**{self.status}**")
        return f"{word} {self.ratio:.2f}" if self.ratio else word


def recorded(path: Path) -> dict[str, Run]:
    """Reads runs, by their keys; none if there is no file."""
    entries = json.loads(path.read_text()) if path.exists() else {}
    runs = (
        Run(f"{environment}: {program}", environment, program, *fields)
        for environment, programs in entries.items()
        for program, fields in programs.items()
    )
    return {run.key: run for run in runs}


def record(path: Path, runs: Mapping[str, Run]) -> None:
    """Writes runs, one a line, in the order of environments and programs."""
    order = [environment.name for environment in ENVIRONMENTS]
    ordered = sorted(runs.values(), key=lambda run: (order.index(run.environment), run.program))
    parts = []
    for environment, group in itertools.groupby(ordered, key=lambda run: run.environment):
        lines = [f"  {json.dumps(run.program)}: {json.dumps(_fields(run))}" for run in group]
        parts.append(f"{json.dumps(environment)}: {{\n" + ",\n".join(lines) + "\n}")
    path.write_text("{\n" + ",\n".join(parts) + "\n}\n")


def _fields(run: Run) -> list[str | float]:
    """Returns status, detail, size and times, of which the last ones are left out if they are empty."""
    times = (float(f"{seconds:.4g}") for seconds in (run.seconds, run.jit_seconds))
    fields = [run.status, run.detail, run.size, *times]
    while not fields[-1]:
        fields.pop()
    return fields


PAGE = """# Programs on every target

Every program of the corpus on one device, built with `hl.build` for each target, and run there:

    python tools/run_targets.py run      # then: report, which writes this page and targets.json

Results are compared with those of the just-in-time compiler (JIT) on this machine: `=` is the same bits, `~` within the
tolerances of the program, since other processors have shorter vectors, or do not fuse multiply-adds. The number is
speed: the time of the JIT's executable on one thread, called from Python, over that of the library; emulators are not
timed, and stopped after {seconds} s of processor time. Short programs are faster in a library, since calls from Python
take 2 us.

{summary}

## Programs

{programs}
"""


def written(runs: Mapping[str, Run]) -> str:
    """Returns the page."""
    environments = [
        environment for environment in ENVIRONMENTS if any(run.environment == environment.name for run in runs.values())
    ]
    return PAGE.format(
        seconds=EMULATED_SECONDS, summary=_summary(runs.values(), environments), programs=_programs(runs, environments)
    )


def _summary(runs: Iterable[Run], environments: Sequence[Environment]) -> str:
    rows = []
    for environment in environments:
        here = [run for run in runs if run.environment == environment.name]
        wanted = (("same",), ("close",), ("slow",), ("differs", "failed"), ("refused",))
        count = [str(sum(run.status in statuses for run in here)) for statuses in wanted]
        if environment.is_linked_only:
            count[:-1] = [""] * (len(count) - 1)
        ratios = [run.ratio for run in here if run.ratio]
        speed = f"{statistics.median(ratios):.2f}" if ratios else ""
        size = statistics.median([run.size for run in here if run.size] or [0])
        shown = f"{size / 1024:.0f} KB" if size else ""
        rows.append([environment.name, environment.where, str(len(here)), *count, shown, speed])
    head = [
        "target",
        "ran on",
        "programs",
        "same bits",
        "close",
        f"> {EMULATED_SECONDS} s",
        "failed",
        "refused",
        "size (median)",
        "speed (median)",
    ]
    return _table(head, rows)


def _programs(runs: Mapping[str, Run], environments: Sequence[Environment]) -> str:
    names = sorted({run.program for run in runs.values()})
    found = [[runs.get(f"{environment.name}: {name}") for environment in environments] for name in names]
    rows = [[f"`{name}`", *(run.cell if run else "" for run in each)] for name, each in zip(names, found, strict=True)]
    return _table(["program", *(environment.name for environment in environments)], rows)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
