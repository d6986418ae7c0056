"""`hloom reduce`: reduces a module that shows a fault to a minimal one."""

from __future__ import annotations

import shlex
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hloom.cli.arguments import load_case, save_case, with_arguments
from hloom.errors import ArgumentError

if TYPE_CHECKING:
    from hloom.faults.case import Case


@click.command()
@click.argument("module", type=click.Path())
@click.option(
    "--test",
    required=True,
    metavar="COMMAND",
    help="Shell command that succeeds if the module in file {} has the fault.",
)
@with_arguments
@click.option(
    "--timeout", type=float, default=60.0, show_default=True, help="Seconds after which a test counts as failed."
)
@click.option("--output", type=click.Path(), help="Write the module to this file; by default its text is shown.")
def reduce(module: str, test: str, inputs: str | None, seed: int | None, timeout: float, output: str | None) -> None:
    """Reduce MODULE to a minimal module for which the shell command --test still succeeds.

    `{}` in the command is the path of a file with HLO text. With inputs the file is a snapshot, which has the values of
    removed instructions as arguments. For example, to reduce a difference from the interpreter:

        hloom reduce m.hlo --random 0 --test 'hloom run {} --compare interpreter; test $? -eq 1'
    """
    from hloom.faults.reduce import reduce as reduce_case

    if "{}" not in test:
        raise ArgumentError("--test must contain {} where the module's path is to be inserted")
    case = load_case(module, inputs, seed, needed=False)
    with tempfile.TemporaryDirectory() as folder:
        run = _ShellTest(test, Path(folder), timeout)
        if not run(case):
            raise ArgumentError(f"the test does not succeed on {module} itself:\n{run.output}")
        found = reduce_case(case, run, show_progress)
    click.secho(f"{case.size} -> {found.size} instructions, {run.count} tests", err=True, dim=True)
    if output is None:
        click.echo(found.module.to_text(), nl=False)
    else:
        save_case(found, output)


class _ShellTest:
    """Runs the command on a case; `output` is the output of the last run."""

    def __init__(self, command: str, folder: Path, timeout: float) -> None:
        self.command, self.folder, self.timeout = command, folder, timeout
        self.count, self.output = 0, ""

    def __call__(self, case: Case) -> bool:
        self.count += 1
        path = self.folder / ("case.hlo" if case.arguments is None else "case.hlo_snapshot.pb")
        save_case(case, str(path))
        command = self.command.replace("{}", shlex.quote(str(path)))
        try:
            done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=self.timeout)
        except subprocess.TimeoutExpired:
            self.output = f"it took more than {self.timeout:g} s"
            return False
        self.output = done.stdout + done.stderr
        return done.returncode == 0


def show_progress(move: str, size: int) -> None:
    """Prints the accepted move and the remaining size on standard error."""
    click.secho(f"{size:6} instructions  {move}", err=True, dim=True)
