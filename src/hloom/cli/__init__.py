"""The `hloom` command."""

from __future__ import annotations

import sys

import click

from hloom.cli.bench import bench
from hloom.cli.bisect import bisect
from hloom.cli.check import check
from hloom.cli.convert import convert
from hloom.cli.debug import debug
from hloom.cli.diff import diff
from hloom.cli.explore import explore
from hloom.cli.isolate import isolate
from hloom.cli.lsp import lsp
from hloom.cli.operations import operations
from hloom.cli.opt import opt
from hloom.cli.profile import profile
from hloom.cli.prove import prove
from hloom.cli.reduce import reduce
from hloom.cli.run import run
from hloom.cli.show import show


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="hloom")
@click.option(
    "--load", "files", multiple=True, type=click.Path(), help="A Python file with operations, passes or rules."
)
def main(files: tuple[str, ...]) -> None:
    """XLA, written to be read: run, optimise, convert and inspect HLO modules."""
    if files:
        _load(files)


def _load(files: tuple[str, ...]) -> None:
    from hloom.errors import HloomError
    from hloom.passes.plugins import load_extensions

    try:
        for file in files:
            load_extensions(file)
    except HloomError as error:
        click.secho(f"error: {error}", err=True, fg="red")
        sys.exit(1)


COMMANDS = (
    bench, bisect, check, convert, debug, diff, explore, isolate, lsp, operations, opt, profile, prove,
    reduce, run, show
)  # fmt: skip
for command in COMMANDS:
    main.add_command(command)
