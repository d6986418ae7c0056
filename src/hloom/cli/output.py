"""Output of the commands: tables that are never truncated, and files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from hloom.errors import ArgumentError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


def terminal(**options: Any) -> Console:
    """A console without markup, since names of a module may look like markup of rich."""
    from rich.console import Console

    return Console(markup=False, emoji=False, **options)


def print_table(console: Console, table: Table) -> None:
    """Prints a table at its full width: in a narrow terminal, rows wrap rather than being truncated by rich."""
    from rich.measure import Measurement

    wanted = Measurement.get(console, console.options.update(max_width=1000), table).maximum
    console.width = max(console.width, wanted)
    console.print(table)


def write_text(path: Path, text: str) -> None:
    """Writes a text file. Raises ArgumentError if it cannot be written."""
    try:
        path.write_text(text)
    except OSError as error:
        raise ArgumentError(f"cannot write {path}: {error.strerror}") from None
