"""`hloom bisect`: finds the first differing instruction, or the faulty pass."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from hloom.cli.arguments import given_tolerance, load_case, load_module, save_case, with_arguments, with_tolerance
from hloom.cli.examples import examples
from hloom.cli.pipelines import pipeline_named
from hloom.cli.progress import progress, reduction_progress
from hloom.cli.runners import runners_named

if TYPE_CHECKING:
    from hloom.comparison import Tolerance
    from hloom.faults.case import Case


@click.command(
    epilog=examples(
        "hloom bisect module.hlo --random 0                       # the first wrong instruction",
        "hloom bisect module.hlo --random 0 --passes cpu          # the first wrong pass, with a small module",
        "hloom bisect module.hlo --random 0 --between cpu,xla     # beside XLA's CPU backend",
    )
)
@click.argument("module", type=click.Path())
@click.argument("other", type=click.Path(), required=False)
@with_arguments
@click.option(
    "--between",
    default="cpu,interpreter",
    show_default=True,
    metavar="A,B",
    help="Two of the backends cpu, interpreter, xla.",
)
@click.option("--passes", metavar="LIST", help="Find the pass of this list that changes the result; `cpu` means all.")
@with_tolerance
@click.option("--output", type=click.Path(), help="Write the smallest module that differs; .pb includes its inputs.")
def bisect(
    module: str,
    other: str | None,
    inputs: str | None,
    seed: int | None,
    between: str,
    passes: str | None,
    rtol: float | None,
    atol: float | None,
    output: str | None,
) -> None:
    """Find the first difference between two backends, between a pass's input and output (--passes), or between MODULE
    and OTHER.

    The exit status is 0 if nothing differs, 1 if a difference was found, 2 for errors.
    """
    tolerance = given_tolerance(rtol, atol)
    found: Case | tuple[str, str] | None
    case = load_case(module, inputs, seed)
    if other is not None:
        found = _modules(case, other, tolerance)
    elif passes is not None:
        found = _passes(case, passes, tolerance)
    else:
        found = _backends(case, between, tolerance)
    if output is not None and found is not None and not isinstance(found, tuple):
        save_case(found, output)
    if found is None:
        click.echo("no difference")
    sys.exit(0 if found is None else 1)


def _modules(case: Case, path: str, tolerance: Tolerance | None) -> tuple[str, str] | None:
    from hloom.faults.bisect import first_difference_of_modules

    other = load_module(path)
    with progress("interpreting both modules"):
        found = first_difference_of_modules(case, other, tolerance)
    if found is not None:
        click.secho(f"first difference: {found[0]}", bold=True)
        click.echo(f"{path} {found[1]}")
    return found


def _passes(case: Case, passes: str, tolerance: Tolerance | None) -> Case | None:
    from hloom.faults.bisect import first_faulty_pass

    with reduction_progress("running passes") as accept:
        found = first_faulty_pass(case, pipeline_named(passes), tolerance, accept)
    if found is None:
        return None
    click.secho(f"pass {found.name}, run {found.run} of a pass: {found.message}", bold=True)
    click.echo(f"before:\n{found.before.module.to_text(short=True)}\nafter:\n{found.after.to_text(short=True)}")
    return found.before


def _backends(case: Case, between: str, tolerance: Tolerance | None) -> Case | None:
    from hloom.faults.bisect import first_difference

    names, (left, right) = runners_named("--between", between)
    with reduction_progress(f"running {names[0]} and {names[1]}") as accept:
        found = first_difference(case, left, right, tolerance, accept)
    if found is None:
        return None
    smallest, message = found
    click.secho(f"first difference: %{smallest.module.entry.root.name}: {names[0]} {message} by {names[1]}", bold=True)
    click.echo(smallest.module.to_text(short=True), nl=False)
    return smallest
