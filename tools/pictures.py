"""Pictures of operations that move elements: each is run, and a result's cell has the colour of where it comes from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

import hloom as hl

CELL, GAP, HEAD = 34, 40, 22

PROGRAMS = {
    "broadcast": "ENTRY m { x = s32[4] parameter(0)\n  ROOT r = s32[3,4] broadcast(x), dimensions={1} }",
    "concatenate": "ENTRY m { x = s32[2,3] parameter(0)\n  y = s32[2,2] parameter(1)\n"
    "  ROOT r = s32[2,5] concatenate(x, y), dimensions={1} }",
    "convolution": "ENTRY m { x = s32[1,6,1] parameter(0)\n  k = s32[3,1,1] constant({{{1}}, {{1}}, {{1}}})\n"
    "  ROOT r = s32[1,4,1] convolution(x, k), window={size=3}, dim_labels=b0f_0io->b0f }",
    "dynamic-slice": "ENTRY m { x = s32[3,5] parameter(0)\n  i = s32[] constant(1)\n  j = s32[] constant(2)\n"
    "  ROOT r = s32[2,2] dynamic-slice(x, i, j), dynamic_slice_sizes={2,2} }",
    "dynamic-update-slice": "ENTRY m { x = s32[3,5] parameter(0)\n  u = s32[2,2] parameter(1)\n"
    "  i = s32[] constant(1)\n  j = s32[] constant(2)\n  ROOT r = s32[3,5] dynamic-update-slice(x, u, i, j) }",
    "gather": "ENTRY m { x = s32[4,3] parameter(0)\n  i = s32[2] constant({3, 1})\n  ROOT r = s32[2,3] gather(x, i), "
    "offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,3} }",
    "iota": "ENTRY m { ROOT r = s32[2,5] iota(), iota_dimension=1 }",
    "pad": "ENTRY m { x = s32[3] parameter(0)\n  z = s32[] constant(99)\n  ROOT r = s32[8] pad(x, z), padding=1_2_1 }",
    "reduce": "add { a = s32[] parameter(0)\n  b = s32[] parameter(1)\n  ROOT c = s32[] add(a, b) }\n"
    "ENTRY m { x = s32[3,4] parameter(0)\n  z = s32[] constant(0)\n"
    "  ROOT r = s32[3] reduce(x, z), dimensions={1}, to_apply=add }",
    "reduce-window": "add { a = s32[] parameter(0)\n  b = s32[] parameter(1)\n  ROOT c = s32[] add(a, b) }\n"
    "ENTRY m { x = s32[6] parameter(0)\n  z = s32[] constant(0)\n"
    "  ROOT r = s32[3] reduce-window(x, z), window={size=2 stride=2}, to_apply=add }",
    "reshape": "ENTRY m { x = s32[2,6] parameter(0)\n  ROOT r = s32[3,4] reshape(x) }",
    "reverse": "ENTRY m { x = s32[2,4] parameter(0)\n  ROOT r = s32[2,4] reverse(x), dimensions={1} }",
    "scatter": "new { a = s32[] parameter(0)\n  ROOT b = s32[] parameter(1) }\n"
    "ENTRY m { x = s32[4,3] parameter(0)\n  i = s32[2] constant({2, 0})\n  u = s32[2,3] parameter(1)\n"
    "  ROOT r = s32[4,3] scatter(x, i, u), update_window_dims={1}, inserted_window_dims={0}, "
    "scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=new }",
    "slice": "ENTRY m { x = s32[3,6] parameter(0)\n  ROOT r = s32[2,3] slice(x), slice={[1:3], [0:6:2]} }",
    "sort": "less { a = s32[] parameter(0)\n  b = s32[] parameter(1)\n"
    "  ROOT c = pred[] compare(a, b), direction=GT }\nENTRY m { x = s32[2,5] parameter(0)\n"
    "  ROOT r = s32[2,5] sort(x), dimensions={1}, to_apply=less }",
    "transpose": "ENTRY m { x = s32[2,4] parameter(0)\n  ROOT r = s32[4,2] transpose(x), dimensions={1,0} }",
}
"""Small programs by opcode; their parameters count on from 0."""


def pictures() -> Iterator[tuple[str, str]]:
    """The name and the SVG of each picture."""
    for opcode, text in PROGRAMS.items():
        yield opcode, draw(*run(text))


def run(text: str) -> tuple[list[Any], Any]:
    """The operands, numbered through, and the result."""
    module = hl.parse(f"HloModule picture\n{text}")
    operands, first = [], 0
    for shape in module.entry.parameter_shapes:
        operands.append(np.arange(first, first + shape.element_count, dtype=np.int32).reshape(shape.dimensions))
        first += shape.element_count
    return operands, hl.compile(module, backend="interpreter")(*operands)


def draw(operands: list[Any], result: Any) -> str:
    """Grids side by side: operands, an arrow, the result."""
    grids = [*((f"operand {k}", array) for k, array in enumerate(operands)), ("result", result)]
    count = sum(array.size for array in operands) or result.size
    parts, x, height = [], GAP // 2, 0
    for number, (title, array) in enumerate(grids):
        plane = array.reshape(-1, array.shape[-1]) if array.ndim and array.shape[-1] > 1 else array.reshape(1, -1)
        if number and number == len(grids) - 1:
            parts.append(_text(x - GAP / 2, HEAD + CELL / 2 + 6, "→", 18))
        parts.append(_text(x + plane.shape[1] * CELL / 2, HEAD - 8, title, 12))
        parts += [_cell(x + j * CELL, HEAD + i * CELL, int(value), count) for (i, j), value in np.ndenumerate(plane)]
        x += plane.shape[1] * CELL + GAP
        height = max(height, HEAD + plane.shape[0] * CELL)
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{x}" height="{height + 8}" font-family="sans-serif">\n'
        f'<rect width="100%" height="100%" fill="white"/>\n{body}\n</svg>\n'
    )


def _cell(x: float, y: float, value: int, count: int) -> str:
    """A number on the colour that it has as an element of the operands; grey where it is none."""
    color = f"hsl({330 * value / count:.0f} 70% 82%)" if 0 <= value < count else "#e4e7ec"
    box = f'<rect x="{x}" y="{y}" width="{CELL - 2}" height="{CELL - 2}" rx="4" fill="{color}"/>'
    return box + _text(x + CELL / 2 - 1, y + CELL / 2 + 4, str(value), 13)


def _text(x: float, y: float, text: str, size: int) -> str:
    return f'<text x="{x}" y="{y}" font-size="{size}" fill="#1d2330" text-anchor="middle">{text}</text>'
