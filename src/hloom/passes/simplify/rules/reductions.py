"""Rules of reductions, sorts and dots."""

from __future__ import annotations

import math

from hloom.ir import Computation, Instruction
from hloom.ops.attributes import SliceDimension
from hloom.ops.dot import Dot
from hloom.ops.operation import Operation
from hloom.ops.reshape import Reshape
from hloom.ops.slice import Slice
from hloom.ops.structure import Tuple
from hloom.ops.transpose import Transpose
from hloom.passes.rewrite import Match, Rule
from hloom.shape import Shape
from hloom.types import PrimitiveType

SLICED_COST = 8
"""Cost of copying an element of a sliced operand of a product, in multiply-adds."""

Slices = tuple[SliceDimension, ...]

# Reductions


def _single_step(computation: Computation) -> Operation | None:
    """Returns the element-wise operation that a computation applies to its two parameters; None if it does more."""
    root = computation.root
    if len(computation.instructions) != 3 or not root.op.elementwise or len(root.operands) != 2:
        return None
    parameter_indices = [getattr(operand.op, "number", None) for operand in root.operands]
    return root.op if parameter_indices == [0, 1] and not root.op.has_side_effect else None


def _reduces_single_elements(m: Match) -> bool:
    """Whether one array is reduced along dimensions of size 1, by a single element-wise operation."""
    if len(m.root.operands) != 2 or _single_step(m.op.computation) is None:
        return False
    sizes = m.root.operands[0].shape.dimensions
    return all(sizes[d] == 1 for d in m.op.dimensions)


def _apply_once(m: Match) -> Instruction:
    operand, init = m.root.operands
    step = _single_step(m.op.computation)
    assert step is not None
    if m.op.dimensions:
        operand = m.build(Reshape(), [operand], m.root.shape)
    return m.result(step, m.spread(init, m.root.shape), operand)


def _reduces_nothing(m: Match) -> bool:
    sizes = m.root.operands[0].shape.dimensions
    return len(m.root.operands) == 2 and any(sizes[d] == 0 for d in m.op.dimensions)


REDUCTIONS = [
    Rule("reduce-of-ones", "reduce(*)", _apply_once,
         "each result reduces one element: the combiner is applied once, to whole arrays",
         when=_reduces_single_elements),
    Rule("reduce-of-none", "reduce(*)", lambda m: m.spread(m.root.operands[1], m.root.shape),
         "a reduction of no elements is the initial value", when=_reduces_nothing),
]  # fmt: skip

# Sorts


def _sorts_single_elements(m: Match) -> bool:
    return m.root.operands[0].shape.dimensions[m.op.dimension] <= 1


SORTS = [
    Rule("sort-of-ones", "sort(*)",
         lambda m: m.result(Tuple(), *m.root.operands) if m.root.shape.is_tuple else m.root.operands[0],
         "rows of one element are sorted", when=_sorts_single_elements),
]  # fmt: skip

# Dots


def _untransposed(m: Match, side: str) -> Dot | None:
    """Returns the dot that reads a transposed operand directly; None if that changes the order of free dimensions."""
    op: Dot = m.op
    operand = m.root.operands[side == "rhs"]
    if not isinstance(operand.op, Transpose):
        return None
    permutation = operand.op.permutation
    free_dims = op.lhs_free_dims if side == "lhs" else op.rhs_free_dims
    free = [permutation[d] for d in free_dims(operand.shape.rank)]
    if free != sorted(free):
        return None
    names = (f"{side}_batch_dims", f"{side}_contracting_dims")
    return op.replace(**{name: tuple(permutation[d] for d in getattr(op, name)) for name in names})


def _untranspose(m: Match, side: str) -> Instruction:
    op = _untransposed(m, side)
    assert op is not None
    return m.result(op, m.x, m.y)


def _ends_with_left_dimension(m: Match) -> bool:
    """Whether the last dimension of a transposed dot is a free one of the left operand, and so not the dot's last."""
    dot, last = m.root.operands[0], m.op.permutation[-1:]
    op: Dot = m.inner
    batch, left = len(op.lhs_batch_dims), len(op.lhs_free_dims(m.x.shape.rank))
    is_left = bool(last) and batch <= last[0] < batch + left < dot.shape.rank
    return is_left and len(dot.users) == 1 and dot.sharding is None


def _swap_operands(m: Match) -> Instruction:
    """Swaps the operands of the transposed dot, and applies the rest of the transpose if there is one."""
    dot = m.root.operands[0]
    op: Dot = m.inner
    batch, left = len(op.lhs_batch_dims), len(op.lhs_free_dims(m.x.shape.rank))
    right = dot.shape.rank - batch - left
    swapped = op.replace(
        lhs_batch_dims=op.rhs_batch_dims,
        lhs_contracting_dims=op.rhs_contracting_dims,
        rhs_batch_dims=op.lhs_batch_dims,
        rhs_contracting_dims=op.lhs_contracting_dims,
        operand_precision=op.operand_precision[::-1],
    )
    order = [*range(batch), *range(batch + left, dot.shape.rank), *range(batch, batch + left)]
    new_position = {old: new for new, old in enumerate(order)}
    permutation = tuple(new_position[d] for d in m.op.permutation)
    if permutation == tuple(range(batch + right + left)):
        return m.result(swapped, m.y, m.x)
    sizes = [dot.shape.dimensions[d] for d in order]
    product = m.build(swapped, (m.y, m.x), Shape.array(dot.shape.element_type, sizes))
    return m.result(Transpose(permutation=permutation), product)


def _sliced_operands(m: Match) -> tuple[Slices, Slices]:
    """Returns the parts of both operands of a dot of which a slice of it is computed."""
    dot = m.root.operands[0]
    op: Dot = m.inner
    left, right = ([SliceDimension(0, n) for n in x.shape.dimensions] for x in dot.operands)
    free = [(left, d) for d in op.lhs_free_dims(m.x.shape.rank)] + [
        (right, d) for d in op.rhs_free_dims(m.y.shape.rank)
    ]
    batch = len(op.lhs_batch_dims)
    for part, a, b in zip(m.op.slice, op.lhs_batch_dims, op.rhs_batch_dims, strict=False):
        left[a] = right[b] = part
    for part, (parts, d) in zip(m.op.slice[batch:], free, strict=True):
        parts[d] = part
    return tuple(left), tuple(right)


def _multiply_slices(m: Match) -> Instruction:
    parts, new = _sliced_operands(m), []
    for operand, slices in zip((m.x, m.y), parts, strict=True):
        sizes = [len(range(p.start, p.limit, p.stride)) for p in slices]
        shape = Shape.array(operand.shape.element_type, sizes)
        is_whole = shape.dimensions == operand.shape.dimensions
        new.append(operand if is_whole else m.build(Slice(slice=slices), [operand], shape))
    return m.result(m.inner, *new)


def _slicing_operands_pays(m: Match) -> bool:
    """Whether computing the slice alone takes less work than slicing the operands adds."""
    dot = m.root.operands[0]
    if len(dot.users) > 1 or dot.sharding is not None:
        return False
    terms = math.prod(m.x.shape.dimensions[d] for d in m.inner.lhs_contracting_dims)
    saved = (dot.shape.element_count - m.root.shape.element_count) * terms
    copied = 0
    for operand, slices in zip((m.x, m.y), _sliced_operands(m), strict=True):
        count = math.prod(len(range(p.start, p.limit, p.stride)) for p in slices)
        copied += count if count < operand.shape.element_count else 0
    return saved > SLICED_COST * copied


PRODUCTS = [
    Rule("slice-dot", "slice(dot(x, y))", _multiply_slices, "each element of a product is a sum of its own",
         when=_slicing_operands_pays),
    Rule("transpose-dot", "transpose(dot(x, y))", _swap_operands,
         "the transpose of a product is the product of the swapped transposes",
         when=_ends_with_left_dimension),
    Rule("dot-transpose-left", "dot(transpose(x), y)", lambda m: _untranspose(m, "lhs"),
         "the same products are summed in the same order",
         when=lambda m: _untransposed(m, "lhs") is not None),
    Rule("dot-transpose-right", "dot(x, transpose(y))", lambda m: _untranspose(m, "rhs"),
         "the same products are summed in the same order",
         when=lambda m: _untransposed(m, "rhs") is not None),
    Rule("dot-of-none", "dot(x, y)", lambda m: m.splat(0), "a sum of no products is 0",
         when=lambda m: any(m.x.shape.dimensions[d] == 0 for d in m.op.lhs_contracting_dims)
         and m.element_type is not PrimitiveType.PRED),
]  # fmt: skip

RULES = [*REDUCTIONS, *SORTS, *PRODUCTS]
