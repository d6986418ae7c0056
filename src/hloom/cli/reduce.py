"""`hloom reduce`: reduces a module that shows a fault to a minimal one."""

from __future__ import annotations

import shlex
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hloom.cli.arguments import given_tolerance, load_case, save_case, with_arguments, with_tolerance
from hloom.cli.examples import examples
from hloom.cli.progress import reduction_progress
from hloom.cli.runners import runners_named
from hloom.errors import ArgumentError
from hloom.system.records import record

if TYPE_CHECKING:
    from hloom.comparison import Tolerance
    from hloom.faults.case import Case


@record
class Fault:
    """Whether a case has a fault; and what the last case showed, for an error."""

    is_in: Callable[[Case], bool]
    seen: Callable[[], str] = str


@click.command(
    epilog=examples(
        "hloom reduce module.hlo --random 0 --differs cpu,interpreter   # native code beside the reference",
        "hloom reduce module.hlo --random 0 --nan                       # where a NaN arises",
        "hloom reduce module.hlo --random 0 --crash                     # compiling or running ends the process",
        "hloom reduce module.hlo --test 'mytool {} | grep -q message'   # any other fault",
    )
)
@click.argument("module", type=click.Path())
@click.option("--differs", metavar="A,B", help="The results of two of the backends cpu, interpreter, xla differ.")
@click.option("--nan", is_flag=True, help="An instruction produces a NaN from operands without one.")
@click.option("--crash", is_flag=True, help="Compiling or running crashes, hangs, or raises an internal error.")
@click.option("--test", metavar="COMMAND", help="A shell command succeeds for the module in file {}.")
@with_arguments
@with_tolerance
@click.option(
    "--timeout", type=float, default=60.0, show_default=True, help="Seconds after which a --test counts as failed."
)
@click.option("--output", type=click.Path(), help="Write the module to this file; by default its text is shown.")
def reduce(
    module: str,
    differs: str | None,
    nan: bool,
    crash: bool,
    test: str | None,
    inputs: str | None,
    seed: int | None,
    rtol: float | None,
    atol: float | None,
    timeout: float,
    output: str | None,
) -> None:
    """Reduce MODULE to a minimal module that still has a fault: --differs, --nan, --crash or --test says which one.

    With inputs, instructions that are removed become parameters with the values that they had. A shell command gets the
    path of a file with HLO text for `{}`; with inputs, of a snapshot.
    """
    from hloom.faults.reduce import reduce as reduce_case

    faults: dict[str, AbstractContextManager[Fault]] = {}
    if differs is not None:
        faults["--differs"] = _differ(differs, given_tolerance(rtol, atol))
    if nan:
        faults["--nan"] = nullcontext(Fault(_produces_nan))
    if crash:
        faults["--crash"] = _crash()
    if test is not None:
        faults["--test"] = _shell(test, timeout)
    if len(faults) != 1:
        raise click.UsageError("give one of --differs, --nan, --crash and --test")
    ((option, started),) = faults.items()
    case = load_case(module, inputs, seed, needed=option != "--test")
    with started as fault, reduction_progress("reducing") as accept:
        if not fault.is_in(case):
            raise ArgumentError(f"{module} does not have the fault of {option} to begin with{fault.seen()}")
        found = reduce_case(case, fault.is_in, accept)
    click.secho(f"{case.size} -> {found.size} instructions", err=True, dim=True)
    if output is None:
        click.echo(found.module.to_text(), nl=False)
    else:
        save_case(found, output)


def _differ(names: str, tolerance: Tolerance | None) -> AbstractContextManager[Fault]:
    from hloom.faults.bisect import describe_difference

    _, (left, right) = runners_named("--differs", names)
    return nullcontext(Fault(lambda case: describe_difference(case, left, right, tolerance) is not None))


def _produces_nan(case: Case) -> bool:
    from hloom.backends.interpreter.debug import StoppedError, stop_at
    from hloom.faults.case import interpret

    try:
        interpret(case.module, case.arguments or (), stop_at("nan"))
    except StoppedError:
        return True
    return False


@contextmanager
def _crash() -> Iterator[Fault]:
    """Cases run in a process of their own, which is started again after a crash."""
    from hloom.fuzz.runner import Failure, Runner

    runner = Runner({})

    def crashes(case: Case) -> bool:
        outcome = runner(case)
        return isinstance(outcome, Failure) and not outcome.is_refusal

    try:
        yield Fault(crashes)
    finally:
        runner.close()


@contextmanager
def _shell(command: str, timeout: float) -> Iterator[Fault]:
    if "{}" not in command:
        raise ArgumentError("--test must contain {} where the module's path is to be inserted")
    shown = [""]
    with tempfile.TemporaryDirectory() as folder:

        def succeeds(case: Case) -> bool:
            path = Path(folder) / ("case.hlo" if case.arguments is None else "case.hlo_snapshot.pb")
            save_case(case, str(path))
            words = command.replace("{}", shlex.quote(str(path)))
            try:
                done = subprocess.run(words, shell=True, capture_output=True, text=True, timeout=timeout)
            except subprocess.TimeoutExpired:
                shown[0] = f": it took more than {timeout:g} s"
                return False
            shown[0] = f":\n{done.stdout}{done.stderr}"
            return done.returncode == 0

        yield Fault(succeeds, lambda: shown[0])
