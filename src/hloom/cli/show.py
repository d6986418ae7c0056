"""`hloom show`: prints a module as HLO text."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import click

from hloom.api import load
from hloom.cli.cost import show_cost, show_counts
from hloom.cli.examples import examples
from hloom.cli.memory import show_memory
from hloom.cli.output import echo_hlo, with_json, write_json
from hloom.cli.progress import progress
from hloom.errors import ArgumentError
from hloom.ir import Module
from hloom.text import fingerprint, print_module


@click.command(
    epilog=examples(
        "hloom show module.pb --short                     # the format is found by the content",
        "hloom show module.hlo --cost --memory            # operations and bytes; live buffers at the peak",
        "hloom show sharded.hlo --cost --devices 256 --cluster cluster.toml --plot cost.svg",
    )
)
@click.argument("module", type=click.Path())
@click.option("--short", is_flag=True, help="Omit layouts, metadata and long constants.")
@click.option("--canonical", is_flag=True, help="Normalise names and order, as for the fingerprint.")
@click.option("--no-layouts", is_flag=True, help="Omit layouts.")
@click.option("--no-metadata", is_flag=True, help="Omit metadata.")
@click.option("--fingerprint", "only_fingerprint", is_flag=True, help="Show only the fingerprint of the module.")
@click.option("--memory", is_flag=True, help="Show the live values at the memory peak instead.")
@click.option("--cost", is_flag=True, help="Show operations and bytes instead; with --cluster, the time of a step.")
@click.option(
    "--devices",
    type=click.IntRange(1),
    help="Number of devices of the cluster; a module with shardings is partitioned.",
)
@click.option(
    "--cluster",
    type=click.Path(path_type=Path),
    help="TOML description of a cluster; hloom bench --collectives writes one.",
)
@click.option("--plot", "plot_path", type=click.Path(path_type=Path), help="Also plot the cost, as .svg or .png.")
@with_json
def show(
    module: str,
    memory: bool,
    cost: bool,
    devices: int | None,
    cluster: Path | None,
    plot_path: Path | None,
    json_path: Path | None,
    **text: bool,
) -> None:
    """Print MODULE (HLO text, StableHLO or a proto) as HLO text.

    With --json, the counts of its instructions, or the figures of --cost and --memory.
    """
    if (devices is not None or plot_path is not None) and (not cost or cluster is None):
        raise ArgumentError("--devices and --plot need a description of the devices: --cost --cluster FILE.toml")
    with progress("reading"):
        loaded = load(module)
    shown = str(json_path) != "-"
    figures: dict[str, object] = {}
    if cost and cluster is not None:
        figures["cost"] = show_cost(loaded, devices, cluster, plot_path, shown)
    elif cost:
        figures["cost"] = show_counts(loaded, shown)
    if memory:
        figures["memory"] = show_memory(loaded, shown)
    if json_path is not None:
        write_json(json_path, figures or _summary(loaded))
    if shown and not figures:
        _show_text(loaded, **text)


def _show_text(
    module: Module, short: bool, canonical: bool, no_layouts: bool, no_metadata: bool, only_fingerprint: bool
) -> None:
    if only_fingerprint:
        click.echo(fingerprint(module))
    else:
        echo_hlo(
            print_module(module, short=short, canonical=canonical, layouts=not no_layouts, metadata=not no_metadata)
        )


def _summary(module: Module) -> dict[str, object]:
    return {
        "name": module.name,
        "fingerprint": fingerprint(module),
        "parameters": {p.name: str(p.shape) for p in module.entry.parameters},
        "result": str(module.entry.result_shape),
        "replicas": module.replica_count,
        "partitions": module.num_partitions,
        "computations": len(module.computations),
        "instructions": dict(Counter(instruction.opcode for instruction in module.instructions())),
    }
