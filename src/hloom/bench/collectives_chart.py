"""Plot of the times of collectives."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hloom.bench.collectives import Row
from hloom.ops.operation import OPERATIONS
from hloom.scaling.chart import new_figure, save_figure
from hloom.scaling.cluster import Cluster
from hloom.scaling.collective_times import estimate


def draw(rows: Sequence[Row], ranks: int, cluster: Cluster, path: Path) -> None:
    """Plots times over sizes, with a panel for each collective, and the times of the fitted model."""
    opcodes = list(dict.fromkeys(row.opcode for row in rows))
    figure = new_figure((3.4 * len(opcodes), 3.6))
    fields = figure.subplots(1, len(opcodes), sharey=True, squeeze=False)[0]
    for field, opcode in zip(fields, opcodes, strict=True):
        own = [row for row in rows if row.opcode == opcode]
        sizes = [row.size for row in own]
        model = [estimate(OPERATIONS[opcode], row.size, range(ranks), cluster).seconds for row in own]
        for name, times, style in (
            ("MPI", [row.mpi for row in own], "o-"),
            ("hloom, ranks", [row.ranks for row in own], "s-"),
            ("hloom, threads", [row.threads for row in own], "^:"),
            ("JAX, gloo", [row.gloo for row in own], "x--"),
            ("model", model, "k:"),
        ):
            if None not in times:
                field.loglog(sizes, [1e6 * (seconds or 0.0) for seconds in times], style, label=name, markersize=4)
        field.set_title(opcode, fontsize=10)
        field.set_xlabel("bytes per device")
        field.grid(alpha=0.3)
    fields[0].set_ylabel("microseconds")
    fields[0].legend(fontsize=8, frameon=False)
    save_figure(figure, path)
