"""Partitioning rules: which dimensions of an operation's operands and results are sharded together.

A rule labels dimensions, as in an einsum. Dimensions of one label are sharded along the same axes; the operation on
blocks then gives blocks of the result. The independent variables of an indexing map are such labels:

    dot             b m k, b k n -> b m n      k is missing in the result: an all-reduce adds the partial sums
    reduce of dim 1 i j, () -> i               so is j, with the computation of the reduce
    transpose       i j -> j i
    sort of dim 1   i -, i - -> i -, i -       a dimension without a label (-) must be whole

Operations with neither rule nor map have no labels: operands are gathered, and every partition computes everything.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace

from hloom.affine import Variable
from hloom.analysis.monoids import monoid_of
from hloom.ir import Instruction, flatten
from hloom.ops import collectives as C
from hloom.ops.attributes import WindowDimension
from hloom.ops.convert import BitcastConvert
from hloom.ops.convolution import Convolution
from hloom.ops.custom_call import CustomCall
from hloom.ops.dot import Dot
from hloom.ops.elementwise_binary import Add, Monoid
from hloom.ops.fft import Fft
from hloom.ops.gather import Gather
from hloom.ops.linear_algebra import Cholesky, TriangularSolve
from hloom.ops.operation import Operation
from hloom.ops.reduce import Reduce
from hloom.ops.reduce_window import SelectAndScatter
from hloom.ops.registry import Registry
from hloom.ops.reshape import Bitcast, Copy, Reshape
from hloom.ops.scatter import Scatter
from hloom.ops.sort import Sort, TopK
from hloom.ops.traits import Start
from hloom.ops.transpose import Reverse
from hloom.passes.edit import is_dynamic
from hloom.shape import Shape
from hloom.system.records import record

Label = Hashable
Labels = tuple[Label | None, ...]
"""The label of each dimension of one array; None if it must not be sharded."""


@record
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


RULES = Registry[[Instruction], Rule]()


def rule_of(instruction: Instruction) -> Rule:
    """The rule of an instruction; arrays with dynamic dimensions and operands of a start are never sharded."""
    op = instruction.op
    if is_dynamic(instruction) or isinstance(op, Start):
        return _whole(op, instruction)
    make = _elementwise if op.elementwise else RULES.get(op) or _mapped
    return make(op, instruction)


def _ranks(shapes: Iterable[Shape]) -> list[int]:
    return [shape.rank for shape in flatten([*shapes])]


def _labelled(instruction: Instruction, labels: Callable[[int], Labels]) -> Rule:
    """Gives all operands and results the same labels, which depend on the rank alone."""
    operands, results = _ranks(instruction.operand_shapes), _ranks([instruction.shape])
    return Rule(tuple(map(labels, operands)), tuple(map(labels, results)))


def _mapped(
    op: Operation, instruction: Instruction, monoid: type[Monoid] | None = None, accumulators: tuple[int, ...] = ()
) -> Rule:
    """Labels dimensions by the variables of the indexing map along which the operation has independent parts."""
    mapped = instruction.indexing_map()
    if mapped is None:
        return _whole(op, instruction)
    labels: dict[Variable | None, Label] = {
        v: v.name for v in mapped.independent if monoid is not None or v in mapped.dimensions
    }
    operands = tuple(tuple(map(labels.get, variables)) for variables in mapped.dimension_variables)
    return Rule(
        operands,
        (tuple(map(labels.get, mapped.dimensions)),) * len([*instruction.shape.leaves()]),
        monoid,
        accumulators,
    )


def _whole(op: Operation, instruction: Instruction) -> Rule:
    return _labelled(instruction, lambda rank: (None,) * rank)


def _elementwise(op: Operation, instruction: Instruction) -> Rule:
    return _labelled(instruction, lambda rank: tuple(range(rank)))


def _all_but(dimension: int | None, instruction: Instruction) -> Rule:
    """Element-wise along all dimensions but one."""
    return _labelled(instruction, lambda rank: tuple(None if d == dimension else d for d in range(rank)))


def _leading(count: int, instruction: Instruction) -> Rule:
    """Element-wise along the leading dimensions, the batches."""
    return _labelled(instruction, lambda rank: tuple(d if d < count else None for d in range(rank)))


def _aligned(instruction: Instruction, kept: Sequence[bool]) -> Rule:
    """Element-wise along the dimensions that are `kept`; scalars have no labels."""
    return _labelled(instruction, lambda rank: tuple(d if kept[d] else None for d in range(rank)))


# Element-wise operations without that trait. The order of the blocks of a reverse is reversed, too; in collectives of
# the program groups of partitions act on blocks as on whole arrays.
for _declaration in (Copy, Reverse, C.AllReduce, C.CollectivePermute, C.CollectiveBroadcast):
    RULES.add(_declaration, _elementwise)


RULES.add(Bitcast, _whole)  # the meaning of a bitcast depends on layouts, which blocks lack


@RULES.rule(Reshape)
def _reshape(op: Reshape, instruction: Instruction) -> Rule:
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


@RULES.rule(BitcastConvert)
def _bitcast_convert(op: BitcastConvert, instruction: Instruction) -> Rule:
    return _leading(min(instruction.shape.rank, instruction.operands[0].shape.rank), instruction)


@RULES.rule(Dot)
def _dot(op: Dot, instruction: Instruction) -> Rule:
    return _mapped(op, instruction, Add)


@RULES.rule(Convolution)
def _convolution(op: Convolution, instruction: Instruction) -> Rule:
    """Batch and output features are free, input features are summed over, spatial dimensions stay whole."""
    n, rank = op.dimension_numbers, instruction.shape.rank
    lhs, rhs, out = (list[Label | None]([None] * rank) for _ in range(3))
    if op.batch_group_count == 1:
        lhs[n.input_batch_dimension] = out[n.output_batch_dimension] = "batch"
    if not op.has_groups:
        lhs[n.input_feature_dimension] = rhs[n.kernel_input_feature_dimension] = "input"
        rhs[n.kernel_output_feature_dimension] = out[n.output_feature_dimension] = "output"
    return Rule((tuple(lhs), tuple(rhs)), (tuple(out),), Add)


@RULES.rule(Reduce)
def _reduce(op: Reduce, instruction: Instruction) -> Rule:
    monoid = monoid_of(op.computation) if len(instruction.operands) == 2 else None
    return _mapped(op, instruction, monoid, (1,) if monoid else ())


@RULES.rule(SelectAndScatter)
def _select_and_scatter(op: SelectAndScatter, instruction: Instruction) -> Rule:
    """Element-wise along dimensions whose window is a single element with stride 1."""
    rank = instruction.shape.rank
    return _aligned(instruction, [window == WindowDimension() for window in op.window] or [True] * rank)


@RULES.rule(Sort)
def _sort(op: Sort, instruction: Instruction) -> Rule:
    return _all_but(op.dimension, instruction)


@RULES.rule(TopK)
def _top_k(op: TopK, instruction: Instruction) -> Rule:
    return _leading(instruction.operands[0].shape.rank - 1, instruction)


@RULES.rule(Fft)
def _fft(op: Fft, instruction: Instruction) -> Rule:
    return _leading(instruction.shape.rank - len(op.fft_length), instruction)


@RULES.rule(Cholesky)
def _cholesky(op: Cholesky, instruction: Instruction) -> Rule:
    return _leading(instruction.shape.rank - 2, instruction)


@RULES.rule(TriangularSolve)
def _triangular_solve(op: TriangularSolve, instruction: Instruction) -> Rule:
    """Labels batches and right-hand sides: the columns of b, or its rows if a is on the right."""
    rank = instruction.shape.rank
    batch = tuple(range(rank - 2))
    left = op.left_side
    b = (*batch, None, "side") if left else (*batch, "side", None)
    return Rule(((*batch, None, None), b), (b,))


@RULES.rule(Gather)
def _gather(op: Gather, instruction: Instruction) -> Rule:
    """Labels the batch dimensions of the indices, too, where none is read: every start is clamped to 0."""
    rule = _mapped(op, instruction)
    batch = (label for d, label in enumerate(rule.results[0]) if d not in op.offset_dims)
    rank = instruction.operands[1].shape.rank
    indices = tuple(None if d == op.index_vector_dim else next(batch) for d in range(rank))
    return replace(rule, operands=(rule.operands[0], indices))


@RULES.rule(Scatter)
def _scatter(op: Scatter, instruction: Instruction) -> Rule:
    """Labels dimensions as a gather does; updates of an associative reduction may be sharded along the batch."""
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


@RULES.rule(CustomCall)
def _custom_call(op: CustomCall, instruction: Instruction) -> Rule:
    """Labels the batch dimensions of JAX's linear algebra, leading in all arrays that have them."""
    text = instruction.frontend_attributes.get("num_batch_dims", "")
    count = int(text) if text.isdecimal() else 0
    return _labelled(instruction, lambda rank: tuple(d if d < count <= rank else None for d in range(rank)))


@RULES.rule(C.AllGather)
def _all_gather(op: C.AllGather, instruction: Instruction) -> Rule:
    return _all_but(op.all_gather_dim, instruction)


@RULES.rule(C.ReduceScatter)
def _reduce_scatter(op: C.ReduceScatter, instruction: Instruction) -> Rule:
    return _all_but(op.scatter_dimension, instruction)


@RULES.rule(C.AllToAll)
def _all_to_all(op: C.AllToAll, instruction: Instruction) -> Rule:
    return _all_but(op.split_dimension, instruction)
