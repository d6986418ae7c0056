"""Pictures for the documentation, made by running programs: `python tools/pictures.py` writes docs/pictures/.

In pictures of operations, a cell of the result has the colour of its source. Pictures of concepts show the elements of
an array in memory, and the devices that hold them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import hloom as hl
from hloom.display import CELL, GAP, HEAD, PADDING, cell, hue, label, picture, shape_svg
from hloom.runtime.blocks import block_slices

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "pictures"

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
"""Small programs by opcode; their parameters hold consecutive integers from 0."""


LAYOUTS = {
    "row_major": hl.f32[2, 3],
    "column_major": hl.parse_shape("f32[2,3]{0,1}"),
    "padded": hl.f32[2, 3].with_layout(hl.Layout((1, 0), padded_dimensions=(2, 5))),
    "tiled": hl.parse_shape("f32[3,5]{1,0:T(2,2)}"),
}
BROADCASTS = {
    "broadcast_rows": "ENTRY m { x = s32[4] parameter(0)\n  ROOT r = s32[3,4] broadcast(x), dimensions={1} }",
    "broadcast_columns": "ENTRY m { x = s32[3] parameter(0)\n  ROOT r = s32[3,4] broadcast(x), dimensions={0} }",
}
SHARDINGS = {
    "sharded": "{devices=[2,3]<=[6]}",
    "sharded_rows": "{devices=[3,1,2]<=[2,3]T(1,0) last_tile_dim_replicate}",
}
SHARDED = (6, 6)


def pictures() -> Iterator[tuple[str, str]]:
    """Yields the name and the SVG of the picture of each operation."""
    for opcode, text in PROGRAMS.items():
        yield opcode, draw(*run(text))


def concepts() -> Iterator[tuple[str, str]]:
    """Yields the names and the SVGs of the pictures in docs/concepts.md."""
    for name, shape in LAYOUTS.items():
        yield name, shape_svg(shape)
    for name, text in BROADCASTS.items():
        yield name, draw(*run(text))
    for name, text in SHARDINGS.items():
        yield name, draw_sharding(text)
    yield "dynamic", draw_bound(6, 4)


def run(text: str) -> tuple[list[Any], Any]:
    """Runs a program; returns the operands, filled with consecutive integers, and the result."""
    module = hl.parse(f"HloModule picture\n{text}")
    operands, first = [], 0
    for shape in module.entry.parameter_shapes:
        operands.append(np.arange(first, first + shape.element_count, dtype=np.int32).reshape(shape.dimensions))
        first += shape.element_count
    return operands, hl.compile(module, backend="interpreter")(*operands)


def draw(operands: list[Any], result: Any) -> str:
    """Draws operands, an arrow and the result side by side; cells that come from no operand are grey."""
    grids = [*((f"operand {k}", array) for k, array in enumerate(operands)), ("result", result)]
    count = sum(array.size for array in operands) or result.size
    parts, x, height = [], GAP // 2, 0
    for number, (title, array) in enumerate(grids):
        plane = array.reshape(-1, array.shape[-1]) if array.ndim and array.shape[-1] > 1 else array.reshape(1, -1)
        if number and number == len(grids) - 1:
            parts.append(label(x - GAP / 2, HEAD + CELL / 2 + 6, "→", 18))
        parts.append(label(x + plane.shape[1] * CELL / 2, HEAD - 8, title, 12))
        for (i, j), value in np.ndenumerate(plane):
            color = hue(int(value), count) if 0 <= value < count else PADDING
            parts.append(cell(x + j * CELL, HEAD + i * CELL, str(value), color))
        x += plane.shape[1] * CELL + GAP
        height = max(height, HEAD + plane.shape[0] * CELL)
    return picture(parts, x, height + 8)


def draw_sharding(text: str) -> str:
    """Draws an array whose cells have the index and the colour of the devices that hold them."""
    module = hl.parse(
        f"HloModule s\nENTRY e {{ ROOT x = f32[{SHARDED[0]},{SHARDED[1]}] parameter(0), sharding={text} }}"
    )
    sharding = module.entry.root.sharding
    assert sharding is not None
    holders = np.full(SHARDED, "", object)
    for device, where in enumerate(block_slices(sharding, SHARDED, 6)):
        holders[where] = [[f"{held},{device}".strip(",") for held in row] for row in holders[where]]
    parts = [label(GAP / 2 + SHARDED[1] * CELL / 2, HEAD - 8, "device", 12)]
    for (i, j), held in np.ndenumerate(holders):
        color = hue(int(held.split(",")[0]), 6)
        parts.append(cell(GAP / 2 + j * CELL, HEAD + i * CELL, held, color))
    return picture(parts, GAP + SHARDED[1] * CELL, HEAD + SHARDED[0] * CELL + 8)


def draw_bound(bound: int, size: int) -> str:
    """Draws a row of `bound` slots, of which `size` hold elements."""
    parts = [label(GAP / 2 + bound * CELL / 2, HEAD - 8, f"f32[<={bound}] of size {size}", 12)]
    for k in range(bound):
        parts.append(cell(GAP / 2 + k * CELL, HEAD, str(k) if k < size else "", hue(k, bound) if k < size else PADDING))
    return picture(parts, GAP + bound * CELL, HEAD + CELL + 8)


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, drawing in concepts():
        (FOLDER / f"{name}.svg").write_text(drawing)
