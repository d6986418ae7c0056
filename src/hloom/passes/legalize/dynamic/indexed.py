"""Rules of gather and scatter with operands, indices or updates of dynamic sizes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hloom.ir import Instruction
from hloom.literal import extreme
from hloom.ops.attributes import ComparisonDirection
from hloom.ops.elementwise_binary import Minimum
from hloom.ops.gather import Gather
from hloom.ops.scatter import Scatter
from hloom.ops.select import Select
from hloom.passes.legalize.dynamic.site import Padded, Site, Sizes
from hloom.shape import Shape
from hloom.types import PrimitiveType


def gather(op: Gather, site: Site, operands: Sequence[Padded]) -> list[Padded] | None:
    """Clamps the start indices to the dynamic sizes; dimensions that are gathered as a whole stay dynamic."""
    operand, indices = operands
    whole = {d for d in operand.sizes if op.slice_sizes[d] == operand.bounds[d] and d not in op.collapsed_slice_dims}
    sliced = [d for d in operand.sizes if d not in whole and d not in op.operand_batching_dims]
    if any(d not in op.start_index_map for d in sliced):
        return None
    limits = {op.start_index_map.index(d): _last_start(op, site, operand.sizes[d], d) for d in sliced}
    starts = _at_most(site, indices.array, limits, op.index_vector_dim) if limits else indices.array
    sizes = site.independent_sizes([Padded(operand.array, {d: operand.sizes[d] for d in whole}), indices])
    return None if sizes is None else [Padded(site.apply(operand.array, starts), sizes)]


def _last_start(op: Gather, site: Site, size: Instruction, d: int) -> Instruction:
    """Returns the last index at which a slice fits, and checks that one fits at all (SETDIMENSIONSIZE-3)."""
    fits = site.compare(size, ComparisonDirection.GE, site.s32(op.slice_sizes[d]))
    message = f"SETDIMENSIONSIZE-3: gather of {op.slice_sizes[d]} elements along dimension {d} from fewer"
    return site.difference(site.checked(size, fits, message), op.slice_sizes[d])


def _at_most(site: Site, indices: Instruction, limits: Sizes, vector_dimension: int) -> Instruction:
    """Clamps components of the index vectors from above; `limits` has the maximum of some of them."""
    build, shape = site.build, indices.shape
    highest = extreme(shape.element_type, highest=True)
    limit: Instruction = site.splat(build.constant(highest, shape.element_type), shape)
    for column, value in limits.items():
        if int(highest) < 1 << 31:
            value = site.minimum(value, int(highest))
        narrow = site.splat(build.convert(value, shape.element_type), shape)
        limit = narrow if vector_dimension == shape.rank else _in_column(site, narrow, limit, vector_dimension, column)
    return build(Minimum(), indices, limit)


def _in_column(site: Site, value: Instruction, rest: Instruction, dimension: int, column: int) -> Instruction:
    shape = Shape.array(PrimitiveType.S32, rest.shape.dimensions)
    columns = site.splat(site.s32(column), shape)
    is_column = site.compare(site.positions(shape, dimension), ComparisonDirection.EQ, columns)
    return site.build(Select(), is_column, value, rest)


def scatter(op: Scatter, site: Site, operands: Sequence[Padded]) -> list[Padded] | None:
    """Sets the index vectors of updates beyond the sizes out of bounds, so that these are skipped."""
    half = len(operands) // 2
    targets, indices, updates = operands[:half], operands[half], operands[half + 1 :]
    sizes, given = site.joint_sizes(targets), site.joint_sizes(updates)
    if not all(_keeps_dimension(site, op, d, sizes, given, updates[0]) for d in range(len(targets[0].bounds))):
        return None
    scatter_dims = [u for u in range(len(updates[0].bounds)) if u not in op.update_window_dims]
    index_dims = [e for e in range(len(indices.bounds)) if e != op.index_vector_dim]
    counts = dict(indices.sizes)
    for u, e in zip(scatter_dims, index_dims, strict=True):
        if u in given:
            counts[e] = site.one_size([site.size(indices, e), given[u]])
    element_type = indices.array.shape.element_type
    outside = site.build.constant(-1 if element_type.is_signed else extreme(element_type, highest=True), element_type)
    starts = site.masked(indices.array, counts, outside)
    arrays = [*(t.array for t in targets), starts, *(u.array for u in updates)]
    return [Padded(array, sizes) for array in site.build.elements(site.apply(*arrays))]


def _keeps_dimension(site: Site, op: Scatter, d: int, sizes: Sizes, given: Sizes, update: Padded) -> bool:
    """Whether scattering into the padded array along dimension d is right for the elements below its size."""
    collapsed = {*op.inserted_window_dims, *op.input_batching_dims}
    if d in collapsed:
        return d not in sizes or d in op.inserted_window_dims
    windowed: Iterator[int] = iter(k for k in range(d + 1) if k not in collapsed)
    u = op.update_window_dims[len([*windowed]) - 1]
    if d not in sizes:
        return u not in given
    if u in given:
        site.one_size([sizes[d], given[u]])
        return d not in op.scatter_dims_to_operand_dims
    return update.bounds[u] == 1
