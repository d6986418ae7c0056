"""The functions of one product by blocks and tiles, as LLVM IR.

From the entry inwards: `name` runs `name.task` for each block of the result, on all threads if that pays, after
`name.pack_task` if they share a packed B; a task calls `name.block`, which packs A one block of K at a time and calls
the micro-kernel for each tile. Tasks get their operands in a context of five words: A, B, C, the packed B, and the
columns of B and C.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hloom.backends.cpu.kernels.code import KernelCode, code_of, entry_of
from hloom.backends.cpu.kernels.kernel_function import KernelFunction, size_of
from hloom.backends.cpu.kernels.products.blocked.matmul_plan import MatmulPlan
from hloom.backends.cpu.kernels.products.blocked.packed_b import CONTEXT, PackedB
from hloom.backends.cpu.kernels.products.dot_instructions import DotInstruction
from hloom.backends.cpu.kernels.products.packing.packing import Packing
from hloom.backends.cpu.kernels.products.product import Product
from hloom.backends.cpu.kernels.products.sums import sums_of_group
from hloom.backends.cpu.kernels.products.tiles.micro_kernel import (
    MicroKernel,
    PanelStrides,
    pack_rows_of_a,
    pack_steps_of_a,
)
from hloom.backends.cpu.kernels.products.tiles.tile_registers import (
    WORDS,
    TileInstruction,
    TileKernel,
    TileRegisters,
    pack_columns_of_a,
    release,
)
from hloom.lir import I1, I64, PTR, IndexValue, Value, constant, type_of
from hloom.target import align_up

if TYPE_CHECKING:
    from hloom.backends.cpu.kernels.products.computed.computed_operand import ComputedOperand

Instruction = DotInstruction | TileInstruction
ARRAYS = ("lhs", "rhs", "out")
"""The parameters of a product's entry before those of all kernels."""
FALSE = constant(I1, False)


class BlockedProduct:
    """Writes the functions of one product."""

    def __init__(
        self,
        name: str,
        plan: MatmulPlan,
        instruction: Instruction | None = None,
        computed: ComputedOperand | None = None,
    ) -> None:
        self.name, self.plan, self.product, self.tile = name, plan, plan.product, plan.tile
        self.instruction = instruction
        self.registers = TileRegisters(plan.tile) if plan.in_tile_registers else None
        self.corrected = isinstance(instruction, DotInstruction) and instruction.flipped
        self.element = plan.tile.type.element
        self.packed_b = PackedB(name, plan, self.corrected, computed)
        self.a, self.b = self._panels_of_a(), self._panels_of_b()

    def _panels_of_a(self) -> PanelStrides:
        a, rows, width = self.product.a, self.tile.rows, self.tile.type.width
        if self.plan.a_is_direct:
            return PanelStrides(rows * a.row, a.column, a.row)
        if self._packs_steps_of_a():
            return PanelStrides(rows * self.plan.depth + width, rows)
        # Not a power of two, so that rows map to different sets of the cache.
        pitch = align_up(self.plan.depth, width) + width
        return PanelStrides(rows * pitch, 1, pitch)

    def _packs_steps_of_a(self) -> bool:
        a = self.product.a
        return a.row == 1 and not a.has_contiguous_k(a.column) and not a.paired and not self.plan.in_tile_registers

    def _panels_of_b(self) -> PanelStrides:
        columns = self.tile.columns
        if self.plan.b_storage == "panels":
            return PanelStrides(0, columns)  # each overwrites the one before
        if self.plan.b_storage == "direct":
            ragged = self.plan.has_ragged_columns
            return PanelStrides(columns, self.product.b.row, masked=ragged, streamed=self.plan.streams_b)
        return PanelStrides(self.packed_b.depth * columns, columns)

    def code(self) -> KernelCode:
        """Returns the code of the product."""
        f = entry_of(self.name, *ARRAYS)
        a, b = factors(f, self.product.swapped)
        return self.completed(f, a, [b], f["out"])

    def completed(self, f: KernelFunction, a: Value, arrays: Sequence[Value], out: Value) -> KernelCode:
        """Completes the entry of the product of A and of B, which is an array or computed from several."""
        self._run(f, a, arrays, out)
        functions = [self._block(), self._task(), f]
        if self.plan.b_storage != "direct":
            functions += self.packed_b.functions()
        if self.plan.b_storage == "shared":
            functions += self.packed_b.tasks()
            return code_of(self.name, functions, self.packed_b.bytes)
        return code_of(self.name, functions)

    def packing_code(self) -> KernelCode:
        """Returns the code that packs a shared B."""
        f = entry_of(self.name, "operand", "packed")
        context = f.pack(f["operand"], f["operand"], f["operand"], f["packed"], f.index(self.product.n))
        self.packed_b.run(f, f["packed"], context)
        return code_of(self.name, [*self.packed_b.functions(), *self.packed_b.tasks(), f])

    def packed_code(self) -> KernelCode:
        """Returns the code of the product with a shared B that is packed already."""
        f = entry_of(self.name, *ARRAYS)
        a, packed = factors(f, self.product.swapped)
        context = f.pack(a, packed, f["out"], packed, f.index(self.product.n))
        f.run_chunks(f"{self.name}.task", context, self.plan.tasks, f.threads_if(self.plan.parallel))
        return code_of(self.name, [self._block(), self._task(), f])

    def _kernel(self) -> MicroKernel | TileKernel:
        plan, instruction = self.plan, self.instruction
        if isinstance(instruction, TileInstruction):
            ragged = plan.has_ragged_rows, plan.has_ragged_columns
            return TileKernel(self.tile, self.a.row, self.product.c, instruction, plan.has_partial_sums, *ragged)
        multiply_add = instruction.multiply_add if instruction else KernelFunction.multiply_add
        return MicroKernel(
            self.tile,
            self.a,
            self.b,
            self.product.c,
            plan.summed_steps,
            plan.summed_steps < plan.depth,
            plan.has_partial_sums,
            plan.adds_to_result,
            plan.has_ragged_rows,
            plan.has_ragged_columns,
            self.corrected,
            multiply_add,
            instruction.types if instruction else "",
        )

    def _pack_a(self) -> Packing:
        a = self.product.a
        if self.plan.in_tile_registers and not a.has_contiguous_k(a.column):
            return pack_columns_of_a(a, self.a.row, self.product.k)
        if self._packs_steps_of_a():
            return pack_steps_of_a(a, self.tile, self.a.panel)
        return pack_rows_of_a(a, self.tile, self.a.row)

    def _block(self) -> KernelFunction:
        """Writes `(a, b, c, rows, columns)`: a block of the result, from rows of A in place and panels of B."""
        f = KernelFunction(f"{self.name}.block", a=PTR, b=PTR, c=PTR, rows=I64, columns=I64)
        f = f.as_call_only() if self.registers is None and self.tile.takes_long(self.plan.depth) else f
        rows_of_a, b, c, rows, columns = f.parameters
        a, depth, k = self.product.a, self.plan.depth, self.product.k
        partial, packed = self._allocate_partial_sums(f), self._allocate_packed_a(f)
        totals = self._allocate_partial_sums(f) if self.plan.has_groups else None
        if self.registers is not None:
            self.registers.configure(f, f"{self.name}.registers")
        with f.loop(k, depth) as first:
            steps = f.index(f.minimum(depth, f.subtract(k, first.index)))
            left = a.elements_left(f, k, first.index)
            elements = f.index(f.minimum(f.multiply(steps, a.per_step), left))
            is_first = f.compare("eq", f.index(first.index), f.index(0))
            last = f.compare("uge", f.index(f.add(first.index, depth)), f.index(k))
            panels_of_a = f.at(rows_of_a, a.offset(f, 0, first.index), a.element)
            if packed:
                self._pack_a().call(f, f"{self.name}.pack_a.distances", panels_of_a, packed, rows, elements)
                panels_of_a = packed
            if self.plan.b_storage == "panels":
                panels_of_b = f.at(b, self.product.b.offset(f, first.index, 0), self.product.b.element)
            else:
                panels_of_b = f.at(b, f.multiply(first.index, self.b.step), self.element)
            sums = partial if totals is None else self._group_sums(f, partial, totals, first.index, last)
            self._tiles(f, (panels_of_a, panels_of_b, c, sums), steps, rows, columns, (is_first, last))
        if self.registers is not None:
            release(f)
        return f

    def _group_sums(self, f: KernelFunction, partial: Value, totals: Value, step: IndexValue, last: Value) -> Value:
        """Returns the address to which the block of K at `step` adds its sums."""
        is_first = f.compare("eq", f.index(f.remainder(step, self.plan.group)), f.index(0))
        return sums_of_group(f, self.tile.type, partial, totals, self._partial_count, is_first, last)

    def _tiles(
        self,
        f: KernelFunction,
        pointers: tuple[Value, ...],
        steps: Value,
        rows: Value,
        columns: Value,
        block: tuple[Value, Value],
    ) -> None:
        """Calls the kernel for each tile. B, the larger operand, is read once: the block of A stays in the L2 cache,
        and so does a panel of B. `block` says whether the block of K is the first, and the last.
        """
        a, b, c, partial = pointers
        tile, kernel = self.tile, self._kernel()
        row_panels, column_panels = f.ceil_divide(rows, tile.rows), f.ceil_divide(columns, tile.columns)
        with f.loop(column_panels) as column_panel:
            j, column = column_panel.index, f.multiply(column_panel.index, tile.columns)
            width = f.index(f.minimum(f.subtract(columns, column), tile.columns))
            panel = f.at(b, f.multiply(j, self.b.panel), self.element)
            if self.plan.b_storage == "panels":
                of_b = f.at(b, self.product.b.offset(f, 0, column), self.product.b.element)
                panel = self.packed_b.panel_on_stack(f, of_b, width, steps)
            with f.loop(row_panels) as row_panel:
                i, row = row_panel.index, f.multiply(row_panel.index, tile.rows)
                if self.plan.repeats_rows:
                    row = f.minimum(row, f.subtract(rows, tile.rows))
                index = f.add(f.multiply(i, column_panels), j) if self.plan.has_partial_sums else 0
                f.call_function(
                    kernel.function(),
                    f.at(a, self._offset_of_a(f, i, row), self.element),
                    panel,
                    f.at(c, self.product.c.offset(f, row, column), self.product.c.element),
                    f.at(partial, f.multiply(index, tile.size), self.element),
                    steps,
                    f.index(f.minimum(f.subtract(rows, row), tile.rows)),
                    width,
                    *block,
                    f.address_of(kernel.distances.table(f"{self.name}.distances")),
                )

    def _offset_of_a(self, f: KernelFunction, panel: IndexValue, row: IndexValue) -> IndexValue:
        return f.multiply(row, self.product.a.row) if self.plan.a_is_direct else f.multiply(panel, self.a.panel)

    def _allocate_packed_a(self, f: KernelFunction) -> Value | None:
        if self.plan.a_is_direct:
            return None
        rows = self.plan.row_tiles * self.tile.rows
        rows += WORDS if self.plan.in_tile_registers else 0  # which are packed together
        return f.slot(type_of(self.element), rows * self.a.panel // self.tile.rows)

    def _allocate_partial_sums(self, f: KernelFunction) -> Value:
        """Returns zeros for all tiles of a task's block, or for one tile if K is one block; null if registers hold all
        sums.
        """
        if self.plan.summed_steps >= self.plan.depth and not self.plan.has_partial_sums:
            return constant(PTR, 0)
        sums = f.slot(type_of(self.element), self._partial_count)
        size = f.index(self._partial_count * size_of(self.element))
        f.call_void("llvm.memset.p0.i64", sums, constant(type_of("i8"), 0), size, FALSE)
        return sums

    @property
    def _partial_count(self) -> int:
        tiles = self.plan.row_tiles * self.plan.column_tiles if self.plan.has_partial_sums else 1
        return tiles * self.tile.size

    def _task(self) -> KernelFunction:
        """Writes `(context, chunk)`: one block of the result."""
        f = KernelFunction(f"{self.name}.task", context=PTR, chunk=I64).as_call_only()
        context, chunk = f.parameters
        a, b, c, packed, columns = f.unpack(context, *CONTEXT)
        p, plan, tile = self.product, self.plan, self.tile
        if plan.finds_groups_in_cache:
            batch, group, block = f.digits(chunk, (plan.column_groups, plan.row_blocks))
        else:
            batch, block, group = f.digits(chunk, (plan.row_blocks, plan.column_groups))
        if plan.b_storage != "shared":
            a, b, c = _batch_pointers(f, p, (a, b, c), batch)
        row, rows = f.share(p.m, tile.rows, plan.row_blocks, block)
        if plan.repeats_rows:
            repeated = f.left(tile.rows, rows)
            row, rows = f.subtract(row, repeated), f.add(rows, repeated)
        column, width = f.share(columns, tile.columns, plan.column_groups, group)
        a = f.at(a, f.multiply(row, p.a.row), p.a.element)
        c = f.at(c, p.c.offset(f, row, column), p.c.element)
        if plan.b_storage == "private":
            packed = self.packed_b.on_stack(f, b)
        panels = f.at(packed, f.multiply(f.divide(column, tile.columns), self.b.panel), self.element)
        if plan.b_storage in ("direct", "panels"):
            panels = f.at(b, p.b.offset(f, 0, column), p.b.element)
        with f.when(f.compare("ne", f.index(width), f.index(0))):
            f.call_void(f"{self.name}.block", a, panels, c, f.index(rows), f.index(width))
        return f

    def _run(self, f: KernelFunction, a: Value, arrays: Sequence[Value], out: Value) -> None:
        """Runs the tasks of all products."""
        p, plan = self.product, self.plan
        on = f.threads_if(plan.parallel)
        if plan.b_storage != "shared":
            context = f.pack(a, arrays[0], out, f["scratch"], f.index(p.n))
            f.run_chunks(f"{self.name}.task", context, p.batch * plan.tasks, on)
            return
        with f.loop(p.batch) as batch, f.loop(p.n, plan.columns) as column:
            a, b, c = _batch_pointers(f, p, (a, arrays[0], out), batch.index)
            if self.packed_b.computed is None:
                b = f.at(b, p.b.offset(f, 0, column.index), p.b.element)
            else:
                b = f.pack(f.index(batch.index), f.index(column.index), *arrays)
            c = f.at(c, p.c.offset(f, 0, column.index), p.c.element)
            columns = f.minimum(plan.columns, f.subtract(p.n, column.index))
            context = f.pack(a, b, c, f["scratch"], f.index(columns))
            self.packed_b.run(f, f["scratch"], context)
            f.run_chunks(f"{self.name}.task", context, plan.tasks, on)


def factors(f: KernelFunction, swapped: bool) -> tuple[Value, Value]:
    """Returns A and B among the parameters of an entry."""
    return (f["rhs"], f["lhs"]) if swapped else (f["lhs"], f["rhs"])


def _batch_pointers(
    f: KernelFunction, p: Product, pointers: tuple[Value, Value, Value], batch_index: IndexValue
) -> list[Value]:
    """A, B and C of one product of the batch."""
    parts = zip(pointers, p.batch_strides, (p.a, p.b, p.c), strict=True)
    return [f.at(pointer, f.multiply(batch_index, stride), matrix.element) for pointer, stride, matrix in parts]
