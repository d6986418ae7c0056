"""`hloom prove`: proves that two modules compute the same, or finds arguments on which they differ."""

from __future__ import annotations

import sys

import click

from hloom.api import load
from hloom.cli.arguments import save_case
from hloom.errors import ArgumentError
from hloom.ir import Module

DIFFERENT, UNDECIDED = 1, 3
"""Exit statuses for a counterexample, and for neither that nor a proof."""


@click.command()
@click.argument("before", type=click.Path())
@click.argument("after", type=click.Path(), required=False)
@click.option("--xla", is_flag=True, help="Compare BEFORE with the module that XLA's CPU compiler makes of it.")
@click.option("--seconds", type=float, default=60.0, show_default=True, help="Time limit of the solver.")
@click.option("--output", type=click.Path(), help="Write BEFORE with the arguments of a counterexample (.pb).")
def prove(before: str, after: str | None, xla: bool, seconds: float, output: str | None) -> None:
    """Prove that BEFORE and AFTER have equal results for all arguments, with an SMT solver (hloom[prove]).

    The exit status is 0 if they are proved equal, 1 for a counterexample, 2 for errors, 3 if it is not decided.
    """
    if xla == (after is not None):
        raise click.UsageError("give a module AFTER, or --xla")
    module = load(before)
    other = load(after) if after is not None else _optimised_by_xla(module)
    status = report_proof(module, other, seconds, output)
    sys.exit(status)


def _optimised_by_xla(module: Module) -> Module:
    from hloom.bench.peer import Peer, has_peer

    if not has_peer():
        raise ArgumentError("--xla needs XLA's compiler: pip install jax")
    peer = Peer()
    return peer.compile(peer.translate(module)).module


def report_proof(before: Module, after: Module, seconds: float = 60.0, output: str | None = None) -> int:
    """Decides whether two modules have equal results, prints the verdict on standard error, and returns the status.

    A counterexample is written to the file `output`. Raises ArgumentError without z3.
    """
    try:
        from hloom.prove import Proved, Refuted, prove
    except ModuleNotFoundError:
        raise ArgumentError("proofs need z3: pip install 'hloom[prove]'") from None
    from hloom.faults.case import Case

    verdict = prove(before, after, seconds)
    if isinstance(verdict, Proved):
        click.secho("proved: the results are equal for all arguments", err=True, fg="green")
        return 0
    if not isinstance(verdict, Refuted):
        click.secho(f"not decided: {verdict.reason}", err=True, fg="yellow")
        return UNDECIDED
    click.secho(f"refuted: the result {verdict.difference}", err=True, fg="red")
    for parameter, value in zip(before.entry.parameters, verdict.arguments, strict=True):
        click.echo(f"  %{parameter.name} = {value}", err=True)
    if output is not None:
        save_case(Case(before, verdict.arguments), output)
    return DIFFERENT
