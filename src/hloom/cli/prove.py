"""`hloom prove`: proves that two modules compute the same, or finds arguments on which they differ."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from hloom.cli.arguments import load_module, save_case
from hloom.cli.examples import examples
from hloom.cli.progress import progress
from hloom.errors import ArgumentError
from hloom.ir import Module
from hloom.text import print_module

if TYPE_CHECKING:
    from hloom.faults import Case
    from hloom.passes import Pass, Pipeline
    from hloom.prove import Proved, Verdict

DIFFERENT, UNDECIDED = 1, 3
"""Exit statuses for a counterexample, and for neither that nor a proof."""
XLA_TRIALS = 1000
"""Arguments that are tried on XLA's code of small modules."""


@click.command(
    epilog=examples(
        "hloom prove before.hlo after.hlo",
        "hloom prove module.hlo --xla",
        "hloom prove sharded.hlo --partitions 4",
    )
)
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
    module = load_module(before)
    if partitions is not None:
        sys.exit(_report(module, lambda: _proved_partitioned(module, partitions, seconds), output))
    if after is None:
        sys.exit(_report(module, lambda: _compared_with_xla(module, seconds), output))
    sys.exit(report_proof(module, load_module(after), seconds, output))


def _proved_partitioned(module: Module, partitions: int, seconds: float) -> Verdict:
    from hloom.prove import prove_partitioned

    return prove_partitioned(module, partitions, seconds)


def _compared_with_xla(module: Module, seconds: float) -> Verdict:
    """Compares a module with the one that XLA makes of it, and then with the machine code that XLA makes of that."""
    from hloom.bench.peer import Peer, has_peer
    from hloom.files.arrays import flat
    from hloom.prove import Refuted, prove
    from hloom.prove.sizes import work
    from hloom.prove.trials import TRIALS, tried
    from hloom.prove.validation import MAX_WORK

    if not has_peer():
        raise ArgumentError("--xla needs XLA's compiler: pip install jax")
    peer = Peer()
    executable = peer.compile(peer.translate(module))
    verdict = prove(module, executable.module, seconds)
    if isinstance(verdict, Refuted):
        return verdict
    count = XLA_TRIALS if work(module) <= MAX_WORK else TRIALS
    found = tried(module, lambda arguments: tuple(executable.arrays(peer.put(flat(tuple(arguments))))), count)
    if found is None:
        return verdict
    return Refuted(*found[:3], difference=f"of XLA's machine code, not that of its optimised module, {found[3]}")


def report_proof(
    before: Module,
    after: Module,
    seconds: float = 60.0,
    output: str | None = None,
    passes: Pass | Pipeline | None = None,
) -> int:
    """Decides whether two modules have equal results, prints the verdict on standard error, and returns the status.

    A counterexample is written to the file `output`, and shows which of the `passes` that made `after` is wrong. Raises
    ArgumentError without z3.
    """

    def decide() -> Verdict:
        from hloom.prove import prove

        return prove(before, after, seconds)

    return _report(before, decide, output, passes)


def _report(
    before: Module, decide: Callable[[], Verdict], output: str | None, passes: Pass | Pipeline | None = None
) -> int:
    try:
        from hloom.prove import Proved, Refuted
    except ModuleNotFoundError:
        raise ArgumentError("proofs need z3: pip install 'hloom[prove]'") from None
    from hloom.faults.case import Case

    with progress("proving"):
        verdict = decide()
    if isinstance(verdict, Proved):
        click.secho(f"proved: the results are equal for all arguments{_limits(verdict)}", err=True, fg="green")
        return 0
    if not isinstance(verdict, Refuted):
        click.secho(f"not decided: {verdict.reason}", err=True, fg="yellow")
        return UNDECIDED
    click.secho(f"refuted: the result {verdict.difference}", err=True, fg="red")
    for parameter, value in zip(before.entry.parameters, verdict.arguments, strict=True):
        click.echo(f"  %{parameter.name} = {value}", err=True)
    case = Case(before, verdict.arguments)
    if output is not None:
        save_case(case, output)
    if passes is not None:
        _name_pass(case, passes)
    return DIFFERENT


def _name_pass(case: Case, passes: Pass | Pipeline) -> None:
    """Prints the first pass after which the result on the arguments of a counterexample is another one."""
    from hloom.faults import first_faulty_pass
    from hloom.prove.trials import SameBits

    with progress("looking for the pass that is wrong"):
        found = first_faulty_pass(case, passes, SameBits())
    if found is not None:
        click.secho(f"  by run {found.run} of the passes, {found.name}, of", err=True)
        click.echo(print_module(found.before.module, short=True), err=True)


def _limits(proof: Proved) -> str:
    """Describes what a proof leaves out."""
    from hloom.prove.validation import sizes_text

    order = f", up to what is open by {', '.join(proof.clauses)}" if proof.clauses else ""
    return f"{order}, with sizes {sizes_text(proof.sizes)}" if proof.sizes else order
