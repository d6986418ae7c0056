"""Output of the commands: tables that are never truncated, coloured HLO text, JSON, and files."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hloom.errors import ArgumentError
from hloom.types import PrimitiveType

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

TOKENS = re.compile(
    r'(?P<green>"(?:[^"\\]|\\.)*")'
    r"|(?P<bright_black>/\*.*?\*/|//.*)"
    rf"|(?P<cyan>\b(?:{'|'.join(str(kind) for kind in PrimitiveType)})\[[^\]]*\](?:\{{[^}}]*\}})?)"
    r"|(?P<magenta>^HloModule\b|^ENTRY\b|\bROOT\b)"
    r"|(?P<yellow>(?<= )[a-z][a-z0-9-]*(?=\())"
    r"|(?P<blue>\b[a-z_]+(?==))",
    re.MULTILINE,
)
"""Parts of HLO text by their colour: strings, comments, shapes, keywords, opcodes and attributes."""

NAME_WIDTH = 14
"""Characters of a name before it wraps, at least."""


def terminal(**options: Any) -> Console:
    """A console without markup, since names of a module may look like markup of rich."""
    from rich.console import Console

    return Console(markup=False, emoji=False, **options)


def print_table(console: Console, table: Table) -> None:
    """Prints a table without truncating cells.

    In a terminal that is too narrow, names wrap inside their columns, and numbers do not; where even that is too wide,
    and in files, the table has its full width.
    """
    from rich.measure import Measurement

    least = 1
    for column in table.columns:
        is_number = column.justify == "right"
        column.no_wrap, column.overflow = is_number, "fold"
        least += 3 + (max(len(str(cell)) for cell in (column.header, *column.cells)) if is_number else NAME_WIDTH)
    if not console.is_terminal or least > console.width:
        wide = console.options.update(max_width=1000)
        console.width = max(console.width, Measurement.get(console, wide, table).maximum)
    console.print(table)


def echo_hlo(text: str) -> None:
    """Prints HLO text, coloured on a terminal."""
    click.echo(TOKENS.sub(lambda match: click.style(match[0], fg=match.lastgroup), text), nl=False)


def with_json(command: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator that adds the option --json; `write_json` writes to its value."""
    path = click.Path(path_type=Path, allow_dash=True)
    return click.option("--json", "json_path", type=path, help="Write all figures to this file, - is standard output.")(
        command
    )


def write_json(path: Path, value: object) -> None:
    """Writes a value as JSON to a file, or to standard output for `-`. Raises ArgumentError if that fails."""
    text = json.dumps(value, indent=1) + "\n"
    if str(path) == "-":
        click.echo(text, nl=False)
    else:
        write_text(path, text)


def write_text(path: Path, text: str) -> None:
    """Writes a text file. Raises ArgumentError if it cannot be written."""
    try:
        path.write_text(text, "utf-8")
    except OSError as error:
        raise ArgumentError(f"cannot write {path}: {error.strerror}") from None
