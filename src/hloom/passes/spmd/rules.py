"""Partitioning rules: which dimensions of an operation's operands and results are sharded together.

A rule labels dimensions, as in an einsum. Dimensions of one label are sharded along the same axes; the operation on
blocks then gives blocks of the result:

    dot             b m k, b k n -> b m n      k is missing in the result: an all-reduce adds the partial sums
    reduce of dim 1 i j, () -> i               so is j, with the computation of the reduce
    transpose       i j -> j i
    sort of dim 1   i -, i - -> i -, i -       a dimension without a label (-) must be whole

Operations that are not in the table have no labels: operands are gathered, and every partition computes everything.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import cast

from hloom.ir import Instruction, flatten
from hloom.monoids import monoid_of
from hloom.ops import collectives as C
from hloom.ops.broadcast import Broadcast
from hloom.ops.convolution import Convolution
from hloom.ops.dot import Dot
from hloom.ops.elementwise_binary import Add, Monoid
from hloom.ops.fft import Fft
from hloom.ops.gather import Gather
from hloom.ops.linear_algebra import TriangularSolve
from hloom.ops.pad import Concatenate, Pad
from hloom.ops.reduce import Reduce
from hloom.ops.reduce_window import ReduceWindow, SelectAndScatter
from hloom.ops.scatter import Scatter
from hloom.ops.slice import Slice
from hloom.ops.sort import Sort
from hloom.ops.transpose import Transpose
from hloom.passes.edit import is_dynamic
from hloom.shape import Shape

Label = Hashable
Labels = tuple[Label | None, ...]
"""The label of each dimension of one array; None if it must not be sharded."""


@dataclass(frozen=True)
class Rule:
    """The labels of all array leaves of the operands, and of the results.

    Labels that the results lack are reduced by `monoid`; without one they are not sharded. `accumulators` are operands
    that enter the reduction once, whatever the number of partitions: the initial value of a reduce, the operand of a
    scatter.
    """

    operands: tuple[Labels, ...]
    results: tuple[Labels, ...]
    monoid: type[Monoid] | None = None
    accumulators: tuple[int, ...] = ()


def rule_of(instruction: Instruction) -> Rule:
    """The rule of an instruction; arrays with dynamic dimensions are never sharded."""
    make = RULES.get(instruction.opcode, _whole)
    if instruction.op.elementwise:
        make = _elementwise
    if is_dynamic(instruction):
        make = _whole
    return make(instruction)


def _ranks(shapes: Iterable[Shape]) -> list[int]:
    return [shape.rank for shape in flatten([*shapes])]


def _whole(instruction: Instruction) -> Rule:
    return _labelled(instruction, lambda rank: (None,) * rank)


def _labelled(instruction: Instruction, labels: Callable[[int], Labels]) -> Rule:
    """Gives all operands and results the same labels, which depend on the rank alone."""
    operands, results = _ranks(instruction.operand_shapes), _ranks([instruction.shape])
    return Rule(tuple(map(labels, operands)), tuple(map(labels, results)))


def _all_but(whole: Iterable[int]) -> Callable[[Instruction], Rule]:
    """The rule of operations that are element-wise along all dimensions but some."""
    missing = frozenset(whole)
    return lambda i: _labelled(i, lambda rank: tuple(None if d in missing else d for d in range(rank)))


_elementwise = _all_but(())


def _leading(count: Callable[[Instruction], int]) -> Callable[[Instruction], Rule]:
    """The rule of operations that are element-wise along the leading dimensions: batches of matrices."""
    return lambda i: _labelled(i, lambda rank: tuple(d if d < count(i) else None for d in range(rank)))


def _dynamic_slice(instruction: Instruction) -> Rule:
    """Element-wise along the dimensions that are taken whole."""
    operand, *starts = instruction.operand_shapes
    if any(start.rank for start in starts):
        return _whole(instruction)
    return _aligned(instruction, [a == b for a, b in zip(operand.dimensions, instruction.shape.dimensions)])


def _aligned(instruction: Instruction, kept: Sequence[bool]) -> Rule:
    """Element-wise along the dimensions that are `kept`; scalars have no labels."""
    return _labelled(instruction, lambda rank: tuple(d if kept[d] else None for d in range(rank)))


def _broadcast(instruction: Instruction) -> Rule:
    op = cast(Broadcast, instruction.op)
    sizes = instruction.operands[0].shape.dimensions
    kept = [n == instruction.shape.dimensions[d] for n, d in zip(sizes, op.broadcast_dimensions, strict=True)]
    operand = tuple(d if k else None for d, k in zip(op.broadcast_dimensions, kept, strict=True))
    lost = {d for d, k in zip(op.broadcast_dimensions, kept, strict=True) if not k}
    return Rule((operand,), (tuple(None if d in lost else d for d in range(instruction.shape.rank)),))


def _iota(instruction: Instruction) -> Rule:
    return Rule((), (tuple(range(instruction.shape.rank)),))


def _transpose(instruction: Instruction) -> Rule:
    permutation = cast(Transpose, instruction.op).permutation
    return Rule((tuple(range(len(permutation))),), (permutation,))


def _reshape(instruction: Instruction) -> Rule:
    """Matches runs of dimensions with equal products of sizes.

    The first dimensions longer than 1 of two runs get the same label: a block along them is a range of consecutive
    elements.
    """
    source, target = instruction.operands[0].shape.dimensions, instruction.shape.dimensions
    left: list[Label | None] = [None] * len(source)
    right: list[Label | None] = [None] * len(target)
    a = b = 0
    while a < len(source) and b < len(target) and 0 not in source:
        start_a, start_b, size_a, size_b = a, b, source[a], target[b]
        a, b = a + 1, b + 1
        while size_a != size_b:
            if size_a < size_b:
                size_a, a = size_a * source[a], a + 1
            else:
                size_b, b = size_b * target[b], b + 1
        first_a = next((d for d in range(start_a, a) if source[d] > 1), None)
        first_b = next((d for d in range(start_b, b) if target[d] > 1), None)
        if first_a is not None and first_b is not None:
            left[first_a] = right[first_b] = start_a
    return Rule((tuple(left),), (tuple(right),))


def _bitcast_convert(instruction: Instruction) -> Rule:
    shared = min(instruction.shape.rank, instruction.operands[0].shape.rank)
    return _labelled(instruction, lambda rank: tuple(d if d < shared else None for d in range(rank)))


def _dot(instruction: Instruction) -> Rule:
    op = cast(Dot, instruction.op)
    lhs, rhs = instruction.operand_shapes
    left: list[Label] = [f"m{d}" for d in range(lhs.rank)]
    right: list[Label] = [f"n{d}" for d in range(rhs.rank)]
    for name, a, b in (
        ("b", op.lhs_batch_dims, op.rhs_batch_dims),
        ("k", op.lhs_contracting_dims, op.rhs_contracting_dims),
    ):
        for k, (x, y) in enumerate(zip(a, b, strict=True)):
            left[x] = right[y] = f"{name}{k}"
    free = [*(left[d] for d in op.free(lhs.rank, True)), *(right[d] for d in op.free(rhs.rank, False))]
    return Rule((tuple(left), tuple(right)), ((*(left[d] for d in op.lhs_batch_dims), *free),), Add)


def _convolution(instruction: Instruction) -> Rule:
    """Batch and output features are free, input features are summed over, spatial dimensions stay whole."""
    op = cast(Convolution, instruction.op)
    n, rank = op.dimension_numbers, instruction.shape.rank
    features = op.feature_group_count == 1 and op.batch_group_count == 1
    lhs, rhs, out = ([cast(Label | None, None)] * rank for _ in range(3))
    if op.batch_group_count == 1:
        lhs[n.input_batch_dimension] = out[n.output_batch_dimension] = "batch"
    if features:
        lhs[n.input_feature_dimension] = rhs[n.kernel_input_feature_dimension] = "input"
        rhs[n.kernel_output_feature_dimension] = out[n.output_feature_dimension] = "output"
    return Rule((tuple(lhs), tuple(rhs)), (tuple(out),), Add)


def _reduce(instruction: Instruction) -> Rule:
    op = cast(Reduce, instruction.op)
    half = len(instruction.operands) // 2
    rank = instruction.operands[0].shape.rank
    monoid = monoid_of(op.computation) if half == 1 else None
    operand = tuple(None if d in op.dimensions and monoid is None else d for d in range(rank))
    result = tuple(d for d in range(rank) if d not in op.dimensions)
    return Rule((operand,) * half + ((),) * half, (result,) * half, monoid, (1,) if monoid else ())


def _windows(instruction: Instruction) -> Rule:
    """Element-wise along dimensions whose window is a single element with stride 1."""
    op = cast(ReduceWindow | SelectAndScatter, instruction.op)
    trivial = [
        (w.size, w.stride, w.padding_low, w.padding_high, w.base_dilation) == (1, 1, 0, 0, 1) for w in op.window
    ] or [True] * instruction.operands[0].shape.rank
    return _aligned(instruction, trivial)


def _sort(instruction: Instruction) -> Rule:
    return _all_but([cast(Sort, instruction.op).dimension])(instruction)


def _concatenate(instruction: Instruction) -> Rule:
    return _all_but([cast(Concatenate, instruction.op).dimension])(instruction)


def _pad(instruction: Instruction) -> Rule:
    config = cast(Pad, instruction.op).padding_config
    return _aligned(
        instruction, [not (p.edge_padding_low or p.edge_padding_high or p.interior_padding) for p in config]
    )


def _slice(instruction: Instruction) -> Rule:
    sizes = instruction.operands[0].shape.dimensions
    parts = cast(Slice, instruction.op).slice
    return _aligned(instruction, [(p.start, p.limit, p.stride) == (0, n, 1) for p, n in zip(parts, sizes, strict=True)])


def _dynamic_update_slice(instruction: Instruction) -> Rule:
    operand, update = (o.shape.dimensions for o in instruction.operands[:2])
    if any(start.shape.rank for start in instruction.operands[2:]):
        return _whole(instruction)
    return _aligned(instruction, [a == b for a, b in zip(operand, update, strict=True)])


def _fft(instruction: Instruction) -> Rule:
    transformed = len(cast(Fft, instruction.op).fft_length)
    return _leading(lambda i: i.shape.rank - transformed)(instruction)


def _triangular_solve(instruction: Instruction) -> Rule:
    """Labels batches and right-hand sides: the columns of b, or its rows if a is on the right."""
    rank = instruction.shape.rank
    batch = tuple(range(rank - 2))
    left = cast(TriangularSolve, instruction.op).left_side
    b = (*batch, None, "side") if left else (*batch, "side", None)
    return Rule(((*batch, None, None), b), (b,))


def _gather(instruction: Instruction) -> Rule:
    """Labels dimensions that slices take whole, and the batch of index vectors."""
    op = cast(Gather, instruction.op)
    operand, indices = (list[Label | None]([None] * o.shape.rank) for o in instruction.operands)
    result: list[Label | None] = [None] * instruction.shape.rank
    sizes = instruction.operands[0].shape.dimensions
    collapsed = {*op.collapsed_slice_dims, *op.operand_batching_dims}
    for d, r in zip((d for d in range(len(sizes)) if d not in collapsed), op.offset_dims, strict=True):
        if op.slice_sizes[d] == sizes[d]:
            operand[d] = result[r] = f"slice{d}"
    batch = [e for e in range(len(indices)) if e != op.index_vector_dim]
    for e, r in zip(batch, (r for r in range(len(result)) if r not in op.offset_dims), strict=True):
        indices[e] = result[r] = f"batch{e}"
    for d, e in zip(op.operand_batching_dims, op.start_indices_batching_dims, strict=True):
        operand[d] = indices[e]
    return Rule((tuple(operand), tuple(indices)), (tuple(result),))


def _scatter(instruction: Instruction) -> Rule:
    """Labels dimensions as a gather does; updates of an associative reduction may be sharded along the batch."""
    op = cast(Scatter, instruction.op)
    count = len(instruction.operands) // 2
    shapes = instruction.operand_shapes
    operand: list[Label | None] = [None] * shapes[0].rank
    indices: list[Label | None] = [None] * shapes[count].rank
    updates: list[Label | None] = [None] * shapes[-1].rank
    monoid = monoid_of(op.update_computation) if count == 1 else None
    collapsed = {*op.inserted_window_dims, *op.input_batching_dims}
    for d, u in zip((d for d in range(len(operand)) if d not in collapsed), op.update_window_dims, strict=True):
        if shapes[0].dimensions[d] == shapes[-1].dimensions[u]:
            operand[d] = updates[u] = f"slice{d}"
    batch = [e for e in range(len(indices)) if e != op.index_vector_dim]
    batching = dict(zip(op.scatter_indices_batching_dims, op.input_batching_dims, strict=True))
    for e, u in zip(batch, (u for u in range(len(updates)) if u not in op.update_window_dims), strict=True):
        if e in batching:
            operand[batching[e]] = indices[e] = updates[u] = f"batch{e}"
        elif monoid is not None:
            indices[e] = updates[u] = f"batch{e}"
    labels = (*(tuple(operand),) * count, tuple(indices), *(tuple(updates),) * count)
    return Rule(labels, (tuple(operand),) * count, monoid, (0,) if monoid else ())


def _custom_call(instruction: Instruction) -> Rule:
    """Labels the batch dimensions of JAX's linear algebra, leading in all arrays that have them."""
    text = instruction.frontend_attributes.get("num_batch_dims", "")
    count = int(text) if text.isdecimal() else 0
    return _labelled(instruction, lambda rank: tuple(d if d < count <= rank else None for d in range(rank)))


def _all_gather(instruction: Instruction) -> Rule:
    return _all_but([cast(C.AllGather, instruction.op).all_gather_dim])(instruction)


def _reduce_scatter(instruction: Instruction) -> Rule:
    return _all_but([cast(C.ReduceScatter, instruction.op).scatter_dimension])(instruction)


def _all_to_all(instruction: Instruction) -> Rule:
    split = cast(C.AllToAll, instruction.op).split_dimension
    return _all_but([] if split is None else [split])(instruction)


RULES: dict[str, Callable[[Instruction], Rule]] = {
    # element-wise, in addition to operations with that trait
    "copy": _elementwise,
    "map": _elementwise,
    "bitcast-convert": _bitcast_convert,
    # data movement
    "broadcast": _broadcast,
    "iota": _iota,
    "transpose": _transpose,
    "reshape": _reshape,
    "reverse": _elementwise,  # the order of the blocks is reversed, too
    "concatenate": _concatenate,
    "pad": _pad,
    "slice": _slice,
    "dynamic-slice": _dynamic_slice,
    "dynamic-update-slice": _dynamic_update_slice,
    "gather": _gather,
    "scatter": _scatter,
    # products, reductions, sorting
    "dot": _dot,
    "convolution": _convolution,
    "reduce": _reduce,
    "reduce-window": _windows,
    "select-and-scatter": _windows,
    "sort": _sort,
    "topk": _leading(lambda i: i.operands[0].shape.rank - 1),
    # batches
    "cholesky": _leading(lambda i: i.shape.rank - 2),
    "triangular-solve": _triangular_solve,
    "fft": _fft,
    "custom-call": _custom_call,
    # collectives of the program: groups of partitions act on blocks as on whole arrays
    "all-reduce": _elementwise,
    "all-gather": _all_gather,
    "reduce-scatter": _reduce_scatter,
    "all-to-all": _all_to_all,
    "collective-permute": _elementwise,
    "collective-broadcast": _elementwise,
}
