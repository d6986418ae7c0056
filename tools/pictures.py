"""Pictures of concepts: `python tools/pictures.py` writes docs/pictures/.

They show the elements of an array in memory, and the devices that hold them; `handbook/drawings.py` draws operations.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

import hloom as hl
from handbook import drawings
from hloom.display import CELL, GAP, HEAD, PADDING, cell, hue, label, picture, shape_svg
from hloom.runtime.blocks import block_slices

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "pictures"

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


def concepts() -> Iterator[tuple[str, str]]:
    """Yields the names and the SVGs of the pictures in docs/concepts.md."""
    for name, shape in LAYOUTS.items():
        yield name, shape_svg(shape)
    for name, text in BROADCASTS.items():
        yield name, drawings.movement(text)
    for name, text in SHARDINGS.items():
        yield name, draw_sharding(text)
    yield "dynamic", draw_bound(6, 4)


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
