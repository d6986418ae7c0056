"""Proposals for gather and scatter: dimension numbers in any arrangement, batching dimensions among them."""

from __future__ import annotations

from dataclasses import dataclass

from hloom.fuzz.grammar.applied import combiner
from hloom.fuzz.grammar.body import Body
from hloom.fuzz.grammar.draw import ARRAYS
from hloom.fuzz.grammar.proposals import proposal
from hloom.ir import Instruction
from hloom.ops.gather import Gather
from hloom.ops.scatter import Scatter
from hloom.shape import Ints, Shape
from hloom.types import PrimitiveType

INDEX_TYPES = [PrimitiveType.S32, PrimitiveType.S32, PrimitiveType.S64, PrimitiveType.U32, PrimitiveType.S16]


@dataclass
class _Windows:
    """An arrangement of windows in an array, and of the indices of their starts."""

    sizes: Ints
    """The sizes of a window, for each dimension of the array."""
    collapsed: Ints
    mapped: Ints
    batching: Ints
    indices_batching: Ints
    vector_dimension: int
    index_sizes: Ints
    window_dimensions: Ints
    """The positions in the gathered array, or the updates, of the window's dimensions that are not collapsed."""
    gathered: Ints
    """The sizes of the gathered array, or the updates."""


def _windows(body: Body, whole: Shape) -> _Windows:
    draw, dimensions = body.draw, whole.dimensions
    roles = draw.shuffled(range(len(dimensions)))
    batching = sorted(roles.pop() for _ in range(len(roles)) if draw.chance(0.2))
    mapped = draw.shuffled(roles[: draw.between(0, len(roles))])
    sizes = [draw.pick((size, draw.between(0, size))) for size in dimensions]
    for d in batching:
        sizes[d] = min(1, dimensions[d])
    collapsed = sorted(d for d in roles if dimensions[d] and draw.chance(0.4))
    for d in collapsed:
        sizes[d] = 1
    batch: list[tuple[int | None, int]] = [(d, dimensions[d]) for d in batching]
    batch = draw.shuffled([*batch, *((None, draw.between(1, 4)) for _ in range(draw.below(3)))])
    vector = draw.between(0, len(batch))
    index_sizes = [size for _, size in batch]
    if len(mapped) != 1 or draw.chance(0.5):
        index_sizes.insert(vector, len(mapped))
    else:
        vector = len(batch)
    positions = {d: k + (k >= vector) for k, (d, _) in enumerate(batch) if d is not None}
    kept = [d for d in range(len(dimensions)) if d not in collapsed and d not in batching]
    rank = len(batch) + len(kept)
    window_dimensions = sorted(draw.shuffled(range(rank))[: len(kept)])
    inner, outer = iter([sizes[d] for d in kept]), iter([size for _, size in batch])
    gathered = [next(inner) if d in window_dimensions else next(outer) for d in range(rank)]
    return _Windows(
        tuple(sizes),
        tuple(collapsed),
        tuple(mapped),
        tuple(batching),
        tuple(positions[d] for d in batching),
        vector,
        tuple(index_sizes),
        tuple(window_dimensions),
        tuple(gathered),
    )


def _indices(body: Body, whole: Shape, windows: _Windows) -> Instruction:
    bound = max([1, *(whole.dimensions[d] for d in windows.mapped)])
    return body.indices(body.draw.pick(INDEX_TYPES), windows.index_sizes, bound)


@proposal(Gather)
def _gather(body: Body, declaration: type[Gather]) -> Instruction:
    operand = body.array("gather", ARRAYS)
    windows = _windows(body, operand.shape)
    op = Gather(
        offset_dims=windows.window_dimensions,
        collapsed_slice_dims=windows.collapsed,
        start_index_map=windows.mapped,
        operand_batching_dims=windows.batching,
        start_indices_batching_dims=windows.indices_batching,
        index_vector_dim=windows.vector_dimension,
        slice_sizes=windows.sizes,
    )
    return body.add(op, operand, _indices(body, operand.shape, windows))


@proposal(Scatter)
def _scatter(body: Body, declaration: type[Scatter]) -> Instruction:
    draw, operand = body.draw, body.array("scatter", ARRAYS)
    windows = _windows(body, operand.shape)
    operands = [operand]
    if draw.chance(0.2):
        operands.append(body.want(operand.shape.with_element_type(draw.element_type("scatter"))))
    types = [each.shape.element_type for each in operands]
    updates = [body.want(Shape.array(t, windows.gathered)) for t in types]
    op = Scatter(
        update_window_dims=windows.window_dimensions,
        inserted_window_dims=windows.collapsed,
        scatter_dims_to_operand_dims=windows.mapped,
        input_batching_dims=windows.batching,
        scatter_indices_batching_dims=windows.indices_batching,
        index_vector_dim=windows.vector_dimension,
        update_computation=combiner(body, types, ordered=True).computation,
    )
    made = body.add(op, *operands, _indices(body, operand.shape, windows), *updates)
    body.opened(made)
    return made
