"""A kernel: nests of loops that store expressions into buffers, with the schedule by which they run.

parallel i < 4096:
  vector j < 1024 by 16:
    b2[1024*i + j] = add(b0[1024*i + j], b1[j])
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from hloom.loops.expressions import Apply, ExpressionSpace, Load, Reduction, ReductionResult, Where, walk
from hloom.loops.index import Atom, Expression, Index, Quotient, Remainder, Variable
from hloom.passes.costs import element_cost
from hloom.types import PrimitiveType


@dataclass(frozen=True, slots=True)
class BufferType:
    """What a kernel's argument points to: `size` elements, row-major; a scratch is the kernel's own."""

    type: PrimitiveType
    size: int
    role: str
    """"input", "output", "temporary" between nests, or "scratch" inside one."""

    @property
    def byte_size(self) -> int:
        return self.size * self.type.byte_width


@dataclass(frozen=True, slots=True)
class Store:
    buffer: int
    index: Index
    value: Expression


@dataclass(frozen=True, slots=True)
class Schedule:
    """How a nest runs.

    `vector` is the loop whose iterations run `lanes` at a time; `transposed` is a loop that is cut into tiles of as
    many iterations, so that elements contiguous along it are read as vectors and turned in registers.
    The first loop is cut into chunks of `chunk` iterations for the threads where `chunk` is not 0. `staged` names
    expressions of a reduction that later loops need again: they are kept in a scratch buffer.
    """

    vector: Variable | None = None
    lanes: int = 0
    transposed: Variable | None = None
    chunk: int = 0
    staged: tuple[tuple[Expression, int, Index], ...] = ()


@dataclass(frozen=True)
class Nest:
    """Loops from the outermost to the innermost around stores."""

    loops: tuple[Variable, ...]
    stores: tuple[Store, ...]
    schedule: Schedule = Schedule()

    @property
    def iterations(self) -> int:
        return math.prod(loop.extent for loop in self.loops)

    @cached_property
    def values(self) -> list[Expression]:
        """What is stored."""
        return [store.value for store in self.stores]

    @cached_property
    def written(self) -> set[int]:
        """The buffers that are stored to."""
        return {store.buffer for store in self.stores}

    @property
    def is_perfect(self) -> bool:
        """Whether everything is stored in the innermost loop."""
        return len(self.stores) == 1 or all(s.index.variables.issuperset(self.loops) for s in self.stores)

    @property
    def reads_written_buffers(self) -> bool:
        return any(load.buffer in self.written for load in self.loads)

    @cached_property
    def expressions(self) -> list[Expression]:
        """All that values are computed from, operands before users."""
        return walk(self.values)

    @cached_property
    def reductions(self) -> list[Reduction]:
        """Inner ones first, each once."""
        return _reductions_among(self.expressions)

    @cached_property
    def loads(self) -> list[Load]:
        """What values read from buffers."""
        return _loads_among(self.expressions)


@dataclass(slots=True)
class Kernel:
    """Nests that run one after another on one set of buffers."""

    buffers: list[BufferType]
    nests: list[Nest]
    space: ExpressionSpace
    in_place: frozenset[tuple[int, int]] = field(default_factory=frozenset)
    """Pairs (output, input) of buffers that may be one: every element is read before, and where, it is written."""
    reads: frozenset[int] = field(default_factory=frozenset)
    """The buffers that are read."""
    names: Callable[[], dict[int, str]] = dict
    """Which instruction an expression, by its identity, was made for; to be shown."""

    def to_text(self) -> str:
        lines = [f"b{i}: {b.role} {b.type}[{b.size}]" for i, b in enumerate(self.buffers)]
        for nest in self.nests:
            lines += nest_lines(nest)
        return "\n".join(lines)


def nest_lines(nest: Nest) -> list[str]:
    schedule = nest.schedule
    lines: list[str] = []
    for depth, loop in enumerate(nest.loops):
        words = "parallel" if depth == 0 and schedule.chunk else "for"
        by = f" by {schedule.chunk}" if depth == 0 and schedule.chunk else ""
        if loop is schedule.vector:
            words, by = f"{words} vector" if words != "for" else "vector", f"{by} lanes {schedule.lanes}"
        if loop is schedule.transposed:
            words += " tile"
        lines.append("  " * depth + f"{words} {loop} < {loop.extent}{by}:")
    indent = "  " * len(nest.loops)
    if _text_size(nest) > MAX_TEXT:
        return lines + [indent + line for line in _listed(nest)]
    lines += [f"{indent}keep b{buffer}[{index}] = {expression}" for expression, buffer, index in schedule.staged]
    return lines + [f"{indent}b{store.buffer}[{store.index}] = {store.value}" for store in nest.stores]


MAX_TEXT = 400
"""Nests of more expressions, shared ones counted as often as they are used, are listed one by one."""


def _text_size(nest: Nest) -> int:
    sizes: dict[int, int] = {}
    for expression in expressions_of(nest):
        sizes[id(expression)] = 1 + sum(sizes[id(child)] for child in expression.children)
    return sum(sizes[id(store.value)] for store in nest.stores)


def _listed(nest: Nest) -> list[str]:
    """A line for each expression, operands by their names."""
    names: dict[int, str] = {}
    lines: list[str] = []
    for expression in expressions_of(nest):
        if isinstance(expression, Apply):
            text = f"{expression.op.opcode}({', '.join(names[id(o)] for o in expression.operands)})"
        elif isinstance(expression, Where):
            condition, then, otherwise = (names[id(child)] for child in expression.children)
            text = f"{then} if {condition} else {otherwise}"
        elif isinstance(expression, ReductionResult):
            reduction = expression.reduction
            over = ", ".join(f"{v} < {v.extent}" for v in reduction.over)
            values = ", ".join(names[id(v)] for v in reduction.values)
            text = f"reduce[{over}; {reduction.opcode}]({values}).{expression.position}"
        else:
            names[id(expression)] = str(expression)
            continue
        names[id(expression)] = f"t{len(lines)}"
        lines.append(f"t{len(lines)} = {text}")
    lines += [f"keep b{buffer}[{index}] = {names[id(kept)]}" for kept, buffer, index in nest.schedule.staged]
    return lines + [f"b{store.buffer}[{store.index}] = {names[id(store.value)]}" for store in nest.stores]


def atoms_of(index: Index) -> list[Atom]:
    """The atoms of an index, those inside quotients and remainders included, each once."""
    atoms: dict[Atom, None] = {}
    pending = [index]
    while pending:
        for atom, _ in pending.pop().terms:
            if isinstance(atom, (Quotient, Remainder)) and atom not in atoms:
                pending.append(atom.operand)
            atoms[atom] = None
    return [*atoms]


def reductions_of(expressions: Sequence[Expression]) -> list[Reduction]:
    """The reductions among the expressions, inner ones first, each once."""
    return _reductions_among(walk(expressions))


def _reductions_among(expressions: Sequence[Expression]) -> list[Reduction]:
    return list(dict.fromkeys(e.reduction for e in expressions if isinstance(e, ReductionResult)))


def expressions_of(nest: Nest) -> list[Expression]:
    """Every expression of the nest, those inside the indices of its stores included, operands before users."""
    reads = [read for store in nest.stores for read in store.index.reads]
    return walk([*nest.values, *reads]) if reads else nest.expressions


def indices_of(nest: Nest) -> list[Index]:
    """Every index that the nest computes."""
    indices = [store.index for store in nest.stores]
    for expression in expressions_of(nest):
        indices += expression.indices
    return indices


def collapse(nest: Nest, space: ExpressionSpace) -> Nest:
    """Joins neighbouring loops that walk through all buffers as one: (i < 4, j < 8) with indices 8 i + j -> ij < 32."""
    loops = list(nest.loops)
    position = len(loops) - 2
    while position >= 0:
        outer, inner = loops[position], loops[position + 1]
        if all(_is_collapsible(index, outer, inner) for index in indices_of(nest)):
            joint = space.indices.variable(inner.name, outer.extent * inner.extent)
            values = {outer: space.indices.constant(0), inner: space.indices.of(joint)}
            nest = substitute(nest, space, values)
            loops[position : position + 2] = [joint]
            nest = replace(nest, loops=tuple(loops))
        position -= 1
    return nest


def collapse_reductions(nest: Nest, space: ExpressionSpace) -> Nest:
    """As `collapse`, for the loops inside reductions."""
    for reduction in nest.reductions:
        over = list(reduction.over)
        for position in range(len(over) - 2, -1, -1):
            outer, inner = over[position], over[position + 1]
            if outer in nest.loops or inner in nest.loops:
                continue
            others = [f for f in nest.reductions if (outer in f.over) != (inner in f.over)]
            if others or not all(_is_collapsible(index, outer, inner) for index in indices_of(nest)):
                continue
            joint = space.indices.variable(inner.name, outer.extent * inner.extent)
            nest = substitute(nest, space, {outer: space.indices.constant(0), inner: space.indices.of(joint)})
            over[position : position + 2] = [joint]
    return nest


def _is_collapsible(index: Index, outer: Variable, inner: Variable) -> bool:
    if outer not in index.variables and inner not in index.variables:
        return True
    if not (index.is_affine_in(outer) and index.is_affine_in(inner)):
        return False
    return index.coefficient(outer) == index.coefficient(inner) * inner.extent


MIN_SPLIT = 16
"""The shortest loop that is worth dividing another one for on its own."""


def split_at_divisors(nest: Nest, space: ExpressionSpace) -> Nest:
    """Divides loops so that quotients become loops: (i < 32) with indices i // 8 and i mod 8 -> (j < 4, k < 8).

    Loops shorter than MIN_PART come of it only where they join those inside of them.
    """
    position = 0
    while position < len(nest.loops):
        loop = nest.loops[position]
        parts = sorted(_split_factors(nest, loop), reverse=True)
        divided = next((new for part in parts if (new := _split_by(nest, space, loop, part)) is not None), None)
        if divided is None:
            position += 1
        else:
            nest = divided
    return nest


def _split_by(nest: Nest, space: ExpressionSpace, loop: Variable, part: int) -> Nest | None:
    new, *_ = split_loop(nest, space, loop, part, f"{loop.name}o")
    if part >= MIN_SPLIT:
        return new
    joined = collapse(new, space)
    return joined if len(joined.loops) <= len(nest.loops) else None


def split_loop(
    nest: Nest, space: ExpressionSpace, loop: Variable, size: int, outer_name: str
) -> tuple[Nest, Variable, Variable]:
    """The nest with two loops in the place of one, and these: the inner one is of `size`, which divides the old one."""
    outer = space.indices.variable(outer_name, loop.extent // size)
    inner = space.indices.variable(loop.name, size)
    both = space.indices.linear([space.indices.of(outer), space.indices.of(inner)], [size, 1])
    at = nest.loops.index(loop)
    loops = (*nest.loops[:at], outer, inner, *nest.loops[at + 1 :])
    return replace(substitute(nest, space, {loop: both}), loops=loops), outer, inner


def _split_factors(nest: Nest, loop: Variable) -> set[int]:
    """What the loop's counter is divided by in indices, where that divides the loop too."""
    atoms = {atom for index in indices_of(nest) for atom, _ in index.terms if loop in atom.variables}
    divisors = {
        atom.divisor
        for atom in atoms
        if isinstance(atom, (Quotient, Remainder)) and atom.operand.terms == ((loop, 1),) and not atom.operand.constant
    }
    return {d for d in divisors if d < loop.extent and loop.extent % d == 0}


def substitute(nest: Nest, space: ExpressionSpace, values: dict[Variable, Index]) -> Nest:
    """The nest with loop variables replaced by other indices; the loops themselves stay."""
    roots = space.substitute(nest.values, values)
    stores = tuple(
        Store(store.buffer, space.substitute_index(store.index, values), root)
        for store, root in zip(nest.stores, roots, strict=True)
    )
    return replace(nest, stores=stores)


def loads_of(expressions: Sequence[Expression]) -> list[Load]:
    return _loads_among(walk(expressions))


def _loads_among(expressions: Sequence[Expression]) -> list[Load]:
    return [e for e in expressions if isinstance(e, Load)]


def in_place_pairs(nests: Sequence[Nest]) -> set[tuple[int, int]]:
    """Pairs (written, read) of buffers whose elements are read at most where and when they are written."""
    if len(nests) != 1:
        return set()
    (nest,) = nests
    if not nest.iterations:
        return set()
    inside_reductions = {
        id(load) for reduction in nest.reductions for load in loads_of([*reduction.values, *reduction.initial])
    }
    read: dict[int, set[Index | None]] = {}
    for load in _loads_among(expressions_of(nest)):
        read.setdefault(load.buffer, set()).add(None if id(load) in inside_reductions else load.index)
    written: dict[int, set[Index]] = {}
    for store in nest.stores:
        written.setdefault(store.buffer, set()).add(store.index)
    by_index: dict[Index | None, list[int]] = {}
    for buffer, found in read.items():
        if len(found) == 1:
            by_index.setdefault(next(iter(found)), []).append(buffer)
    return {
        (buffer, other)
        for buffer, places in written.items()
        if len(places) == 1
        for other in by_index.get(next(iter(places)), ())
    }


@dataclass(frozen=True, slots=True)
class InvariantSelect:
    """Which of two values a whole array has: where `condition` is `keeps`, what another buffer has at each place."""

    condition: Expression
    keeps: bool
    kept: Load
    other: Expression


def invariant_select(nest: Nest) -> InvariantSelect | None:
    """The choice that is all of a nest, as of `select(is_valid, result, nan)`: in place it often changes nothing."""
    (store, *more) = nest.stores
    value = store.value
    if more or not nest.loops or not isinstance(value, Apply) or value.op.opcode != "select":
        return None
    condition, then, otherwise = value.operands
    for keeps, kept, other in ((True, then, otherwise), (False, otherwise, then)):
        if isinstance(kept, Load) and kept.index == store.index and not condition.variables:
            return InvariantSelect(condition, keeps, kept, other)
    return None


BF16_ROUNDING_COST = 4
"""Of rounding to bf16, which no instruction does as the specification has it."""


def expression_cost(expression: Expression) -> int:
    """What one evaluation costs, in units of an addition."""
    is_bf16, is_narrow = expression.type is PrimitiveType.BF16, expression.type.bits < 32
    if isinstance(expression, Apply):
        return element_cost(expression.op.opcode) + (BF16_ROUNDING_COST if is_bf16 else is_narrow)
    return 2 + is_bf16 if isinstance(expression, Load) else 1


def nest_cost(nest: Nest) -> int:
    """The work of a nest in vectorised element additions; what does not depend on inner loops is done before them."""
    reductions = nest.reductions
    inside = {id(e) for reduction in reductions for e in walk(reduction.values)}
    total = 2 * len(nest.stores) * nest.iterations
    for expression in nest.expressions:
        if id(expression) not in inside:
            total += expression_cost(expression) * _evaluations(nest, expression.variables)
    for reduction in reductions:
        steps = math.prod(variable.extent for variable in reduction.over)
        body = sum(expression_cost(e) for e in walk(reduction.values) if not e.variables.isdisjoint(reduction.over))
        total += body * steps * _evaluations(nest, reduction.variables)
    return total


def _evaluations(nest: Nest, variables: frozenset[Variable]) -> int:
    """How often something is computed that depends on these variables: in the innermost of their loops."""
    depth = max((d + 1 for d, loop in enumerate(nest.loops) if loop in variables), default=0)
    own = math.prod(loop.extent for loop in nest.loops[:depth])
    return own * math.prod(variable.extent for variable in variables if variable not in nest.loops)
