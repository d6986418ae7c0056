"""Lowers an instruction to a kernel: loop nests that store expressions of its operands' elements."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from hloom.affine import Index, Variable, row_major_strides
from hloom.ir import Computation, Instruction
from hloom.loops.expression_space import ExpressionSpace
from hloom.loops.expressions import FunctionCall, Load, ReductionResult
from hloom.loops.moved_bits import with_bits_moved
from hloom.loops.nest import BufferType, Kernel, Nest, Store, in_place_pairs
from hloom.loops.pull import Puller, PullIndexing, can_pull
from hloom.loops.scalar_computation import CanApply, can_compute, is_applied_to_elements
from hloom.ops.control_flow import Fusion
from hloom.ops.pad import Concatenate
from hloom.ops.reduce_window import ReduceWindow, cumulative_dimension
from hloom.ops.reshape import Bitcast
from hloom.ops.select import Select
from hloom.ops.slice import DynamicUpdateSlice, start_indices
from hloom.ops.structure import Constant, Tuple
from hloom.ops.traits import AppliesScalar, Reduction
from hloom.shape import Shape
from hloom.system.records import record
from hloom.types import PrimitiveType

Loops = tuple[tuple[Variable, ...], tuple[Index, ...]]
"""Loops, and their counters as indices."""

MAX_WINDOW = 128
"""The largest number of elements of a window that is reduced for each result, unless the combiner is a function."""
MAX_CUMULATIVE_WINDOW = 12
"""The limit for windows of cumulative reductions along contiguous dimensions or in small arrays."""
CUMULATIVE_ELEMENTS = 1 << 14
"""The number of elements below which an array of a cumulative reduction is small."""
MAX_GROUPED_STORES = 128
"""The largest number of stores in the nest of a concatenation: LLVM takes more than linear time for long functions."""


@record(slots=True)
class Lowered:
    """A kernel whose buffers are the distinct operands of an instruction (arrays), followed by its results."""

    kernel: Kernel
    operands: tuple[int, ...]
    """The operand index of each input buffer."""
    copies: tuple[tuple[int, int], ...] = ()
    """Pairs (output, input) of buffers: the output must be a copy of the input, of which the kernel updates a part."""


def can_lower(instruction: Instruction, can_apply: CanApply, any_window: bool = False) -> bool:
    """Whether an instruction, outside or inside a fusion, has an element function that the target can compute.

    `any_window` lifts the limits on the size of reduced windows.
    """
    # No tuples but the results of reductions.
    op = instruction.op
    is_tuple = instruction.shape.is_tuple and isinstance(op, Reduction)
    results = instruction.shape.elements if is_tuple else (instruction.shape,)
    operands = instruction.operand_shapes
    for shape in (*results, *operands):
        if shape.layout is None or shape.is_dynamic:
            return False
    types = tuple([shape.element_type for shape in operands])
    result = results[0].element_type
    if is_applied_to_elements(op):
        return can_apply(op, result, types)
    if not can_pull(op) or not all(_can_hold(can_apply, type) for type in (*types, result)):
        return False
    if isinstance(op, AppliesScalar):
        (computation,) = op.computations
        is_limited = isinstance(op, ReduceWindow) and not any_window and _has_large_windows(op, operands[0].dimensions)
        if is_limited and not any(isinstance(i.op, FunctionCall) for i in computation.instructions):
            return False
        return can_compute(computation, can_apply)
    if isinstance(op, Bitcast):
        return _keeps_elements(instruction.shape, operands[0])
    return not isinstance(op, Constant) or _is_uniform(op)


def _keeps_elements(new: Shape, old: Shape) -> bool:
    """Whether a bitcast between these shapes is a reshape."""
    same_type = new.element_type is old.element_type
    return same_type and all(layout is not None and layout.is_dense_row_major for layout in (new.layout, old.layout))


def _has_large_windows(op: ReduceWindow, sizes: tuple[int, ...]) -> bool:
    """Whether a kernel that reuses the result of the previous window is faster than reducing each window."""
    dimension, length = cumulative_dimension(op.window, sizes), math.prod(d.size for d in op.window)
    if dimension is None:
        return length > MAX_WINDOW
    is_short = math.prod(sizes[dimension + 1 :]) == 1 or math.prod(sizes) < CUMULATIVE_ELEMENTS
    return length > (MAX_CUMULATIVE_WINDOW if is_short else 2)


@functools.cache
def _can_hold(can_apply: CanApply, type: PrimitiveType) -> bool:
    """Whether the target supports values of a type."""
    return can_apply(Select(), type, (PrimitiveType.PRED, type, type))


def _is_uniform(constant: Constant) -> bool:
    """Whether all elements of a constant have the same bits."""
    value = constant.literal.value
    if value.size <= 1:
        return True
    elements = np.ascontiguousarray(value).reshape(value.size, -1).view(np.uint8)
    return bool((elements == elements[0]).all())


def lower(instruction: Instruction) -> Lowered:
    """Lowers a fusion, or an instruction that `can_lower` accepts, to a kernel."""
    if isinstance(op := instruction.op, Fusion):
        computation = op.calls
        sources = dict(zip(computation.parameters, range(len(instruction.operands)), strict=True))
        roots = outputs_of(computation)
    else:
        sources = {}
        for operand_index, operand in enumerate(instruction.operands):
            sources.setdefault(operand, operand_index)
        roots = [instruction]
    return _Lowering(instruction, sources, roots).lowered()


def copy_kernel(size: int) -> Kernel:
    """A kernel that copies `size` bytes."""
    space = ExpressionSpace([size, size])
    buffers = [BufferType(PrimitiveType.U8, size, role) for role in ("input", "output")]
    loop = space.indices.variable("i", size)
    index = space.indices.of(loop)
    return Kernel(buffers, [Nest((loop,), (Store(1, index, space.load(PrimitiveType.U8, 0, index)),))], space)


def outputs_of(computation: Computation) -> list[Instruction]:
    """The instructions whose values a fused computation returns: its root, or the operands of a root tuple."""
    root = computation.root
    return list(root.operands) if isinstance(root.op, Tuple) else [root]


class _Lowering:
    """The nests and buffers of one instruction; `sources` maps parameters or operands to operand indices."""

    def __init__(self, instruction: Instruction, sources: dict[Instruction, int], roots: list[Instruction]) -> None:
        self.roots = roots
        buffer_indices: dict[int, int] = {}
        inputs: list[int] = []
        distinct: dict[Instruction, int] = {}
        for source, operand_index in sources.items():
            operand = instruction.operands[operand_index]
            if id(operand) not in buffer_indices:
                buffer_indices[id(operand)] = len(inputs)
                inputs.append(operand_index)
            distinct[source] = buffer_indices[id(operand)]
        self.operand_names = {source: instruction.operands[k].name for source, k in sources.items()}
        self.inputs = tuple(inputs)
        shapes = [instruction.operands[operand_index].shape for operand_index in inputs]
        self.buffers = [BufferType(s.element_type, s.element_count, "input") for s in shapes]
        results = [leaf for root in roots for leaf in root.shape.leaves()]
        self.buffers += [BufferType(s.element_type, s.element_count, "output") for s in results]
        self.space = ExpressionSpace([buffer.size for buffer in self.buffers])
        self.puller = Puller(self.space, distinct)
        self.copies: list[tuple[int, int]] = []
        self.loops_of = functools.cache(self._loops)

    def lowered(self) -> Lowered:
        """The kernel, with a nest or several for each root."""
        nests, updates = list[Nest](), list[Nest]()
        output = len(self.inputs)
        plain: list[tuple[Instruction, int]] = []
        for root in self.roots:
            part = self._dynamic_update_slice(root, output)
            if part is not None:
                updates.append(part)
            elif isinstance(op := root.op, Concatenate):
                nests += self._concatenate(op, root, output)
            else:
                plain.append((root, output))
            output += sum(1 for _ in root.shape.leaves())
        nests += _joined([*updates, *self._stores(plain)])
        nests = with_bits_moved(self.space, self.buffers, [nest for nest in nests if nest.iterations])
        kernel = Kernel(self.buffers, nests, self.space)
        kernel.in_place = frozenset(in_place_pairs(kernel.nests, self.space))
        kernel.reads = frozenset(e.buffer for nest in nests for e in nest.all_expressions if isinstance(e, Load))
        kernel.names = functools.partial(self._names, kernel)
        return Lowered(kernel, self.inputs, tuple(self.copies))

    def _names(self, kernel: Kernel) -> dict[int, str]:
        """The name of the first instruction for which each expression or reduction (by id) was made.

        Parameters of a fusion have the names of their operands.
        """
        names: dict[int, str] = {}
        for (instruction, _), expressions in self.puller.pulled.items():
            name = self.operand_names.get(instruction, instruction.name)
            for expression in expressions:
                names.setdefault(id(expression), name)
                if isinstance(expression, ReductionResult):
                    names.setdefault(id(expression.reduction), name)
        roots = [root.name for root in self.roots for _ in root.shape.leaves()]
        for store in (store for nest in kernel.nests for store in nest.stores):
            # The schedule may have replaced the value by one that loads staged values.
            names.setdefault(id(store.value), roots[store.buffer - len(self.inputs)])
        return names

    def _loops(self, sizes: Sequence[int]) -> Loops:
        """A loop for each dimension of an array."""
        indices = self.space.indices
        loops = tuple(indices.variable(f"i{d}", size) for d, size in enumerate(sizes))
        return loops, tuple(indices.of(v) if v.extent else indices.constant(0) for v in loops)

    def _stores(self, roots: list[tuple[Instruction, int]]) -> list[Nest]:
        """Makes one nest for all results of the same dimension sizes, and for those of their rows."""
        stores: dict[tuple[int, ...], list[Store]] = {}
        all_sizes = {next(root.shape.leaves()).dimensions for root, _ in roots}
        for root, output in roots:
            sizes = next(root.shape.leaves()).dimensions
            whole = next((each for each in all_sizes if each[:-1] == sizes and sizes), sizes)
            index = self.loops_of(whole)[1][: len(sizes)]
            offset = self.space.indices.linear(index, row_major_strides(sizes))
            values = self.puller.elements(root, index)
            stores.setdefault(whole, []).extend(Store(output + k, offset, value) for k, value in enumerate(values))
        return [Nest(self.loops_of(sizes)[0], tuple(found)) for sizes, found in stores.items()]

    def _dynamic_update_slice(self, root: Instruction, output: int) -> Nest | None:
        """Stores the update alone: the result starts as a copy of the operand.

        None for other operations, and for an update that is computed from other elements of the operand than it
        overwrites: they could be overwritten before they are read.
        """
        if not isinstance(root.op, DynamicUpdateSlice) or root.operands[0] not in self.puller.buffers:
            return None
        operand, update = root.operands[:2]
        source = self.puller.buffers[operand]
        starts = start_indices(PullIndexing(self.puller, root), 2, update.shape.dimensions)
        nest = self._store_part(root.shape, output, update, starts, self._loops_of_part(update.shape))
        (store,) = nest.stores
        if any(load.buffer == source and load.index != store.index for load in nest.loads):
            return None
        self.copies.append((output, source))
        return nest

    def _loops_of_part(self, part: Shape) -> Loops:
        """The loops over a part that an update writes: those of a root with as many elements, or of a like part."""
        for root in self.roots:
            whole = next(root.shape.leaves())
            is_alike = whole.non_degenerate_dimensions == part.non_degenerate_dimensions
            if is_alike and not isinstance(root.op, (Concatenate, DynamicUpdateSlice)):
                loops, index = self.loops_of(whole.dimensions)
                long = (i for i, size in zip(index, whole.dimensions, strict=True) if size != 1)
                first = self.space.indices.constant(0)
                return loops, tuple(first if size == 1 else next(long) for size in part.dimensions)
        return self.loops_of(part.dimensions)

    def _concatenate(self, op: Concatenate, root: Instruction, output: int) -> list[Nest]:
        """Makes a store for each operand of a concatenation, in one nest for adjacent ones that are similar enough."""
        groups: list[_StoreGroup] = []
        start = 0
        dimension = op.dimension
        loops_of = functools.cache(self._loops)
        for operand in root.operands:
            sizes = operand.shape.dimensions
            starts = [self.space.indices.constant(0)] * root.shape.rank
            starts[dimension] = self.space.indices.constant(start)
            piece = self._store_part(root.shape, output, operand, starts, loops_of(sizes))
            if not groups or not groups[-1].accepts(piece, is_thin=math.prod(sizes[dimension:]) == 1):
                groups.append(_StoreGroup(piece.loops))
            groups[-1].add(piece)
            start += sizes[dimension]
        return [Nest(group.loops, tuple(group.stores)) for group in groups]

    def _store_part(self, whole: Shape, output: int, part: Instruction, starts: Sequence[Index], over: Loops) -> Nest:
        """A nest that stores the elements of `part` into the result at the start indices `starts`."""
        loops, index = over
        indices = self.space.indices
        positions = [indices.add(i, s) for i, s in zip(index, starts, strict=True)]
        offset = indices.linear(positions, row_major_strides(whole.dimensions))
        return Nest(loops, (Store(output, offset, self.puller.element(part, index)),))


def _joined(nests: Sequence[Nest]) -> list[Nest]:
    """Joins the nests that have the same loops."""
    stores: dict[tuple[Variable, ...], list[Store]] = {}
    for nest in nests:
        stores.setdefault(nest.loops, []).extend(nest.stores)
    return [Nest(loops, tuple(group)) for loops, group in stores.items()]


@dataclass
class _StoreGroup:
    """The stores of adjacent operands of a concatenation in one nest."""

    loops: tuple[Variable, ...]
    stores: list[Store] = field(default_factory=list)
    loads: set[Load] = field(default_factory=set)

    def accepts(self, piece: Nest, is_thin: bool) -> bool:
        """Whether another operand's store belongs here: thin ones interleave, others must share a load."""
        has_room = len(self.stores) < MAX_GROUPED_STORES
        return has_room and self.loops == piece.loops and (is_thin or not self.loads.isdisjoint(piece.loads))

    def add(self, piece: Nest) -> None:
        """Adds the store of another operand."""
        self.stores += piece.stores
        self.loads.update(piece.loads)
