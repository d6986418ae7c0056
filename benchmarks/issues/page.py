"""The page of all reports: a table, the plot, and a section for each report that its readers can link to."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.issues.issue import ISSUES, UNMEASURED
from benchmarks.kept_kernels import KeptKernels
from benchmarks.measure import Result
from benchmarks.program import PROGRAMS
from benchmarks.report import RATIOS, mean

SHOWN = {
    name: RATIOS[name]
    for name in (
        "step, XLA / hloom",
        "compile, hloom / XLA",
        "warmed compile, hloom / XLA",
        "memory, hloom / XLA",
    )
}

_HEAD = """# Users' performance reports, measured

Reports about the speed of JAX and of XLA's CPU backend that users filed in public, each with a small program of our own
that shows the case, run on XLA (jaxlib 0.10.2) and on hloom. The reports are about several versions of XLA. Measured
on two cores (Intel Xeon, Sapphire Rapids): a step is the median of runs on both sides alternately, compiling
starts in a new process with empty caches or, "warmed", with a cache that has what `hloom warm` keeps, which is code
that programs share and none of the program's own. {kept} Memory is the peak of the process. The results of both sides
are compared.

    python -m benchmarks.issues                         # all of them; resumes where it was stopped
    python -m benchmarks.issues --filter "jax 26145"

In the geometric mean of {measured} reports XLA takes {step:.2f} times as long as hloom to run, and hloom takes
{compile:.2f} of XLA's time to compile, {warmed:.2f} after `hloom warm`.{absent}

![ratios of all reports: step, compile, compile after `hloom warm`, memory](users_issues.svg)
"""
_UNMEASURED = """
## Not measured

| report | why |
|---|---|
"""


def page(results: Sequence[Result], kept: KeptKernels) -> str:
    """Returns the page in Markdown."""
    means = dict(zip(("step", "compile", "warmed"), (mean(ratio, results) for ratio in SHOWN.values()), strict=False))
    lines = [_HEAD.format(measured=len(results), absent=_absent(results), kept=kept.text(), **means)]
    lines += [f"| report | {' | '.join(SHOWN)} | reported |", "|---" * (len(SHOWN) + 2) + "|"]
    lines += [_row(result) for result in results]
    lines += [_section(result) for result in results]
    lines += [_UNMEASURED + "\n".join(f"| {issue.link} | {issue.reason} |" for issue in UNMEASURED)]
    return "\n".join([*lines, ""])


def _absent(results: Sequence[Result]) -> str:
    """The sentence on the reports that have a program but no figures in this run."""
    names = sorted(ISSUES.keys() - {result.name for result in results})
    return f" Programs that gave no figures in this run: {', '.join(names)}." if names else ""


def _row(result: Result) -> str:
    ratios = [f"{ratio(result):.2f}" for ratio in SHOWN.values()]
    anchor = f"[{result.name}](#{result.name.replace(' ', '-')})"
    return f"| {' | '.join([anchor, *ratios, ISSUES[result.name].reported])} |"


def _section(result: Result) -> str:
    issue, file = ISSUES[result.name], PROGRAMS[result.name].initialise.__module__.replace(".", "/")
    lines = [
        f"\n## {issue.name}\n",
        f"{issue.link}: {issue.reported}. Measured: {issue.program} (`{file}.py`).{_difference(result)}\n",
        "| | hloom | XLA | XLA / hloom |\n|---|---|---|---|",
        _figures("run", "ms", 1e3 * result.hloom.step, 1e3 * result.xla.step),
        _figures("compile", "ms", 1e3 * result.hloom.compile, 1e3 * result.xla.compile),
        _figures("compile after `hloom warm`", "ms", 1e3 * result.warmed, 1e3 * result.xla.compile),
        _figures("memory", "MB", result.hloom.memory / 2**20, result.xla.memory / 2**20),
    ]
    return "\n".join(lines + ([f"\n{issue.reason}"] if issue.reason else []))


def _figures(what: str, unit: str, ours: float, theirs: float) -> str:
    return f"| {what} | {_rounded(ours)} {unit} | {_rounded(theirs)} {unit} | {theirs / ours:.2f} |"


def _rounded(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _difference(result: Result) -> str:
    return "" if result.agrees else f" **Results differ, by {result.difference:.3g} times the tolerance.**"
