"""HLO text as HTML, for notebooks."""

from __future__ import annotations

import re
from html import escape

from hloom.ir import Module
from hloom.text.printer import print_module

MAX_LINES = 400
"""Maximum number of lines of a module in a notebook."""

_STYLES = {
    "keyword": "color:#8250df;font-weight:600",
    "shape": "color:#0a6b8a",
    "opcode": "color:#b3541e;font-weight:600",
    "attribute": "color:#6e7781",
}
_PARTS = re.compile(
    r"(?P<keyword>\b(?:HloModule|ENTRY|ROOT)\b)"
    r"|(?P<shape>\b(?:pred|token|bf16|[sufc]\d+\w*)\[[^\]]*\](?:\{[^}]*\})?)"
    r"|(?P<opcode>(?<== )[a-z][a-z0-9-]*(?=\()|(?<=\] )[a-z][a-z0-9-]*(?=\()|(?<=\} )[a-z][a-z0-9-]*(?=\())"
    r"|(?P<attribute>\b[a-z_]+(?==))"
)


def module_html(module: Module) -> str:
    """The short text of a module as coloured HTML; lines beyond MAX_LINES are omitted."""
    lines = print_module(module, short=True).split("\n")
    omitted = len(lines) - MAX_LINES
    text = highlighted("\n".join(lines[:MAX_LINES]))
    note = f"\n.. {omitted} more lines: print(module.to_text())" if omitted > 0 else ""
    return f"<details open><summary>{escape(repr(module))}</summary><pre>{text}{note}</pre></details>"


def highlighted(text: str) -> str:
    """HLO text as coloured HTML, to be put in a `pre` element."""
    return "\n".join(map(_line, text.split("\n")))


def _line(line: str) -> str:
    parts, end = [], 0
    for match in _PARTS.finditer(line):
        style = _STYLES[match.lastgroup or ""]
        parts += [escape(line[end : match.start()]), f'<span style="{style}">{escape(match[0])}</span>']
        end = match.end()
    return "".join([*parts, escape(line[end:])])
