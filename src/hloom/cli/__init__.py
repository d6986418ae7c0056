"""The `hloom` command."""

from __future__ import annotations

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
from hloom.cli.opt import opt
from hloom.cli.profile import profile
from hloom.cli.reduce import reduce
from hloom.cli.run import run
from hloom.cli.show import show


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="hloom")
def main() -> None:
    """XLA, written to be read: run, simplify, convert and look into HLO modules."""


for command in (bench, bisect, check, convert, debug, diff, explore, isolate, lsp, opt, profile, reduce, run, show):
    main.add_command(command)
