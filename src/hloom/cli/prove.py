"""`hloom prove`: proves that two modules compute the same, or finds arguments on which they differ."""

from __future__ import annotations

import sys

import click

from hloom.api import load
from hloom.cli.arguments import save_case
from hloom.errors import HloomError


@click.command()
@click.argument("before", type=click.Path())
@click.argument("after", type=click.Path())
@click.option("--seconds", type=float, default=60.0, show_default=True, help="Time limit of the solver.")
@click.option("--output", type=click.Path(), help="Write BEFORE with the arguments of a counterexample (.pb).")
def prove(before: str, after: str, seconds: float, output: str | None) -> None:
    """Prove that BEFORE and AFTER have equal results for all arguments, with an SMT solver (hloom[prove]).

    The exit status is 0 if they are proved equal, 1 for a counterexample, 2 for errors, 3 if it is not decided.
    """
    try:
        from hloom.prove import Proved, Refuted, prove
    except ModuleNotFoundError:
        click.secho("error: proofs need z3: pip install 'hloom[prove]'", err=True, fg="red")
        sys.exit(2)
    from hloom.faults.case import Case

    try:
        modules = load(before), load(after)
        verdict = prove(*modules, seconds)
        if isinstance(verdict, Refuted) and output is not None:
            save_case(Case(modules[0], verdict.arguments), output)
    except HloomError as error:
        click.secho(f"error: {error}", err=True, fg="red")
        sys.exit(2)
    if isinstance(verdict, Proved):
        click.secho("proved: the results are equal for all arguments", fg="green")
    elif isinstance(verdict, Refuted):
        click.secho(f"refuted: {after} {verdict.difference}", fg="red")
        for parameter, value in zip(modules[0].entry.parameters, verdict.arguments, strict=True):
            click.echo(f"  %{parameter.name} = {value}")
        sys.exit(1)
    else:
        click.secho(f"not decided: {verdict.reason}", fg="yellow")
        sys.exit(3)
