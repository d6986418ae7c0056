"""`hloom isolate`: extracts instructions of a module as a module."""

from __future__ import annotations

import click

from hloom.cli.arguments import load_case, save_case, with_arguments
from hloom.cli.examples import examples


@click.command(
    epilog=examples(
        "hloom isolate module.hlo 'fusion.12'",
        "hloom isolate module.hlo 'fusion.12' --random 0 --output part.hlo_snapshot.pb   # with its operands' values",
    )
)
@click.argument("module", type=click.Path())
@click.argument("names", nargs=-1, required=True)
@with_arguments
@click.option(
    "--occurrence",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Execution of the computation whose values are taken, from 1.",
)
@click.option(
    "--output",
    type=click.Path(),
    help="Write the module to this file; .pb includes inputs. By default its text is shown.",
)
def isolate(
    module: str, names: tuple[str, ...], inputs: str | None, seed: int | None, occurrence: int, output: str | None
) -> None:
    """Extract the instructions NAMES (`fusion.*`) from MODULE; their operands become parameters.

    With inputs, an output file .pb is a snapshot with the values of these operands in a run.
    """
    from hloom.faults.isolate import isolate as extract

    case = load_case(module, inputs, seed, needed=False)
    found = extract(case.module, names, case.arguments, occurrence)
    if output is None:
        click.echo(found.module.to_text(), nl=False)
    else:
        save_case(found, output)
