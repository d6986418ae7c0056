"""Strip-mining for cache locality: iterations that share cache lines run close together.

The vector loop j of `out[i, j] = in[j, i]` steps from one cache line of the operand to the next; the other elements of
these lines are read in later iterations of i. They are still in the L1 cache if a few iterations of i run inside a
strip-mined vector loop.
"""

from __future__ import annotations

from hloom.affine import Index, Variable
from hloom.loops.expression_space import ExpressionSpace
from hloom.loops.nest import Nest
from hloom.loops.transformations import split_loop
from hloom.target import CACHE_LINE

TILE_EXTENTS = (2048, 1024, 512, 256, 128)
"""Extents, in order of preference, of the tiles of a vector loop that threads share."""


def strip_mine(nest: Nest, space: ExpressionSpace, vector: Variable, lanes: int) -> tuple[Nest, Variable]:
    """Strip-mines the loops that share cache lines, so that iterations on the same lines run close together.

    Returns the new nest and its vector loop, which has the extent `lanes` if that divides the old one. Loops whose
    extent the number of iterations per line does not divide stay whole. Nests with reductions, with stores outside the
    innermost loop, or that read the buffers that they write are returned unchanged.
    """
    sharing = _line_sharing_loops(nest, vector)
    if not sharing or nest.reductions or not nest.is_perfect or nest.reads_written_buffers:
        return nest, vector
    outer = [loop for loop in nest.loops if loop not in sharing and loop is not vector]
    inner = {loop: loop for loop in nest.loops if loop in sharing}
    for loop, size in sharing.items():
        if loop.extent % size == 0 and size < loop.extent:
            nest, outer_loop, inner[loop] = _strip_mine_loop(nest, space, loop, size)
            outer.append(outer_loop)
    if vector.extent % lanes == 0 and vector.extent > lanes:
        nest, outer_loop, vector = _strip_mine_loop(nest, space, vector, lanes)
        outer.append(outer_loop)
    return nest.with_loops([*outer, *inner.values(), vector]), vector


def strip_mine_tiles(nest: Nest, space: ExpressionSpace, vector: Variable) -> tuple[Nest, Variable]:
    """Splits the vector loop of a nest of a tile loop and a vector loop, so that threads share the new outer loop.

    Returns the new nest and its vector loop; both are unchanged if no extent of TILE_EXTENTS divides the loop.
    """
    size = next((size for size in TILE_EXTENTS if vector.extent % size == 0 and size < vector.extent), None)
    if size is None:
        return nest, vector
    nest, outer_loop, vector = _strip_mine_loop(nest, space, vector, size)
    return nest.with_loops([outer_loop, *(loop for loop in nest.loops if loop is not outer_loop)]), vector


def _strip_mine_loop(nest: Nest, space: ExpressionSpace, loop: Variable, size: int) -> tuple[Nest, Variable, Variable]:
    """Splits a loop; returns the new nest, the outer and the inner loop."""
    return split_loop(nest, space, loop, size, f"{loop.name}s")


def _line_sharing_loops(nest: Nest, vector: Variable) -> dict[Variable, int]:
    """Loops that access each cache line in several consecutive iterations, with the number of these iterations.

    Only accesses for which each iteration of the vector loop needs another cache line count.
    """
    found: dict[Variable, int] = {}
    for index, size in [(load.index, load.type.byte_width) for load in nest.loads] + [
        (store.index, store.value.type.byte_width) for store in nest.stores
    ]:
        if _stride(index, vector) * size < CACHE_LINE:
            continue
        for loop in nest.loops:
            stride = _stride(index, loop) * size
            if loop is not vector and 0 < 2 * stride <= CACHE_LINE:
                found[loop] = max(found.get(loop, 0), CACHE_LINE // stride)
    return found


def _stride(index: Index, loop: Variable) -> int:
    """The absolute stride of an index along a loop, in elements; 0 if the index is invariant or not affine."""
    return abs(index.coefficient(loop)) if loop in index.variables and index.is_affine_in(loop) else 0
