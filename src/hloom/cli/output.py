"""What commands put out: tables that are never cut, and files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from hloom.errors import ArgumentError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


def terminal(**options: Any) -> Console:
    """A console that shows text as it is: names of a module may look like rich's markup."""
    from rich.console import Console

    return Console(markup=False, emoji=False, **options)


def print_table(console: Console, table: Table) -> None:
    """At the edge of a narrow terminal rows wrap, rather than being cut by rich."""
    from rich.measure import Measurement

    wanted = Measurement.get(console, console.options.update(max_width=1000), table).maximum
    console.width = max(console.width, wanted)
    console.print(table)


def write_text(path: Path, text: str) -> None:
    """Raises: ArgumentError: the file cannot be written."""
    try:
        path.write_text(text)
    except OSError as error:
        raise ArgumentError(f"cannot write {path}: {error.strerror}") from None
