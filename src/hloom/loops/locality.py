"""Loops of elements that lie apart in memory: which others run close to them, so that cache lines are used as a whole.

Where the vector loop of `out[i, j] = in[j, i]` steps from line to line of the operand, the elements beside those that
it reads are wanted in other rounds of i. They are read while their lines are in the fastest cache if a few rounds of i
run inside of a strip of the vector loop.
"""

from __future__ import annotations

from dataclasses import replace

from hloom.loops.expressions import ExpressionSpace
from hloom.loops.index import Index, Variable
from hloom.loops.nest import Nest, split_loop

LINE_BYTES = 64
TILE_EXTENTS = (2048, 1024, 512, 256, 128)
"""Elements of a vector loop that threads take at a time."""


def strip_mine(nest: Nest, space: ExpressionSpace, vector: Variable, lanes: int) -> tuple[Nest, Variable]:
    """The nest with rounds that share cache lines next to each other, and its vector loop, maybe a part of the old one.

    The result runs strips of the loops of `nest` that share lines inside of one vector of `lanes`; loops that those do
    not divide stay whole. Nests with reductions or stores outside of the innermost loop stay as they are, and so do
    those that read what they write.
    """
    near = _line_sharing_loops(nest, vector)
    if not near or nest.reductions or not nest.is_perfect or nest.reads_written_buffers:
        return nest, vector
    outer = [loop for loop in nest.loops if loop not in near and loop is not vector]
    inner = {loop: loop for loop in nest.loops if loop in near}
    for loop, size in near.items():
        if loop.extent % size == 0 and size < loop.extent:
            nest, outer_loop, inner[loop] = _strip_mine_loop(nest, space, loop, size)
            outer.append(outer_loop)
    if vector.extent % lanes == 0 and vector.extent > lanes:
        nest, outer_loop, vector = _strip_mine_loop(nest, space, vector, lanes)
        outer.append(outer_loop)
    return replace(nest, loops=(*outer, *inner.values(), vector)), vector


def strip_mine_tiles(nest: Nest, space: ExpressionSpace, vector: Variable) -> tuple[Nest, Variable]:
    """A nest of a tile's loop and a vector loop alone, in strips of the latter that threads share, if any divide it."""
    size = next((size for size in TILE_EXTENTS if vector.extent % size == 0 and size < vector.extent), None)
    if size is None:
        return nest, vector
    nest, outer_loop, vector = _strip_mine_loop(nest, space, vector, size)
    return replace(nest, loops=(outer_loop, *(loop for loop in nest.loops if loop is not outer_loop))), vector


def _strip_mine_loop(nest: Nest, space: ExpressionSpace, loop: Variable, size: int) -> tuple[Nest, Variable, Variable]:
    """The nest, the loop over strips, and that inside of one."""
    return split_loop(nest, space, loop, size, f"{loop.name}s")


def _line_sharing_loops(nest: Nest, vector: Variable) -> dict[Variable, int]:
    """Loops whose next rounds find their elements in the lines of this one, where those of the vector loop are in lines
    of their own; and in how many rounds they go through a line."""
    found: dict[Variable, int] = {}
    for index, size in [(load.index, load.type.byte_width) for load in nest.loads] + [
        (store.index, store.value.type.byte_width) for store in nest.stores
    ]:
        if _stride(index, vector) * size < LINE_BYTES:
            continue
        for loop in nest.loops:
            stride = _stride(index, loop) * size
            if loop is not vector and 0 < 2 * stride <= LINE_BYTES:
                found[loop] = max(found.get(loop, 0), LINE_BYTES // stride)
    return found


def _stride(index: Index, loop: Variable) -> int:
    """The elements from one round to the next; 0 where there is no such number."""
    return abs(index.coefficient(loop)) if loop in index.variables and index.is_affine_in(loop) else 0
