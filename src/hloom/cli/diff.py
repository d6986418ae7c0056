"""`hloom diff`: compares two modules, or a module before and after passes."""

from __future__ import annotations

import sys

import click

from hloom.cli.arguments import load_module
from hloom.cli.examples import examples
from hloom.cli.pipelines import pipeline_named
from hloom.cli.progress import progress
from hloom.errors import ArgumentError


@click.command(
    epilog=examples(
        "hloom diff before.hlo after.hlo",
        "hloom diff module.hlo --passes cpu",
    )
)
@click.argument("module", type=click.Path())
@click.argument("other", type=click.Path(), required=False)
@click.option("--passes", metavar="LIST", help="Compare with the result of these passes rather than OTHER.")
def diff(module: str, other: str | None, passes: str | None) -> None:
    """Show the instructions of MODULE that OTHER lacks, and vice versa, regardless of names and order.

    The exit status is 0 if the modules are equal as graphs, 1 if not, 2 for errors.
    """
    from hloom.faults.graph_diff import diff as compare
    from hloom.faults.graph_diff import diff_lines
    from hloom.passes import clone_module, run_passes

    if (other is None) == (passes is None):
        raise ArgumentError("give another module or --passes")
    before = load_module(module)
    if passes is None:
        assert other is not None
        after = load_module(other)
    else:
        after, pipeline = clone_module(before), pipeline_named(passes)
        with progress("running passes"):
            run_passes(after, pipeline)
    with progress("comparing"):
        lines = diff_lines(compare(before, after))
    for line in lines:
        color = {"-": "red", "+": "green"}.get(line[0])
        click.secho(line, fg=color, bold=color is None)
    if not lines:
        click.echo("the same")
    sys.exit(1 if lines else 0)
