"""Instruments a module with instructions that check for NaNs, infinities and out-of-bounds indices.

Every computation that is executed (the entry, loop bodies, branches, callees) takes a state in addition to its
parameters and returns it with its result: the site that failed first (0: none yet), the position in its array, and the
value. Computations that are applied to elements are not instrumented.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from hloom.ir import Computation, Instruction, Module, clone_computation
from hloom.ops.attributes import ComparisonDirection
from hloom.ops.broadcast import Broadcast, Iota
from hloom.ops.compare import Compare
from hloom.ops.control_flow import Call, Conditional, Fusion, While
from hloom.ops.elementwise_binary import Add, And, Minimum, Or
from hloom.ops.elementwise_unary import Abs, Not
from hloom.ops.gather import Gather
from hloom.ops.operation import Operation
from hloom.ops.pad import Concatenate
from hloom.ops.reduce import Reduce
from hloom.ops.reshape import Reshape
from hloom.ops.scatter import Scatter
from hloom.ops.select import Select
from hloom.ops.slice import DynamicSlice, DynamicUpdateSlice
from hloom.ops.structure import GetTupleElement
from hloom.ops.traits import ControlFlow, Structural
from hloom.passes.edit import callees_first_of, copy_annotations
from hloom.passes.op_builder import OpBuilder, ScalarComputations
from hloom.passes.simplify.dead_code import remove_unused_computations
from hloom.shape import Shape, scalar
from hloom.system.records import record
from hloom.types import PrimitiveType

S32, S64 = PrimitiveType.S32, PrimitiveType.S64
STATE = Shape.tuple_of([scalar(S32), scalar(S64), scalar(S64)])
_LESS = Compare(direction=ComparisonDirection.LT)
_EQUAL = Compare(direction=ComparisonDirection.EQ)
_RUNNING = (ControlFlow, Fusion)
"""Operations whose computations are instrumented."""
_FORWARDING = (Structural, *_RUNNING)
"""Operations whose values need no check: they come from elsewhere."""


@record
class Site:
    """A check: its instruction, its kind (nan, inf, bounds), and the sizes of the array that it checks."""

    instruction: Instruction
    kind: str
    sizes: tuple[int, ...]
    limits: tuple[int, ...] = ()
    """The largest valid index of each indexed dimension."""


@dataclass
class Instrumented:
    """A module whose result is a tuple of the original result and the state, and its sites, counted from 1."""

    module: Module
    sites: list[Site] = field(default_factory=list)


def instrumented(module: Module, kinds: frozenset[str]) -> Instrumented:
    """Returns a module with checks of some kinds (nan, inf, bounds)."""
    found = Instrumented(Module(module.name))
    work = _Instrumentation(found, kinds)
    for computation in callees_first_of(module):
        for instruction in computation.instructions:
            work.prepare(instruction.op)
    entry = _Running(work, module.entry, Style.ENTRY).run()
    found.module.add(entry, entry=True)
    remove_unused_computations(found.module)
    return found


class Style(enum.Enum):
    """Position of the state: not a parameter, in a tuple with the only parameter, or the last parameter."""

    ENTRY = enum.auto()
    PAIR = enum.auto()
    LAST = enum.auto()


class _Instrumentation:
    """Builds the computations of the instrumented module."""

    def __init__(self, found: Instrumented, kinds: frozenset[str]) -> None:
        self.found, self.module, self.kinds = found, found.module, kinds
        self._running: dict[tuple[Computation, Style], Computation] = {}
        self._plain: dict[Computation, Computation] = {}
        self._conditions: dict[Computation, Computation] = {}
        self.reduction = ScalarComputations(found.module)

    def prepare(self, op: Operation) -> None:
        """Builds the computations that the operation calls, callees first."""
        for callee in op.computations:
            self.plain(callee)
        if isinstance(op, _RUNNING):
            self.with_state(op)

    def with_state(self, op: Call | Fusion | While | Conditional) -> Operation:
        """The operation with computations that take and return the state."""
        if isinstance(op, While):
            return While(condition=self.condition(op.condition), body=self.running(op.body, Style.PAIR))
        if isinstance(op, Conditional):
            branches = tuple(self.running(branch, Style.PAIR) for branch in op.branch_computations)
            return Conditional(branch_computations=branches)
        (callee,) = op.computations
        return Call(computation=self.running(callee, Style.LAST))

    def running(self, computation: Computation, style: Style) -> Computation:
        """The instrumented computation."""
        key = computation, style
        if key not in self._running:
            self._running[key] = self._added(_Running(self, computation, style).run())
        return self._running[key]

    def plain(self, computation: Computation) -> Computation:
        """A copy of the computation without checks."""
        if computation not in self._plain:
            self._plain[computation] = self._added(clone_computation(computation, self.plain))
        return self._plain[computation]

    def condition(self, computation: Computation) -> Computation:
        """The condition of a loop, for a pair of the loop's value and the state."""
        if computation not in self._conditions:
            copy = Computation(computation.name)
            build = OpBuilder.of(copy)
            pair = build.parameter(0, Shape.tuple_of([computation.parameters[0].shape, STATE]))
            build(Call(computation=self.plain(computation)), build.element(pair, 0))
            self._conditions[computation] = self._added(copy)
        return self._conditions[computation]

    def _added(self, computation: Computation) -> Computation:
        names = {other.name for other in self.module.computations}
        base, suffix = computation.name, 0
        while computation.name in names:
            suffix += 1
            computation.name = f"{base}.checked.{suffix}"
        self.module.add(computation)
        return computation


class _Running:
    """Copies a computation, with checks after each instruction."""

    def __init__(self, work: _Instrumentation, old: Computation, style: Style) -> None:
        self.work, self.old, self.style = work, old, style
        self.copy = Computation(old.name)
        self.names = {instruction.name for instruction in old.instructions}
        self.new: dict[Instruction, Instruction] = {}
        self.build = OpBuilder(self._add)
        self.checks: dict[tuple[str, Instruction], tuple[Instruction, Instruction]] = {}
        self.state: list[Instruction] = []

    def run(self) -> Computation:
        for old in self.old.parameters:
            self._parameter(old)
        self.state = self._first_state()
        for old in self.old.instructions:
            if old not in self.new:
                self._instruction(old)
        for old in self.old.instructions:
            for before in old.control_predecessors:
                self.new[before].add_control_dependency(self.new[old])
        self.copy.root = self.build.tuple(self.new[self.old.root], self.build.tuple(*self.state))
        return self.copy

    def _add(self, op: Operation, operands: Iterable[Instruction], shape: Shape) -> Instruction:
        suffix = len(self.copy.instructions)
        while (name := f"check.{suffix}") in self.names:
            suffix += 1
        self.names.add(name)
        return self.copy.add(Instruction(name, shape, op, operands))

    def _parameter(self, old: Instruction) -> None:
        if self.style is Style.PAIR:
            self.new[old] = self.build.element(self.build.parameter(0, Shape.tuple_of([old.shape, STATE])), 0)
        else:
            self.new[old] = self._copied(old, old.op, [], old.shape)

    def _first_state(self) -> list[Instruction]:
        build = self.build
        if self.style is Style.ENTRY:
            return [build.constant(0, shape.element_type) for shape in STATE.elements]
        if self.style is Style.PAIR:
            pair = self.new[self.old.parameters[0]].operands[0]
            return build.elements(build.element(pair, 1))
        return build.elements(build.parameter(len(self.old.parameters), STATE))

    def _copied(self, old: Instruction, op: Operation, operands: Sequence[Instruction], shape: Shape) -> Instruction:
        copy = self.copy.add(Instruction(old.name, shape, op, operands))
        copy.metadata = {key: value for key, value in old.metadata.items() if key != "stack_frame_id"}
        copy.location = old.location
        return copy

    def _instruction(self, old: Instruction) -> None:
        op, operands = old.op, [self.new[operand] for operand in old.operands]
        if isinstance(op, _RUNNING):
            self._forward_state(old, op, operands)
            return
        if "bounds" in self.work.kinds and old.shape.is_static:
            self._check_indices(old, operands)
        new = self.new[old] = self._copied(old, op.with_computations(self.work.plain), operands, old.shape)
        copy_annotations(old, new)
        producer = old.operands[0] if isinstance(op, GetTupleElement) else old
        if not isinstance(producer.op, _FORWARDING):
            for kind in ("nan", "inf"):
                if kind in self.work.kinds:
                    self._check_value(kind, producer, new)

    def _forward_state(
        self, old: Instruction, op: Call | Fusion | While | Conditional, operands: list[Instruction]
    ) -> None:
        """Copies control flow; the computations that it calls take the state and return it."""
        build, state = self.build, self.build.tuple(*self.state)
        if isinstance(op, (Call, Fusion)):
            operands = [*operands, state]
        else:
            first = 1 if isinstance(op, Conditional) else 0
            operands = [*operands[:first], *(build.tuple(operand, state) for operand in operands[first:])]
        pair = self._copied(old, self.work.with_state(op), operands, Shape.tuple_of([old.shape, STATE]))
        self.new[old] = build.element(pair, 0)
        self.state = self.build.elements(build.element(pair, 1))

    # Checks

    def _check_value(self, kind: str, producer: Instruction, new: Instruction) -> None:
        """Adds a check whether a value has a NaN (an infinity) and no operand of its producer has one."""
        if not _may_have(kind, new.shape):
            return
        has, position = self._first_of_kind(kind, new)
        for operand in dict.fromkeys(self.new[operand] for operand in producer.operands):
            if _may_have(kind, operand.shape):
                has = self.build(And(), has, self.build(Not(), self._first_of_kind(kind, operand)[0]))
        self._record(Site(producer, kind, new.shape.dimensions), has, position, self.build.constant(0, S64))

    def _check_indices(self, old: Instruction, operands: list[Instruction]) -> None:
        indices = _indices(self.build, old, operands)
        if indices is None:
            return
        build, (array, along, limits) = self.build, indices
        values = build.convert(array, S64)
        upper = self._limits(limits, along, values.shape)
        below = build(_LESS, values, build.broadcast(build.constant(0, S64), values.shape))
        has, position = self._first(build(Or(), below, build(_LESS, upper, values)))
        flat = _flat(build, values)
        chosen = build(_EQUAL, build(Iota(iota_dimension=0), shape=flat.shape), build.broadcast(position, flat.shape))
        zero = build.constant(0, S64)
        picked = build(Select(), chosen, flat, build.broadcast(zero, flat.shape))
        value = build(Reduce(dimensions=(0,), computation=self.work.reduction(Add(), S64)), picked, zero)
        self._record(Site(old, "bounds", values.shape.dimensions, limits), has, position, value)

    def _limits(self, limits: tuple[int, ...], along: int | None, shape: Shape) -> Instruction:
        """The largest valid index for each element of the indices."""
        if along is None:
            return self.build.broadcast(self.build.constant(limits[0], S64), shape)
        return self.build(Broadcast(broadcast_dimensions=(along,)), self.build.constant(limits, S64), shape=shape)

    def _first_of_kind(self, kind: str, value: Instruction) -> tuple[Instruction, Instruction]:
        if (kind, value) not in self.checks:
            build = self.build
            if kind == "nan":
                bad = build(Compare(direction=ComparisonDirection.NE), value, value)
            else:
                infinity = build.constant(float("inf"), value.shape.element_type)
                bad = build(_EQUAL, build(Abs(), value), build.broadcast(infinity, value.shape))
            self.checks[kind, value] = self._first(bad)
        return self.checks[kind, value]

    def _first(self, bad: Instruction) -> tuple[Instruction, Instruction]:
        """Whether any element is true, and the row-major position of the first one."""
        build, flat = self.build, _flat(self.build, bad)
        count = flat.shape.element_count
        index = S32 if count < 1 << 31 else S64
        positions = build(Iota(iota_dimension=0), shape=flat.shape.with_element_type(index))
        absent = build.constant(count, index)
        candidates = build(Select(), flat, positions, build.broadcast(absent, positions.shape))
        first = build(Reduce(dimensions=(0,), computation=self.work.reduction(Minimum(), index)), candidates, absent)
        return build(_LESS, first, absent), build.convert(first, S64)

    def _record(self, site: Site, has: Instruction, position: Instruction, value: Instruction) -> None:
        """Updates the state after a check, unless an earlier one has failed."""
        build = self.build
        self.work.found.sites.append(site)
        site_number = build.constant(len(self.work.found.sites), S32)
        is_first = build(And(), has, build(_EQUAL, self.state[0], build.constant(0, S32)))
        new = (site_number, position, value)
        self.state = [build(Select(), is_first, a, b) for a, b in zip(new, self.state, strict=True)]


def _flat(build: OpBuilder, array: Instruction) -> Instruction:
    return build(Reshape(), array, shape=Shape.array(array.shape.element_type, (array.shape.element_count,)))


def _may_have(kind: str, shape: Shape) -> bool:
    if not shape.is_array or shape.is_dynamic or not shape.element_count:
        return False
    return shape.element_type.is_float or (kind == "nan" and shape.element_type.is_complex)


def _indices(
    build: OpBuilder, old: Instruction, operands: list[Instruction]
) -> tuple[Instruction, int | None, tuple[int, ...]] | None:
    """The indices of an instruction, their dimension of components (None: a single component), and the limits."""
    op, sizes = old.op, old.operands[0].shape.dimensions if old.operands else ()
    if isinstance(op, (DynamicSlice, DynamicUpdateSlice)):
        first = 1 if isinstance(op, DynamicSlice) else 2
        parts = old.shape.dimensions if first == 1 else old.operands[1].shape.dimensions
        limits = tuple(size - part for size, part in zip(sizes, parts, strict=True))
        starts = operands[first:]
        if not limits:
            return None
        if starts[0].shape.rank:
            return starts[0], 0, limits
        line = Shape.array(starts[0].shape.element_type, (1,))
        return build(Concatenate(dimension=0), *(build(Reshape(), start, shape=line) for start in starts)), 0, limits
    if isinstance(op, Gather):
        indices, map, window = operands[1], op.start_index_map, dict(enumerate(op.slice_sizes))
    elif isinstance(op, Scatter):
        indices, map = operands[len(operands) // 2], op.scatter_dims_to_operand_dims
        updates = old.operands[-1].shape.dimensions
        collapsed = {*op.inserted_window_dims, *op.input_batching_dims}
        kept = [d for d in range(len(sizes)) if d not in collapsed]
        window = dict.fromkeys(range(len(sizes)), 1)
        window |= {d: updates[u] for d, u in zip(kept, op.update_window_dims, strict=True)}
    else:
        return None
    if not indices.shape.element_count:
        return None
    along = op.index_vector_dim if op.index_vector_dim < indices.shape.rank else None
    return indices, along, tuple(sizes[d] - window[d] for d in map)
