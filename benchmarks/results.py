"""Files of results, a line of JSON for each program: measuring continues where it was stopped."""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from benchmarks.measure import Result, Side, measure_program
from hloom.errors import HloomError


def with_selection(nouns: str, results: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator that adds the options --filter, whose glob is `pattern`, and --results, whose file is `path`."""

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        text = f"Only {nouns} whose names match."
        selected = click.option("--filter", "pattern", default="*", metavar="GLOB", help=text)
        file = click.option(
            "--results",
            "path",
            type=click.Path(path_type=Path),
            default=Path(results),
            show_default=True,
            help=f"A line for each of the measured {nouns}; those in it are not measured again.",
        )
        return selected(file(command))

    return add


def matching(names: Iterable[str], pattern: str) -> list[str]:
    """Returns the names that match a glob. Raises click.UsageError if there are none."""
    names = list(names)
    found = [name for name in names if fnmatch.fnmatch(name, pattern)]
    if not found:
        raise click.UsageError(f"no program matches {pattern!r}; there are: {', '.join(names)}")
    return found


def collect(names: list[str], path: Path, measure: Callable[[str], Result] = measure_program) -> list[Result]:
    """Measures the programs that the file lacks, and returns the results of all that could be measured."""
    path.parent.mkdir(parents=True, exist_ok=True)
    known = {result.name: result for result in map(_from_json, path.read_text().splitlines())} if path.exists() else {}
    with click.progressbar([name for name in names if name not in known], item_show_func=lambda n: n or "") as shown:
        for name in shown:
            try:
                known[name] = measure(name)
            except (HloomError, RuntimeError) as error:
                click.secho(f"\n{name}: {error}", fg="red", err=True)
                continue
            with path.open("a") as file:
                print(json.dumps(asdict(known[name])), file=file)
    if not known.keys() & set(names):
        raise click.ClickException("no program was measured")
    return [known[name] for name in names if name in known]


def _from_json(text: str) -> Result:
    fields = json.loads(text)
    return Result(**{**fields, "hloom": Side(**fields["hloom"]), "xla": Side(**fields["xla"])})
