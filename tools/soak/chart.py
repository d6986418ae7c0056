"""The picture of a soak test: memory, threads, descriptors and machine code over time, and what has run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hloom.scaling.chart import new_figure, save_figure
from soak.samples import Sample


def draw(samples: Sequence[Sample], quiet: Sequence[Sample], path: Path) -> None:
    """Draws samples over time, and memory in pauses, in the format of the extension of `path`."""
    minutes = [sample.time / 60 for sample in samples]
    figure = new_figure((9, 6.5))
    memory, held, work = figure.subplots(3, 1, sharex=True, height_ratios=[3, 2, 2])
    for name, label, color in (
        ("rss", "RSS", "#2a7f62"),
        ("pss", "PSS", "#c8553d"),
        ("anonymous", "anonymous", "#3d6bc8"),
    ):
        memory.plot(minutes, [getattr(s, name) / 2**20 for s in samples], label=label, color=color, linewidth=1)
    pauses = [sample.time / 60 for sample in quiet], [sample.live / 2**20 for sample in quiet]
    memory.plot(*pauses, "o", label="live, in pauses", color="black", markersize=4)
    memory.set_ylabel("MiB")
    for name, color in (("engines", "#3d6bc8"), ("threads", "#2a7f62"), ("descriptors", "#c8553d")):
        held.plot(minutes, [getattr(s, name) for s in samples], label=name, color=color, linewidth=1)
    held.set_ylabel("held")
    for name in ("programs", "interrupts", "forks", "evictions", "refusals"):
        work.semilogy(minutes, [max(1, getattr(s, name)) for s in samples], label=name, linewidth=1)
    work.set_ylabel("so far")
    work.set_xlabel("minutes")
    for axes in (memory, held, work):
        axes.set_ylim(bottom=1 if axes is work else 0)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.3)
        axes.legend(frameon=False, fontsize=8, ncols=5, loc="lower right")
    save_figure(figure, path)
