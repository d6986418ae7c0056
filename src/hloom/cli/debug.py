"""`hloom debug`: runs a module step by step."""

from __future__ import annotations

import click

from hloom.cli.arguments import load_case, with_arguments
from hloom.cli.examples import examples


@click.command(
    epilog=examples(
        "hloom debug module.hlo --random 0 --break 'dot*'",
    )
)
@click.argument("module", type=click.Path())
@with_arguments
@click.option(
    "--break", "breakpoints", multiple=True, metavar="NAME", help="Set a breakpoint and run to the first one."
)
def debug(module: str, inputs: str | None, seed: int | None, breakpoints: tuple[str, ...]) -> None:
    """Debug MODULE on the interpreter, with the commands step, print, break, watch; `help` lists all.

    Breakpoints are names or opcodes, optionally with a condition on the value:
    break dot* if np.abs(value).max() > 1e3
    """
    from hloom.faults.debugger import Debugger

    debugger = Debugger(load_case(module, inputs, seed))
    for text in breakpoints:
        debugger.do_break(text)
    if debugger.breakpoints:
        debugger.do_continue("")
    debugger.run()
