"""`hloom operations`: documents operations, including those of plugins."""

from __future__ import annotations

import sys

import click

from hloom.cli.examples import examples


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
    for opcode, declaration in sorted(OPERATIONS.items()) if not opcodes else ():
        meaning = (declaration.__doc__ or "").strip().split("\n")[0]
        click.echo(f"{opcode:28} {meaning}")


def _show(page: str) -> None:
    if not sys.stdout.isatty():
        click.echo(page)
        return
    from rich.console import Console
    from rich.markdown import Markdown

    Console().print(Markdown(page))
