"""Turns one loop nest into one LLVM function.

Each expression is emitted once, in the outermost loop in which all variables it depends on have values: what does not
change inside a loop is computed before it. Inside the vector loop a value is a vector where it depends on the loop's
variable, and a scalar otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

from hloom.backends.cpu import element_ops
from hloom.backends.cpu.element_types import (
    Element,
    load_element,
    memory_element,
    register_element,
    rounded,
    store_element,
)
from hloom.backends.cpu.llvm_text import I64, Builder, Type, Value, constant, lane_numbers, type_of
from hloom.loops.expressions import (
    Apply,
    Argument,
    Constant,
    Expression,
    Fold,
    FoldResult,
    FromIndex,
    InRange,
    Load,
    Where,
    children_of,
    walk,
)
from hloom.loops.index import Atom, Dynamic, Index, Quotient, Remainder, Variable
from hloom.loops.nest import BufferType, Kernel, Nest, Store, atoms_of, expressions_of, folds_of, indices_of
from hloom.loops.pull import identity
from hloom.loops.schedule import fold_lanes, tile_step
from hloom.types import PrimitiveType

UNROLLED_FOLD = 12
"""Folds of at most so many steps are written out."""
ALIGNMENT = 64
"""Large buffers start at a multiple of it, in bytes: a cache line."""
STREAMED_BYTES = 1 << 24
"""Results of at least so many bytes are written past the caches."""
SUMMATION_BLOCK = 64
"""Sums of floats longer than this are sums of sums of blocks, which keeps their error small."""


def emit_nest(name: str, kernel: Kernel, nest: Nest, vector_bytes: int) -> tuple[str, list[int], dict[str, None]]:
    """The text of `void @name(ptr of each buffer used.., i64 first, i64 last)`, those buffers, and declarations.

    The function runs iterations first <= i < last of the outermost loop.
    """
    used = used_buffers(kernel, nest)
    arguments = [b for b in used if kernel.buffers[b].role != "scratch"]
    emitter = NestEmitter(kernel.buffers, nest, vector_bytes)
    for buffer in used:
        if kernel.buffers[buffer].role == "scratch":
            emitter.allocate_scratch(buffer)
    emitter.emit()
    written = {store.buffer for store in nest.stores}
    parameters = ", ".join(f"ptr {'' if b in written else 'readonly '}%b{b}" for b in arguments)
    head = f"define internal void @{name}({parameters}, i64 %first, i64 %last) nounwind #0 {{\nentry:"
    text = "\n".join([head, *emitter.builder.lines, "  ret void", "}"])
    return text, arguments, emitter.builder.declarations


def used_buffers(kernel: Kernel, nest: Nest) -> list[int]:
    used = {store.buffer for store in nest.stores}
    used.update(buffer for _, buffer, _ in nest.schedule.staged)
    for expression in expressions_of(nest):
        if isinstance(expression, Load):
            used.add(expression.buffer)
    return sorted(used)


class NestEmitter:
    """The state while one nest is written: loop variables, the values made so far in each open loop, masks."""

    def __init__(self, buffers: Sequence[BufferType], nest: Nest, vector_bytes: int) -> None:
        self.builder = Builder()
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
        self._safe: dict[int, bool] = {}

    def allocate_scratch(self, buffer: int) -> None:
        kind = self.buffers[buffer]
        self.builder.lines.append(f"  %b{buffer} = alloca [{max(kind.byte_size, 1)} x i8], align 64")

    # Loops

    def emit(self) -> None:
        self._loops(0)

    def _loops(self, depth: int) -> None:
        nest = self.nest
        stores = [s for s in nest.stores if self._depth(s) == depth]
        rest = [s for s in nest.stores if self._depth(s) > depth]
        self._hoist(_roots(stores + rest))
        if depth < len(nest.loops) and rest:
            self._loop(depth)
        for store in stores:
            self._store(store.buffer, store.index, self.value(store.value))

    def _depth(self, store: Store) -> int:
        loops = self.nest.loops
        if len(self.nest.stores) == 1:
            return len(loops)
        return max((d + 1 for d, loop in enumerate(loops) if loop in store.index.variables), default=0)

    def _loop(self, depth: int) -> None:
        variable = self.nest.loops[depth]
        schedule = self.nest.schedule
        chunked = depth == 0 and schedule.chunk
        first = Value("%first", I64) if chunked else constant(I64, variable.low)
        last = Value("%last", I64) if chunked else constant(I64, variable.high + 1)

        def body(value: Value) -> None:
            with self._bound(variable, value):
                self._loops(depth + 1)

        if variable is schedule.transposed:
            self._tiles(depth, first, last)
        elif variable is schedule.vector:
            self._vector_loop(variable, schedule.lanes, first, last, chunked=bool(chunked), body=body)
        else:
            self._steps(first, last, 1, body, single=variable.extent == 1)

    def _vector_loop(
        self, variable: Variable, lanes: int, first: Value, last: Value, chunked: bool, body: Callable[[Value], None]
    ) -> None:
        """Whole vectors, then the rest under a mask; short loops are vectors of several widths, one after another."""
        b = self.builder
        rest = variable.extent % lanes
        main = variable.low + variable.extent - rest
        saved = self.vector, self.lanes
        self.vector, self.lanes = variable, lanes
        if variable.extent < lanes and not chunked:
            self._short_vectors(variable, body)
        else:
            if chunked:
                end = b.intrinsic("smin", last, constant(I64, main)) if rest else last
                self._guarded(b.compare("slt", first, end), lambda: self._steps(first, end, lanes, body), rest > 0)
            else:
                self._steps(first, constant(I64, main), lanes, body, single=main == variable.low + lanes)
            if rest:
                at_end = b.compare("eq", last, constant(I64, variable.high + 1)) if chunked else None
                self._guarded(at_end, lambda: self._masked(main, rest, body), chunked)
        self.vector, self.lanes = saved

    def _short_vectors(self, variable: Variable, body: Callable[[Value], None]) -> None:
        at, rest = variable.low, variable.extent
        while rest:
            width = 1 << (rest.bit_length() - 1)
            self.vector, self.lanes = (variable, width) if width > 1 else (None, 0)
            body(constant(I64, at))
            at, rest = at + width, rest - width

    def _masked(self, at: int, active: int, body: Callable[[Value], None]) -> None:
        self.tail = _mask_constant(active, self.lanes)
        body(constant(I64, at))
        self.tail = None

    def _steps(self, first: Value, last: Value, step: int, body: Callable[[Value], None], single: bool = False) -> None:
        def in_loop(value: Value, _: list[Value]) -> list[Value]:
            body(value)
            return []

        self.loop(first, last, step, [], in_loop, single=single)

    def _guarded(self, condition: Value | None, body: Callable[[], object], needed: bool) -> None:
        if condition is None or not needed:
            body()
            return
        b = self.builder
        then, after = b.label("then"), b.label("after")
        b.branch_if(condition, then, after)
        b.start(then)
        body()
        b.branch(after)
        b.start(after)

    def loop(
        self,
        first: Value,
        last: Value,
        step: int,
        carried: list[Value],
        body: Callable[[Value, list[Value]], list[Value]],
        single: bool = False,
    ) -> list[Value]:
        """A loop that runs at least once; `body` gives the next values of what is carried."""
        if single:
            return body(first, carried)
        b = self.builder
        before, head, after = b.block, b.label("loop"), b.label("done")
        b.branch(head)
        b.start(head)
        counter = Value(b.name(), I64)
        states = [Value(b.name(), value.type) for value in carried]
        place = len(b.lines)
        b.lines.append("")
        results = body(counter, states)
        following = b.binary("add", counter, constant(I64, step), "nuw nsw")
        latch = b.block
        phis = [f"  {counter.text} = phi i64 [ {first.text}, %{before} ], [ {following.text}, %{latch} ]"]
        for state, start, result in zip(states, carried, results, strict=True):
            phis.append(f"  {state.text} = phi {state.type} [ {start.text}, %{before} ], [ {result.text}, %{latch} ]")
        b.lines[place] = "\n".join(phis)
        b.branch_if(b.compare("slt", following, last), head, after)
        b.start(after)
        return results

    @contextmanager
    def _bound(self, variable: Variable, value: Value) -> Iterator[None]:
        self.variables[variable] = value
        self.scopes.append({})
        yield
        self.scopes.pop()
        del self.variables[variable]

    # Tiles that are turned in registers

    def _tiles(self, depth: int, first: Value, last: Value) -> None:
        """Blocks of lanes x lanes; what does not fill a block runs row by row."""
        tile, vector = self.nest.schedule.transposed, self.nest.schedule.vector
        assert tile is not None and vector is not None
        lanes = self.nest.schedule.lanes
        b = self.builder
        chunked = depth == 0 and self.nest.schedule.chunk
        tiled_end = tile.extent // tile_step(tile, lanes) * tile_step(tile, lanes)
        vector_end = vector.extent // lanes * lanes
        end = constant(I64, tiled_end)
        if chunked:
            end = b.intrinsic("smin", last, end)

        step = tile_step(tile, lanes)

        def block_row(row: Value, _: list[Value]) -> list[Value]:
            self.loop(constant(I64, 0), constant(I64, vector_end), lanes, [], lambda column, _: blocks(row, column))
            if vector_end < vector.extent:
                rest = constant(I64, vector_end)
                self.loop(row, b.binary("add", row, constant(I64, step)), 1, [], lambda r, _: edge(r, rest))
            return []

        def blocks(row: Value, column: Value) -> list[Value]:
            end = b.binary("add", row, constant(I64, step))
            return self.loop(row, end, lanes, [], lambda r, _: block(r, column), single=step == lanes)

        def block(row: Value, column: Value) -> list[Value]:
            self.vector, self.lanes = vector, lanes
            with self._bound(vector, column):
                turned = self._turned_loads(tile, row)
                for k in range(lanes):
                    at = b.binary("add", row, constant(I64, k)) if k else row
                    with self._bound(tile, at):
                        for load, vectors in turned:
                            self.scopes[-1][id(load)] = load_element(b, vectors[k], load.type)
                        self._loops(depth + 2)
            self.vector, self.lanes = None, 0
            return []

        def edge(row: Value, column: Value) -> list[Value]:
            with self._bound(tile, row):
                first_column = 0 if column.text == "0" else vector_end
                part = vector.extent - first_column
                self.vector, self.lanes = vector, lanes
                whole = part // lanes * lanes

                def step(value: Value, _: list[Value]) -> list[Value]:
                    with self._bound(vector, value):
                        self._loops(depth + 2)
                    return []

                if whole:
                    self.loop(column, constant(I64, first_column + whole), lanes, [], step)
                if part % lanes:
                    self.tail = _mask_constant(part % lanes, lanes)
                    step(constant(I64, first_column + whole), [])
                    self.tail = None
                self.vector, self.lanes = None, 0
            return []

        if tiled_end and vector_end:
            self._guarded(
                b.compare("slt", first, end),
                lambda: self.loop(first, end, step, [], block_row),
                bool(chunked),
            )
        else:
            end = first
        if tiled_end < tile.extent or not vector_end:
            start = b.intrinsic("smax", first, constant(I64, tiled_end)) if vector_end else first
            zero = constant(I64, 0)
            self._guarded(
                b.compare("slt", start, last),
                lambda: self.loop(start, last, 1, [], lambda row, _: edge(row, zero)),
                True,
            )

    def _turned_loads(self, tile: Variable, row: Value) -> list[tuple[Load, list[Value]]]:
        """The loads that are contiguous along the tile's rows, read as vectors and transposed."""
        b, vector = self.builder, self.vector
        assert vector is not None
        result = []
        for load in turned_loads(self.nest, tile, vector):
            pieces = []
            element = memory_element(load.type)
            for k in range(self.lanes):
                self.variables[tile] = row
                offset, _, _ = self._index_parts(load.index, ignore=True)
                del self.variables[tile]
                shifted = b.binary("add", offset, constant(I64, k * load.index.coefficient(vector)))
                pointer = b.element_pointer(Value(f"%b{load.buffer}", type_of("ptr")), shifted, element)
                pieces.append(b.load(pointer, type_of(element, self.lanes), load.type.byte_width))
                self.scopes[-1].pop(("terms", load.index.terms), None)
            result.append((load, transpose_vectors(b, pieces)))
        return result

    # Values

    def value(self, expression: Expression) -> Element:
        """The register of an expression: the one made before, or emitted now."""
        key = id(expression)
        for scope in reversed(self.scopes):
            found = scope.get(key)
            if found is not None:
                return cast(Element, found)
        if isinstance(expression, FoldResult):
            results = self._find(expression.fold)
            if results is None:
                self._emit_folds([expression.fold])
                results = self._find(expression.fold)
            assert results is not None
            return results[expression.position]
        result = self._emit(expression)
        self.scopes[-1][key] = result
        if key in self.staged:
            buffer, index = self.staged[key]
            self._store(buffer, index, result)
        return result

    def _emit(self, expression: Expression) -> Element:
        if isinstance(expression, Apply):
            return self._apply(expression)
        if isinstance(expression, Load):
            return self._load(expression)
        if isinstance(expression, Constant):
            return self._constant(expression)
        if isinstance(expression, FromIndex):
            return self._from_index(expression)
        if isinstance(expression, InRange):
            return self._in_range(expression)
        if isinstance(expression, Where):
            return self._where(expression)
        raise AssertionError(f"{expression!r} has no value")

    def _apply(self, expression: Apply) -> Element:
        operands = [self.value(operand) for operand in expression.operands]
        return element_ops.apply(self.builder, expression, self._level(operands))

    def _level(self, operands: list[Element]) -> list[Element]:
        """The operands as vectors where one of them is a vector."""
        width = max((_first(operand).type.width for operand in operands), default=0)
        return [self._splat(operand, width) for operand in operands] if width else operands

    def _splat(self, element: Element, width: int) -> Element:
        if isinstance(element, tuple):
            return self.builder.splat(element[0], width), self.builder.splat(element[1], width)
        return self.builder.splat(element, width)

    def _constant(self, expression: Constant) -> Element:
        type = expression.type
        scalar = type_of(register_element(type))
        if type.is_complex:
            return constant(scalar, float(expression.value.real)), constant(scalar, float(expression.value.imag))
        if type.is_float:
            return constant(scalar, float(expression.value))
        return constant(scalar, bool(expression.value) if type.is_pred else int(expression.value))

    def _from_index(self, expression: FromIndex) -> Element:
        index = self._index_value(expression.index)
        b, type = self.builder, expression.type
        if type.is_complex:
            real = b.convert("sitofp", index, register_element(type))
            return real, constant(real.type, 0)
        if type.is_float:
            return rounded(b, b.convert("sitofp", index, register_element(type)), type)
        element = register_element(type)
        bits = type_of(element).bits
        if bits != index.type.bits:
            index = b.convert("trunc" if bits < index.type.bits else "sext", index, element)
        return rounded(b, index, type)

    def _in_range(self, expression: InRange) -> Element:
        index = self._index_value(expression.index)
        b = self.builder
        size = expression.high - expression.low
        shifted = b.binary("sub", index, constant(index.type, expression.low)) if expression.low else index
        return b.compare("ult", shifted, constant(index.type, size))

    def _where(self, expression: Where) -> Element:
        b = self.builder
        condition = cast(Value, self.value(expression.condition))
        then = self._under(condition, expression.then)
        negated = condition
        if not self._is_safe(expression.otherwise):
            negated = b.binary("xor", condition, constant(condition.type, 1))
        otherwise = self._under(negated, expression.otherwise)
        chosen, then, otherwise = cast(list[Any], self._level([condition, then, otherwise]))
        if isinstance(then, tuple):
            return b.select(chosen, then[0], otherwise[0]), b.select(chosen, then[1], otherwise[1])
        return b.select(chosen, then, otherwise)

    def _under(self, condition: Value, expression: Expression) -> Element:
        """The value where the condition holds; what may read outside of a buffer elsewhere is masked."""
        if self._is_safe(expression):
            return self.value(expression)
        saved = self.mask
        self.mask = condition if saved is None else self._both(saved, condition)
        self.scopes.append({})
        result = self.value(expression)
        self.scopes.pop()
        self.mask = saved
        return result

    def _both(self, a: Value, c: Value) -> Value:
        a, c = cast(list[Value], self._level([a, c]))
        return self.builder.binary("and", a, c)

    def _is_safe(self, expression: Expression) -> bool:
        """True where no load but those that a condition inside the expression guards may leave its buffer."""
        known = self._safe.get(id(expression))
        if known is None:
            if isinstance(expression, Where):
                known = self._is_safe(expression.condition)
            elif isinstance(expression, Load) and not expression.in_bounds:
                known = False
            else:
                known = all(map(self._is_safe, children_of(expression)))
            self._safe[id(expression)] = known
        return known

    # Hoisting

    def _hoist(self, roots: Sequence[Expression]) -> None:
        """Emits what depends on no loop that is still to come, so that it is computed once."""
        bound = self.variables.keys()
        ready: list[Expression] = []
        seen: set[int] = set()
        stack = list(reversed(roots))
        while stack:
            expression = stack.pop()
            if id(expression) in seen or isinstance(expression, (Constant, Argument)):
                continue
            seen.add(id(expression))
            if expression.variables <= bound:
                if self._is_safe(expression):
                    ready.append(expression)
                continue
            stack.extend(children_of(expression))
        self._emit_ready_folds(ready)
        for expression in ready:
            self.value(expression)

    def _emit_ready_folds(self, ready: Sequence[Expression]) -> None:
        """Folds over the same loops that do not need each other share them."""
        bound = self.variables.keys()
        folds = [f for f in folds_of(ready) if f.variables <= bound and all(map(self._is_safe, f.values))]
        depth: dict[int, int] = {}
        groups: dict[tuple[int, tuple[Variable, ...]], list[Fold]] = {}
        for fold in folds:
            inner = folds_of([*fold.values, *fold.initial])
            depth[id(fold)] = 1 + max((depth.get(id(f), 0) for f in inner), default=0)
            groups.setdefault((depth[id(fold)], fold.over), []).append(fold)
        for _, group in sorted(groups.items(), key=lambda item: item[0][0]):
            self._emit_folds([f for f in group if self._find(f) is None])

    # Folds

    def _emit_folds(self, folds: list[Fold]) -> None:
        """Emits folds over the same loops, and remembers their results."""
        if not folds:
            return
        depends = self.vector is not None and any(self.vector in fold.variables for fold in folds)
        if depends:
            results = self._serial_folds(folds)
        else:
            saved = self.vector, self.lanes, self.tail, self.mask
            self.vector, self.lanes, self.tail = None, 0, None
            if self.mask is not None and self.mask.type.width:
                self.mask = self._any_lane(self.mask)
            variable, lanes = fold_lanes(folds, self.vector_bytes)
            results = self._vector_folds(folds, variable, lanes) if variable else self._serial_folds(folds)
            self.vector, self.lanes, self.tail, self.mask = saved
        for fold, values in zip(folds, results, strict=True):
            self.scopes[-1]["fold", id(fold)] = values

    def _find(self, fold: Fold) -> list[Element] | None:
        key = ("fold", id(fold))
        return next((scope[key] for scope in reversed(self.scopes) if key in scope), None)

    def _serial_folds(self, folds: list[Fold]) -> list[list[Element]]:
        """One step after another, starting from the initial values; vectors where the values are vectors."""
        if sum(len(fold.initial) for fold in folds) == 1 and self._needs_blocks(folds[0]):
            return [[self._blocked_sum(folds[0])]]
        width = self.lanes if self.vector is not None and any(self.vector in f.variables for f in folds) else 0
        initial = [[self._splat(self.value(i), width) for i in fold.initial] for fold in folds]
        results = self._fold_loops(folds, folds[0].over, initial)
        return [self._rounded_results(fold, values) for fold, values in zip(folds, results, strict=True)]

    def _rounded_results(self, fold: Fold, values: list[Element]) -> list[Element]:
        """Narrow floats are summed up in f32 and rounded once."""
        if not fold.opcode:
            return values
        types = [e.type for e in fold.initial]
        return [v if isinstance(v, tuple) else rounded(self.builder, v, t) for v, t in zip(values, types, strict=True)]

    def _needs_blocks(self, fold: Fold) -> bool:
        type = fold.initial[0].type
        return (
            fold.opcode == "add"
            and (type.is_float or type.is_complex)
            and any(variable.extent > 2 * SUMMATION_BLOCK for variable in fold.over)
        )

    def _blocked_sum(self, fold: Fold) -> Element:
        """The longest loop of the sum in blocks, each of which is summed on its own."""
        long = max(fold.over, key=lambda variable: variable.extent)
        inner = tuple(variable for variable in fold.over if variable is not long)
        width = self.lanes if self.vector is not None and self.vector in fold.variables else 0
        start = self._splat(self.value(fold.initial[0]), width)
        total = self._summed_in_blocks(
            [fold], long, 1, [[start]], lambda states: self._fold_loops([fold], inner, states)
        )
        return self._rounded_results(fold, total[0])[0]

    def _summed_in_blocks(
        self,
        folds: list[Fold],
        variable: Variable,
        step: int,
        initial: list[list[Element]],
        body: Callable[[list[list[Element]]], list[list[Element]]],
    ) -> list[list[Element]]:
        """A loop over blocks of the variable's range around a loop over each block; `body` runs with it bound."""
        b = self.builder
        block = SUMMATION_BLOCK * step
        main = variable.extent // step * step
        zeros = [[self._neutral(fold, value) for value in values] for fold, values in zip(folds, initial, strict=True)]

        def one_block(first: Value, states: list[list[Element]]) -> list[list[Element]]:
            last = b.intrinsic("smin", b.binary("add", first, constant(I64, block)), constant(I64, main))
            sums = self._loop_elements(first, last, step, zeros, lambda at, inner: bound_body(at, inner))
            return [
                [self._combine_plain(fold, x, y) for x, y in zip(old, new, strict=True)]
                for fold, old, new in zip(folds, states, sums, strict=True)
            ]

        def bound_body(at: Value, states: list[list[Element]]) -> list[list[Element]]:
            with self._bound(variable, at):
                self._hoist_fold_bodies(folds)
                return body(states)

        zero, end = constant(I64, 0), constant(I64, main)
        return self._loop_elements(zero, end, block, initial, one_block, single=main <= block)

    def _fold_loops(
        self, folds: list[Fold], over: tuple[Variable, ...], states: list[list[Element]]
    ) -> list[list[Element]]:
        """Runs the loops `over`, from the outermost, around one step of each fold."""
        if not over:
            return [self._step(fold, state) for fold, state in zip(folds, states, strict=True)]
        variable, rest = over[0], over[1:]

        def body(at: Value, inner: list[list[Element]]) -> list[list[Element]]:
            with self._bound(variable, at):
                self._hoist_fold_bodies(folds)
                return self._fold_loops(folds, rest, inner)

        steps = 1
        for v in over:
            steps *= v.extent
        if steps <= UNROLLED_FOLD:
            for k in range(variable.extent):
                states = body(constant(I64, k), states)
            return states
        if variable.extent == 0:
            return states
        return self._loop_elements(constant(I64, 0), constant(I64, variable.extent), 1, states, body)

    def _hoist_fold_bodies(self, folds: list[Fold]) -> None:
        self._hoist([value for fold in folds for value in fold.values])

    def _step(self, fold: Fold, states: list[Element]) -> list[Element]:
        values = [self.value(value) for value in fold.values]
        if fold.opcode:
            return [self._combine_plain(fold, states[0], values[0])]
        return self._combine(fold, states, values)

    def _combine(self, fold: Fold, states: list[Element], values: list[Element]) -> list[Element]:
        scope: dict[Any, Any] = {}
        for root in walk(fold.combine):
            if isinstance(root, Argument):
                scope[id(root)] = [*states, *values][root.number]
        self.scopes.append(scope)
        results = [self.value(expression) for expression in fold.combine]
        self.scopes.pop()
        widths = [_first(state).type.width for state in states]
        return [self._splat(result, width) for result, width in zip(results, widths, strict=True)]

    def _combine_plain(self, fold: Fold, x: Element, y: Element) -> Element:
        """One operation of a reorderable combiner, not rounded to narrow types."""
        x, y = self._level([x, y])
        expression = fold.combine[0]
        assert isinstance(expression, Apply)
        type = expression.type
        if type.is_float and type.bits < 32 and isinstance(x, Value) and isinstance(y, Value):
            opcode = {"add": "fadd", "multiply": "fmul"}.get(fold.opcode)
            if opcode:
                return self.builder.binary(opcode, x, y)
        return element_ops.apply(self.builder, expression, [x, y])

    def _neutral(self, fold: Fold, like: Element) -> Element:
        type = fold.initial[0].type
        value = identity(fold.opcode, type)
        if isinstance(like, tuple):
            return constant(like[0].type, float(value.real)), constant(like[1].type, float(value.imag))
        return constant(like.type, float(value) if type.is_float else int(value))

    def _loop_elements(
        self,
        first: Value,
        last: Value,
        step: int,
        states: list[list[Element]],
        body: Callable[[Value, list[list[Element]]], list[list[Element]]],
        single: bool = False,
    ) -> list[list[Element]]:
        """`loop` with the states of several folds carried."""
        flat = [value for values in states for element in values for value in _parts(element)]

        def flat_body(at: Value, values: list[Value]) -> list[Value]:
            results = body(at, _like(states, values))
            return [value for row in results for element in row for value in _parts(element)]

        return _like(states, self.loop(first, last, step, flat, flat_body, single))

    def _vector_folds(self, folds: list[Fold], variable: Variable, lanes: int) -> list[list[Element]]:
        """Reorderable folds with `lanes` running values each, along `variable`; these are folded in the end."""
        start = [[self.value(initial) for initial in fold.initial] for fold in folds]
        self.vector, self.lanes = variable, lanes
        others = tuple(v for v in folds[0].over if v is not variable)
        neutral = [
            [self._neutral(fold, self._splat(value, lanes)) for value in values]
            for fold, values in zip(folds, start, strict=True)
        ]

        def lanes_folded(states: list[list[Element]]) -> list[list[Element]]:
            main = variable.extent // lanes * lanes
            if main:
                if any(self._needs_vector_blocks(fold, variable, lanes) for fold in folds):
                    states = self._summed_in_blocks(
                        folds, variable, lanes, states, lambda inner: self._fold_loops(folds, (), inner)
                    )
                else:
                    states = self._loop_elements(
                        constant(I64, 0), constant(I64, main), lanes, states, step, single=main == lanes
                    )
            if main < variable.extent:
                self.tail = _mask_constant(variable.extent - main, lanes)
                new = step(constant(I64, main), neutral)
                states = [
                    [
                        self._combine_plain(fold, x, self._where_tail(y, z))
                        for x, y, z in zip(old, values, zero, strict=True)
                    ]
                    for fold, old, values, zero in zip(folds, states, new, neutral, strict=True)
                ]
                self.tail = None
            return states

        def step(at: Value, states: list[list[Element]]) -> list[list[Element]]:
            with self._bound(variable, at):
                self._hoist_fold_bodies(folds)
                return self._fold_loops(folds, (), states)

        states = self._around(others, neutral, lanes_folded, folds)
        self.vector, self.lanes = None, 0
        results = []
        for fold, first, values in zip(folds, start, states, strict=True):
            total = self._horizontal(fold, values[0])
            results.append(self._rounded_results(fold, [self._combine_plain(fold, first[0], total)]))
        return results

    def _needs_vector_blocks(self, fold: Fold, variable: Variable, lanes: int) -> bool:
        type = fold.initial[0].type
        return fold.opcode == "add" and not type.is_integer and variable.extent > 2 * SUMMATION_BLOCK * lanes

    def _around(
        self,
        over: tuple[Variable, ...],
        states: list[list[Element]],
        body: Callable[[list[list[Element]]], list[list[Element]]],
        folds: list[Fold],
    ) -> list[list[Element]]:
        if not over:
            return body(states)

        def step(at: Value, inner: list[list[Element]]) -> list[list[Element]]:
            with self._bound(over[0], at):
                self._hoist_fold_bodies(folds)
                return self._around(over[1:], inner, body, folds)

        end = constant(I64, over[0].extent)
        return self._loop_elements(constant(I64, 0), end, 1, states, step, single=over[0].extent == 1)

    def _where_tail(self, x: Element, otherwise: Element) -> Element:
        assert self.tail is not None
        b, tail = self.builder, self.tail
        if isinstance(x, tuple):
            assert isinstance(otherwise, tuple)
            return b.select(tail, x[0], otherwise[0]), b.select(tail, x[1], otherwise[1])
        return b.select(tail, x, cast(Value, otherwise))

    def _horizontal(self, fold: Fold, lanes: Element) -> Element:
        """The lanes of a vector folded into one value."""
        b, type = self.builder, fold.initial[0].type
        if isinstance(lanes, Value) and not (type.is_pred and fold.opcode in ("maximum", "minimum", "add", "multiply")):
            vector = lanes.type
            if type.is_float and fold.opcode in ("add", "multiply"):
                name = "fadd" if fold.opcode == "add" else "fmul"
                start = constant(vector.scalar, -0.0 if name == "fadd" else 1.0)
                return b.call(
                    f"llvm.vector.reduce.{name}.{vector.suffix}", vector.scalar, start, lanes, flags="reassoc"
                )
            return b.call(f"llvm.vector.reduce.{_reduction(fold.opcode, type)}.{vector.suffix}", vector.scalar, lanes)
        width = _first(lanes).type.width
        while width > 1:
            low = self._shuffled(lanes, range(width // 2))
            high = self._shuffled(lanes, range(width // 2, width))
            lanes = self._combine_plain(fold, low, high)
            width //= 2
        if isinstance(lanes, tuple):
            return b.extract(lanes[0], 0), b.extract(lanes[1], 0)
        return b.extract(lanes, 0)

    def _shuffled(self, element: Element, lanes: Sequence[int]) -> Element:
        if isinstance(element, tuple):
            return self.builder.shuffle(element[0], None, lanes), self.builder.shuffle(element[1], None, lanes)
        return self.builder.shuffle(element, None, lanes)

    # Indices

    def _index_parts(self, index: Index, ignore: bool = False) -> tuple[Value, int, Value | None]:
        """(base, c, extra): the index is base + c * lane + extra, extra a vector of what is not affine in the lanes."""
        b = self.builder
        key = ("terms", index.terms)
        found = next((scope[key] for scope in reversed(self.scopes) if key in scope), None)
        if found is None:
            found = self._sum_terms(index.terms)
            if not ignore:
                self.scopes[-1][key] = found
        base, coefficient, extra = found
        if base is None:
            return constant(I64, index.constant), coefficient, extra
        if index.constant:
            base = b.binary("add", base, constant(I64, index.constant))
        return base, coefficient, extra

    def _sum_terms(self, terms: tuple[tuple[Atom, int], ...]) -> tuple[Value | None, int, Value | None]:
        b = self.builder
        base: Value | None = None
        extra: Value | None = None
        coefficient = 0
        for atom, c in terms:
            if self.vector is not None and self.vector in atom.variables and atom is not self.vector:
                part = self._atom_vector(atom)
                part = b.binary("mul", part, constant(part.type, c)) if c != 1 else part
                extra = part if extra is None else b.binary("add", extra, part)
                continue
            if atom is self.vector:
                coefficient += c
            value = self._atom_scalar(atom)
            if value.type.width:
                part = b.binary("mul", value, constant(value.type, c)) if c != 1 else value
                extra = part if extra is None else b.binary("add", extra, part)
                continue
            value = b.binary("mul", value, constant(I64, c)) if c != 1 else value
            base = value if base is None else b.binary("add", base, value)
        return base, coefficient, extra

    def _atom_scalar(self, atom: Atom) -> Value:
        if isinstance(atom, Variable):
            return self.variables[atom]
        key = ("atom", atom)
        found = next((scope[key] for scope in reversed(self.scopes) if key in scope), None)
        if found is None:
            found = self.scopes[-1][key] = self._atom(atom, "i64")
        return cast(Value, found)

    def _atom_vector(self, atom: Atom) -> Value:
        key = ("atom", atom)
        found = next((scope[key] for scope in reversed(self.scopes) if key in scope), None)
        if found is None:
            found = self.scopes[-1][key] = self._atom(atom, self.index_element)
        return cast(Value, found)

    def _atom(self, atom: Atom, element: str) -> Value:
        b = self.builder
        if isinstance(atom, Dynamic):
            return self._dynamic(atom)
        assert isinstance(atom, (Quotient, Remainder))
        operand = self._index_value(atom.operand)
        divisor = constant(operand.type, atom.divisor)
        quotient = isinstance(atom, Quotient)
        if atom.operand.low >= 0:
            return b.binary("udiv" if quotient else "urem", operand, divisor)
        rest = b.binary("srem", operand, divisor)
        zero = constant(operand.type, 0)
        rest = b.select(b.compare("slt", rest, zero), b.binary("add", rest, divisor), rest)
        if not quotient:
            return rest
        return b.binary("sdiv", b.binary("sub", operand, rest), divisor)

    def _dynamic(self, atom: Dynamic) -> Value:
        """An integer of the program, clamped; it is compared in its own type, which may be wider than an index."""
        b, type = self.builder, atom.value.type
        value = cast(Value, self.value(atom.value))
        bits = value.type.bits
        if type.is_signed:
            value = b.intrinsic("smax", value, constant(value.type, atom.low))
            if atom.high < 1 << (bits - 1):
                value = b.intrinsic("smin", value, constant(value.type, atom.high))
        elif atom.high < 1 << bits:
            value = b.intrinsic("umin", value, constant(value.type, atom.high))
        element = self.index_element if value.type.width else "i64"
        wanted = type_of(element).bits
        if bits == wanted:
            return value
        return b.convert("trunc" if bits > wanted else "sext" if type.is_signed else "zext", value, element)

    def _index_value(self, index: Index) -> Value:
        """The index as one register: a vector where it depends on the lanes."""
        b = self.builder
        base, coefficient, extra = self._index_parts(index)
        if not coefficient and extra is None:
            return base
        type = type_of(self.index_element, self.lanes)
        scalar = b.convert("trunc", base, "i32") if self.index_element == "i32" and base.text.startswith("%") else base
        if not base.text.startswith("%"):
            scalar = constant(type.scalar, int(base.text))
        result = b.splat(scalar, self.lanes)
        if coefficient:
            steps = lane_numbers(type)
            scaled = b.binary("mul", steps, constant(type, coefficient)) if coefficient != 1 else steps
            result = b.binary("add", result, scaled)
        return b.binary("add", result, extra) if extra is not None else result

    # Memory

    def _active(self) -> Value | None:
        """The mask of the lanes that may touch memory; None for all."""
        if self.tail is None:
            return self.mask
        return self.tail if self.mask is None else self._both(self.tail, self.mask)

    def _load(self, load: Load) -> Element:
        b, type = self.builder, load.type
        base, coefficient, extra = self._index_parts(load.index)
        mask = self._active() if not load.in_bounds or self.tail is not None else None
        pointer = Value(f"%b{load.buffer}", type_of("ptr"))
        if not coefficient and extra is None:
            if self.mask is not None and not load.in_bounds:
                return self._guarded_scalar_load(pointer, base, type)
            return self._scalar_load(pointer, base, type)
        if mask is not None:
            mask = b.splat(mask, self.lanes)
        if extra is None and coefficient == 1:
            return self._contiguous_load(pointer, base, type, mask)
        if extra is None and 2 <= coefficient <= 4 and not type.is_complex:
            return self._strided_load(pointer, base, type, coefficient, mask)
        return self._gather(pointer, base, coefficient, extra, type, mask)

    def _scalar_load(self, pointer: Value, base: Value, type: PrimitiveType) -> Element:
        b, element = self.builder, memory_element(type)
        if type.is_complex:
            first = b.binary("mul", base, constant(I64, 2)) if base.text.startswith("%") else _doubled(base)
            at = b.element_pointer(pointer, first, element)
            size = type.byte_width // 2
            real = b.load(at, type_of(element), size)
            return real, b.load(b.element_pointer(at, constant(I64, 1), element), type_of(element), size)
        raw = b.load(b.element_pointer(pointer, base, element), type_of(element), type.byte_width)
        return load_element(b, raw, type)

    def _guarded_scalar_load(self, pointer: Value, base: Value, type: PrimitiveType) -> Element:
        """Where the mask is off (in all lanes, of a vector mask), element 0 is read instead."""
        b, mask = self.builder, cast(Value, self.mask)
        mask = self._any_lane(mask) if mask.type.width else mask
        return self._scalar_load(pointer, b.select(mask, base, constant(I64, 0)), type)

    def _any_lane(self, mask: Value) -> Value:
        return self.builder.call(f"llvm.vector.reduce.or.{mask.type.suffix}", type_of("i1"), mask)

    def _contiguous_load(self, pointer: Value, base: Value, type: PrimitiveType, mask: Value | None) -> Element:
        b, element = self.builder, memory_element(type)
        if type.is_complex:
            at = b.element_pointer(pointer, b.binary("mul", base, constant(I64, 2)), element)
            both = self._vector_load(at, type_of(element, 2 * self.lanes), type.byte_width // 2, self._twice(mask))
            return b.shuffle(both, None, range(0, 2 * self.lanes, 2)), b.shuffle(
                both, None, range(1, 2 * self.lanes, 2)
            )
        at = b.element_pointer(pointer, base, element)
        return load_element(b, self._vector_load(at, type_of(element, self.lanes), type.byte_width, mask), type)

    def _vector_load(self, at: Value, type: Type, align: int, mask: Value | None) -> Value:
        b = self.builder
        if mask is None:
            return b.load(at, type, align)
        zeros = Value("zeroinitializer", type)
        name = f"llvm.masked.load.{type.suffix}.p0"
        return b.call(name, type, at, constant(type_of("i32"), align), mask, zeros)

    def _twice(self, mask: Value | None) -> Value | None:
        """The mask of pairs of elements."""
        return None if mask is None else self.builder.shuffle(mask, None, [k // 2 for k in range(2 * self.lanes)])

    def _strided_load(
        self, pointer: Value, base: Value, type: PrimitiveType, stride: int, mask: Value | None
    ) -> Element:
        """Every stride-th element of one long vector, which ends with the last element that is needed."""
        b, element = self.builder, memory_element(type)
        length = (self.lanes - 1) * stride + 1
        at = b.element_pointer(pointer, base, element)
        if mask is not None:
            nowhere = Value("zeroinitializer", mask.type)
            mask = b.shuffle(mask, nowhere, [self.lanes if k % stride else k // stride for k in range(length)])
        whole = self._vector_load(at, type_of(element, length), type.byte_width, mask)
        return load_element(b, b.shuffle(whole, None, range(0, length, stride)), type)

    def _gather(
        self,
        pointer: Value,
        base: Value,
        coefficient: int,
        extra: Value | None,
        type: PrimitiveType,
        mask: Value | None,
    ) -> Element:
        b, element = self.builder, memory_element(type)
        factor = 2 if type.is_complex else 1
        offsets = self._offsets(coefficient, extra, factor)
        at = b.binary("mul", base, constant(I64, 2)) if type.is_complex else base
        start = b.element_pointer(pointer, at, element)
        if mask is None:
            mask = Value("splat (i1 true)", type_of("i1", self.lanes))
        vector = type_of(element, self.lanes)

        def part(origin: Value) -> Value:
            pointers = b.emit(f"getelementptr {element}, ptr {origin.text}, {offsets}", type_of("ptr", self.lanes))
            name = f"llvm.masked.gather.{vector.suffix}.v{self.lanes}p0"
            align = constant(type_of("i32"), type.byte_width // factor)
            return b.call(name, vector, pointers, align, mask, Value("zeroinitializer", vector))

        if type.is_complex:
            return part(start), part(b.element_pointer(start, constant(I64, 1), element))
        return load_element(b, part(start), type)

    def _offsets(self, coefficient: int, extra: Value | None, factor: int) -> Value:
        b = self.builder
        wide = type_of(self.index_element, self.lanes)
        offsets = extra
        if coefficient:
            steps = b.binary("mul", lane_numbers(wide), constant(wide, coefficient))
            offsets = steps if offsets is None else b.binary("add", offsets, steps)
        assert offsets is not None
        return b.binary("mul", offsets, constant(wide, factor)) if factor != 1 else offsets

    def _store(self, buffer: int, index: Index, value: Element) -> None:
        b, type = self.builder, self.buffers[buffer].type
        base, coefficient, extra = self._index_parts(index)
        pointer = Value(f"%b{buffer}", type_of("ptr"))
        element = memory_element(type)
        if not coefficient and extra is None:
            self._scalar_store(pointer, base, value, type)
            return
        value = self._splat(value, self.lanes)
        mask = self._active()
        mask = b.splat(mask, self.lanes) if mask is not None else None
        if coefficient != 1 or extra is not None:
            self._scatter(pointer, base, coefficient, extra, value, type, mask)
        elif isinstance(value, tuple):
            at = b.element_pointer(pointer, b.binary("mul", base, constant(I64, 2)), element)
            order = [k // 2 + (k % 2) * self.lanes for k in range(2 * self.lanes)]
            both = b.shuffle(value[0], value[1], order)
            self._vector_store(both, at, type.byte_width // 2, self._twice(mask))
        else:
            at = b.element_pointer(pointer, base, element)
            stored = store_element(b, value, type)
            if mask is None and self._is_streamed(buffer, index):
                b.store(stored, at, ALIGNMENT, "!nontemporal !0")
            else:
                self._vector_store(stored, at, type.byte_width, mask)

    def _is_streamed(self, buffer: int, index: Index) -> bool:
        """Whether the stores to a large result are whole cache lines that nobody reads soon."""
        kind = self.buffers[buffer]
        per_line = ALIGNMENT // kind.type.byte_width
        return (
            kind.role == "output"
            and kind.byte_size >= STREAMED_BYTES
            and self.lanes % per_line == 0
            and index.constant % per_line == 0
            and all(c % per_line == 0 for atom, c in index.terms if atom is not self.vector)
        )

    def _scalar_store(self, pointer: Value, base: Value, value: Element, type: PrimitiveType) -> None:
        b, element = self.builder, memory_element(type)
        if isinstance(value, tuple):
            first = b.binary("mul", base, constant(I64, 2)) if base.text.startswith("%") else _doubled(base)
            at = b.element_pointer(pointer, first, element)
            b.store(value[0], at, type.byte_width // 2)
            b.store(value[1], b.element_pointer(at, constant(I64, 1), element), type.byte_width // 2)
            return
        b.store(store_element(b, value, type), b.element_pointer(pointer, base, element), type.byte_width)

    def _vector_store(self, value: Value, at: Value, align: int, mask: Value | None) -> None:
        b = self.builder
        if mask is None:
            b.store(value, at, align)
        else:
            b.store_masked(value, at, align, mask)

    def _scatter(
        self, pointer: Value, base: Value, coefficient: int, extra: Value | None, value: Element, type: PrimitiveType,
        mask: Value | None,
    ) -> None:  # fmt: skip
        b, element = self.builder, memory_element(type)
        factor = 2 if type.is_complex else 1
        offsets = self._offsets(coefficient, extra, factor)
        at = b.binary("mul", base, constant(I64, 2)) if type.is_complex else base
        start = b.element_pointer(pointer, at, element)
        mask = mask if mask is not None else Value("splat (i1 true)", type_of("i1", self.lanes))
        for k, part in enumerate(_parts(value)):
            origin = b.element_pointer(start, constant(I64, k), element) if k else start
            pointers = b.emit(f"getelementptr {element}, ptr {origin.text}, {offsets}", type_of("ptr", self.lanes))
            stored = part if type.is_complex else store_element(b, part, type)
            align = constant(type_of("i32"), type.byte_width // factor)
            b.call_void(f"llvm.masked.scatter.{stored.type.suffix}.v{self.lanes}p0", stored, pointers, align, mask)


def turned_loads(nest: Nest, tile: Variable, vector: Variable) -> list[Load]:
    """The loads that are contiguous along `tile` and not along `vector`: those that a tile turns."""
    return [
        e
        for e in walk([store.value for store in nest.stores])
        if isinstance(e, Load)
        and e.in_bounds
        and not e.type.is_complex
        and e.index.is_affine_in(tile)
        and e.index.is_affine_in(vector)
        and e.index.coefficient(tile) == 1
        and e.index.coefficient(vector) > 1
        and e.variables <= set(nest.loops)
    ]


def transpose_vectors(b: Builder, rows: list[Value]) -> list[Value]:
    """The columns of a square of registers, in log2(n) rounds of two-register shuffles."""
    n = len(rows)
    distance = n // 2
    while distance:
        new = list(rows)
        for i in range(n):
            if i & distance:
                continue
            j = i | distance
            low = [k if not k & distance else n + (k ^ distance) for k in range(n)]
            high = [(k | distance) if not k & distance else n + k for k in range(n)]
            new[i] = b.shuffle(rows[i], rows[j], low)
            new[j] = b.shuffle(rows[i], rows[j], high)
        rows = new
        distance //= 2
    return rows


def _reduction(opcode: str, type: PrimitiveType) -> str:
    """The name of LLVM's reduction of a vector."""
    if opcode in ("and", "or", "xor"):
        return opcode
    if opcode in ("add", "multiply"):
        return {"add": "add", "multiply": "mul"}[opcode]
    short = "max" if opcode == "maximum" else "min"
    if type.is_float:
        return f"f{short}imum"
    return ("s" if type.is_signed else "u") + short


def _mask_constant(active: int, lanes: int) -> Value:
    bits = ", ".join("i1 true" if k < active else "i1 false" for k in range(lanes))
    return Value(f"<{bits}>", type_of("i1", lanes))


def _parts(element: Element) -> tuple[Value, ...]:
    return element if isinstance(element, tuple) else (element,)


def _first(element: Element) -> Value:
    return element[0] if isinstance(element, tuple) else element


def _like(states: list[list[Element]], values: list[Value]) -> list[list[Element]]:
    """Flat registers grouped as `states` are."""
    rest = iter(values)
    return [[(next(rest), next(rest)) if isinstance(e, tuple) else next(rest) for e in row] for row in states]


def _doubled(base: Value) -> Value:
    return constant(I64, 2 * int(base.text))


def _roots(stores: Sequence[Store]) -> list[Expression]:
    """What the stores need: their values, and what their indices read."""
    roots = [store.value for store in stores]
    for store in stores:
        roots += [atom.value for atom in atoms_of(store.index) if isinstance(atom, Dynamic)]
    return roots


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
