"""Emission of elements of a computed operand of a product, as vectors in registers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager

from hloom.affine import Expression, Index, Variable
from hloom.backends.cpu.elements.byte_tables import (
    CODES,
    LANES,
    ORDER_OF_HALVES,
    halves_of_bytes,
    has_byte_tables,
    look_up,
    look_up_bytes,
    look_up_codes,
    look_up_halves,
    table_of_codes,
    words_of_codes,
)
from hloom.backends.cpu.elements.lane_tables import (
    look_up_bytes_in_lanes,
    look_up_eight_bits,
    look_up_halves_in_lanes,
)
from hloom.backends.cpu.elements.types import Element, resized
from hloom.backends.cpu.kernels.kernel_function import KernelFunction
from hloom.backends.cpu.kernels.products.computed.computed_operand import Axis, ComputedOperand
from hloom.backends.cpu.kernels.products.computed.tabulated import ByteFunction, Coded, byte_function
from hloom.backends.cpu.nests.emitter import NestEmitter
from hloom.backends.cpu.nests.indices import lane_index, sum_terms
from hloom.backends.cpu.nests.memory import element_address
from hloom.lir import I64, IndexValue, Type, Value, constant, type_of, vector_constant, zero
from hloom.loops.expressions import Load
from hloom.loops.nest import Nest, Store, loads_of

Resume = Callable[[], AbstractContextManager[None]]
"""Opens a context with indices that were bound before, and with what was emitted for them."""
Shared = Mapping[Expression, tuple[Value, IndexValue]]
"""Addresses of values that elements of a group share, and the groups of the first ones."""
_LANES_OF_HALVES = [ORDER_OF_HALVES.index(half) for half in range(CODES)]


class OperandEmitter(NestEmitter):
    """Emits elements of a computed operand in a function, as vectors along the free or the contracted axis.

    The elements of `parts` vectors are emitted together, as one long vector. Along K, lanes have the elements that
    `order` says.
    """

    def __init__(
        self, f: KernelFunction, operand: ComputedOperand, pointers: Sequence[Value], type: Type, parts: int = 1
    ) -> None:
        index = operand.largest.index
        axes = (operand.batch, operand.free, operand.contracted)
        loops = tuple(variable for axis in axes for variable in (axis.group, axis.within))
        nest = Nest(loops, (Store(operand.largest.buffer, index, operand.value),))
        super().__init__("", operand.buffers, [], nest, f.register_bytes, builder=f)
        self.f, self.operand, self.type, self.parts = f, operand, type, parts
        self.functions: dict[tuple[int, Variable], ByteFunction | None] = {}
        self.order = operand.order(type)
        self.fixed: tuple[Variable, ...] = ()
        """The variables that are bound by `at`."""
        self.shared: Shared = {}
        self.loads = [*loads_of([operand.value]), *operand.loads_of_codes]
        self.pointers.update(enumerate(pointers))

    @contextmanager
    def at(self, axis: Axis, index: IndexValue) -> Iterator[None]:
        """Binds an axis to an index, in a scope in which all that is known then is emitted."""
        with self.in_group(axis, index), self.bound(axis.within, self._within(axis, index)):
            self.hoist([self.operand.value])
            self.fixed += (axis.group, axis.within)
            for load in self.loads:
                self.origin(load)
            yield
            self.fixed = self.fixed[:-2]

    def origin(self, load: Load) -> tuple[Value, Index]:
        """Returns the address at the indices that are bound by `at`, and the index relative to it."""
        terms = tuple(t for t in load.index.terms if t[0] in self.fixed and t[0] is not self.vector)
        pointer, index = super().origin(load)
        if not terms or not load.in_bounds:
            return pointer, index
        key = "origin", load.buffer, terms
        if self.known(key) is None:
            base, _, _ = sum_terms(self, terms)
            assert base is not None
            self.scopes[-1][key] = element_address(self, pointer, base, load.type)
        space = self.operand.space.indices
        for variable, coefficient in terms:
            index = space.add(index, space.scale(space.of(variable), -coefficient))
        return self.known(key), index

    @contextmanager
    def sharing(self, shared: Shared) -> Iterator[None]:
        """Makes elements load what they share."""
        self.shared = shared
        yield
        self.shared = {}

    def held(self) -> Resume:
        """Returns a context with the indices that are bound now, and with what was emitted in their scopes."""
        variables, scopes, fixed = {**self.variables}, [*self.scopes], self.fixed

        @contextmanager
        def resume() -> Iterator[None]:
            now = self.variables, self.scopes, self.fixed
            self.variables, self.scopes, self.fixed = {**variables}, [*scopes, {}], fixed
            yield
            self.variables, self.scopes, self.fixed = now

        return resume

    def shared_values(self, rows: Sequence[Resume], first: IndexValue, last: IndexValue, most: int) -> list[Shared]:
        """Computes what elements of a group share in each of some rows, a vector at a time, for the groups of the
        elements of K from `first` to `last` (excluded), of which there are at most `most`.
        """
        f, axis, width = self.f, self.operand.contracted, self.type.width
        at, end = f.divide(first, axis.size), f.divide(f.add(last, axis.size - 1), axis.size)
        type, vectors = type_of("float", width), math.ceil((most // axis.size + 2) / width)
        slots = [{part: f.slot(type, vectors) for part in self.operand.of_groups} for _ in rows]
        with f.loop(end, width, first=at) as loop:
            mask = f.first_lanes(f.subtract(end, loop.index), width)
            for resume, own in zip(rows, slots, strict=True):
                with resume(), self._lanes(axis.group, width, mask), self.bound(axis.group, f.index(loop.index)):
                    for part, slot in own.items():
                        value = self.splat(self.value(part), width)
                        assert isinstance(value, Value)
                        f.store(value, f.at(slot, f.subtract(loop.index, at), "float"), 4)
        return [{part: (slot, at) for part, slot in own.items()} for own in slots]

    @contextmanager
    def lanes_along(self, axis: Axis, mask: Value | None, lanes: int | None = None) -> Iterator[None]:
        """Makes values vectors along an axis, of elements that are computed together unless a number of lanes is given;
        lanes outside the mask are not read, and zero.
        """
        with self._lanes(axis.within, self.parts * self.type.width if lanes is None else lanes, mask):
            yield

    @contextmanager
    def _lanes(self, variable: Variable, lanes: int, mask: Value | None) -> Iterator[None]:
        self.vector, self.lanes, self.tail = variable, lanes, mask
        yield
        self.vector, self.lanes, self.tail = None, 0, None

    def elements(self, axis: Axis, first: IndexValue, count: int) -> Iterator[list[Value]]:
        """Returns elements that are adjacent along the last axis, which has as many in each group, or a multiple: of
        each index, `parts` vectors. Those of an index are emitted when it is reached.
        """
        with self.in_group(axis, first):
            within = self._within(axis, first)
            for i in range(count):
                with self.bound(axis.within, self.f.index(self.f.add(within, i))):
                    elements = self._element()
                yield elements

    def factor(self, lanes: int) -> Value:
        """Returns the factor of sums at the bound indices, as a scalar if there are no lanes; NaN beyond its limit."""
        f, factor = self.f, self.operand.factor
        assert factor is not None
        value = self.value(factor.value)
        assert isinstance(value, Value)
        value = f.splat(value, lanes)
        is_usual = f.compare("ole", f.intrinsic("fabs", value), constant(value.type, factor.limit))
        return f.select(is_usual, value, constant(value.type, math.nan))

    def factors(self, first: IndexValue, count: int) -> Value:
        """Returns the factors of `count` groups along K from one on, in a vector."""
        f, group, width = self.f, self.operand.contracted.group, self.type.width
        with self._lanes(group, width, f.first_lanes(count, width)), self.bound(group, f.index(first)):
            return self.factor(width)

    def words(self, at: IndexValue, count: int) -> list[Value]:
        """Returns `count` elements of K from one on as bf16 (i16), in the order of a block (`order_of_halves`)."""
        f, function, bytes = self.f, self._function_of_codes, self.operand.block_of_words // 2
        mask = f.first_lanes(count // 2, bytes) if count < 2 * bytes else None
        return look_up_halves(f, self._codes(at, mask, bytes), self._table_of_words, function.is_swapped)

    @property
    def _table_of_words(self) -> Value:
        """The bf16 (i16) of all codes, twice: constants, or those of the group that has the table."""
        f, table = self.f, self.known("table")
        if table is None:
            return words_of_codes(self._function_of_codes.table)
        words = f.bitcast(f.convert("fptrunc", table, "bfloat"), type_of("i16", CODES))
        return f.shuffle(words, None, [*range(CODES)] * 2)

    def bytes(
        self, at: IndexValue, left: IndexValue | None, values: Sequence[int], halves: Sequence[int]
    ) -> list[Value]:
        """Returns the values of the codes in 64 bytes of K from an element on, a vector of words for each of the
        halves; bytes past the `left` elements are not read.
        """
        f = self.f
        mask = None if left is None else f.first_lanes(f.divide(f.add(left, len(halves) - 1), len(halves)), LANES)
        table = vector_constant("i8", [value & 0xFF for value in values] * (LANES // CODES))
        found = look_up_bytes(f, self._codes(at, mask, LANES), table, halves)
        return [f.bitcast(each, type_of("i32", LANES // 4)) for each in found]

    @property
    def _function_of_codes(self) -> ByteFunction:
        assert self.operand.coded is not None
        return self.operand.coded.function

    def _codes(self, at: IndexValue, mask: Value | None, count: int) -> Value:
        """Returns the bytes that have the codes of elements of K from one on."""
        f, axis, function = self.f, self.operand.contracted, self._function_of_codes
        within, lanes = self._within(axis, at), count if function.half is None else 2 * count
        own = self.in_group(axis, at), self._lanes(axis.within, lanes, None), self.bound(axis.within, within)
        with ExitStack() as stack:
            for context in own:
                stack.enter_context(context)
            if function.half is not None:
                stack.enter_context(self.bound(function.half, f.index(f.divide(within, 2))))
            return self._bytes(function.load, mask, count)

    def prefetch(self, *indices: tuple[Axis, IndexValue], is_near: bool = True) -> None:
        """Prefetches the weights of an element."""
        load = self.operand.largest
        with ExitStack() as stack:
            for axis, index in indices:
                stack.enter_context(self.bound(axis.group, self.f.index(self.f.divide(index, axis.size))))
                stack.enter_context(self.bound(axis.within, self._within(axis, index)))
            address = element_address(self, self.pointers[load.buffer], lane_index(self, load.index).base, load.type)
            self.f.prefetch(address, is_near=is_near)

    @contextmanager
    def in_group(self, axis: Axis, index: IndexValue) -> Iterator[None]:
        """Binds the group of an index, in a scope in which all that is known then is emitted."""
        group = self.f.index(self.f.divide(index, axis.size))
        with self.bound(axis.group, group):
            for part, (slot, first) in self.shared.items() if axis is self.operand.contracted else ():
                address = self.f.at(slot, self.f.subtract(group, first), "float")
                self.scopes[-1][id(part)] = self.f.load(address, type_of("float"), 4)
            self.hoist([self.operand.value])
            yield

    def _within(self, axis: Axis, index: IndexValue) -> Value:
        return self.f.index(index if axis.group.extent == 1 else self.f.remainder(index, axis.size))

    def _element(self) -> list[Value]:
        """Returns the elements at the bound indices, in the type of the sums."""
        f, type, width = self.f, self.type, self.type.width
        value = self._from_run_time_table() or self.value(self.operand.value)
        assert isinstance(value, Value)
        if value.type.element != type.element and type.is_float:
            value = f.convert("fpext", value, type.element)
        elif value.type.element != type.element:
            value = resized(f, value, type.element, self.operand.value.type.is_signed)
        value = value if value.type.width else f.splat(value, self.lanes)
        if self.tail is not None:
            mask = f.shuffle(self.tail, None, self.order) if self.order else self.tail
            value = f.select(mask, value, zero(value.type))
        return [f.shuffle(value, None, range(k, k + width)) for k in range(0, self.lanes, width)]

    def _from_run_time_table(self) -> Element | None:
        """Returns the elements if they are functions of codes of 4 bits with parameters that the lanes share, such as
        the scale of a group: the functions of all 16 codes are computed, and looked up.
        """
        coded = self.operand.coded
        if coded is None or self.vector is None or self.lanes != CODES or self.type.element != "float":
            return None
        table = self.known("table")
        return self._of_codes(coded.function, self._table(coded) if table is None else table)

    def _table(self, coded: Coded) -> Value:
        """Returns the elements of all codes, of a part of the expression, at the bound indices."""
        self.scopes.append({id(coded.part): table_of_codes(self.f, coded.function.table)})
        table = self.value(self.operand.value)
        self.scopes.pop()
        assert isinstance(table, Value)
        # Without a fence LLVM looks up the factors of scaled codes, and multiplies what it finds, for each vector anew.
        return self.f.intrinsic("arithmetic.fence", self.f.splat(table, CODES))

    def with_table(self, resume: Resume, shared: Shared, at: IndexValue) -> Resume:
        """Returns a context that also has the table of the group of an element of K."""
        axis, coded = self.operand.contracted, self.operand.coded
        assert coded is not None
        with resume(), self.sharing(shared), self._lanes(axis.within, CODES, None), self.in_group(axis, at):
            table = self._table(coded)

        @contextmanager
        def resume_with_table() -> Iterator[None]:
            with resume():
                self.scopes[-1]["table"] = table
                yield

        return resume_with_table

    def _emit(self, expression: Expression) -> Element:
        function = self._byte_function(expression)
        if function is None:
            return super()._emit(expression)
        if not has_byte_tables():
            return self._of_codes_in_lanes(function) or super()._emit(expression)
        if function.has_codes:
            return self._of_codes(function, table_of_codes(self.f, function.table))
        return self._of_bytes(function)

    def _byte_function(self, expression: Expression) -> ByteFunction | None:
        if self.vector is None or self.vector not in expression.variables:
            return None
        key = id(expression), self.vector
        if key not in self.functions:
            self.functions[key] = byte_function(self.operand.space, expression, self.vector)
        function = self.functions[key]
        return function if function is not None and self.lanes == function.codes_together else None

    def _of_bytes(self, function: ByteFunction) -> Value:
        """Returns the floats of the bytes that are loaded."""
        return look_up(self.f, self._bytes(function.load, self.tail), function.table)

    def _of_codes(self, function: ByteFunction, table: Value) -> Value:
        """Returns the floats of the codes of 4 bits that are loaded."""
        f, codes = self.f, self._bytes_of_codes(function)
        if function.half is None:
            return look_up_codes(f, f.convert("zext", codes, "i32"), table)
        found = look_up_codes(f, halves_of_bytes(f, f.bitcast(codes, I64), function.is_swapped), table)
        return found if self.order else f.shuffle(found, None, _LANES_OF_HALVES)

    def _of_codes_in_lanes(self, function: ByteFunction) -> Value | None:
        """Returns the floats of the codes that are loaded; None if those of 8 bits have no table."""
        codes = self._bytes_of_codes(function)
        if not function.has_codes:
            return look_up_eight_bits(self.f, codes, function.table)
        if function.half is None:
            return look_up_bytes_in_lanes(self.f, codes, function.table)
        return look_up_halves_in_lanes(self.f, codes, function.table, function.is_swapped)

    def _bytes_of_codes(self, function: ByteFunction) -> Value:
        """Returns the bytes that have the codes, in their halves or alone."""
        f, mask = self.f, self.tail
        if function.half is None:
            return self._bytes(function.load, mask)
        assert self.vector is not None
        pairs = None if mask is None else f.shuffle(mask, None, range(0, self.lanes, 2))
        with self.bound(function.half, f.index(f.divide(self.variables[self.vector], 2))):
            return self._bytes(function.load, pairs, self.lanes // 2)

    def _bytes(self, load: Load, mask: Value | None, count: int = 0) -> Value:
        pointer, index = self.origin(load)
        address = self.f.at(pointer, lane_index(self, index).base, "i8")
        return self.f.load_masked(address, type_of("i8", count or self.lanes), 1, mask)
