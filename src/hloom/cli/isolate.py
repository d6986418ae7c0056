"""`hloom isolate`: instructions of a module as a module of their own."""

from __future__ import annotations

import sys

import click

from hloom.cli.arguments import load_case, save_case, with_arguments
from hloom.errors import HloomError


@click.command()
@click.argument("module", type=click.Path())
@click.argument("names", nargs=-1, required=True)
@with_arguments
@click.option("--occurrence", type=click.IntRange(1), default=1, show_default=True, help="Which run of a loop's body.")
@click.option("--output", type=click.Path(), help="Write it there; .pb holds the inputs too. By default text is shown.")
def isolate(
    module: str, names: tuple[str, ...], inputs: str | None, seed: int | None, occurrence: int, output: str | None
) -> None:
    """Cut the instructions NAMES (`fusion.*`) out of MODULE: what they read becomes parameters.

    With inputs, a file OUTPUT.pb is a snapshot: it holds the values that the instructions read in a run.
    """
    from hloom.faults.isolate import isolate as extract

    try:
        case = load_case(module, inputs, seed, needed=False)
        found = extract(case.module, names, case.arguments, occurrence)
        if output is None:
            click.echo(found.module.to_text(), nl=False)
        else:
            save_case(found, output)
    except HloomError as error:
        click.secho(f"error: {error}", err=True, fg="red")
        sys.exit(1)
