"""Rules of updates: selects move into the slice that is written; a scatter of one window is a dynamic-update-slice.

    select(p, dynamic-update-slice(x, u, i), y)
        ->  z = select(p, x, y); dynamic-update-slice(z, select(p', u, z'), i)

Here p' and z' are the slices of p and z that the update writes. The rule applies if x and y are the same array but for
other updates: the rule then removes all selects of whole arrays, because z is x if y is x. A loop that updates its
state under a mask then updates it in place, in time proportional to the slice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hloom.analysis.monoids import monoid_of
from hloom.ir import Instruction
from hloom.ops.attributes import ComparisonDirection, SliceDimension
from hloom.ops.broadcast import Broadcast
from hloom.ops.compare import Compare
from hloom.ops.elementwise_binary import And
from hloom.ops.gather import Gather
from hloom.ops.operation import Operation
from hloom.ops.reshape import Reshape
from hloom.ops.scatter import Scatter
from hloom.ops.select import Select
from hloom.ops.slice import DynamicSlice, DynamicUpdateSlice, Slice
from hloom.ops.structure import Constant, Parameter
from hloom.ops.traits import Update
from hloom.passes.edit import constant_value
from hloom.passes.pattern import splat_source
from hloom.passes.rewrite import Match, Rule
from hloom.shape import Shape
from hloom.types import PrimitiveType

ChooseNew = Callable[[Instruction, Instruction, Instruction], Instruction]
"""Builds the select of (predicate, new value, old value), in the order of the original select's operands."""


def _base(value: Instruction) -> Instruction:
    """Returns the array that a value is computed from by updates that have no other users."""
    while isinstance(value.op, Update) and len(value.users) == 1 and _can_choose(value):
        value = value.operands[0]
    return value


def _can_choose(update: Instruction) -> bool:
    """Whether the update can be made to write old values, and writes something, at most half of the array."""
    if isinstance(update.op, Scatter):
        return (
            not update.shape.is_tuple and _can_leave(update.op, update.shape) and _is_part(update.operands[2], update)
        )
    return _is_part(update.operands[1], update)


def _is_part(written: Instruction, update: Instruction) -> bool:
    return 0 < 2 * written.shape.element_count <= update.shape.element_count


def _chooses_update(m: Match) -> bool:
    on_true, on_false = m.root.operands[1:]
    return on_true is not on_false and _base(on_true) is _base(on_false)


def _select_part(m: Match) -> Instruction:
    """Selects the arrays before the update, then the values that the update writes to the selected array."""
    predicate, on_true, on_false = m.root.operands
    is_true = _base(on_true) is not on_true
    update, other = (on_true, on_false) if is_true else (on_false, on_true)

    def select(predicate: Instruction, new: Instruction, old: Instruction) -> Instruction:
        return m.build(Select(), [predicate, *((new, old) if is_true else (old, new))], old.shape)

    before = update.operands[0]
    array = before if before is other else select(predicate, before, other)
    if isinstance(update.op, Scatter):
        return _scatter_part(m, update, update.op, array, select)
    return _slice_part(m, update, array, select)


def _slice_part(m: Match, update: Instruction, array: Instruction, select: ChooseNew) -> Instruction:
    written, starts = update.operands[1], update.operands[2:]
    op = DynamicSlice(size_indices=written.shape.dimensions)
    part = _part(m, op, starts, written.shape)
    return m.result(update.op, array, select(part(m.root.operands[0]), written, part(array)), *starts)


def _part(m: Match, op: Operation, where: Sequence[Instruction], shape: Shape) -> Callable[[Instruction], Instruction]:
    """Returns a function that slices an array to the part that an update writes, in the update's dimensions.

    Scalars, such as a predicate for the whole array, are returned as they are.
    """

    def part(array: Instruction) -> Instruction:
        if array.shape.is_scalar:
            return array
        return m.build(op, [array, *where], Shape.array(array.shape.element_type, shape.dimensions))

    return part


# Scatters


def _can_leave(op: Scatter, operand: Shape) -> bool:
    """Whether some update values change nothing: the old values, or the identity of the combiner."""
    return _is_overwriting(op) or (monoid_of(op.update_computation) is not None and operand.element_type.bits >= 16)


def _is_overwriting(op: Scatter) -> bool:
    root = op.update_computation.root.op
    return isinstance(root, Parameter) and root.number == 1


def _scatter_part(m: Match, update: Instruction, op: Scatter, array: Instruction, select: ChooseNew) -> Instruction:
    _, indices, written = update.operands
    monoid = monoid_of(op.update_computation)
    part = _part(m, _windows(op, update.shape, written.shape), (indices,), written.shape)
    if monoid is None:
        old = part(array)
    else:
        old = m.spread(m.scalar(monoid.identity(update.shape.element_type)), written.shape)
    return m.result(op, array, indices, select(part(m.root.operands[0]), written, old))


def _windows(op: Scatter, operand: Shape, updates: Shape) -> Gather:
    """Returns the gather that reads the windows that a scatter writes, in the shape of its updates.

    Out-of-bounds windows, which scatter skips and gather clamps, yield arbitrary values.
    """
    collapsed = {*op.inserted_window_dims, *op.input_batching_dims}
    sizes = iter(op.update_window_dims)
    return Gather(
        offset_dims=op.update_window_dims,
        collapsed_slice_dims=op.inserted_window_dims,
        start_index_map=op.scatter_dims_to_operand_dims,
        operand_batching_dims=op.input_batching_dims,
        start_indices_batching_dims=op.scatter_indices_batching_dims,
        index_vector_dim=op.index_vector_dim,
        slice_sizes=tuple(1 if d in collapsed else updates.dimensions[next(sizes)] for d in range(operand.rank)),
        indices_are_sorted=op.indices_are_sorted,
    )


# A scatter of one window


def _has_one_window(m: Match) -> bool:
    op, shape = m.op, m.root.shape
    if shape.is_tuple or op.input_batching_dims or 0 in (shape.element_count, m.root.operands[2].shape.element_count):
        return False
    sizes = m.root.operands[1].shape.dimensions
    one = all(size == 1 for d, size in enumerate(sizes) if d != op.index_vector_dim)
    return one and (_is_overwriting(op) or monoid_of(op.update_computation) is not None)


def _update_of_one_window(m: Match) -> Instruction:
    """Writes the window if it is inside of the array, and the old values otherwise."""
    operand, indices, updates = m.root.operands
    window = Shape.array(m.element_type, _windows(m.op, operand.shape, updates.shape).slice_sizes)
    indexed = m.op.scatter_dims_to_operand_dims
    limits = [operand.shape.dimensions[d] - window.dimensions[d] for d in indexed]
    known = _known_entries(indices, len(indexed))
    if known is not None and not all(0 <= entry <= limit for entry, limit in zip(known, limits, strict=True)):
        return operand
    made = _entries(m, indices) if known is None else [m.scalar(entry, indices.shape.element_type) for entry in known]
    entries = dict(zip(indexed, made, strict=True))
    starts = [entries.get(d) or m.scalar(0, indices.shape.element_type) for d in range(operand.shape.rank)]
    old = m.build(DynamicSlice(size_indices=window.dimensions), [operand, *starts], window)
    new = m.build(Reshape(), [updates], window)
    monoid = monoid_of(m.op.update_computation)
    if monoid is not None:
        new = m.build(monoid(), [old, new], window)
    if known is None:
        for entry, limit in zip(made, limits, strict=True):
            new = m.build(Select(), [_is_inside(m, entry, limit), new, old], window)
    return m.result(DynamicUpdateSlice(), operand, new, *starts)


def _known_entries(indices: Instruction, count: int) -> list[int] | None:
    """Returns the `count` components of the only index vector, if they are constants."""
    source = splat_source(indices) or indices
    if not isinstance(source.op, Constant):
        return None
    entries = [int(entry) for entry in constant_value(source).reshape(-1)]
    return entries if source is indices else entries * count


def _entries(m: Match, indices: Instruction) -> list[Instruction]:
    """Returns the components of the only index vector, as scalars."""
    type, count = indices.shape.element_type, len(m.op.scatter_dims_to_operand_dims)
    vector = m.build(Reshape(), [indices], Shape.array(type, (count,)))
    parts = [m.build(Slice(slice=(SliceDimension(k, k + 1),)), [vector], Shape.array(type, (1,))) for k in range(count)]
    return [m.build(Reshape(), [part], Shape.array(type, ())) for part in parts]


def _is_inside(m: Match, start: Instruction, limit: int) -> Instruction:
    """Builds the test whether a start index is in [0, limit], as pred[]."""
    type, pred = start.shape.element_type, Shape.array(PrimitiveType.PRED, ())
    largest = min(limit, type.limits[1])
    inside = m.build(Compare(direction=ComparisonDirection.LE), [start, m.scalar(largest, type)], pred)
    if not type.is_signed:
        return inside
    return m.build(
        And(), [m.build(Compare(direction=ComparisonDirection.GE), [start, m.scalar(0, type)], pred), inside], pred
    )


# Slices of broadcasts


def _dynamic_slice_of_broadcast(m: Match) -> Instruction:
    """Slices the operand of the broadcast along its dimensions, and repeats it less often along the others."""
    (operand,) = m.root.operands[0].operands
    mapped, starts = m.inner.broadcast_dimensions, m.root.operands[1:]
    sizes = tuple(m.op.size_indices[d] for d in mapped)
    if sizes != operand.shape.dimensions:
        shape = Shape.array(m.element_type, sizes)
        operand = m.build(DynamicSlice(size_indices=sizes), [operand, *(starts[d] for d in mapped)], shape)
    return m.result(Broadcast(broadcast_dimensions=mapped), operand)


def _has_a_start_each(m: Match) -> bool:
    return len(m.root.operands) == 1 + len(m.op.size_indices)


RULES = [
    Rule("scatter-one", "scatter(*)", _update_of_one_window, "one window is a dynamic-update-slice, if it is in bounds",
         when=_has_one_window),
    Rule("select-update", "select(*)", _select_part, "outside of the slice that is written both are the same",
         when=_chooses_update),
    Rule("dynamic-slice-broadcast", "dynamic-slice(broadcast*)", _dynamic_slice_of_broadcast,
         "a slice of a broadcast is a broadcast of a slice",
         when=lambda m: isinstance(m.inner, Broadcast) and _has_a_start_each(m)),
    Rule("gather-splat", "gather(broadcast*)", lambda m: m.spread(m.root.operands[0].operands[0], m.root.shape),
         "all elements are equal",
         when=lambda m: isinstance(m.inner, Broadcast) and m.root.operands[0].operands[0].shape.is_scalar),
]  # fmt: skip
