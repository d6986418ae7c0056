"""`hloom operations`: documents operations, including those of plugins."""

from __future__ import annotations

import re
import sys
import textwrap

import click

from hloom.cli.examples import examples
from hloom.cli.output import terminal

INDENT = 29


@click.command(
    epilog=examples(
        "hloom operations dot gather",
    )
)
@click.argument("opcodes", nargs=-1)
def operations(opcodes: tuple[str, ...]) -> None:
    """Show operands, semantics and attributes of the operations OPCODES; without any, list all."""
    from hloom.errors import ArgumentError
    from hloom.ops.operation import OPERATIONS
    from hloom.ops.plugins import load_installed, unknown_opcode
    from hloom.ops.reference import section

    load_installed()
    for opcode in opcodes:
        if opcode not in OPERATIONS:
            raise ArgumentError(unknown_opcode(opcode))
        _show(section(OPERATIONS[opcode]))
    if not opcodes:
        _list({opcode: declaration.__doc__ or "" for opcode, declaration in sorted(OPERATIONS.items())})


def _list(texts: dict[str, str]) -> None:
    """Lists opcodes with the first sentence about each, which wraps in a terminal."""
    width = terminal().width if sys.stdout.isatty() else 1000
    for opcode, text in texts.items():
        sentence = re.split(r"(?<=\.)\s", " ".join(text.split()))[0]
        first, *others = textwrap.wrap(sentence, max(20, width - INDENT))
        click.echo(f"{click.style(f'{opcode:{INDENT - 1}}', fg='cyan', bold=True)} {first}")
        for line in others:
            click.echo(" " * INDENT + line)


def _show(page: str) -> None:
    from rich.markdown import Markdown

    console = terminal()
    if console.is_terminal:
        console.print(Markdown(page))
    else:
        click.echo(page)
