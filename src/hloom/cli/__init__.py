"""The `hloom` command."""

from __future__ import annotations

import os
import traceback
from typing import Any

import click

from hloom.cli.bench import bench
from hloom.cli.bisect import bisect
from hloom.cli.build import build
from hloom.cli.check import check
from hloom.cli.convert import convert
from hloom.cli.debug import debug
from hloom.cli.diff import diff
from hloom.cli.explore import explore
from hloom.cli.fuzz import fuzz
from hloom.cli.isolate import isolate
from hloom.cli.lsp import lsp
from hloom.cli.operations import operations
from hloom.cli.opt import opt
from hloom.cli.pjrt_path import pjrt_path
from hloom.cli.profile import profile
from hloom.cli.prove import prove
from hloom.cli.reduce import reduce
from hloom.cli.run import run
from hloom.cli.show import show
from hloom.cli.warm import warm
from hloom.errors import HloomError, close_names

FAILED, INTERRUPTED = 2, 130
"""Exit statuses of errors and of Ctrl-C; commands return 1 themselves for a difference, or a fault that they find."""


class Commands(click.Group):
    """The commands of `hloom`; errors of hloom, and of the files of --load, are printed and end the process."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Finds the command that the first argument names. Raises UsageError, with close names, if there is none."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            hint = close_names(args[0], self.list_commands(ctx))
            raise click.UsageError(error.message.removesuffix(".") + hint, ctx) from None

    def invoke(self, ctx: click.Context) -> Any:
        """Invokes the command that the context names."""
        if os.environ.get("NO_COLOR"):
            ctx.color = False
        try:
            return super().invoke(ctx)
        except HloomError as error:
            click.secho(f"error: {error}", err=True, fg="red")
            ctx.exit(FAILED)
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)
        except Exception as error:
            lines = [line for line in traceback.extract_tb(error.__traceback__) if line.filename in ctx.params["files"]]
            if not lines:
                raise  # a defect of hloom
            text = "".join([*traceback.format_list(lines), *traceback.format_exception_only(error)])
            click.secho(f"error: an extension fails\n{text}", err=True, fg="red", nl=False)
            ctx.exit(FAILED)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(package_name="hloom")
@click.option(
    "--load", "files", multiple=True, type=click.Path(), help="A Python file with operations, passes or rules."
)
def main(files: tuple[str, ...]) -> None:
    """XLA, written to be read: run, optimise, convert and inspect HLO modules."""
    if files:
        from hloom.passes.plugins import load_extensions

        for file in files:
            load_extensions(file)


COMMANDS = (
    bench, bisect, build, check, convert, debug, diff, explore, fuzz, isolate, lsp, operations, opt, pjrt_path, profile,
    prove, reduce, run, show, warm
)  # fmt: skip
for command in COMMANDS:
    main.add_command(command)
