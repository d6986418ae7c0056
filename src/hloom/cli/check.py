"""`hloom check`: native code with checks of every value."""

from __future__ import annotations

import sys

import click

from hloom.cli.arguments import load_case, with_arguments
from hloom.cli.examples import examples


@click.command(
    epilog=examples(
        "hloom check module.hlo --random 0                # the first NaN, or index out of bounds",
    )
)
@click.argument("module", type=click.Path())
@with_arguments
@click.option("--nan/--no-nan", default=True, show_default=True, help="Find the first NaN.")
@click.option("--inf/--no-inf", default=False, show_default=True, help="Find the first infinity.")
@click.option(
    "--bounds/--no-bounds", default=True, show_default=True, help="Find the first index that is clamped or skipped."
)
def check(module: str, inputs: str | None, seed: int | None, **kinds: bool) -> None:
    """Run MODULE as native code with checks; show the first instruction that fails and the position in its result.

    A NaN is attributed to the instruction that produces it from operands without one. The exit status is 0 if no check
    fails, else 1.
    """
    from hloom.faults.check import check as run_checks

    case = load_case(module, inputs, seed)
    found = run_checks(case.module, case.arguments or (), [kind for kind, wanted in kinds.items() if wanted])
    click.echo("nothing fails" if found is None else str(found))
    sys.exit(0 if found is None else 1)
