"""The table of results, and a plot of the ratios to XLA's times and memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.measure import Result

Ratios = dict[str, Callable[[Result], float]]
RATIOS: Ratios = {
    "step, XLA / hloom": lambda r: r.xla.step / r.hloom.step,
    "compile, hloom / XLA": lambda r: r.hloom.compile / r.xla.compile,
    "warmed compile, hloom / XLA": lambda r: r.warmed / r.xla.compile,
    "initialise, hloom / XLA": lambda r: r.hloom.initialise / r.xla.initialise,
    "memory, hloom / XLA": lambda r: r.hloom.memory / r.xla.memory,
    "cached compile, hloom / XLA": lambda r: r.cached / r.xla.compile,
}


def show(results: Sequence[Result], ratios: Ratios = RATIOS) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("program", "step ms", *ratios, "peak MB")
    for result in results:
        cells = [f"{ratio(result):.2f}" for ratio in ratios.values()]
        name = result.name if result.agrees else f"[red]{result.name}: differs {result.difference:.3g} x[/red]"
        table.add_row(name, f"{1e3 * result.hloom.step:.3g}", *cells, f"{result.hloom.memory >> 20}")
    means = [f"{mean(ratio, results):.2f}" for ratio in ratios.values()]
    table.add_section()
    table.add_row("geometric mean", "", *means, "")
    console = Console()
    console.width = max(console.width, 150)
    console.print(table)


def mean(ratio: Callable[[Result], float], results: Sequence[Result]) -> float:
    return math.exp(sum(math.log(ratio(result)) for result in results) / len(results))


def draw(results: Sequence[Result], path: Path, ratios: Ratios = RATIOS) -> None:
    """Plots a panel for each ratio; the line marks equality."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(ratios), figsize=(4 + 2.6 * len(ratios), 1.4 + 0.28 * len(results)), sharey=True)
    names = [result.name for result in results]
    panels: list[Any] = list(axes)
    for axis, (title, ratio) in zip(panels, ratios.items(), strict=True):
        values = [ratio(result) for result in results]
        is_better = [(value >= 1) == title.startswith("step") for value in values]
        # Bars start at 1.
        lefts, widths = [min(v, 1.0) for v in values], [abs(v - 1.0) for v in values]
        axis.barh(names, widths, left=lefts, color=["#2a7f62" if better else "#c8553d" for better in is_better])
        axis.axvline(1.0, color="#222", linewidth=1)
        axis.set_xscale("log")
        # Values in a separate column, where they overlap no bar.
        for row, value in enumerate(values):
            axis.text(1.02, row, f"{value:.2f}", fontsize=7, va="center", transform=axis.get_yaxis_transform())
        axis.set_title(f"{title}\nmean {mean(ratio, results):.2f}", fontsize=9)
        axis.xaxis.set_major_formatter(matplotlib.ticker.FormatStrFormatter("%g"))
        axis.xaxis.set_minor_formatter(matplotlib.ticker.NullFormatter())
        axis.tick_params(labelsize=8)
        axis.grid(axis="x", color="#ddd")
        axis.set_axisbelow(True)
    panels[0].invert_yaxis()
    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)
