"""The state of the emission of one loop nest as LLVM IR, shared by the emitters of its parts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

from hloom.affine import Expression, Index, Quotient, Remainder, Variable
from hloom.backends.cpu.elements.called_functions import called_functions
from hloom.backends.cpu.elements.types import Element, map_parts, width_of
from hloom.backends.cpu.nests.peeling import Span, spans
from hloom.lir import I8, I64, PTR, Builder, Function, IndexValue, Parameter, Value
from hloom.loops.expressions import Load, Reduction, Where, walk
from hloom.loops.interleaved_accesses import AccessGroup, load_groups, max_record_length, store_groups
from hloom.loops.nest import BufferType, Nest, Store, atoms_of


class NestState(ABC):
    """The bound loop variables, the values emitted in each open loop, and the masks; `NestEmitter` emits values."""

    @abstractmethod
    def value(self, expression: Expression) -> Element:
        """The register of an expression, which is emitted at its first use."""

    @abstractmethod
    def emit_loops(self, depth: int) -> None:
        """Emits the loops from this depth inwards, and their stores."""

    @abstractmethod
    def hoist(self, roots: Sequence[Expression]) -> None:
        """Emits the subexpressions of the roots that do not depend on inner loops."""

    def __init__(
        self,
        name: str,
        buffers: Sequence[BufferType],
        arguments: Sequence[int],
        nest: Nest,
        vector_bytes: int,
        names: Mapping[int, str] | None = None,
        builder: Builder | None = None,
    ) -> None:
        self.pointers: dict[int, Value] = {}
        """The addresses of buffers."""
        written = nest.written.union(buffer for _, buffer, _ in nest.schedule.staged)
        pointers = [Parameter(f"b{k}", PTR, is_read_only=k not in written) for k in arguments]
        self.pointers.update(zip(arguments, pointers, strict=True))
        self.first, self.last = Parameter("first", I64), Parameter("last", I64)
        function = Function(name, [*pointers, self.first, self.last])
        self.builder = builder or Builder(function, vector_bytes)
        self.names = names
        """The names of instructions by the ids of their expressions; None to emit no debug locations."""
        self.buffers = buffers
        self.nest = nest
        self.vector_bytes = vector_bytes
        self.variables: dict[Variable, Value] = {}
        self.scopes: list[dict[Any, Any]] = [{}]
        """The values emitted in each open loop or condition, by the id of the expression or by another key."""
        self.vector: Variable | None = None
        self.lanes = 0
        self.tail: Value | None = None
        """The mask of the active lanes in the remainder of the vector loop."""
        self.inside: tuple[Variable, int, int] | None = None
        """The vector loop's variable, and the range of its values in the part of the loop where no edge is."""
        self.mask: Value | None = None
        """The condition under which the current value is used, for loads that may be out of bounds."""
        self.index_element = "i32" if _fits_32_bits(nest) else "i64"
        self.staged = {id(expression): (buffer, index) for expression, buffer, index in nest.schedule.staged}
        self.load_groups, self.store_groups = _access_groups(nest, vector_bytes)
        """The access group of each load and store, by its id."""
        self.called = called_functions(nest.all_expressions)
        """The applications of functions that are calls, by their ids."""
        self._safe: dict[int, bool] = {}
        self._is_in_bounds = all(load.in_bounds for load in nest.all_loads)
        """Whether all loads of the nest are in bounds, under any condition."""

    def origin(self, load: Load) -> tuple[Value, Index]:
        """Returns an address, and the index relative to it of the element that is loaded."""
        return self.pointers[load.buffer], load.index

    def add_location(self, start: int, expression: Expression | Reduction) -> None:
        """Sets the debug location of the instructions from `start` that have none."""
        name = self.names.get(id(expression)) if self.names is not None else None
        if name is not None:
            for k in range(start, len(self.builder.body)):
                self.builder.function.locations.setdefault(k, name)

    def allocate_scratch(self, buffer: int) -> None:
        """Allocates a scratch buffer on the stack."""
        kind = self.buffers[buffer]
        self.pointers[buffer] = self.builder.stack_array(I8, max(kind.byte_size, 1))

    def counted_loop(self, first: IndexValue, last: IndexValue, step: int, body: Callable[[Value], None]) -> None:
        """Emits a loop from `first` until `last` (excluded); `body` takes the counter."""
        with self.builder.loop(last, step, first=first) as loop:
            body(self.builder.index(loop.index))

    def spans(self, variable: Variable, lanes: int, last: int, expressions: Sequence[Expression]) -> Iterator[Span]:
        """Yields the parts of a loop over whole vectors; what holds in a part is known while it is emitted."""
        saved = self.inside
        for span in spans(variable, lanes, last, expressions):
            self.inside = (variable, span.first, span.last) if span.is_inner else saved
            yield span
        self.inside = saved

    @contextmanager
    def bound(self, variable: Variable, value: Value) -> Iterator[None]:
        """Binds a loop variable, in a scope of its own."""
        self.variables[variable] = value
        self.scopes.append({})
        yield
        self.scopes.pop()
        del self.variables[variable]

    def known(self, key: Any) -> Any:
        """The value recorded for a key in the innermost scope that has one; None if none has."""
        for scope in reversed(self.scopes):
            if key in scope:
                return scope[key]
        return None

    def to_common_width(self, operands: list[Element]) -> list[Element]:
        """Splats scalar operands if another one is a vector."""
        widths = set(map(width_of, operands))
        return operands if len(widths) < 2 else [self.splat(operand, max(widths)) for operand in operands]

    def splat(self, element: Element, width: int) -> Element:
        """A vector of `width` lanes of a scalar element; the element itself if it is a vector, or the width 0."""
        return map_parts(lambda part: self.builder.splat(part, width), element)

    def logical_and(self, a: Value, c: Value) -> Value:
        """The conjunction of two masks, either of which may be a scalar."""
        a, c = cast(list[Value], self.to_common_width([a, c]))
        return self.builder.binary("and", a, c)

    def is_safe(self, expression: Expression) -> bool:
        """Whether all loads that are not guarded by a condition inside the expression are in bounds."""
        if self._is_in_bounds:
            return True
        if id(expression) not in self._safe:
            for each in walk([expression]):
                self._safe.setdefault(id(each), self._is_safe(each))
        return self._safe[id(expression)]

    def _is_safe(self, expression: Expression) -> bool:
        """Whether the loads of an expression are, from what is known about those of its children."""
        if isinstance(expression, Where):
            return self._safe[id(expression.condition)]
        if isinstance(expression, Load) and not expression.in_bounds:
            return False
        return all(self._safe[id(child)] for child in expression.children)


def _access_groups(nest: Nest, vector_bytes: int) -> tuple[dict[int, AccessGroup[Load]], dict[int, AccessGroup[Store]]]:
    """The access groups of loads and of stores, by the ids of these."""
    vector = nest.schedule.vector
    if vector is None:
        return {}, {}
    limit = max_record_length(nest, vector, vector_bytes)
    loads = {id(load): group for group in load_groups(nest, vector, limit) for load in group.accesses}
    stores = {id(store): group for group in store_groups(nest, vector, limit) for store in group.accesses}
    return loads, stores


def _fits_32_bits(nest: Nest) -> bool:
    """Whether all index arithmetic fits in 32 bits, with a margin."""
    limit = 1 << 30
    for index in nest.indices:
        for part in (index, *(a.operand for a in atoms_of(index) if isinstance(a, (Quotient, Remainder)))):
            if part.low < -limit or part.high >= limit:
                return False
            if any(abs(c) * max(abs(atom.low), abs(atom.high)) >= limit for atom, c in part.terms):
                return False
    return True
