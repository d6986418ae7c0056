"""SVG drawings of arrays: cells, and the positions of their elements in memory."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np

from hloom.index import linear_indices
from hloom.shape import Shape, tiled_buffer_size

CELL, GAP, HEAD = 34, 40, 22
MAX_ELEMENTS = 128
"""The maximum number of elements of an array that is drawn; more would be unreadable."""
LINE = 24
"""The number of memory slots in a line of the drawing."""
PADDING = "#e4e7ec"
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def cell(x: float, y: float, text: str, color: str) -> str:
    """Returns a square cell with its upper left corner at (x, y)."""
    box = f'<rect x="{x}" y="{y}" width="{CELL - 2}" height="{CELL - 2}" rx="4" fill="{color}"/>'
    return box + label(x + CELL / 2 - 1, y + CELL / 2 + 4, text, 13, "#1d2330")


def label(x: float, y: float, text: str, size: int, color: str = "currentColor") -> str:
    """Returns a text centred at x, on the baseline y."""
    return f'<text x="{x}" y="{y}" font-size="{size}" fill="{color}" text-anchor="middle">{escape(text)}</text>'


def hue(ordinal: int, count: int) -> str:
    """Returns the colour of the item `ordinal` of a sequence of `count`."""
    return f"hsl({330 * ordinal / max(1, count):.0f} 70% 82%)"


def picture(parts: Sequence[str], width: float, height: float) -> str:
    """Returns the SVG document that contains some elements."""
    style = 'font-family="sans-serif" color="#667085"'
    size = f'width="{width:g}" height="{height:g}" viewBox="0 0 {width:g} {height:g}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}>\n' + "\n".join(parts) + "\n</svg>\n"


def shape_svg(shape: Shape) -> str:
    """Draws an array as indexed and, below, its memory; "" if it has too many elements, none, or no static shape.

    The last two dimensions are a plane; planes of further dimensions are side by side. Grey cells are padding.
    """
    if not shape.is_array or not shape.is_static or not 0 < shape.element_count <= MAX_ELEMENTS:
        return ""
    size = tiled_buffer_size(shape)
    if size > 4 * MAX_ELEMENTS:
        return ""
    planes, right = _planes(shape)
    below = HEAD + CELL * (shape.dimensions[-2] if shape.rank > 1 else 1) + GAP
    memory = _memory(shape, size, below)
    lines = -(-size // LINE)
    width = max(right, GAP + min(size, LINE) * CELL)
    return picture([*planes, *memory], width, below + lines * CELL + 8)


def _planes(shape: Shape) -> tuple[list[str], float]:
    """The cells of the array, and the x coordinate of their right end."""
    rows, columns = (1, 1, *shape.dimensions)[-2:]
    ordinals = np.arange(shape.element_count).reshape(-1, rows, columns)
    outer = shape.dimensions[:-2]
    parts, x = [], GAP / 2
    for index, plane in zip(np.ndindex(outer), ordinals, strict=True):
        title = f"[{','.join(map(str, [*index, ':', ':']))}]" if outer else "array"
        parts.append(label(x + columns * CELL / 2, HEAD - 8, title, 12))
        for (i, j), ordinal in np.ndenumerate(plane):
            color = hue(int(ordinal), shape.element_count)
            parts.append(cell(x + j * CELL, HEAD + i * CELL, element_name(int(ordinal), shape.element_count), color))
        x += columns * CELL + GAP / 2
    return parts, x


def _memory(shape: Shape, size: int, top: float) -> list[str]:
    """The slots of memory in lines, with the elements in them; `top` is the y coordinate of the first line."""
    count = shape.element_count
    elements = {int(address): ordinal for ordinal, address in enumerate(linear_indices(shape).ravel())}
    parts = [label(GAP / 2 + min(size, LINE) * CELL / 2, top - 8, "memory", 12)]
    for address in range(size):
        x, y = GAP / 2 + address % LINE * CELL, top + address // LINE * CELL
        ordinal = elements.get(address)
        text, color = ("", PADDING) if ordinal is None else (element_name(ordinal, count), hue(ordinal, count))
        parts.append(cell(x, y, text, color))
    return parts


def element_name(ordinal: int, count: int) -> str:
    """Returns the label of an element: a, b, c .., or its ordinal if there are not enough letters."""
    return _LETTERS[ordinal] if count <= len(_LETTERS) else str(ordinal)
