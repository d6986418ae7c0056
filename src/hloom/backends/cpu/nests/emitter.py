"""Emits a loop nest as an LLVM function.

Each expression is emitted once, in the outermost loop in which all its variables are bound: loop-invariant expressions
are hoisted. Inside the vector loop, a value that depends on its variable is a vector, any other a scalar.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

from hloom.affine import Expression, Variable
from hloom.backends.cpu.elements import ops as element_ops
from hloom.backends.cpu.elements import quotients, roots, scaled_sums
from hloom.backends.cpu.elements.called_functions import call_function
from hloom.backends.cpu.elements.types import (
    Element,
    constant_element,
    register_element,
    resized,
    rounded,
    rounded_arithmetic,
    select_element,
    width_of,
)
from hloom.backends.cpu.nests.indices import index_value
from hloom.backends.cpu.nests.interleaved_accesses import load_group, store_group
from hloom.backends.cpu.nests.memory import emit_load, emit_store
from hloom.backends.cpu.nests.peeling import holds
from hloom.backends.cpu.nests.prefetch import prefetch_row
from hloom.backends.cpu.nests.reductions import emit_ready_reductions, emit_reductions, results_of
from hloom.backends.cpu.nests.state import NestState
from hloom.backends.cpu.nests.tiles import emit_tiles
from hloom.lir import I64, Function, IndexValue, Value, constant, mask_constant, type_of
from hloom.loops.expressions import Apply, Argument, Constant, FromIndex, InRange, Load, ReductionResult, Where
from hloom.loops.nest import Kernel, Nest, Store, expression_cost, invariant_select
from hloom.types import PrimitiveType

MAX_REPEATED_COST = 16
"""The largest cost of an iteration, in additions, that is emitted for several parts of a remainder."""


def emit_nest(
    name: str, kernel: Kernel, nest: Nest, vector_bytes: int, with_locations: bool = False
) -> tuple[Function, list[int]]:
    """Emits `void @name(ptr of each used buffer.., i64 first, i64 last)`.

    The function runs iterations first <= i < last of the outermost loop; `with_locations` gives it debug locations.
    Returns the function, and the buffers that it takes.
    """
    used = used_buffers(nest)
    arguments = [b for b in used if kernel.buffers[b].role != "scratch"]
    names = kernel.names() if with_locations else None
    emitter = NestEmitter(name, kernel.buffers, arguments, nest, vector_bytes, names)
    for buffer in used:
        if kernel.buffers[buffer].role == "scratch":
            emitter.allocate_scratch(buffer)
    emitter.emit()
    return emitter.builder.finish(), arguments


def used_buffers(nest: Nest) -> list[int]:
    """The buffers that a nest loads from or stores to, in increasing order."""
    used = set(nest.written)
    used.update(buffer for _, buffer, _ in nest.schedule.staged)
    for expression in nest.all_expressions:
        if isinstance(expression, Load):
            used.add(expression.buffer)
    return sorted(used)


class NestEmitter(NestState):
    """Emits the loops of a nest, and each expression as soon as its loop variables are bound."""

    # Loops

    def emit(self) -> None:
        """Emits the whole nest."""
        with self.builder.when(self._changes_output()):
            self.emit_loops(0)

    def _changes_output(self) -> Value | None:
        """An i1 that tells whether the nest changes its output (see `invariant_select`); None if it always may."""
        select, b = invariant_select(self.nest), self.builder
        if select is None:
            return None
        written, kept = (self.pointers[buffer] for buffer in (self.nest.stores[0].buffer, select.kept.buffer))
        condition = cast(Value, self.value(select.condition))
        takes_other = b.compare("ne", condition, constant(condition.type, int(select.keeps)))
        return b.binary("or", b.compare("ne", written, kept), takes_other)

    def emit_loops(self, depth: int) -> None:
        nest = self.nest
        stores = [s for s in nest.stores if self._depth(s) == depth]
        rest = [s for s in nest.stores if self._depth(s) > depth]
        self.hoist(_roots(stores + rest))
        if depth < len(nest.loops) and rest:
            self._loop(depth)
        for group in self._grouped_stores(stores):
            values = [self.value(store.value) for store in group]
            start = len(self.builder.body)
            self._store(group, values)
            self.add_location(start, group[0].value)

    def _grouped_stores(self, stores: Sequence[Store]) -> Iterator[tuple[Store, ...]]:
        """The stores in order; those of an access group together, at the first of them."""
        for store in stores:
            group = self.store_groups.get(id(store)) if self.lanes else None
            if group is None:
                yield (store,)
            elif store is group.accesses[0]:
                yield group.accesses

    def _store(self, stores: tuple[Store, ...], values: list[Element]) -> None:
        if len(stores) > 1:
            store_group(self, self.store_groups[id(stores[0])], values)
        else:
            emit_store(self, stores[0].buffer, stores[0].index, values[0])

    def _depth(self, store: Store) -> int:
        """The number of loops around a store."""
        loops = self.nest.loops
        if len(self.nest.stores) == 1:
            return len(loops)
        return max((d + 1 for d, loop in enumerate(loops) if loop in store.index.variables), default=0)

    def _loop(self, depth: int) -> None:
        variable = self.nest.loops[depth]
        schedule = self.nest.schedule
        chunked = depth == 0 and schedule.chunk
        first: IndexValue = self.first if chunked else 0
        last: IndexValue = self.last if chunked else variable.extent

        def body(value: Value) -> None:
            with self.bound(variable, value):
                self.emit_loops(depth + 1)

        if variable is schedule.transposed:
            emit_tiles(self, depth, first, last)
        elif variable is schedule.vector:
            self._vector_loop(variable, schedule.lanes, first, last, body)
        else:
            self.counted_loop(first, last, 1, body)

    def _vector_loop(
        self, variable: Variable, lanes: int, first: IndexValue, last: IndexValue, body: Callable[[Value], None]
    ) -> None:
        """Emits a loop over whole vectors, and the remainder."""
        b = self.builder
        rest = variable.extent % lanes
        main = variable.extent - rest
        saved = self.vector, self.lanes
        self.vector, self.lanes = variable, lanes
        end, has_vectors, has_remainder = main if rest else last, None, None
        if rest and isinstance(first, Value) and isinstance(last, Value):
            end = b.intrinsic("umin", last, b.index(main))
            has_vectors = b.compare("ult", first, end)
            has_remainder = b.compare("eq", last, b.index(variable.extent))
        if main:
            with b.when(has_vectors):
                if isinstance(first, int) and isinstance(end, int):
                    for span in self.spans(variable, lanes, end, self.nest.expressions):
                        self.counted_loop(span.first, span.last, lanes, body)
                else:
                    self.counted_loop(first, end, lanes, body)
        if rest:
            with b.when(has_remainder):
                self._remainder(variable, main, rest, body)
        self.vector, self.lanes = saved

    def _remainder(self, variable: Variable, first: int, count: int, body: Callable[[Value], None]) -> None:
        """Emits the last iterations of a vector loop: a masked vector, or vectors of decreasing powers of two.

        Several vectors cost more instructions, but each is stored as it is, for later loads to find, and state of loops
        may stay in registers.
        """
        if not self._has_cheap_remainder(variable, first, count):
            self.tail = mask_constant(count, self.lanes)
            body(constant(I64, first))
            self.tail = None
            return
        while count:
            width = 1 << (count.bit_length() - 1)
            self.vector, self.lanes = (variable, width) if width > 1 else (None, 0)
            body(constant(I64, first))
            first, count = first + width, count - width

    def _has_cheap_remainder(self, variable: Variable, first: int, count: int) -> bool:
        """Whether vectors of powers of two are better for a remainder than a masked one."""
        if (first and not self.builder.divides_masks) or self.load_groups or self.store_groups:
            return False
        if any(variable in reduction.variables for reduction in self.nest.reductions):
            return count.bit_count() == 1
        cost = sum(expression_cost(e) for e in self.nest.expressions if variable in e.variables)
        return count.bit_count() == 1 or cost <= MAX_REPEATED_COST

    # Values

    def value(self, expression: Expression) -> Element:
        """The register of an expression, which is emitted at its first use.

        Chains of operations, which may be long, are followed without recursion.
        """
        begun: list[Expression] = []
        stack: list[Expression | None] = [expression]
        while stack:
            top = stack.pop()
            if isinstance(top, Apply) and self.known(id(top)) is None:
                begun.append(top)
                stack += [None, *reversed(top.operands)]
            else:
                result = self._value(top or begun.pop())  # without top, all operands of the innermost one are done
        return result

    def _value(self, expression: Expression) -> Element:
        """The register of an expression whose operands have theirs."""
        key = id(expression)
        found = self.known(key)
        if found is not None:
            return cast(Element, found)
        if isinstance(expression, ReductionResult):
            results = results_of(self, expression.reduction)
            if results is None:
                emit_reductions(self, [expression.reduction])
                results = results_of(self, expression.reduction)
            assert results is not None
            return results[expression.position]
        start = len(self.builder.body)
        result = self._emit(expression)
        self.add_location(start, expression)
        self.scopes[-1][key] = result
        if key in self.staged:
            buffer, index = self.staged[key]
            emit_store(self, buffer, index, result)
        return result

    def _emit(self, expression: Expression) -> Element:
        if isinstance(expression, Apply):
            return self._apply(expression)
        if isinstance(expression, Load):
            return self._load(expression)
        if isinstance(expression, Constant):
            return constant_element(expression.type, expression.value)
        if isinstance(expression, FromIndex):
            return self._from_index(expression)
        if isinstance(expression, InRange):
            return self._in_range(expression)
        if isinstance(expression, Where):
            return self._where(expression)
        raise AssertionError(f"{expression!r} has no value")

    def _apply(self, expression: Apply) -> Element:
        found = scaled_sums.sum_and_factor(expression)
        if found is not None:
            x, addend, factor = found
            return scaled_sums.scaled_sum(self.builder, cast(Value, self.value(x)), addend, factor)
        operands = [self.value(operand) for operand in expression.operands]
        if roots.is_root_comparison(expression):
            # LLVM removes the root, unless it has other users.
            return roots.compare_root(self.builder, expression, self.value(expression.operands[0].children[0]))
        inverse = self.known(_inverse_key(expression.operands[1])) if quotients.is_quotient(expression) else None
        if inverse is not None and (width_of(operands[0]) or expression.type is PrimitiveType.BF16):
            quotient = quotients.quotient(self.builder, cast(Value, operands[0]), inverse, expression.type)
            return rounded_arithmetic(self.builder, quotient, expression.type)
        emit = call_function if id(expression) in self.called else element_ops.apply
        return emit(self.builder, expression, self.to_common_width(operands))

    def _load(self, load: Load) -> Element:
        group = self.load_groups.get(id(load))
        if group is None or self.vector is not self.nest.schedule.vector:
            prefetch_row(self, load)
            return emit_load(self, load)
        load_group(self, group)
        return cast(Element, self.scopes[-1][id(load)])

    def _from_index(self, expression: FromIndex) -> Element:
        index = index_value(self, expression.index)
        b, type = self.builder, expression.type
        if type.is_complex:
            real = b.convert("sitofp", index, register_element(type))
            return real, constant(real.type, 0)
        if type.is_float:
            return rounded(b, b.convert("sitofp", index, register_element(type)), type)
        return rounded(b, resized(b, index, register_element(type), is_signed=True), type)

    def _in_range(self, expression: InRange) -> Element:
        b = self.builder
        if self.inside is not None and holds(expression, *self.inside):
            return constant(type_of("i1"), 1)
        index = index_value(self, expression.index)
        size = expression.high - expression.low
        shifted = b.binary("sub", index, constant(index.type, expression.low)) if expression.low else index
        return b.compare("ult", shifted, constant(index.type, size))

    def _where(self, expression: Where) -> Element:
        b = self.builder
        condition = cast(Value, self.value(expression.condition))
        then = self._under(condition, expression.then)
        negated = condition
        if not self.is_safe(expression.otherwise):
            negated = b.binary("xor", condition, constant(condition.type, 1))
        otherwise = self._under(negated, expression.otherwise)
        chosen, then, otherwise = cast(list[Any], self.to_common_width([condition, then, otherwise]))
        return select_element(b, chosen, then, otherwise)

    def _under(self, condition: Value, expression: Expression) -> Element:
        """The value of an expression where the condition holds; loads that may be out of bounds are masked."""
        if self.is_safe(expression):
            return self.value(expression)
        saved = self.mask
        self.mask = condition if saved is None else self.logical_and(saved, condition)
        self.scopes.append({})
        result = self.value(expression)
        self.scopes.pop()
        self.mask = saved
        return result

    # Hoisting

    def hoist(self, roots: Sequence[Expression]) -> None:
        """Emits the subexpressions of the roots that do not depend on inner loops."""
        bound = self.variables.keys()
        ready: list[Expression] = []
        divisors: list[Expression] = []
        seen: set[int] = set()
        stack = list(reversed(roots))
        while stack:
            expression = stack.pop()
            if id(expression) in seen or isinstance(expression, (Constant, Argument)):
                continue
            seen.add(id(expression))
            if expression.variables <= bound:
                if self.is_safe(expression):
                    ready.append(expression)
                continue
            if quotients.is_quotient(expression) and expression.children[1].variables <= bound:
                divisors.append(expression.children[1])
            stack += expression.children
        emit_ready_reductions(self, ready)
        for expression in ready:
            self.value(expression)
        for divisor in filter(self.is_safe, divisors):
            if self.known(_inverse_key(divisor)) is None:
                inverse = quotients.reciprocal(self.builder, cast(Value, self.value(divisor)), divisor.type)
                self.scopes[-1][_inverse_key(divisor)] = inverse


def _inverse_key(divisor: Expression) -> tuple[str, int]:
    """The key of the reciprocal of an expression in the scopes."""
    return "reciprocal", id(divisor)


def _roots(stores: Sequence[Store]) -> list[Expression]:
    """The expressions that stores use: their values, and those inside their indices."""
    roots = [store.value for store in stores]
    for store in stores:
        roots += store.index.reads
    return roots
