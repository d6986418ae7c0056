"""`hloom operations`: what hloom knows of operations, its own and those of others."""

from __future__ import annotations

import sys

import click


@click.command()
@click.argument("opcodes", nargs=-1)
def operations(opcodes: tuple[str, ...]) -> None:
    """Show operands, meaning and attributes of the operations OPCODES; without any, list all."""
    import difflib

    from hloom.ops.operation import OPERATIONS
    from hloom.ops.plugins import load_installed
    from hloom.ops.reference import section

    load_installed()
    for opcode in opcodes:
        if opcode not in OPERATIONS:
            close = ", ".join(difflib.get_close_matches(opcode, OPERATIONS, 3))
            click.secho(f"error: there is no opcode {opcode!r}; close are {close or 'none'}", err=True, fg="red")
            sys.exit(1)
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
