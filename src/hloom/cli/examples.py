"""Examples of the commands, which end their help."""

from __future__ import annotations


def examples(*lines: str) -> str:
    """The epilog of a command: command lines, most with a comment."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)
