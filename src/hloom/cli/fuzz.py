"""`hloom fuzz`: random modules, run in many ways whose results must agree."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from hloom.cli.examples import examples

FOUND = 1
"""Exit status if there are findings."""


@click.command(
    epilog=examples(
        "hloom fuzz --minutes 60 --jobs 2 --report page.html",
    )
)
@click.option("--minutes", type=float, default=10.0, show_default=True, help="How long to go on; 0 reports only.")
@click.option("--jobs", type=click.IntRange(1, 256), default=1, show_default=True, help="Processes that work at once.")
@click.option(
    "--folder", type=click.Path(), default="fuzz", show_default=True, help="Counts and findings; it goes on with them."
)
@click.option("--report", type=click.Path(), help="Write a page with the figures and findings so far.")
def fuzz(minutes: float, jobs: int, folder: str, report: str | None) -> None:
    """Draw random modules and compare the results of running them in many ways, for some minutes.

    A module is interpreted, compiled for several processors and numbers of threads, rewritten by passes, converted, and
    run by XLA if it is installed. A module whose results differ by more than the specification allows is reduced to a
    minimal one, with arguments. The exit status is 1 if there are findings.
    """
    from hloom.fuzz.report import write_report
    from hloom.fuzz.state import State
    from hloom.fuzz.supervisor import supervise

    state = State(Path(folder))
    supervise(state, jobs, 60 * minutes, lambda line: click.echo(line, err=True))
    if report is not None:
        write_report(state, Path(report))
    findings = state.findings()
    for finding, path in findings:
        click.echo(f"{finding.count:5}  {finding.oracle:10} {finding.kind:10} {path / 'case.hlo'}")
    sys.exit(FOUND if findings else 0)
