"""Badges: a label and a value side by side, as SVG."""

from __future__ import annotations

from xml.sax.saxutils import escape

HEIGHT, MARGIN, SIZE = 20, 7, 11
"""Pixels; SIZE is that of the font."""
COLORS = ((0.995, "#2e7d32"), (0.98, "#558b2f"), (0.95, "#9e7a00"), (0.0, "#b3261e"))
"""The colour of the value from each rate on."""
NARROW, WIDE = " ,.:;'ijlftIr1|()/-", "mwMW%@"


def badge(label: str, value: str, rate: float) -> str:
    """Returns a badge of a label and a value, whose colour says how near `rate` is to 1."""
    left, right = (width(text) + 2 * MARGIN for text in (label, value))
    color = next(color for limit, color in COLORS if rate >= limit)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + right}" height="{HEIGHT}" role="img" '
        f'aria-label="{escape(label)}: {escape(value)}">'
        f'<clipPath id="r"><rect width="{left + right}" height="{HEIGHT}" rx="3"/></clipPath>'
        f'<g clip-path="url(#r)"><rect width="{left}" height="{HEIGHT}" fill="#555"/>'
        f'<rect x="{left}" width="{right}" height="{HEIGHT}" fill="{color}"/></g>'
        f'<g fill="#fff" text-anchor="middle" font-family="Verdana,DejaVu Sans,sans-serif" font-size="{SIZE}">'
        f"{_text(label, left / 2)}{_text(value, left + right / 2)}</g></svg>\n"
    )


def _text(text: str, center: float) -> str:
    return f'<text x="{center:g}" y="14" textLength="{width(text)}">{escape(text)}</text>'


def width(text: str) -> int:
    """Returns the width of a text in pixels, about that of Verdana."""
    return round(sum(4.4 if c in NARROW else 10.2 if c in WIDE else 7.0 for c in text))
