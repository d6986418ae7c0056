"""Rules of slices, concatenations, pads, dynamic slices, iotas, sizes and copies."""

from __future__ import annotations

from hloom.ir import Instruction
from hloom.ops.attributes import SliceDimension
from hloom.ops.broadcast import Broadcast
from hloom.ops.pad import Concatenate
from hloom.ops.reshape import Reshape
from hloom.ops.slice import Slice, clamped_starts
from hloom.passes.edit import constant_value
from hloom.passes.pattern import splat_source
from hloom.passes.rewrite import Match, Rule
from hloom.shape import Shape
from hloom.values import Array

Slices = tuple[SliceDimension, ...]


def _is_whole(part: SliceDimension, size: int) -> bool:
    return part == SliceDimension(0, size)


def _slice(m: Match, operand: Instruction, parts: Slices) -> Instruction:
    return m.result(Slice(slice=parts), operand)


# Slices


def _slice_slice(m: Match) -> Instruction:
    parts = []
    for outer, inner, count in zip(m.op.slice, m.inner.slice, m.root.shape.dimensions, strict=True):
        start, stride = inner.start + outer.start * inner.stride, inner.stride * outer.stride
        parts.append(SliceDimension(start, start + (count - 1) * stride + 1, stride) if count else SliceDimension(0, 0))
    return _slice(m, m.x, tuple(parts))


def _slice_of_broadcast(m: Match) -> Instruction:
    """Slices the operand of the broadcast along its dimensions, and repeats it less often along the others."""
    parts = tuple(m.op.slice[d] for d in m.inner.broadcast_dimensions)
    operand = m.x
    if not all(map(_is_whole, parts, m.x.shape.dimensions)):
        sizes = (m.root.shape.dimensions[d] for d in m.inner.broadcast_dimensions)
        operand = m.build(Slice(slice=parts), [m.x], Shape.array(m.element_type, sizes))
    return m.result(Broadcast(broadcast_dimensions=m.inner.broadcast_dimensions), operand)


def _piece(m: Match) -> tuple[Instruction, int] | None:
    """Returns the operand of the concatenation that contains the whole slice, and its offset; None if none does."""
    joined = m.root.operands[0]
    d, offset = m.inner.dimension, 0
    part = m.op.slice[d]
    for operand in joined.operands:
        size = operand.shape.dimensions[d]
        if offset <= part.start < part.limit <= offset + size:
            return operand, offset
        offset += size
    return None


def _slice_of_piece(m: Match) -> Instruction:
    piece = _piece(m)
    assert piece is not None
    operand, offset = piece
    d = m.inner.dimension
    part = m.op.slice[d]
    moved = SliceDimension(part.start - offset, part.limit - offset, part.stride)
    return _slice(m, operand, (*m.op.slice[:d], moved, *m.op.slice[d + 1 :]))


SLICES = [
    Rule("slice-all", "slice(x)", lambda m: m.x, "the slice is the whole array",
         when=lambda m: all(map(_is_whole, m.op.slice, m.x.shape.dimensions))),
    Rule("slice-slice", "slice(slice(x))", _slice_slice, "starts add up, strides multiply"),
    Rule("slice-broadcast", "slice(broadcast(x))", _slice_of_broadcast,
         "a slice of a broadcast is a broadcast of a slice"),
    Rule("slice-concatenate", "slice(concatenate(*))", _slice_of_piece, "the slice is inside of one operand",
         when=lambda m: _piece(m) is not None),
]  # fmt: skip

# Concatenations


def _flat_operands(m: Match) -> list[Instruction]:
    """Returns the operands, with nested concatenations along the same dimension replaced by theirs if single-use."""
    operands: list[Instruction] = []
    for operand in m.root.operands:
        single = operand.op == m.op and len(operand.users) == 1
        operands += operand.operands if single and m.root.operands.count(operand) == 1 else [operand]
    return operands


def _filled_operands(m: Match) -> list[Instruction]:
    return [operand for operand in m.root.operands if operand.shape.dimensions[m.op.dimension]]


def _joined_slices(m: Match) -> Slices | None:
    """Returns the union of the operands if they are adjacent slices of one array; else None."""
    sources, d = {operand.operands[0] for operand in m.root.operands if operand.operands}, m.op.dimension
    slices: list[Slices] = [o.op.slice for o in m.root.operands if isinstance(o.op, Slice)]
    if len(sources) != 1 or len(slices) < len(m.root.operands):
        return None
    parts = [s[d] for s in slices]
    adjacent = all(a.limit == b.start for a, b in zip(parts, parts[1:], strict=False))
    alike = all(s[:d] == slices[0][:d] and s[d + 1 :] == slices[0][d + 1 :] for s in slices)
    if not adjacent or not alike or any(part.stride != 1 for part in parts):
        return None
    return (*slices[0][:d], SliceDimension(parts[0].start, parts[-1].limit), *slices[0][d + 1 :])


def _join_slices(m: Match) -> Instruction:
    parts = _joined_slices(m)
    assert parts is not None
    return _slice(m, m.root.operands[0].operands[0], parts)


def _are_equal_splats(m: Match) -> bool:
    sources = {splat_source(operand) for operand in m.root.operands}
    return len(sources) == 1 and None not in sources and all(isinstance(o.op, Broadcast) for o in m.root.operands)


def _thin_pieces(m: Match) -> Instruction:
    """Concatenates the pieces reshaped instead of transposed."""
    order, pieces = m.op.permutation, m.root.operands[0].operands
    shapes = [Shape.array(m.element_type, (piece.shape.dimensions[d] for d in order)) for piece in pieces]
    moved = [m.build(Reshape(), [piece], shape) for piece, shape in zip(pieces, shapes, strict=True)]
    return m.result(Concatenate(dimension=order.index(m.inner.dimension)), *moved)


def _moves_thin_pieces(m: Match) -> bool:
    joined, dimension = m.root.operands[0], m.inner.dimension
    others = [d for d in m.op.permutation if d != dimension]
    is_thin = all(piece.shape.dimensions[dimension] == 1 for piece in joined.operands)
    return is_thin and others == sorted(others) and len(joined.users) == 1


CONCATENATIONS = [
    Rule("concatenate-one", "concatenate(x)", lambda m: m.x, "a concatenation of one array is that array"),
    Rule("concatenate-empty", "concatenate(*)",
         lambda m: m.result(m.op, *(_filled_operands(m) or m.root.operands[:1])), "empty operands add nothing",
         when=lambda m: len(_filled_operands(m)) < len(m.root.operands) > 1),
    Rule("concatenate-concatenate", "concatenate(concatenate*)",
         lambda m: m.result(Concatenate(dimension=m.op.dimension), *_flat_operands(m)),
         "concatenation is associative", when=lambda m: len(_flat_operands(m)) > len(m.root.operands)),
    Rule("concatenate-slices", "concatenate(slice*)", _join_slices, "adjacent slices form one slice",
         when=lambda m: len(m.root.operands) > 1 and _joined_slices(m) is not None),
    Rule("transpose-concatenate", "transpose(concatenate(*))", _thin_pieces,
         "transposing pieces of size 1 along the concatenation preserves their row-major order",
         when=_moves_thin_pieces),
    Rule("concatenate-splats", "concatenate(*)",
         lambda m: m.result(Broadcast(broadcast_dimensions=()), m.root.operands[0].operands[0]),
         "all elements are equal",
         when=lambda m: _are_equal_splats(m) and m.root.operands[0].operands[0].shape.is_scalar),
]  # fmt: skip

# Pads


def _pads_nothing(m: Match) -> bool:
    return all(
        p.edge_padding_low == p.edge_padding_high == 0 and (p.interior_padding == 0 or size <= 1)
        for p, size in zip(m.op.padding_config, m.x.shape.dimensions, strict=True)
    )


def _only_removes(m: Match) -> bool:
    return all(
        p.edge_padding_low <= 0 >= p.edge_padding_high and p.interior_padding == 0 and size > 0
        for p, size in zip(m.op.padding_config, m.x.shape.dimensions, strict=True)
    )


def _slice_instead_of_pad(m: Match) -> Instruction:
    return _slice(m, m.x, tuple(
        SliceDimension(-p.edge_padding_low, size + p.edge_padding_high)
        for p, size in zip(m.op.padding_config, m.x.shape.dimensions, strict=True)
    ))  # fmt: skip


PADDINGS = [
    Rule("pad-nothing", "pad(x, c)", lambda m: m.x, "no element is added or removed", when=_pads_nothing),
    Rule("pad-negative", "pad(x, c)", _slice_instead_of_pad, "removing elements at the edges is a slice",
         when=_only_removes),
    Rule("pad-empty", "pad(x, c)", lambda m: m.spread(m.c, m.root.shape), "every element is padding",
         when=lambda m: 0 in m.x.shape.dimensions and 0 not in m.root.shape.dimensions),
    Rule("pad-splat", "pad(broadcast(c), c)", lambda m: m.spread(m.c, m.root.shape), "all elements are equal"),
]  # fmt: skip

# Dynamic slices


def _constant_starts(m: Match, first: int) -> list[Array] | None:
    """Returns the start indices, which are the operands from `first` on; None unless all of them are constants."""
    starts = [constant_value(start) for start in m.root.operands[first:]]
    return None if any(start is None for start in starts) else starts


def _static_slice(m: Match) -> Instruction:
    operand, sizes = m.root.operands[0], m.op.size_indices
    starts = clamped_starts(_constant_starts(m, 1) or [], operand.shape.dimensions, sizes)
    return _slice(m, operand, tuple(SliceDimension(s, s + n) for s, n in zip(starts, sizes, strict=True)))


def _updates_nothing(m: Match) -> bool:
    return 0 in m.root.operands[1].shape.dimensions


DYNAMIC_SLICES = [
    Rule("dynamic-slice-all", "dynamic-slice(*)", lambda m: m.root.operands[0], "the start is clamped to 0"),
    Rule("dynamic-slice-constant", "dynamic-slice(*)", _static_slice, "the start indices are known",
         when=lambda m: _constant_starts(m, 1) is not None),
    Rule("dynamic-update-slice-none", "dynamic-update-slice(*)", lambda m: m.root.operands[0], "nothing is written",
         when=_updates_nothing),
    Rule("dynamic-update-slice-all", "dynamic-update-slice(*)", lambda m: m.root.operands[1],
         "every element is overwritten"),
]  # fmt: skip

COUNTING = [
    Rule("iota-one", "iota(*)", lambda m: m.splat(0), "the only index is 0",
         when=lambda m: m.root.shape.dimensions[m.op.iota_dimension] == 1),
    Rule("get-dimension-size", "get-dimension-size(x)",
         lambda m: m.scalar(m.x.shape.dimensions[m.op.dimension]), "the size is static"),
    Rule("copy", "copy(x)", lambda m: m.x, "values are immutable, so a copy in the same layout is the value itself"),
]  # fmt: skip

RULES = [*SLICES, *CONCATENATIONS, *PADDINGS, *DYNAMIC_SLICES, *COUNTING]
