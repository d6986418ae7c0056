"""`hloom explore`: shows a module on a page in the browser."""

from __future__ import annotations

from contextlib import suppress

import click

from hloom.cli.arguments import load_case, load_module, with_arguments
from hloom.cli.examples import examples
from hloom.cli.progress import progress


@click.command(
    epilog=examples(
        "hloom explore module.hlo --random 0                      # in the browser, with a run",
        "hloom explore module.hlo --random 0 --output page.html   # a file to share",
        "hloom explore before.hlo --other after.hlo --random 0    # two modules side by side",
        "hloom explore module.hlo --data values.json              # coloured by your own values",
        "hloom explore dump/                                      # a folder that XLA dumped",
    )
)
@click.argument("module", type=click.Path())
@with_arguments
@click.option("--other", type=click.Path(), help="A module to compare with, run on the same inputs.")
@click.option("--data", type=click.Path(), help="JSON: numbers or texts by names of instructions, for their colours.")
@click.option("--output", type=click.Path(), help="Write the page to this .html file instead of serving it.")
def explore(
    module: str, inputs: str | None, seed: int | None, other: str | None, data: str | None, output: str | None
) -> None:
    """Explore MODULE in the browser: its graph, the effect of each pass, kernels down to assembly, and memory; with
    inputs, also a run.

    The page is served to this machine only, until Ctrl-C, and has an editor, in which HLO and StableHLO are checked and
    run as they are typed. It opens files that are dropped on it.
    """
    from hloom.explorer import explore as show

    case = load_case(module, inputs, seed, needed=False)
    compared = None if other is None else load_module(other)
    with progress("compiling") as activity:
        server = show(case.module, *(case.arguments or ()), other=compared, data=data, output=output, progress=activity)
    if server is not None:
        click.echo(f"{server.address} (Ctrl-C ends it)")
        with suppress(KeyboardInterrupt):
            server.wait()
