"""`hloom explore`: shows a module on a page in the browser."""

from __future__ import annotations

from contextlib import suppress

import click

from hloom.cli.arguments import load_case, with_arguments
from hloom.cli.examples import examples
from hloom.cli.progress import progress


@click.command(
    epilog=examples(
        "hloom explore module.hlo --random 0                      # in the browser, with a run",
        "hloom explore module.hlo --random 0 --output page.html   # a file to share",
    )
)
@click.argument("module", type=click.Path())
@with_arguments
@click.option("--output", type=click.Path(), help="Write the page to this .html file instead of serving it.")
def explore(module: str, inputs: str | None, seed: int | None, output: str | None) -> None:
    """Explore MODULE in the browser: its graph, the effect of each pass, kernels down to assembly, and memory; with
    inputs, also a run.

    The page is served to this machine only, until Ctrl-C.
    """
    from hloom.explorer import explore as show

    case = load_case(module, inputs, seed, needed=False)
    with progress("compiling") as activity:
        server = show(case.module, *(case.arguments or ()), output=output, progress=activity)
    if server is not None:
        click.echo(f"{server.address} (Ctrl-C ends it)")
        with suppress(KeyboardInterrupt):
            server.wait()
