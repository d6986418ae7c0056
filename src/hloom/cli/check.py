"""`hloom check`: native code with checks of every value."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hloom.cli.arguments import load_case, with_arguments
from hloom.cli.examples import examples
from hloom.cli.output import with_json, write_json
from hloom.cli.progress import progress

if TYPE_CHECKING:
    from hloom.faults.check import Finding


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
@with_json
def check(module: str, inputs: str | None, seed: int | None, json_path: Path | None, **kinds: bool) -> None:
    """Run MODULE as native code with checks; show the first instruction that fails and the position in its result.

    A NaN is attributed to the instruction that produces it from operands without one. The exit status is 0 if no check
    fails, 1 if one does, 2 for errors.
    """
    from hloom.faults.check import check as run_checks

    case = load_case(module, inputs, seed)
    with progress("running with checks"):
        found = run_checks(case.module, case.arguments or (), [kind for kind, wanted in kinds.items() if wanted])
    if json_path is not None:
        write_json(json_path, None if found is None else _as_json(found))
    if str(json_path) != "-":
        click.echo("nothing fails" if found is None else str(found))
    sys.exit(0 if found is None else 1)


def _as_json(found: Finding) -> dict[str, object]:
    where = {"instruction": found.instruction.name, "opcode": found.instruction.opcode, "kind": found.kind}
    return {**where, "position": found.position, "value": found.value, "limits": found.limits, "text": str(found)}
