"""`hloom bench --collectives`: times collectives of MPI ranks, of threads and of JAX."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from hloom.cli.output import print_table, terminal, write_json, write_text

if TYPE_CHECKING:
    from hloom.bench.collectives import Row


def bench_collectives(json_path: Path | None, plot_path: Path | None, cluster_path: Path | None, peer: bool) -> None:
    """Times collectives on the ranks of this MPI run; the first rank prints and writes the results."""

    from hloom.bench.collectives import fit, measure, measure_rank_limits, start_gloo
    from hloom.runtime.mpi.world import world
    from hloom.scaling.cluster import to_toml

    ranks = world()
    is_first = ranks.rank == 0
    with_gloo = peer and start_gloo(ranks)
    console = terminal(stderr=True)
    limits = measure_rank_limits(ranks)
    rows = measure(ranks, lambda what: console.print(what, style="dim") if is_first else None, with_gloo)
    if not is_first:
        return
    _show(rows, ranks.size)
    cluster = fit(rows, ranks.size, limits)
    if cluster_path is not None:
        write_text(cluster_path, to_toml(cluster, f"measured by hloom bench --collectives on {ranks.size} ranks"))
    if json_path is not None:
        write_json(json_path, [asdict(row) for row in rows])
    if plot_path is not None:
        from hloom.bench.collectives_chart import draw

        draw(rows, ranks.size, cluster, plot_path)


def _show(rows: list[Row], ranks: int) -> None:
    from rich.table import Table

    from hloom.cli.cost import readable

    table = Table("collective", "bytes", "MPI", "hloom, ranks", "of MPI", "hloom, threads", "JAX, gloo", "of gloo")
    for row in rows:
        gloo = ("", "") if row.gloo is None else (readable(row.gloo), f"{row.ranks / row.gloo:.2f}")
        times = readable(row.mpi), readable(row.ranks), f"{row.ranks / row.mpi:.2f}", readable(row.threads)
        table.add_row(row.opcode, f"{row.size:,}", *times, *gloo)
    console = terminal(highlight=False)
    print_table(console, table)
    console.print(f"medians on {ranks} ranks, or as many threads; MPI receives into reused memory", soft_wrap=True)
