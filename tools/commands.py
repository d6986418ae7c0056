"""The reference of the `hloom` command, made from the commands themselves: docs/commands.md, which `tools/reference.py`
writes, or a manual page: `python tools/commands.py > hloom.1`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import click

import hloom as hl
from hloom.cli import main

TARGET = Path(__file__).parents[1] / "docs" / "commands.md"

INTRODUCTION = """# Commands

Every command of `hloom`, made from the commands themselves by `python tools/reference.py`; `hloom COMMAND --help` shows
the same. A module is a file of HLO text, StableHLO text or bytecode, a proto or a snapshot: its content says which.

| exit status | |
|---|---|
| 0 | the command succeeded; results, modules or programs are the same, nothing was found |
| 1 | they differ, or a fault was found |
| 2 | an error: of the command line, of a file, or of the module |
| 130 | Ctrl-C |

Results are the same within a tolerance that follows from the element types in which a module computes and from the
lengths of its sums. Where they exceed it, the module runs in double precision on the interpreter, and a result is wrong
if its error is more than 8 times that of the other. `--rtol` and `--atol` give a tolerance instead.

`prove` has a fourth, 3, if neither a proof nor a counterexample was found in time.

Environment variables, which programs that import hloom read too:

| variable | |
|---|---|
| `HLOOM_NUM_THREADS` | threads of compiled programs; by default the process's CPUs, or its share among ranks |
| `HLOOM_CACHE_DIR` | the folder of compiled programs; empty for no cache |
| `HLOOM_DUMP` | a folder for every stage of compilations: HLO after each pass, loop nests, LLVM IR, times |
| `HLOOM_VERIFY` | 1 verifies the module after every pass, and the functions that are emitted |
| `HLOOM_TARGET_CPU` | `native`, or an x86-64 level (`x86-64-v2`, `-v3`, `-v4`) to make code for |
| `HLOOM_NUM_DEVICES` | virtual devices of the JAX platform |
| `HLOOM_BATCH_INVARIANT` | 1 for the same bits in every batch ([determinism](determinism.md)) |
| `NO_COLOR` | any value: no colours |

Shells complete commands and options after

    eval "$(_HLOOM_COMPLETE=bash_source hloom)"         # in ~/.bashrc; zsh_source for zsh
    _HLOOM_COMPLETE=fish_source hloom | source          # in ~/.config/fish/config.fish

and `python tools/commands.py > hloom.1` writes a manual page.
"""


def commands() -> Iterator[tuple[str, click.Command]]:
    """Yields `hloom` and its commands, by full name."""
    yield "hloom", main
    for name, command in sorted(main.commands.items()):
        yield f"hloom {name}", command


def reference() -> str:
    """Returns the text of the page."""
    return INTRODUCTION + "".join(f"\n{section(name, command)}" for name, command in commands())


def section(name: str, command: click.Command) -> str:
    """Returns the section of a command: usage, help, options and examples."""
    context = click.Context(command, info_name=name)
    usage = " ".join([name, *command.collect_usage_pieces(context)])
    rows = [f"| `{left}` | {_escaped(right)} |" for left, right in options(command, context)]
    parts = [f"## {name}\n", f"    {usage}\n", _text(command), ""]
    if isinstance(command, click.Group):
        firsts = {child: _text(each).split("\n\n")[0].replace("\n", " ") for child, each in command.commands.items()}
        listed = [f"| [`{child}`](#hloom-{child}) | {_escaped(first)} |" for child, first in sorted(firsts.items())]
        parts += ["| command | |", "|---|---|", *listed, ""]
    parts += ["| option | |", "|---|---|", *rows, ""] if rows else []
    shown = examples(command)
    parts += [*(f"    {line}" for line in shown), ""] if shown else []
    return "\n".join(parts)


def options(command: click.Command, context: click.Context) -> Iterator[tuple[str, str]]:
    """Yields the options of a command with their documentation, but for --help."""
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context) if isinstance(parameter, click.Option) else None
        if record is not None and "--help" not in parameter.opts:
            yield record


def examples(command: click.Command) -> list[str]:
    """The command lines that end the help of a command."""
    return [line.strip() for line in (command.epilog or "").split("\n")[2:]]


def _text(command: click.Command) -> str:
    return inspect.cleandoc(command.help or "").replace("\b\n", "")


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")


def manual() -> str:
    """Returns the manual page, in the man macros of roff."""
    lines = [f'.TH HLOOM 1 "" "hloom {hl.__version__}"', ".SH NAME", "hloom \\- XLA, written to be read"]
    lines += [".SH SYNOPSIS", ".B hloom", "[\\fIOPTIONS\\fR] \\fICOMMAND\\fR [\\fIARGUMENTS\\fR]"]
    for name, command in commands():
        context = click.Context(command, info_name=name)
        lines += [f".SH {name.upper()}", _roff(_text(command))]
        for left, right in options(command, context):
            lines += [".TP", f".B {_roff(left)}", _roff(right)]
        if shown := examples(command):
            lines += [".PP", ".nf", *map(_roff, shown), ".fi"]
    return "\n".join([*lines, ""])


def _roff(text: str) -> str:
    escaped = text.replace("\\", "\\e").replace("-", "\\-").replace("\n\n", "\n.PP\n")
    return re.sub(r"(?m)^'", "\\&'", escaped)


if __name__ == "__main__":
    print(manual(), end="")
