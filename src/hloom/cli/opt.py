"""`hloom opt`: runs passes on a module and prints the result, or a later stage of its compilation."""

from __future__ import annotations

import sys

import click

from hloom.api import load, prepare
from hloom.cli.examples import examples
from hloom.cli.output import echo_hlo
from hloom.cli.pipelines import STAGES, pipeline_named, stage_text
from hloom.cli.progress import progress
from hloom.cli.prove import report_proof
from hloom.text import print_module
from hloom.verifier import verify_module


@click.command(
    epilog=examples(
        "hloom opt module.hlo --passes simplification     # the module after some passes",
        "hloom opt module.hlo --stage llvm                # or loops, asm",
        "hloom opt module.hlo --passes cpu --prove        # the pass that is wrong, if there is one",
        "hloom --load mine.py opt module.hlo --passes mine",
    )
)
@click.argument("module", type=click.Path(), required=False)
@click.option(
    "--passes",
    metavar="LIST",
    help="name{field=value,..},.. or cpu for all passes of the backend. Default: simplification; none with --stage.",
)
@click.option("--stage", type=click.Choice(STAGES), default="hlo", help="Print this stage of the compilation.")
@click.option("--verify", is_flag=True, help="Verify the module after each pass that changed it (HLOOM_VERIFY=1).")
@click.option("--prove", is_flag=True, help="Prove that the results are unchanged, for all arguments (hloom prove).")
@click.option("--dump", type=click.Path(), help="Write the module after each such pass to this folder (HLOOM_DUMP).")
@click.option(
    "--statistics",
    is_flag=True,
    help="Print changes and time of each pass on standard error.",
)
@click.option("--short", is_flag=True, help="Print without layouts, metadata and long constants.")
@click.option("--list", "only_list", is_flag=True, help="List the passes and their documentation.")
def opt(
    module: str | None,
    passes: str | None,
    stage: str,
    verify: bool,
    prove: bool,
    dump: str | None,
    statistics: bool,
    short: bool,
    only_list: bool,
) -> None:
    """Run passes on MODULE (HLO text, StableHLO or a proto) and print it as HLO text."""
    from hloom.passes import clone_module, run_passes, statistics_text

    if module is None and not only_list:
        raise click.UsageError("give a MODULE, or --list")
    if module is None or only_list:
        _list()
        return
    pipeline = pipeline_named(passes if passes is not None else "simplification" if stage == "hlo" else "")
    with progress("reading") as activity:
        loaded = load(module)
        verify_module(loaded)
        given = clone_module(loaded) if prove else loaded
        runs = run_passes(
            loaded, pipeline, verify=verify or None, dump=dump, before=lambda step: activity(f"running {step.name}")
        )
        activity(f"making {stage}")
        text = print_module(loaded, short=short) if stage == "hlo" else stage_text(prepare(loaded), stage)
    echo_hlo(text) if stage == "hlo" else click.echo(text, nl=False)
    if statistics:
        click.echo(statistics_text(runs), err=True)
    status = report_proof(given, loaded, passes=pipeline) if prove else 0
    sys.exit(status)


def _list() -> None:
    from hloom.backends.cpu.pipeline import targeted_passes
    from hloom.passes import PASSES, PIPELINES
    from hloom.passes.plugins import installed
    from hloom.passes.rewrite import Rule

    for name, cls in {**PASSES, **targeted_passes()}.items():
        click.echo(f"{name}\n    {(cls.__doc__ or '').strip()}\n")
    for name, found in installed().items():
        click.echo(f"{name}\n    {(found.why if isinstance(found, Rule) else found.__doc__ or '').strip()}\n")
    for name, make in PIPELINES.items():
        click.echo(f"{name}\n    {(make.__doc__ or '').strip()}\n")
