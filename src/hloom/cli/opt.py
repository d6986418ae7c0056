"""`hloom opt`: runs passes over a module and prints the result as HLO text."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from hloom.api import load
from hloom.errors import HloomError
from hloom.text import print_module
from hloom.verifier import verify_module

if TYPE_CHECKING:
    pass


@click.command()
@click.argument("module", type=click.Path(), required=False)
@click.option("--passes", default="simplification", show_default=True, metavar="LIST", help="name{field=value,..},..")
@click.option("--verify", is_flag=True, help="Verify the module after each pass that changed it (HLOOM_VERIFY=1).")
@click.option("--dump", type=click.Path(), help="Write the module after each such pass into this folder (HLOOM_DUMP).")
@click.option(
    "--statistics",
    is_flag=True,
    help="Show what each pass did and took, on standard error.",
)
@click.option("--short", is_flag=True, help="Print without layouts, metadata and long constants.")
@click.option("--list", "only_list", is_flag=True, help="List the passes and what they do.")
def opt(
    module: str | None,
    passes: str,
    verify: bool,
    dump: str | None,
    statistics: bool,
    short: bool,
    only_list: bool,
) -> None:
    """Run passes over MODULE (HLO text, StableHLO or a proto) and print it as HLO text."""
    from hloom.passes import parse_passes, run_passes, statistics_text

    if only_list:
        _list()
        return
    if module is None:
        raise click.UsageError("give a MODULE, or --list")
    try:
        pipeline = parse_passes(passes)
        loaded = load(module)
        verify_module(loaded)
        runs = run_passes(loaded, pipeline, verify=verify or None, dump=dump)
        click.echo(print_module(loaded, short=short), nl=False)
        if statistics:
            click.echo(statistics_text(runs), err=True)
    except HloomError as error:
        click.secho(f"error: {error}", err=True, fg="red")
        sys.exit(1)


def _list() -> None:
    from hloom.passes import PASSES, PIPELINES

    for name, cls in PASSES.items():
        click.echo(f"{name}\n    {(cls.__doc__ or '').strip()}\n")
    for name, make in PIPELINES.items():
        click.echo(f"{name}\n    {(make.__doc__ or '').strip()}\n")
