"""Kernels: loop nests that store expressions into buffers, each with its schedule.

parallel i < 4096:
  vector j < 1024 lanes 16:
    b2[1024*i + j] = add(b0[1024*i + j], b1[j])
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache, partial

from hloom.affine import Atom, Expression, Index, Quotient, Remainder, Variable
from hloom.loops.expression_space import ExpressionSpace
from hloom.loops.expressions import MAX_TEXT, Apply, Load, Reduction, ReductionResult, text_size, walk
from hloom.ops.elementwise_binary import Add, Multiply
from hloom.ops.select import Select
from hloom.system.lazy import cached_property
from hloom.system.records import record
from hloom.types import PrimitiveType


@record(slots=True)
class BufferType:
    """A buffer that a kernel takes as an argument, or allocates (scratch): `size` elements in row-major order."""

    type: PrimitiveType
    size: int
    role: str
    """Role of the buffer: "input", "output", "temporary" between nests, or "scratch" inside one nest."""

    @property
    def byte_size(self) -> int:
        """The size of the buffer in bytes."""
        return self.size * self.type.byte_width


@record(slots=True)
class Store:
    """The store of a value to the element of a buffer at a linear index."""

    buffer: int
    index: Index
    value: Expression


@record(slots=True)
class Schedule:
    """The vectorisation, tiling and parallelisation of a nest.

    The loop `vector` is vectorised with `lanes` lanes. The loop `transposed` is split into tiles of as many iterations:
    elements that are contiguous along it are loaded as vectors, `tile_step` iterations together, and transposed in
    registers; `tile_width` elements of a row are stored at once. Unless `chunk` is 0, the outermost loop is parallel
    and split into chunks of `chunk` iterations. `staged` lists expressions of a reduction that later loops use again,
    as (expression, scratch buffer, index): their values are stored there. Unless `sum_lanes` is 0, every sum of floats
    has this number of partial sums, whatever the loops around it.
    """

    vector: Variable | None = None
    lanes: int = 0
    transposed: Variable | None = None
    tile_step: int = 0
    tile_width: int = 0
    chunk: int = 0
    staged: tuple[tuple[Expression, int, Index], ...] = ()
    sum_lanes: int = 0


@record
class Nest:
    """Loops, from the outermost to the innermost, around stores."""

    loops: tuple[Variable, ...]
    stores: tuple[Store, ...]
    schedule: Schedule = Schedule()

    def with_loops(self, loops: Iterable[Variable], schedule: Schedule | None = None) -> Nest:
        """Returns the nest with other loops, or another schedule: what was derived from the rest stays known."""
        nest = Nest(tuple(loops), self.stores, schedule or self.schedule)
        kept = _DERIVED if nest.loops == self.loops else _OF_STORES
        nest.__dict__.update({name: known for name, known in self.__dict__.items() if name in kept})
        return nest

    def with_schedule(self, schedule: Schedule) -> Nest:
        """Returns the nest with another schedule."""
        return self.with_loops(self.loops, schedule)

    def has_fixed_order(self, reduction: Reduction) -> bool:
        """Whether a reduction adds up in a fixed order: a sum or product of floats in a batch-invariant program."""
        is_sum = reduction.monoid in (Add, Multiply) and not reduction.initial[0].type.is_integer
        return is_sum and self.schedule.sum_lanes > 0

    @property
    def iterations(self) -> int:
        """The number of iterations of all loops together."""
        return math.prod(loop.extent for loop in self.loops)

    @cached_property
    def values(self) -> list[Expression]:
        """The values of the stores."""
        return [store.value for store in self.stores]

    @cached_property
    def written(self) -> set[int]:
        """The buffers that are stored to."""
        return {store.buffer for store in self.stores}

    @property
    def is_perfect(self) -> bool:
        """Whether all stores are in the innermost loop."""
        return len(self.stores) == 1 or all(s.index.variables.issuperset(self.loops) for s in self.stores)

    @property
    def reads_written_buffers(self) -> bool:
        """Whether the nest loads from a buffer to which it stores."""
        return any(load.buffer in self.written for load in self.loads)

    @cached_property
    def expressions(self) -> list[Expression]:
        """The expressions from which the stored values are computed, operands before users."""
        return walk(self.values)

    @cached_property
    def reductions(self) -> list[Reduction]:
        """The reductions among the expressions, inner ones first, without duplicates."""
        return _reductions_among(self.expressions)

    @cached_property
    def loads(self) -> list[Load]:
        """The loads among the expressions."""
        return _loads_among(self.expressions)

    @cached_property
    def all_expressions(self) -> list[Expression]:
        """The expressions, including those inside the indices of the stores, operands before users."""
        reads = [read for store in self.stores for read in store.index.reads]
        return walk([*self.values, *reads]) if reads else self.expressions

    @cached_property
    def all_loads(self) -> list[Load]:
        """The loads among all expressions."""
        return _loads_among(self.all_expressions)

    @cached_property
    def indices(self) -> list[Index]:
        """The indices of the stores and of all expressions."""
        indices = [store.index for store in self.stores]
        for expression in self.all_expressions:
            indices += expression.indices
        return indices

    @cached_property
    def cost(self) -> int:
        """The cost in vectorised element additions, with loop-invariant expressions hoisted."""
        evaluations = cache(partial(_evaluations, self))
        inside = {id(e) for reduction in self.reductions for e in walk(reduction.values)}
        total = 2 * len(self.stores) * self.iterations
        for expression in self.expressions:
            if id(expression) not in inside:
                total += expression_cost(expression) * evaluations(expression.variables)
        for reduction in self.reductions:
            steps = math.prod(variable.extent for variable in reduction.over)
            body = sum(expression_cost(e) for e in walk(reduction.values) if not e.variables.isdisjoint(reduction.over))
            total += body * steps * evaluations(reduction.variables)
        return total


_DERIVED = {name for name, value in vars(Nest).items() if isinstance(value, cached_property)}
"""The properties of nests that are computed once."""
_OF_STORES = _DERIVED - {"cost"}
"""The properties of nests that depend on their stores alone; the others depend on the loops, too."""


@dataclass(slots=True)
class Kernel:
    """Nests that run in sequence on one set of buffers."""

    buffers: list[BufferType]
    nests: list[Nest]
    space: ExpressionSpace
    in_place: frozenset[tuple[int, int]] = field(default_factory=frozenset)
    """Pairs (output, input) of buffers that may share memory: elements are read only in iterations that write them."""
    reads: frozenset[int] = field(default_factory=frozenset)
    """The buffers that the kernel reads."""
    names: Callable[[], dict[int, str]] = dict
    """Returns the name of the instruction that each expression, given by its id, was emitted for."""

    def to_text(self) -> str:
        """Prints the buffers and the nests."""
        lines = [f"b{i}: {b.role} {b.type}[{b.size}]" for i, b in enumerate(self.buffers)]
        for nest in self.nests:
            lines += nest_lines(nest)
        return "\n".join(lines)


def nest_lines(nest: Nest) -> list[str]:
    """Prints a nest: a line for each loop, and one for each store or, where that is too long, for each expression."""
    schedule = nest.schedule
    lines: list[str] = []
    for depth, loop in enumerate(nest.loops):
        kind = "parallel" if depth == 0 and schedule.chunk else "for"
        step = f" by {schedule.chunk}" if depth == 0 and schedule.chunk else ""
        if loop is schedule.vector:
            kind, step = f"{kind} vector" if kind != "for" else "vector", f"{step} lanes {schedule.lanes}"
        if loop is schedule.transposed:
            kind += " tile"
        lines.append("  " * depth + f"{kind} {loop} < {loop.extent}{step}:")
    indent = "  " * len(nest.loops)
    if text_size([*nest.values, *(read for store in nest.stores for read in store.index.reads)]) > MAX_TEXT:
        return lines + [indent + line for line in _expression_lines(nest)]
    lines += [f"{indent}keep b{buffer}[{index}] = {expression}" for expression, buffer, index in schedule.staged]
    return lines + [f"{indent}b{store.buffer}[{store.index}] = {store.value}" for store in nest.stores]


def _expression_lines(nest: Nest) -> list[str]:
    """Prints one line for each expression, with the names of those that it is computed from."""
    names: dict[Expression, str] = {}
    lines: list[str] = []
    for expression in nest.all_expressions:
        text = expression.text(names.__getitem__)
        if expression.children:
            names[expression] = f"t{len(lines)}"
            lines.append(f"t{len(lines)} = {text}")
        else:
            names[expression] = text
    lines += [f"keep b{b}[{index.text(names.__getitem__)}] = {names[kept]}" for kept, b, index in nest.schedule.staged]
    return lines + [f"b{s.buffer}[{s.index.text(names.__getitem__)}] = {names[s.value]}" for s in nest.stores]


def atoms_of(index: Index) -> list[Atom]:
    """The distinct atoms of an index, including those inside quotients and remainders."""
    atoms: dict[Atom, None] = {}
    pending = [index]
    while pending:
        for atom, _ in pending.pop().terms:
            if isinstance(atom, (Quotient, Remainder)) and atom not in atoms:
                pending.append(atom.operand)
            atoms[atom] = None
    return [*atoms]


def reductions_of(expressions: Sequence[Expression]) -> list[Reduction]:
    """The reductions inside the expressions, inner ones first, without duplicates."""
    return _reductions_among(walk(expressions))


def _reductions_among(expressions: Sequence[Expression]) -> list[Reduction]:
    return list(dict.fromkeys(e.reduction for e in expressions if isinstance(e, ReductionResult)))


def loads_of(expressions: Sequence[Expression]) -> list[Load]:
    """The loads inside the expressions."""
    return _loads_among(walk(expressions))


def _loads_among(expressions: Sequence[Expression]) -> list[Load]:
    return [e for e in expressions if isinstance(e, Load)]


def in_place_pairs(nests: Sequence[Nest], space: ExpressionSpace) -> set[tuple[int, int]]:
    """Pairs (written, read) of buffers that may share memory: elements are read only in iterations that write them, or
    in reductions that end before.
    """
    if len(nests) != 1:
        return set()
    (nest,) = nests
    if not nest.iterations:
        return set()
    reduced: dict[int, set[Index | None]] = {}
    for reduction in nest.reductions:
        for load in loads_of([*reduction.values, *reduction.initial]):
            reduced.setdefault(id(load), set()).add(_index_of_row(nest, space, reduction, load))
    read: dict[int, set[Index | None]] = {}
    for load in nest.all_loads:
        read.setdefault(load.buffer, set()).update(reduced.get(id(load), {load.index}))
    written: dict[int, set[Index]] = {}
    for store in nest.stores:
        written.setdefault(store.buffer, set()).add(store.index)
    by_index: dict[Index | None, list[int]] = {}
    for buffer, indices in read.items():
        if len(indices) == 1:
            by_index.setdefault(next(iter(indices)), []).append(buffer)
    return {
        (buffer, other)
        for buffer, indices in written.items()
        if len(indices) == 1
        for other in by_index.get(next(iter(indices)), ())
    }


def _index_of_row(nest: Nest, space: ExpressionSpace, reduction: Reduction, load: Load) -> Index | None:
    """The index of the elements that a reduction of whole rows loads, in the loop over the elements of a row; None for
    other reductions.

    Where rows have results of their own, loops keep their order: all such reductions of a row precede that loop.
    """
    if nest.is_perfect or not load.in_bounds or len(reduction.over) != 1:
        return None
    ((variable,), loop) = reduction.over, nest.loops[-1]
    if variable.extent != loop.extent or loop in reduction.variables:
        return None
    return space.substitute_index(load.index, {variable: space.indices.of(loop)})


@record(slots=True)
class InvariantSelect:
    """A loop-invariant select of whole arrays: `kept` if `condition` equals `keeps`, else `other`.

    `kept` loads the element at the index of the store, so that nothing changes if both buffers are the same.
    """

    condition: Expression
    keeps: bool
    kept: Load
    other: Expression


def invariant_select(nest: Nest) -> InvariantSelect | None:
    """The loop-invariant select that is the whole body of a nest, as in `select(is_valid, result, nan)`; else None."""
    (store, *more) = nest.stores
    value = store.value
    if more or not nest.loops or not isinstance(value, Apply) or not isinstance(value.op, Select):
        return None
    condition, then, otherwise = value.operands
    for keeps, kept, other in ((True, then, otherwise), (False, otherwise, then)):
        if isinstance(kept, Load) and kept.index == store.index and not condition.variables:
            return InvariantSelect(condition, keeps, kept, other)
    return None


BF16_ROUNDING_COST = 4
"""The cost of rounding to bf16: no instruction implements the rounding that the specification requires."""


def expression_cost(expression: Expression) -> int:
    """The cost of one evaluation of the expression without its operands, in additions."""
    is_bf16, is_narrow = expression.type is PrimitiveType.BF16, expression.type.bits < 32
    if isinstance(expression, Apply):
        return expression.op.cost + (BF16_ROUNDING_COST if is_bf16 else is_narrow)
    return 2 + is_bf16 if isinstance(expression, Load) else 1


def _evaluations(nest: Nest, variables: frozenset[Variable]) -> int:
    """The number of evaluations of an expression that depends on these variables, in the innermost of their loops."""
    depth = max((d + 1 for d, loop in enumerate(nest.loops) if loop in variables), default=0)
    iterations = math.prod(loop.extent for loop in nest.loops[:depth])
    return iterations * math.prod(variable.extent for variable in variables if variable not in nest.loops)
