"""`hloom profile`: profiles the kernels of a module."""

from __future__ import annotations

from pathlib import Path

import click

from hloom.cli.arguments import load_case, with_arguments
from hloom.cli.examples import examples
from hloom.cli.output import print_table, terminal, with_json, write_json
from hloom.cli.progress import progress


@click.command(
    epilog=examples(
        "hloom profile module.hlo --random 0",
        "hloom profile module.hlo --random 0 --save p.svg --save p.json   # a plot, and a trace for Perfetto",
        "hloom profile module.hlo --random 0 --by scope                   # totals of a traced function's scopes",
        "hloom profile after.hlo --random 0 --before before.hlo           # what became slower or faster",
    )
)
@click.argument("module", type=click.Path())
@with_arguments
@click.option(
    "--seconds", type=click.FloatRange(0.0), default=0.5, show_default=True, help="Minimum duration of the measurement."
)
@click.option("--rows", type=click.IntRange(1), default=25, show_default=True, help="Number of kernels shown.")
@click.option("--by", metavar="scope|source|opcode", help="Show totals of scopes, source lines or opcodes.")
@click.option("--before", type=click.Path(), help="Compare with another module, run on the same arguments.")
@click.option(
    "--save", "paths", multiple=True, type=click.Path(), help="Save a plot (.svg, .png, .pdf) or a trace (.json)."
)
@with_json
def profile(
    module: str,
    inputs: str | None,
    seed: int | None,
    seconds: float,
    rows: int,
    by: str | None,
    before: str | None,
    paths: tuple[str, ...],
    json_path: Path | None,
) -> None:
    """Run MODULE with timers around each kernel; show its time, GB/s, GFLOP/s and share of the machine's limits.

    Times are medians over calls that the system did not interrupt, with half the distance of their quartiles. The limit
    is that of arithmetic, or of the cache or memory that holds arrays of the kernel's size. Traces are for Perfetto
    (ui.perfetto.dev) and chrome://tracing.
    """

    from hloom.profiler import profile as measure
    from hloom.profiler.report import as_json, summary, table, totals_table
    from hloom.profiler.totals import compare

    case = load_case(module, inputs, seed)
    earlier = None if before is None else load_case(before, inputs, seed).module
    with progress("compiling and running"):
        found = measure(case.module, *(case.arguments or ()), seconds=seconds)
    if earlier is not None:
        with progress(f"compiling and running {before}"):
            other = measure(earlier, *(case.arguments or ()), seconds=seconds)
        shown = compare(other, found)
    elif by is not None:
        shown = totals_table(found.totals(by), found, by, rows)
    else:
        shown = table(found, rows)
    if json_path is not None:
        write_json(json_path, as_json(found))
    if str(json_path) != "-":
        console = terminal(highlight=False)
        print_table(console, shown)
        console.print(summary(found), style="dim")
    for path in paths:
        found.save(path)
