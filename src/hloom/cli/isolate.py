"""`hloom isolate`: extracts instructions of a module as a module."""

from __future__ import annotations

import click

from hloom.api import prepare
from hloom.cli.arguments import load_case, save_case, with_arguments
from hloom.cli.examples import examples
from hloom.cli.output import echo_hlo
from hloom.cli.pipelines import pipeline_named
from hloom.cli.progress import progress
from hloom.errors import ArgumentError
from hloom.ir import Module


@click.command(
    epilog=examples(
        "hloom isolate module.hlo dot.3 'add*'",
        "hloom isolate module.hlo fusion.12 --optimized --random 0 --output part.pb   # with its operands' values",
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
@click.option("--optimized", is_flag=True, help="Take them from the module after all passes, as profiles name them.")
@click.option(
    "--output",
    type=click.Path(),
    help="Write the module to this file; .pb includes inputs. By default its text is shown.",
)
def isolate(
    module: str,
    names: tuple[str, ...],
    inputs: str | None,
    seed: int | None,
    occurrence: int,
    optimized: bool,
    output: str | None,
) -> None:
    """Extract the instructions NAMES (`dot.3`, `add*`) from MODULE; their operands become parameters.

    With inputs, an output file .pb is a snapshot with the values of these operands in a run.
    """
    from hloom.faults.isolate import isolate as extract

    case = load_case(module, inputs, seed, needed=False)
    source = case.module
    if optimized:
        source = _optimized(source)
    elif not _has(source, names) and _has(_optimized(source), names):
        raise ArgumentError(f"{' and '.join(names)} is made by passes: add --optimized")
    with progress("interpreting the module"):
        found = extract(source, names, case.arguments, occurrence)
    if output is None:
        echo_hlo(found.module.to_text())
    else:
        save_case(found, output)


def _optimized(module: Module) -> Module:
    from hloom.passes import clone_module, run_passes

    work = clone_module(prepare(module))
    with progress("running passes"):
        run_passes(work, pipeline_named("cpu"))
    return work


def _has(module: Module, names: tuple[str, ...]) -> bool:
    return any(instruction.matches(name) for instruction in module.instructions() for name in names)
