"""A bar chart of ratios as SVG: bars to both sides of 1 on a logarithmic axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from hloom.bench.report import figures

WIDTH, ROW, TOP, MARGIN = 900, 24, 64, 16
CHARACTER = 7.5
"""Upper estimate of the width of a character of the labels, in pixels."""
MAX_NAME = 48
FASTER, SLOWER, INK, GRID = "#2a7f62", "#c8553d", "#222", "#ddd"


def ratio_chart(ratios: Sequence[tuple[str, float]], title: str, caption: str) -> str:
    """A chart of labelled ratios as SVG, the largest first; bars to the right of 1 are faster."""
    rows = sorted(((_shortened(name), ratio) for name, ratio in ratios), key=lambda row: -row[1])
    names = max(len(name) for name, _ in rows) * CHARACTER
    # Space for the numbers at the ends of the bars.
    left, right = MARGIN + names + 60, WIDTH - MARGIN - 60
    ticks = axis_ticks(min(ratio for _, ratio in rows), max(ratio for _, ratio in rows))
    low, high = math.log(ticks[0]), math.log(ticks[-1])
    bottom = TOP + ROW * len(rows)
    height = bottom + 56

    def x(ratio: float) -> float:
        return left + (right - left) * (math.log(ratio) - low) / (high - low)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
        f' font-family="DejaVu Sans, Helvetica, Arial, sans-serif" font-size="12" fill="{INK}">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        f'<text x="{MARGIN}" y="28" font-size="16" font-weight="bold">{escape(title)}</text>',
    ]
    for tick in ticks:
        parts.append(_line(x(tick), TOP - 6, bottom, GRID))
        parts.append(_text(x(tick), bottom + 18, f"{tick:g}", "middle"))
    for i, (name, ratio) in enumerate(rows):
        y, start, end = TOP + ROW * i, min(x(ratio), x(1)), max(x(ratio), x(1))
        faster = ratio >= 1
        parts.append(_text(MARGIN + names, y + 16, name, "end"))
        parts.append(
            f'<rect x="{start:.1f}" y="{y + 4}" width="{max(end - start, 1):.1f}" height="{ROW - 8}"'
            f' fill="{FASTER if faster else SLOWER}"/>'
        )
        parts.append(_text(end + 5 if faster else start - 5, y + 16, figures(ratio), "start" if faster else "end"))
    parts.append(_line(x(1), TOP - 6, bottom, INK))
    parts.append(_text(MARGIN, height - 12, caption, "start"))
    return "\n".join([*parts, "</svg>", ""])


def axis_ticks(low: float, high: float) -> list[float]:
    """Ticks that enclose the ratios and 1: powers of ten, with 2 and 5 between them if the range is small."""
    first, last = math.floor(math.log10(min(low, 0.5))), math.ceil(math.log10(max(high, 2)))
    if last - first > 3:
        return [10.0**power for power in range(first, last + 1)]
    ticks = [digit * 10.0**power for power in range(first, last + 1) for digit in (1, 2, 5)]
    start = max(i for i, tick in enumerate(ticks) if tick <= min(low, 0.5))
    stop = min(i for i, tick in enumerate(ticks) if tick >= max(high, 2))
    return ticks[start : stop + 1]


def _shortened(name: str) -> str:
    return name if len(name) <= MAX_NAME else name[: MAX_NAME - 1] + "…"


def _line(x: float, top: float, bottom: float, color: str) -> str:
    return f'<line x1="{x:.1f}" y1="{top}" x2="{x:.1f}" y2="{bottom}" stroke="{color}"/>'


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y}" text-anchor="{anchor}">{escape(text)}</text>'
