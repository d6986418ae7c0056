"""Rules of reshapes, broadcasts and transposes, and of moving them through element-wise operations.

The operand of a broadcast in normal form has no dimensions of size 1: reshapes that add or remove them are moved before
the broadcast, where they cancel with others.
"""

from __future__ import annotations

from hloom.ir import Instruction
from hloom.ops.broadcast import Broadcast
from hloom.ops.reshape import Reshape
from hloom.ops.transpose import Reverse, Transpose
from hloom.passes.pattern import splat_source
from hloom.passes.rewrite import Match, Rule
from hloom.shape import Shape

Ints = tuple[int, ...]


def _non_unit_dimensions(shape: Shape) -> list[int]:
    """Returns the dimensions whose size is not 1."""
    return [d for d, size in enumerate(shape.dimensions) if size != 1]


def _squeezed(shape: Shape) -> Shape:
    return Shape.array(shape.element_type, (size for size in shape.dimensions if size != 1))


def _is_degenerate(before: Shape, after: Shape) -> bool:
    """Whether the shapes differ only in dimensions of size 1."""
    return [s for s in before.dimensions if s != 1] == [s for s in after.dimensions if s != 1]


def _spread(m: Match, operand: Instruction, dimensions: Ints) -> Instruction:
    return m.result(Broadcast(broadcast_dimensions=dimensions), operand)


# Reshapes


def _reshape_of_broadcast(m: Match) -> Instruction:
    """Broadcasts to the shape of the reshape, which preserves the order of dimensions of other sizes than 1."""
    renamed = dict(zip(_non_unit_dimensions(m.root.operands[0].shape), _non_unit_dimensions(m.root.shape), strict=True))
    return _spread(m, m.x, tuple(renamed[d] for d in m.inner.broadcast_dimensions))


RESHAPES = [
    Rule("reshape-same", "reshape(x)", lambda m: m.x, "the dimensions are the same"),
    Rule("reshape-reshape", "reshape(reshape(x))", lambda m: m.result(Reshape(), m.x), "both keep the row-major order"),
    Rule("reshape-splat", "reshape(broadcast(x))", lambda m: _spread(m, m.x, ()), "all elements are equal",
         when=lambda m: m.x.shape.is_scalar),
    Rule("reshape-broadcast", "reshape(broadcast(x))", _reshape_of_broadcast,
         "a reshape that adds or removes dimensions of size 1 only renumbers the others",
         when=lambda m: 1 not in m.x.shape.dimensions and _is_degenerate(m.root.operands[0].shape, m.root.shape)),
]  # fmt: skip

# Broadcasts


def _squeeze_operand(m: Match) -> Instruction:
    operand = m.build(Reshape(), [m.x], _squeezed(m.x.shape))
    return _spread(m, operand, tuple(m.op.broadcast_dimensions[d] for d in _non_unit_dimensions(m.x.shape)))


def _adds_only_ones(m: Match) -> bool:
    dimensions = list(m.op.broadcast_dimensions)
    return bool(dimensions) and dimensions == sorted(dimensions) and _is_degenerate(m.x.shape, m.root.shape)


BROADCASTS = [
    Rule("broadcast-same", "broadcast(x)", lambda m: m.x, "nothing is repeated",
         when=lambda m: m.op.broadcast_dimensions == tuple(range(m.root.shape.rank))),
    Rule("broadcast-broadcast", "broadcast(broadcast(x))",
         lambda m: _spread(m, m.x, tuple(m.op.broadcast_dimensions[d] for d in m.inner.broadcast_dimensions)),
         "the maps of dimensions compose"),
    Rule("broadcast-of-ones", "broadcast(x)", _squeeze_operand, "repeating a dimension of size 1 is adding a new one",
         when=lambda m: 1 in m.x.shape.dimensions),
    Rule("broadcast-adds-ones", "broadcast(x)", lambda m: m.result(Reshape(), m.x),
         "dimensions of size 1 repeat nothing: what follows knows that the result is the operand's memory",
         when=_adds_only_ones),
]  # fmt: skip

# Transposes and reverses


def _transpose_transpose(m: Match) -> Instruction:
    return m.result(Transpose(permutation=tuple(m.inner.permutation[d] for d in m.op.permutation)), m.x)


def _composed_around_ones(m: Match) -> Instruction:
    """Transposes once, with the dimensions of size 1 first, and adds or removes these afterwards."""
    (reshape,) = m.root.operands
    (inner,) = reshape.operands
    assert isinstance(inner.op, Transpose)
    renamed = dict(zip(_non_unit_dimensions(reshape.shape), _non_unit_dimensions(inner.shape), strict=True))
    moved = [inner.op.permutation[renamed[d]] for d in m.op.permutation if d in renamed]
    permutation = (*(d for d, size in enumerate(m.x.shape.dimensions) if size == 1), *moved)
    sizes = (m.x.shape.dimensions[d] for d in permutation)
    transposed = m.build(Transpose(permutation=permutation), [m.x], Shape.array(m.x.shape.element_type, sizes))
    return m.result(Reshape(), transposed)


def _moves_only_ones(m: Match) -> bool:
    moved = [d for d in m.op.permutation if m.x.shape.dimensions[d] != 1]
    return moved == sorted(moved)


def _transposed_dimensions(m: Match) -> Ints:
    return tuple(m.op.permutation.index(d) for d in m.inner.broadcast_dimensions)


def _reverse_reverse(m: Match) -> Instruction:
    once = {*m.op.dimensions} ^ {*m.inner.dimensions}
    return m.result(Reverse(dimensions=tuple(sorted(once))), m.x)


def _visibly_reversed(m: Match) -> list[int]:
    return [d for d in m.op.dimensions if m.root.shape.dimensions[d] > 1]


def _reverse_of_broadcast(m: Match) -> Instruction:
    kept = tuple(d for d in m.op.dimensions if d in m.inner.broadcast_dimensions)
    return m.result(Reverse(dimensions=kept), m.root.operands[0])


TRANSPOSES = [
    Rule("transpose-same", "transpose(x)", lambda m: m.x, "the permutation is the identity",
         when=lambda m: m.op.permutation == tuple(range(m.root.shape.rank))),
    Rule("transpose-transpose", "transpose(transpose(x))", _transpose_transpose, "permutations compose"),
    Rule("transpose-reshape-transpose", "transpose(reshape(transpose(x)))", _composed_around_ones,
         "dimensions of size 1 between two permutations do not change the order of the others",
         when=lambda m: _is_degenerate(m.root.operands[0].operands[0].shape, m.root.operands[0].shape)),
    Rule("transpose-of-ones", "transpose(x)", lambda m: m.result(Reshape(), m.x),
         "moving dimensions of size 1 preserves the row-major order", when=_moves_only_ones),
    Rule("transpose-broadcast", "transpose(broadcast(x))", lambda m: _spread(m, m.x, _transposed_dimensions(m)),
         "the broadcast can map dimensions to their final index, if their order is preserved",
         when=lambda m: list(_transposed_dimensions(m)) == sorted(_transposed_dimensions(m))),
    Rule("reverse-of-ones", "reverse(x)",
         lambda m: m.result(Reverse(dimensions=tuple(_visibly_reversed(m))), m.x) if _visibly_reversed(m) else m.x,
         "reversing a dimension of size 0 or 1 does nothing",
         when=lambda m: len(_visibly_reversed(m)) < len(m.op.dimensions)),
    Rule("reverse-none", "reverse(x)", lambda m: m.x, "nothing is reversed", when=lambda m: not m.op.dimensions),
    Rule("reverse-reverse", "reverse(reverse(x))", _reverse_reverse, "reversing twice does nothing"),
    Rule("reverse-broadcast", "reverse(broadcast(x))", _reverse_of_broadcast, "repeated values have no order",
         when=lambda m: not {*m.op.dimensions} <= {*m.inner.broadcast_dimensions}),
]  # fmt: skip

# Movement through element-wise operations


def _small_operand(m: Match, operand: Instruction, shape: Shape) -> Instruction:
    """Returns the operand of a broadcast, in the dimensions of `shape`; scalars of select and clamp as they are."""
    if operand.shape.is_scalar:
        return operand
    source = operand.operands[0]
    return source if source.shape.same_dimensions(shape) else m.spread(source, shape)


def _is_scalar_broadcast(operand: Instruction) -> bool:
    return isinstance(operand.op, Broadcast) and operand.operands[0].shape.is_scalar


def _widest(m: Match) -> Instruction | None:
    """Returns the broadcast that all operands other than broadcasts of scalars agree with; None if they don't agree."""
    widest: Instruction | None = None
    for operand in m.root.operands:
        if operand.shape.is_scalar and not m.root.shape.is_scalar:
            continue
        if not isinstance(operand.op, Broadcast):
            return None
        if widest is None or _is_scalar_broadcast(widest):
            widest = operand
        elif not _is_scalar_broadcast(operand) and (
            operand.op != widest.op or not operand.operands[0].shape.same_dimensions(widest.operands[0].shape)
        ):
            return None
    return widest


def _computes_repeatedly(m: Match) -> bool:
    widest = _widest(m)
    return widest is not None and widest.operands[0].shape.element_count < m.root.shape.element_count


def _broadcast_of_elementwise(m: Match) -> Instruction:
    widest = _widest(m)
    assert widest is not None
    small = widest.operands[0].shape
    operands = [_small_operand(m, operand, small) for operand in m.root.operands]
    shape = Shape.array(m.element_type, small.dimensions)
    return m.result(widest.op, m.build(m.op, operands, shape))


def _common_movement(m: Match, movement: type[Reshape | Transpose]) -> Instruction | None:
    """Returns the first of the operands that are the same transposes or reshapes, used by the root only; else None.

    The others must be splats. A single transpose or reshape is not enough, except for a reshape that only adds or
    removes dimensions of size 1.
    """
    movements = [operand for operand in m.root.operands if splat_source(operand) is None]
    if not movements or any(len(operand.users) > 1 or not isinstance(operand.op, movement) for operand in movements):
        return None
    first, root = movements[0], m.edit.computation.root
    source = first.operands[0].shape
    for operand in movements:
        if operand.op != first.op or not operand.operands[0].shape.same_dimensions(source) or operand is root:
            return None
    several = any(operand is not first for operand in movements)
    return first if several or (movement is Reshape and _is_degenerate(source, first.shape)) else None


def _respread(m: Match, splat: Instruction, shape: Shape) -> Instruction:
    """Returns a splat in another shape; a scalar beside arrays, as of select and clamp, is returned unchanged."""
    if splat.shape.is_scalar and not m.root.shape.is_scalar:
        return splat
    source = splat_source(splat)
    assert source is not None
    if not source.shape.is_scalar:
        source = m.build(Reshape(), [source], _squeezed(source.shape))
    return m.spread(source, shape)


def _move_after(m: Match, movement: type[Reshape | Transpose]) -> Instruction:
    first = _common_movement(m, movement)
    assert first is not None
    source = first.operands[0].shape
    operands = [
        operand.operands[0] if splat_source(operand) is None else _respread(m, operand, source)
        for operand in m.root.operands
    ]
    shape = Shape.array(m.element_type, source.dimensions)
    return m.result(first.op, m.build(m.op, operands, shape))


def _movement_rule(movement: type[Reshape | Transpose]) -> Rule:
    return Rule(
        f"elementwise-of-{movement.opcode}s", f"elementwise({movement.opcode}*)", lambda m: _move_after(m, movement),
        "one movement of the result, as late as possible, replaces those of the operands",
        when=lambda m: _common_movement(m, movement) is not None,
    )  # fmt: skip


MOVEMENT = [
    Rule("elementwise-of-broadcasts", "elementwise(broadcast*)", _broadcast_of_elementwise,
         "computing before repeating takes less work", when=_computes_repeatedly),
    _movement_rule(Reshape),
    _movement_rule(Transpose),
]  # fmt: skip

RULES = [*RESHAPES, *BROADCASTS, *TRANSPOSES, *MOVEMENT]
