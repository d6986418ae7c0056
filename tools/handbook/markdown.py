"""Markdown of generated pages: escaping, tables, code that fits."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence

WIDTH = 58
"""Characters in a line of HLO and StableHLO, two of which stand side by side."""


def escaped(text: str) -> str:
    """Escapes what Markdown would take for emphasis, links or HTML, outside code and tables."""
    parts = re.split(r"(`[^`]*`|^ *\|.*|^ {6}.*)", text, flags=re.MULTILINE)
    return "".join(part if k % 2 else re.sub(r"([\[\]*<])", r"\\\1", part) for k, part in enumerate(parts))


def cell(text: str) -> str:
    """Returns a text for a table: on one line, with `|` escaped."""
    return " ".join(text.replace("|", "\\|").split())


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Returns a table; columns that are empty in all rows are left out. "" if there are no rows."""
    rows = [[cell(each) for each in row] for row in rows]
    kept = [k for k in range(len(head)) if any(row[k] for row in rows)]
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line[k] for k in kept) + " |" for line in lines) + "\n" if rows else ""


def code(language: str, text: str) -> str:
    """Returns a block of code."""
    return f"```{language}\n{text.rstrip()}\n```\n"


def columns(*blocks: str) -> str:
    """Returns blocks side by side, below one another where the window is narrow."""
    inner = "\n\n</div><div>\n\n".join(blocks)
    return f'<div class="columns"><div>\n\n{inner}\n\n</div></div>\n'


def wrapped(text: str, width: int = WIDTH) -> str:
    """Wraps long lines of HLO or MLIR after commas and before braces, where both languages allow it."""
    return "\n".join(part for line in text.splitlines() for part in _wrapped_line(line, width))


def _wrapped_line(line: str, width: int) -> list[str]:
    indent = len(line) - len(line.lstrip()) + 4
    pieces = [piece for piece in re.split(r"(?<=, )(?![^\[\]]*\])|(?= : \()|(?= -> )|(?= <\{)", line) if piece]
    lines = [""]
    for piece in pieces:
        if lines[-1].strip() and len(lines[-1]) + len(piece.rstrip()) > width:
            lines.append(" " * indent + piece.lstrip())
        else:
            lines[-1] += piece
    return [each.rstrip() for each in lines]


def paragraph(text: str) -> str:
    """Returns a text on lines of up to 120 characters."""
    return "\n".join(textwrap.wrap(" ".join(text.split()), 120))
