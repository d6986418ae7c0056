"""`hloom prove`: proves that two modules compute the same, or finds arguments on which they differ."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from hloom.api import load
from hloom.cli.arguments import save_case
from hloom.errors import ArgumentError
from hloom.ir import Module

if TYPE_CHECKING:
    from hloom.prove import Verdict

DIFFERENT, UNDECIDED = 1, 3
"""Exit statuses for a counterexample, and for neither that nor a proof."""


@click.command()
@click.argument("before", type=click.Path())
@click.argument("after", type=click.Path(), required=False)
@click.option("--xla", is_flag=True, help="Compare BEFORE with the module that XLA's CPU compiler makes of it.")
@click.option("--partitions", type=click.IntRange(min=1), help="Compare BEFORE with its program for N partitions.")
@click.option("--seconds", type=float, default=60.0, show_default=True, help="Time limit of the solver.")
@click.option("--output", type=click.Path(), help="Write BEFORE with the arguments of a counterexample (.pb).")
def prove(
    before: str, after: str | None, xla: bool, partitions: int | None, seconds: float, output: str | None
) -> None:
    """Prove that BEFORE and AFTER have equal results for all arguments, with an SMT solver (hloom[prove]).

    With --partitions N the blocks of N partitions, as the shardings of BEFORE say, are put together.

    The exit status is 0 if they are proved equal, 1 for a counterexample, 2 for errors, 3 if it is not decided.
    """
    if xla + (after is not None) + (partitions is not None) != 1:
        raise click.UsageError("give a module AFTER, or --xla, or --partitions")
    module = load(before)
    if partitions is not None:
        sys.exit(_report(module, lambda: _proved_partitioned(module, partitions, seconds), output))
    other = load(after) if after is not None else _optimised_by_xla(module)
    sys.exit(report_proof(module, other, seconds, output))


def _proved_partitioned(module: Module, partitions: int, seconds: float) -> Verdict:
    from hloom.prove import prove_partitioned

    return prove_partitioned(module, partitions, seconds)


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

    def decide() -> Verdict:
        from hloom.prove import prove

        return prove(before, after, seconds)

    return _report(before, decide, output)


def _report(before: Module, decide: Callable[[], Verdict], output: str | None) -> int:
    try:
        from hloom.prove import Proved, Refuted
    except ModuleNotFoundError:
        raise ArgumentError("proofs need z3: pip install 'hloom[prove]'") from None
    from hloom.faults.case import Case

    verdict = decide()
    if isinstance(verdict, Proved):
        limits = f", up to what is open by {', '.join(verdict.clauses)}" if verdict.clauses else ""
        click.secho(f"proved: the results are equal for all arguments{limits}", err=True, fg="green")
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
