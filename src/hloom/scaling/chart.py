"""Draws a prediction: the parts of a step's time as bars."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from hloom.errors import ArgumentError
from hloom.scaling.predict import Prediction

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAX_BARS = 24
"""The number of parts that are drawn."""
COMPUTING, COMMUNICATING = "#2a7f62", "#c8553d"


def draw(prediction: Prediction, title: str, path: Path) -> None:
    """Draws the longest parts as bars, and the shares of computation and collectives.

    The extension of `path` selects the format.
    """
    shown = [part for part in prediction.parts[:MAX_BARS] if part.seconds > 0][::-1]
    figure = new_figure((10, 2.2 + 0.28 * len(shown)))
    whole, parts = figure.subplots(2, 1, height_ratios=[1, max(1, len(shown)) / 2 + 1])
    start = 0.0
    for name, collectives, color in (("computing", False, COMPUTING), ("collectives", True, COMMUNICATING)):
        seconds = prediction.seconds_of(collectives=collectives)
        share = seconds / prediction.seconds if prediction.seconds else 0.0
        whole.barh([0], [1e3 * seconds], left=1e3 * start, color=color, label=f"{name}: {share:.0%}")
        start += seconds
    whole.set_yticks([])
    whole.set_title(as_text(title), loc="left", fontsize=11)
    whole.legend(loc="upper center", bbox_to_anchor=(0.5, -0.25), ncols=2, frameon=False)
    parts.barh(
        [as_text(f"%{part.instruction.name}") + (f" x {part.times}" if part.times > 1 else "") for part in shown],
        [1e3 * part.seconds for part in shown],
        color=[COMMUNICATING if part.is_collective else COMPUTING for part in shown],
    )
    parts.set_xlabel("milliseconds of a step")
    parts.tick_params(axis="y", labelsize=8)
    for axes in (whole, parts):
        axes.spines[["top", "right"]].set_visible(False)
    save_figure(figure, path)


def as_text(text: str) -> str:
    """Text that a figure shows literally: matplotlib interprets dollars as formulas, and SVG has no control
    characters.
    """
    return "".join(c if c.isprintable() else "\ufffd" for c in text).replace("$", r"\$")


def new_figure(size: tuple[float, float]) -> Figure:
    """Returns a figure of matplotlib, with its size in inches; ArgumentError if matplotlib is not installed."""
    try:
        import matplotlib.figure
    except ImportError as error:
        raise ArgumentError(f"pictures are drawn by matplotlib: pip install 'hloom[plot]' ({error})") from None
    return matplotlib.figure.Figure(figsize=size, layout="constrained")


def save_figure(figure: Figure, path: Path) -> None:
    """Writes a figure in the format of the extension; ArgumentError if the format is unknown or writing fails."""
    try:
        figure.savefig(path)
    except (OSError, ValueError) as error:
        raise ArgumentError(f"cannot draw {path}: {error}") from None
