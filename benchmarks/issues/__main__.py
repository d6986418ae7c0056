"""`python -m benchmarks.issues`: measures the programs of users' reports, then shows the table and writes the page."""

from __future__ import annotations

import functools
from pathlib import Path

import click

import benchmarks.issues.programs  # noqa: F401
from benchmarks.issues.issue import ISSUES
from benchmarks.issues.page import SHOWN, page
from benchmarks.kept_kernels import kept_kernels
from benchmarks.measure import measure_program
from benchmarks.report import draw, show
from benchmarks.results import collect, matching, with_selection


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@with_selection("reports", "build/issues.jsonl")
@click.option("--quick", is_flag=True, help="Shorter repetitions, and one compilation.")
@click.option("--page", "target", type=click.Path(path_type=Path), help="Write the page, and the plot beside it.")
def main(pattern: str, path: Path, quick: bool, target: Path | None) -> None:
    """Programs for users' performance reports, on hloom and on XLA's CPU backend alternately."""
    measure = functools.partial(measure_program, seconds=0.2, compiles=1) if quick else measure_program
    results = collect(matching(sorted(ISSUES, key=_number), pattern), path, measure)
    show(results)
    if target is not None:
        target.write_text(page(results, kept_kernels()))
        draw(results, target.with_suffix(".svg"), SHOWN)


def _number(name: str) -> tuple[str, int]:
    return ISSUES[name].repository, ISSUES[name].number


main()
