"""`python -m benchmarks`: measures the programs that the results file lacks, then shows the table and the plot."""

from __future__ import annotations

import fnmatch
from pathlib import Path

import click

import benchmarks.programs  # noqa: F401
from benchmarks.measure import Result, from_json, measure, to_json
from benchmarks.program import PROGRAMS
from benchmarks.report import draw, show


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--filter", "pattern", default="*", metavar="GLOB", help="Only programs whose names match.")
@click.option(
    "--results",
    "path",
    type=click.Path(path_type=Path),
    default=Path("build/benchmarks.jsonl"),
    show_default=True,
    help="A line for each measured program; programs in it are not measured again.",
)
@click.option("--plot", type=click.Path(path_type=Path), help="Draw the ratios: .svg, .png or .pdf.")
def main(pattern: str, path: Path, plot: Path | None) -> None:
    """Real programs through JAX, on hloom and on XLA's CPU backend alternately.

    Steps are medians of repetitions; compilation and initialisation start with empty caches; memory is the peak of the
    process. An interrupted run can be resumed.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    known = [from_json(line) for line in path.read_text().splitlines()] if path.exists() else []
    names = [name for name in PROGRAMS if fnmatch.fnmatch(name, pattern)]
    if not names:
        raise click.UsageError(f"no program matches {pattern!r}; there are: {', '.join(PROGRAMS)}")
    missing = [name for name in names if name not in {result.name for result in known}]
    with click.progressbar(missing, item_show_func=lambda name: name or "") as shown:
        for name in shown:
            known += _measured(name, path)
    found = {result.name: result for result in known}
    results = [found[name] for name in names if name in found]
    if not results:
        raise click.ClickException("no program was measured")
    show(results)
    if plot is not None:
        draw(results, plot)


def _measured(name: str, path: Path) -> list[Result]:
    """Measures a program and appends the result to the file; [] if a worker failed, whose error is shown."""
    try:
        result = measure(name)
    except RuntimeError as error:
        click.secho(f"\n{name}: {error}", fg="red", err=True)
        return []
    with path.open("a") as file:
        print(to_json(result), file=file)
    return [result]


main()
