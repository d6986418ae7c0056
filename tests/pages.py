"""Pages of the documentation as programs: their code runs, and prints what they show."""

from __future__ import annotations

import contextlib
import doctest
import io
import re
import shlex
from pathlib import Path

from click.testing import CliRunner

from hloom.cli import main

FENCE = re.compile(r"```(python|text|console)\n(.*?)```", re.DOTALL)


def run_page(page: Path) -> int:
    """Runs the blocks of Python and the commands after `$` of a page; returns the number of blocks.

    A block of text after one of Python is what that prints; `...` in it stands for anything.
    """
    names: dict[str, object] = {"__name__": "page"}
    printed, count = "", 0
    for kind, block in FENCE.findall(page.read_text()):
        if kind == "python":
            output = io.StringIO()
            with contextlib.redirect_stdout(output):
                exec(compile(block, f"docs/{page.name}", "exec", dont_inherit=True), names)
            printed, count = output.getvalue(), count + 1
        elif kind == "text":
            check(block, printed)
        else:
            count += 1
            for command, shown in re.findall(r"^\$ hloom (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE):
                done = CliRunner().invoke(main, shlex.split(command), prog_name="hloom")
                check(shown, done.output)
    return count


def check(shown: str, printed: str) -> None:
    """Compares what a page shows with what is printed."""
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    assert doctest.OutputChecker().check_output(shown, printed, flags), f"shown:\n{shown}\nprinted:\n{printed}"
