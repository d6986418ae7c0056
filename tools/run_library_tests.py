"""Runs tests of libraries that are built on JAX on hloom and on JAX's CPU backend, and compares.

    python tools/run_library_tests.py run --sample 10            # all libraries, ten tests of each file
    python tools/run_library_tests.py run mjx optax --minutes 20
    python tools/run_library_tests.py report --page docs/libraries.md

`tools/library_tests/libraries.py` lists the tests. Each library is installed into an environment of its own, over one
that has JAX and this checkout; its tests come from its source distribution or repository. Environments, sources and
results are in one folder, results as lines of JSON, a file for each library and platform; an interrupted run can be
resumed.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

import json_lines
from jax_tests import results, shards
from jax_tests.results import MINE, PEER, Comparison
from library_tests import environments
from library_tests.libraries import LIBRARIES, Library

ROOT = Path(__file__).resolve().parents[1]
PLUGINS = ROOT / "tools" / "library_tests" / "plugins"
NAMES = [library.name for library in LIBRARIES]
PAGE = """# Libraries on hloom

Tests of libraries that are built on JAX, on `JAX_PLATFORMS=hloom` and on JAX's CPU backend:

    python tools/run_library_tests.py run --sample 10      # then: report --page docs/libraries.md

A test counts if it passes on JAX's CPU backend, and differs if it then fails on hloom. The tests are a reproducible
sample of the files in `tools/library_tests/libraries.py`, and of `examples/` beside it for libraries whose own tests
do not show their purpose. MJX, and Brax which loads models with it, choose an implementation only on platforms named
`cpu`, `gpu` or `tpu`: elsewhere programs pass `mjx.put_model(model, impl="jax")`, as a pytest plugin does for their
tests.

"""

console = Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else 120)
names_argument = click.argument("names", nargs=-1, type=click.Choice(NAMES), metavar="[LIBRARIES]...")
folder_option = click.option(
    "--results", "folder", type=click.Path(path_type=Path), default="library-test-results", show_default=True
)


@click.group(help=__doc__)
def main() -> None: ...


@main.command()
@names_argument
@click.option("--sample", type=int, metavar="N", help="N tests of each file, always the same; more include fewer.")
@click.option("--rerun-failed", is_flag=True, help="Run again what failed, crashed or hung.")
@click.option("--seconds", default=120.0, show_default=True, help="A test that takes longer has failed.")
@click.option("--minutes", default=float("inf"), help="Start no test after this time.")
@folder_option
def run(
    names: tuple[str, ...], sample: int | None, rerun_failed: bool, seconds: float, minutes: float, folder: Path
) -> None:
    """Run tests of libraries on both platforms, except those that have a result."""
    folder, end = folder.resolve(), time.monotonic() + 60 * minutes
    for library in chosen(names):
        try:
            todo = list(settings(library, folder, seconds))
        except environments.Unavailable as error:
            console.print(f"{library.name}: {error}", style="red", markup=False)
            continue
        for setting, file in todo:
            path = results_path(folder, setting.platform, library)
            try:
                tests = shards.collected(setting, file, folder / "collected" / library.name / f"{file}.json")
                tests = tests if sample is None else shards.sampled(tests, sample)
                done = results.read(path)
                tests = [test for test in tests if test not in done or (rerun_failed and done[test].bad)]
                said = work(setting, file, tests, path, end)
            except shards.Broken as error:
                said = str(error)
            console.print(f"{library.name} {setting.platform} {file}: {said}", markup=False)
            if time.monotonic() > end:
                return


def settings(library: Library, folder: Path, seconds: float) -> Iterator[tuple[shards.Setting, str]]:
    """Yields each test file with its setting on each platform, in the library's own environment."""
    python = environments.python(folder / "environments", library, ROOT)
    checkout = environments.source(folder / "sources", library, python)
    variables = {"PYTHONPATH": str(PLUGINS), **library.variables}
    for file, root in library.tests(ROOT, checkout).items():
        for platform in (PEER, MINE):
            setting = shards.Setting(root, platform, library.x64, seconds, 1, str(python), variables)
            yield setting, file


def work(setting: shards.Setting, file: str, tests: list[str], path: Path, end: float) -> str:
    """Runs tests until `end` (monotonic seconds), appends their results to `path`, and returns a summary."""
    done, bad = 0, 0
    for result in shards.run(setting, file, tests):
        json_lines.append(path, result)
        done, bad = done + 1, bad + result.bad
        if time.monotonic() > end:
            break
    return f"{done} of {len(tests)} tests ran, {bad} failed"


@main.command()
@names_argument
@click.option("--page", type=click.Path(dir_okay=False, path_type=Path), help="Write the table as a page in Markdown.")
@folder_option
def report(names: tuple[str, ...], page: Path | None, folder: Path) -> None:
    """Compare the results: a table of libraries, and failures on hloom alone."""
    rows = []
    for library in chosen(names):
        peer, mine = (results.read(results_path(folder, platform, library)) for platform in (PEER, MINE))
        if mine:
            python = folder / "environments" / library.name / "bin" / "python"
            comparison = Comparison(library.name, peer, mine)
            rows.append((comparison, environments.version(python, library.distribution)))
    if not rows:
        sys.exit("nothing ran on both platforms")
    cells = [row(*each) for each in rows]
    shown = Table(title=f"Of what passes on {PEER}, what passes on {MINE}", box=None)
    for name in COLUMNS:
        shown.add_column(name)
    for line in cells:
        shown.add_row(*line)
    console.print(shown)
    for comparison, _ in rows:
        for result in comparison.lost:
            console.print(f"{comparison.file}: {result.test}\n      {result.outcome}: {result.error}", markup=False)
    if page:
        page.write_text(PAGE + markdown(cells))


COLUMNS = ("library", "version", "ran on both", f"pass on {PEER}", f"pass on {MINE} of these", "differ")


def row(comparison: Comparison, version: str) -> tuple[str, ...]:
    expected, lost = len(comparison.expected), len(comparison.lost)
    counts = (len(comparison.both), expected, expected - lost, lost)
    return comparison.file, version, *map(str, counts)


def markdown(rows: Sequence[tuple[str, ...]]) -> str:
    """Formats rows of `COLUMNS` as a table in Markdown."""
    lines = [COLUMNS, ("---", "---", *["---:"] * (len(COLUMNS) - 2)), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def chosen(names: Sequence[str]) -> list[Library]:
    return [library for library in LIBRARIES if not names or library.name in names]


def results_path(folder: Path, platform: str, library: Library) -> Path:
    return folder / platform / f"{library.name}.jsonl"


if __name__ == "__main__":
    main()
