"""Matrix products as LLVM IR: everything about the operands is known when the code is written.

matmul_plan.py decides how; here are the functions of one product, outermost last in the call chain: `name` (the entry)
runs `name.task` for each block of the result, on all threads where it pays, after `name.pack_task` where they share a
packed B; a task calls `name.block`, which packs A block by block of K and calls the micro kernel for each tile.
Tasks get their operands in a context of five words: A, B, C, the packed B, and the columns of B and C.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hloom.backends.cpu.kernels.products import pack_b
from hloom.backends.cpu.kernels.products.matmul_plan import (
    PARALLEL_WORK,
    MatmulSpec,
    Plan,
    Product,
    accumulator,
    normalised,
    plan,
    real_type,
    up,
)
from hloom.backends.cpu.kernels.products.matvec import Matvec
from hloom.backends.cpu.kernels.products.micro_kernel import Kernel, Panels, pack_rows_of_a, pack_steps_of_a
from hloom.backends.cpu.kernels.products.pairs import has_pairs, multiply_add_pairs, paired
from hloom.backends.cpu.llvm.function import ELEMENTS, Function, size_of
from hloom.backends.cpu.llvm.text import I1, I64, PTR, Index, Type, Value, constant, type_of

__all__ = ["MatmulCode", "MatmulSpec", "PackedMatmul", "emit_matmul", "emit_packed_matmul"]

FALSE = constant(I1, False)
MultiplyAdd = Callable[[Function, Value, Value, Value], Value]


@dataclass(frozen=True)
class MatmulCode:
    """LLVM IR of `void @entry(ptr lhs, ptr rhs, ptr out, ptr scratch, ptr pool)` and what it needs.

    `scratch` is aligned to 64 bytes; it may be null where `scratch_bytes` is 0, and `pool` where `threads` was 1.
    """

    text: str
    declarations: frozenset[str]
    scratch_bytes: int
    entry: str


def emit_matmul(name: str, spec: MatmulSpec, threads: int, vector_bytes: int = 64) -> MatmulCode:
    """The code of a product for `threads` threads. Raises ValueError for element types it has no code for."""
    vector = _sums(spec, vector_bytes)
    if spec.batch * spec.m * spec.n * spec.k == 0:
        return _zeros(name, spec)
    if has_pairs(spec, vector_bytes):
        return _by_pairs(name, spec, threads, vector, vector_bytes)
    p = normalised(spec)
    matvec = _streamed(p)
    if matvec is not None:
        return _matvec(name, matvec, vector, threads, p.swapped)
    return _Emitter(name, plan(p, vector, threads, vector_bytes)).code()


@dataclass(frozen=True)
class PackedMatmul:
    """A product in two steps: `packing`, of operand number `operand` to `size` bytes, and `product`, which reads them.

    Their entries are `void @packing(ptr operand, ptr packed, ptr pool)` and
    `void @product(ptr lhs, ptr rhs, ptr out, ptr pool)`, with the packed bytes in the operand's place.
    """

    operand: int
    size: int
    packing: MatmulCode
    product: MatmulCode


def emit_packed_matmul(name: str, spec: MatmulSpec, threads: int, vector_bytes: int) -> PackedMatmul | None:
    """The product in two steps, for loops whose rounds share an operand; None where it packs none as a whole."""
    if spec.batch * spec.m * spec.n * spec.k == 0 or has_pairs(spec, vector_bytes):
        return None
    p = normalised(spec)
    if _streamed(p) is not None:
        return None
    chosen = plan(p, _sums(spec, vector_bytes), threads, vector_bytes)
    if chosen.b_place != "shared" or p.batch > 1 or chosen.columns < p.n:
        return None
    packing, product = (_Emitter(f"{name}.{part}", chosen) for part in ("packing", "packed"))
    return PackedMatmul(0 if p.swapped else 1, packing.packed_bytes, packing.packing_code(), product.packed_code())


def _sums(spec: MatmulSpec, vector_bytes: int) -> Type:
    """A vector of sums."""
    sums = accumulator(spec)
    return type_of(sums.element, vector_bytes * 8 // sums.bits)


def _streamed(p: Product) -> Matvec | None:
    """The product of a matrix and a vector that passes through memory once."""
    if p.n > 1:
        return None
    matvec = Matvec(p.batch, p.m, p.k, p.a, p.b, p.c, p.batch_strides)
    return matvec if matvec.is_streamed else None


class _Emitter:
    """Writes the functions of one product."""

    def __init__(self, name: str, plan: Plan, multiply_add: MultiplyAdd = Function.multiply_add) -> None:
        self.name, self.plan, self.product, self.tile = name, plan, plan.product, plan.tile
        self.multiply_add = multiply_add
        self.element = plan.tile.type.element
        self.depth_of_b = up(plan.product.k, self.tile.type.width)  # steps of a packed panel
        self.a, self.b = self._panels_of_a(), self._panels_of_b()

    def _panels_of_a(self) -> Panels:
        a, rows, width = self.product.a, self.tile.rows, self.tile.type.width
        if self.plan.a_is_direct:
            return Panels(rows * a.row, a.column, a.row)
        if self._packs_steps_of_a():
            return Panels(rows * self.plan.depth + width, rows)
        pitch = up(self.plan.depth, width) + width  # no power of two: rows lie in different sets of the cache
        return Panels(rows * pitch, 1, pitch)

    def _packs_steps_of_a(self) -> bool:
        a = self.product.a
        return a.row == 1 and not a.has_contiguous_rows and not a.paired

    def _panels_of_b(self) -> Panels:
        columns = self.tile.columns
        if self.plan.b_place == "direct":
            return Panels(columns, self.product.b.row, masked=self.plan.has_ragged_columns)
        return Panels(self.depth_of_b * columns, columns)

    def code(self) -> MatmulCode:
        functions = [self._kernel(), self._block(), self._task(), self._entry()]
        if not self.plan.a_is_direct:
            functions.append(self._pack_a())
        if self.plan.b_place != "direct":
            functions.append(self._pack_b())
        if self.plan.b_place == "shared":
            functions.append(self._pack_task())
            return _code(self.name, functions, self.packed_bytes)
        return _code(self.name, functions, 0)

    def packing_code(self) -> MatmulCode:
        """The packing of a shared B alone."""
        f = Function(self.name, source=PTR, packed=PTR, pool=PTR)
        source, packed, pool = f.parameters
        context = f.slot(I64, 5)
        _fill_context(f, context, source, source, source, packed, f.index(self.product.n))
        _run(f, f"{self.name}.pack_task", context, self._pack_chunks(f), pool if self.plan.parallel else None)
        return _code(self.name, [self._pack_b(), self._pack_task(), f], 0)

    def packed_code(self) -> MatmulCode:
        """The product with a shared B that is packed already."""
        f = Function(self.name, lhs=PTR, rhs=PTR, out=PTR, pool=PTR)
        lhs, rhs, out, pool = f.parameters
        a, packed = (rhs, lhs) if self.product.swapped else (lhs, rhs)
        context, tasks = f.slot(I64, 5), self.plan.row_blocks * self.plan.column_groups
        _fill_context(f, context, a, packed, out, packed, f.index(self.product.n))
        _run(f, f"{self.name}.task", context, tasks, pool if self.plan.parallel else None)
        pack_a = [] if self.plan.a_is_direct else [self._pack_a()]
        return _code(self.name, [self._kernel(), *pack_a, self._block(), self._task(), f], 0)

    @property
    def packed_bytes(self) -> int:
        return self._size_of_b() * size_of(self.element)

    def _size_of_b(self) -> int:
        """The elements of a packed B."""
        return self.depth_of_b * up(self.plan.columns, self.tile.columns)

    def _kernel(self) -> Function:
        plan = self.plan
        ragged = plan.has_ragged_rows, plan.has_ragged_columns
        name, c = f"{self.name}.kernel", self.product.c
        return Kernel(name, self.tile, self.a, self.b, c, plan.has_partial_sums, *ragged, self.multiply_add).function()

    def _pack_a(self) -> Function:
        name, a = f"{self.name}.pack_a", self.product.a
        if self._packs_steps_of_a():
            return pack_steps_of_a(name, a, self.tile, self.a.panel)
        return pack_rows_of_a(name, a, self.tile, self.a.row)

    def _pack_b(self) -> Function:
        name, p, ragged = f"{self.name}.pack_b", self.product, self.plan.has_ragged_columns
        if p.b.has_contiguous_rows:
            return pack_b.pack_rows_of_b(name, p.b, self.tile, self.depth_of_b, ragged, p.is_complex)
        if p.b.row == 1 and not p.is_complex:
            return pack_b.pack_columns_of_b(name, p.b, self.tile, self.depth_of_b, p.k, ragged)
        return pack_b.pack_any_b(name, p.b, self.tile, self.depth_of_b, p.k, p.is_complex)

    def _packing_units(self, f: Function, columns: Index) -> Index:
        """How many units the packing of B counts: steps where its rows are contiguous, else panels."""
        if self.product.b.has_contiguous_rows:
            return self.product.k // (2 if self.product.is_complex else 1)
        return f.ceil_divide(columns, self.tile.columns)

    def _block(self) -> Function:
        """`(a, b, c, rows, columns)`: a block of the result, from rows of A in place and panels of B."""
        f = Function(f"{self.name}.block", a=PTR, b=PTR, c=PTR, rows=I64, columns=I64)
        a, b, c, rows, columns = f.parameters
        depth, k = self.plan.depth, self.product.k
        partial, packed = self._partial_sums(f), self._space_for_a(f)
        with f.loop(k, depth) as first:
            steps = f.index(f.minimum(depth, f.subtract(k, first.index)))
            last = f.compare("uge", f.index(f.add(first.index, depth)), f.index(k))
            panels_of_a = f.at(a, self.product.a.offset(f, 0, first.index), self.product.a.element)
            if packed:
                f.invoke(f"{self.name}.pack_a", panels_of_a, packed, rows, steps)
                panels_of_a = packed
            panels_of_b = f.at(b, f.multiply(first.index, self.b.step), self.element)
            self._tiles(f, (panels_of_a, panels_of_b, c, partial), steps, rows, columns, last)
        return f

    def _tiles(
        self, f: Function, pointers: tuple[Value, ...], steps: Value, rows: Value, columns: Value, last: Value
    ) -> None:
        """Calls the kernel for each tile. B, which is the larger one, passes by once: the block of A stays in the L2
        cache, and so does a panel of B."""
        a, b, c, partial = pointers
        tile = self.tile
        row_panels, column_panels = f.ceil_divide(rows, tile.rows), f.ceil_divide(columns, tile.columns)
        with f.loop(column_panels) as column_panel, f.loop(row_panels) as row_panel:
            i, j = row_panel.index, column_panel.index
            row, column = f.multiply(i, tile.rows), f.multiply(j, tile.columns)
            number = f.add(f.multiply(i, column_panels), j) if self.plan.has_partial_sums else 0
            f.invoke(
                f"{self.name}.kernel",
                f.at(a, f.multiply(i, self.a.panel), self.element),
                f.at(b, f.multiply(j, self.b.panel), self.element),
                f.at(c, self.product.c.offset(f, row, column), self.product.c.element),
                f.at(partial, f.multiply(number, tile.size), self.element),
                steps,
                f.index(f.minimum(f.subtract(rows, row), tile.rows)),
                f.index(f.minimum(f.subtract(columns, column), tile.columns)),
                last,
            )

    def _space_for_a(self, f: Function) -> Value | None:
        if self.plan.a_is_direct:
            return None
        return f.slot(type_of(self.element), self.plan.row_tiles * self.a.panel)

    def _partial_sums(self, f: Function) -> Value:
        """Zeros for all tiles of a task's block; null where one block of K is all."""
        if not self.plan.has_partial_sums:
            return constant(PTR, 0)
        count = self.plan.row_tiles * self.plan.column_tiles * self.tile.size
        sums = f.slot(type_of(self.element), count)
        size = f.index(count * size_of(self.element))
        f.call_void("llvm.memset.p0.i64", sums, constant(type_of("i8"), 0), size, FALSE)
        return sums

    def _task(self) -> Function:
        """`(context, chunk)`: one block of the result."""
        f = Function(f"{self.name}.task", context=PTR, chunk=I64)
        context, chunk = f.parameters
        a, b, c, packed, columns = _context(f, context)
        p, plan, tile = self.product, self.plan, self.tile
        group = f.remainder(chunk, plan.column_groups)
        number = f.divide(chunk, plan.column_groups)
        block = f.remainder(number, plan.row_blocks)
        if plan.b_place != "shared":
            a, b, c = _batch_pointers(f, p, (a, b, c), f.divide(number, plan.row_blocks))
        row, rows = f.share(p.m, tile.rows, plan.row_blocks, block)
        column, width = f.share(columns, tile.columns, plan.column_groups, group)
        a = f.at(a, f.multiply(row, p.a.row), p.a.element)
        c = f.at(c, p.c.offset(f, row, column), p.c.element)
        if plan.b_place == "private":
            packed = f.slot(type_of(self.element), self._size_of_b())
            units = f.index(self._packing_units(f, p.n))
            f.invoke(f"{self.name}.pack_b", b, packed, f.index(p.n), f.index(0), units)
        panels = f.at(packed, f.multiply(f.divide(column, tile.columns), self.b.panel), self.element)
        if plan.b_place == "direct":
            panels = f.at(b, column, self.element)
        with f.when(f.compare("ne", f.index(width), f.index(0))):
            f.invoke(f"{self.name}.block", a, panels, c, f.index(rows), f.index(width))
        return f

    def _pack_task(self) -> Function:
        """`(context, chunk)`: a share of the packing of B into the workspace."""
        f = Function(f"{self.name}.pack_task", context=PTR, chunk=I64)
        context, chunk = f.parameters
        _, b, _, packed, columns = _context(f, context)
        first, count = f.share(self._packing_units(f, columns), 1, self._pack_chunks(f), chunk)
        with f.when(f.compare("ne", f.index(count), f.index(0))):
            f.invoke(f"{self.name}.pack_b", b, packed, columns, f.index(first), f.index(count))
        return f

    def _pack_chunks(self, f: Function) -> int:
        units = self._packing_units(f, self.plan.columns)
        assert isinstance(units, int)
        return min(16, units)

    def _entry(self) -> Function:
        f = _entry(self.name)
        lhs, rhs, out, scratch, pool = f.parameters
        p, plan = self.product, self.plan
        a, b = (rhs, lhs) if p.swapped else (lhs, rhs)
        context = f.slot(I64, 5)
        tasks, threads = plan.row_blocks * plan.column_groups, pool if plan.parallel else None
        if plan.b_place != "shared":
            _fill_context(f, context, a, b, out, scratch, f.index(p.n))
            _run(f, f"{self.name}.task", context, p.batch * tasks, threads)
            return f
        with f.loop(p.batch) as batch, f.loop(p.n, plan.columns) as column:
            a, b, c = _batch_pointers(f, p, (a, b, out), batch.index)
            b = f.at(b, p.b.offset(f, 0, column.index), p.b.element)
            c = f.at(c, p.c.offset(f, 0, column.index), p.c.element)
            columns = f.minimum(plan.columns, f.subtract(p.n, column.index))
            _fill_context(f, context, a, b, c, scratch, f.index(columns))
            _run(f, f"{self.name}.pack_task", context, self._pack_chunks(f), threads)
            _run(f, f"{self.name}.task", context, tasks, threads)
        return f


def _by_pairs(name: str, spec: MatmulSpec, threads: int, vector: Type, vector_bytes: int) -> MatmulCode:
    """Copies of the operands, whose elements are pairs, and their product."""
    inner, *operands = paired(spec)
    product = _Emitter(f"{name}.pairs", plan(normalised(inner), vector, threads, vector_bytes), multiply_add_pairs)
    code = product.code()
    f = _entry(name)
    lhs, rhs, out, scratch, pool = f.parameters
    copies, place, functions = [], scratch, []
    for side, source, operand in zip(("lhs", "rhs"), (lhs, rhs), operands, strict=True):
        context, task = f.slot(I64, 2), f"{name}.copy_{side}"
        _fill_context(f, context, source, place)
        _run(f, task, context, operand.chunks, pool if product.plan.parallel else None)
        functions.append(operand.task(task, vector.width))
        copies.append(place)
        place = f.at(place, up(operand.size, 16), "i32")
    f.invoke(code.entry, *copies, out, place, pool)
    size = sum(4 * up(operand.size, 16) for operand in operands) + code.scratch_bytes
    outer = _code(name, [*functions, f], size)
    return MatmulCode(f"{code.text}\n{outer.text}", code.declarations | outer.declarations, size, name)


def _entry(name: str) -> Function:
    return Function(name, lhs=PTR, rhs=PTR, out=PTR, scratch=PTR, pool=PTR)


def _batch_pointers(f: Function, p: Product, pointers: tuple[Value, Value, Value], number: Index) -> list[Value]:
    """A, B and C of one product of the batch."""
    parts = zip(pointers, p.batch_strides, (p.a, p.b, p.c), strict=True)
    return [f.at(pointer, f.multiply(number, stride), matrix.element) for pointer, stride, matrix in parts]


def _run(f: Function, task: str, context: Value, chunks: int, pool: Value | None) -> None:
    """Calls the task for each chunk, on all threads of the pool where there is one."""
    if pool is not None and chunks > 1:
        f.call_void("parallel_for", pool, Value(f"@{task}", PTR), context, f.index(chunks))
        return
    with f.loop(chunks) as chunk:
        f.invoke(task, context, f.index(chunk.index))


def _fill_context(f: Function, context: Value, *fields: Value) -> None:
    for i, value in enumerate(fields):
        f.store(value, f.at(context, i, "i64"), 8)


def _context(f: Function, context: Value) -> tuple[Value, Value, Value, Value, Value]:
    a, b, c, packed = (f.load(f.at(context, i, "i64"), PTR, 8) for i in range(4))
    return a, b, c, packed, f.load(f.at(context, 4, "i64"), I64, 8)


def _code(name: str, functions: list[Function], scratch_bytes: int) -> MatmulCode:
    text = "\n".join(function.text() for function in functions)
    declarations = frozenset(line for function in functions for line in function.declarations)
    return MatmulCode(text, declarations, scratch_bytes, name)


def _zeros(name: str, spec: MatmulSpec) -> MatmulCode:
    """An empty product, or, where only K is empty, zeros."""
    f = _entry(name)
    out = f.parameters[2]
    parts = 2 if spec.out_type.startswith("c") else 1
    type = type_of(ELEMENTS[real_type(spec.out_type)])
    if spec.batch * spec.m * spec.n > 0:
        with f.loop(spec.batch) as b, f.loop(spec.m) as i, f.loop(spec.n) as j, f.loop(parts) as part:
            places = zip((b.index, i.index, j.index), spec.out_strides, strict=True)
            offset: Index = 0
            for index, stride in places:
                offset = f.add(offset, f.multiply(index, stride * parts))
            f.store(constant(type, 0), f.at(out, f.add(offset, part.index), type.element), 1)
    return _code(name, [f], 0)


def _matvec(name: str, p: Matvec, vector: Type, threads: int, swapped: bool) -> MatmulCode:
    f = _entry(name)
    lhs, rhs, out, _, pool = f.parameters
    context, shares = f.slot(I64, 3), p.shares(vector, threads)
    _fill_context(f, context, *((rhs, lhs) if swapped else (lhs, rhs)), out)
    parallel = threads > 1 and p.batch * p.m * p.k >= PARALLEL_WORK
    _run(f, f"{name}.task", context, p.batch * shares, pool if parallel else None)
    return _code(name, [p.task(f"{name}.task", vector, shares), f], 0)
