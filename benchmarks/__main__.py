"""`python -m benchmarks`: measures the programs that the results file lacks, then shows the table and the plot."""

from __future__ import annotations

from pathlib import Path

import click

import benchmarks.programs  # noqa: F401
from benchmarks.program import PROGRAMS
from benchmarks.report import draw, show
from benchmarks.results import collect, matching, with_selection


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@with_selection("programs", "build/benchmarks.jsonl")
@click.option("--plot", type=click.Path(path_type=Path), help="Draw the ratios: .svg, .png or .pdf.")
def main(pattern: str, path: Path, plot: Path | None) -> None:
    """Real programs through JAX, on hloom and on XLA's CPU backend alternately.

    Steps are medians of repetitions; compilation and initialisation start with empty caches, "warmed" compilation with
    what `hloom warm` keeps; memory is the peak of the process. An interrupted run can be resumed.
    """
    results = collect(matching(PROGRAMS, pattern), path)
    show(results)
    if plot is not None:
        draw(results, plot)


main()
