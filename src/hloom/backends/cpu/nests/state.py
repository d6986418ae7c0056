"""The state while one loop nest is written as LLVM IR, which all emitters of its parts share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

from hloom.backends.cpu.elements.types import Element, width_of
from hloom.backends.cpu.llvm.text import Builder, Index, Value
from hloom.loops.expressions import Load, Reduction, Where
from hloom.loops.index import Expression, Quotient, Remainder, Variable
from hloom.loops.interleaved_accesses import AccessGroup, load_groups, max_record_length, store_groups
from hloom.loops.nest import BufferType, Nest, Store, atoms_of, indices_of

LOCATION_MARK = " ; %"
"""Before the name of the instruction that a line is for: a comment of LLVM's."""


class NestState(ABC):
    """Loop variables, the values made so far in each open loop, and masks; `NestEmitter` says how values are made."""

    @abstractmethod
    def value(self, expression: Expression) -> Element:
        """The register of an expression: the one made before, or emitted now."""

    @abstractmethod
    def emit_loops(self, depth: int) -> None:
        """The loops from this depth on, and the stores in them."""

    @abstractmethod
    def hoist(self, roots: Sequence[Expression]) -> None:
        """Emits what depends on no loop that is still to come, so that it is computed once."""

    def __init__(
        self, buffers: Sequence[BufferType], nest: Nest, vector_bytes: int, names: Mapping[int, str] | None = None
    ) -> None:
        self.builder = Builder()
        self.names = names
        """The instructions that expressions were made for, where lines are tied to them."""
        self.buffers = buffers
        self.nest = nest
        self.vector_bytes = vector_bytes
        self.variables: dict[Variable, Value] = {}
        self.scopes: list[dict[Any, Any]] = [{}]
        self.vector: Variable | None = None
        self.lanes = 0
        self.tail: Value | None = None
        self.mask: Value | None = None
        self.index_element = "i32" if _fits_32_bits(nest) else "i64"
        self.staged = {id(expression): (buffer, index) for expression, buffer, index in nest.schedule.staged}
        self.load_groups, self.store_groups = _access_groups(nest, vector_bytes)
        """The rows that each load and store, by its identity, is made with."""
        self._safe: dict[int, bool] = {}

    def add_location(self, start: int, expression: Expression | Reduction) -> None:
        """Says of the lines from `start` on, but those that say it already, which instruction they are for."""
        name = self.names.get(id(expression)) if self.names is not None else None
        if name is not None:
            lines = self.builder.lines
            for k in range(start, len(lines)):
                lines[k] += "" if LOCATION_MARK in lines[k] else f"{LOCATION_MARK}{name}"

    def allocate_scratch(self, buffer: int) -> None:
        kind = self.buffers[buffer]
        self.builder.lines.append(f"  %b{buffer} = alloca [{max(kind.byte_size, 1)} x i8], align 64")

    def counted_loop(self, first: Index, last: Index, step: int, body: Callable[[Value], None]) -> None:
        with self.builder.loop(last, step, first=first) as loop:
            body(self.builder.index(loop.index))

    @contextmanager
    def bound(self, variable: Variable, value: Value) -> Iterator[None]:
        self.variables[variable] = value
        self.scopes.append({})
        yield
        self.scopes.pop()
        del self.variables[variable]

    def to_common_width(self, operands: list[Element]) -> list[Element]:
        """The operands as vectors where one of them is a vector."""
        width = max((width_of(operand) for operand in operands), default=0)
        return [self.splat(operand, width) for operand in operands] if width else operands

    def splat(self, element: Element, width: int) -> Element:
        if isinstance(element, tuple):
            return self.builder.splat(element[0], width), self.builder.splat(element[1], width)
        return self.builder.splat(element, width)

    def logical_and(self, a: Value, c: Value) -> Value:
        a, c = cast(list[Value], self.to_common_width([a, c]))
        return self.builder.binary("and", a, c)

    def is_safe(self, expression: Expression) -> bool:
        """True where no load but those that a condition inside the expression guards may leave its buffer."""
        known = self._safe.get(id(expression))
        if known is None:
            if isinstance(expression, Where):
                known = self.is_safe(expression.condition)
            elif isinstance(expression, Load) and not expression.in_bounds:
                known = False
            else:
                known = all(map(self.is_safe, expression.children))
            self._safe[id(expression)] = known
        return known


def _access_groups(nest: Nest, vector_bytes: int) -> tuple[dict[int, AccessGroup[Load]], dict[int, AccessGroup[Store]]]:
    vector = nest.schedule.vector
    if vector is None:
        return {}, {}
    limit = max_record_length(nest, vector, vector_bytes)
    loads = {id(load): group for group in load_groups(nest, vector, limit) for load in group.accesses}
    stores = {id(store): group for group in store_groups(nest, vector, limit) for store in group.accesses}
    return loads, stores


def _fits_32_bits(nest: Nest) -> bool:
    """Whether all index arithmetic stays well inside 32 bits."""
    limit = 1 << 30
    for index in indices_of(nest):
        for part in (index, *(a.operand for a in atoms_of(index) if isinstance(a, (Quotient, Remainder)))):
            if part.low < -limit or part.high >= limit:
                return False
            if any(abs(c) * max(abs(atom.low), abs(atom.high)) >= limit for atom, c in part.terms):
                return False
    return True
