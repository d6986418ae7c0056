"""A packed B of a matrix product: the functions that write its panels, and the tasks that share them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hloom.backends.cpu.kernels.kernel_function import KernelFunction, size_of
from hloom.backends.cpu.kernels.products.blocked.matmul_plan import MatmulPlan
from hloom.backends.cpu.kernels.products.packing import pack_b
from hloom.backends.cpu.kernels.products.packing.packing import Packing
from hloom.lir import I64, PTR, IndexValue, Value, type_of
from hloom.system.records import record
from hloom.target import align_up

if TYPE_CHECKING:
    from hloom.backends.cpu.kernels.products.computed.computed_operand import ComputedOperand

CONTEXT = (PTR, PTR, PTR, PTR, I64)
"""Types that tasks capture: A, B, C, the packed B, and the number of columns."""


@record
class PackedB:
    """Panels of B, each with one row for each step of K, and with one more if sums are `corrected` by it.

    `computed` is the expression of a B that is not an array.
    """

    name: str
    plan: MatmulPlan
    corrected: bool
    computed: ComputedOperand | None

    @property
    def depth(self) -> int:
        """Rows of a panel."""
        return align_up(self.plan.product.k + self.corrected, self.plan.tile.type.width)

    @property
    def elements(self) -> int:
        """Elements of all panels."""
        return self.depth * align_up(self.plan.columns, self.plan.tile.columns)

    @property
    def bytes(self) -> int:
        """Bytes of all panels."""
        return self.elements * size_of(self._element)

    @property
    def _element(self) -> str:
        return self.plan.tile.type.element

    def on_stack(self, f: KernelFunction, b: Value) -> Value:
        """Packs all of B on the stack; returns its address."""
        packed, columns = f.slot(type_of(self._element), self.elements), self.plan.product.n
        self._clear_padding(f, packed)
        units = f.index(self._units(f, columns))
        self._pack(f, b, packed, f.index(columns), f.index(0), units)
        if self.corrected:
            self._add_sums(f, packed, f.index(0), f.index(f.ceil_divide(columns, self.plan.tile.columns)))
        return packed

    def panel_on_stack(self, f: KernelFunction, b: Value, columns: Value, steps: Value) -> Value:
        """Packs some steps of one panel on the stack, from its first element on; returns its address."""
        rows = align_up(self.plan.depth, self.plan.tile.type.width)
        packed = f.slot(type_of(self._element), rows * self.plan.tile.columns)
        self._pack(f, b, packed, columns, f.index(0), steps)
        return packed

    def functions(self) -> list[KernelFunction]:
        """Returns the function that writes panels, unless products share it."""
        if self.computed is None:
            return []
        from hloom.backends.cpu.kernels.products.packing.pack_computed import pack_computed_columns, pack_computed_rows

        name, p, tile = f"{self.name}.pack_b", self.plan.product, self.plan.tile
        if p.b.has_contiguous_rows:
            return [pack_computed_rows(name, self.computed, tile, self.depth, self.plan.has_ragged_columns)]
        return [pack_computed_columns(name, self.computed, tile, self.depth, p.k)]

    def _pack(self, f: KernelFunction, *arguments: Value) -> None:
        """Calls the function that writes panels."""
        name = f"{self.name}.pack_b"
        if self.computed is not None:
            f.call_void(name, *arguments)
        else:
            self._packing().call(f, f"{name}.distances", *arguments)

    def _packing(self) -> Packing:
        p, tile, ragged = self.plan.product, self.plan.tile, self.plan.has_ragged_columns
        if p.b.has_contiguous_rows:
            return pack_b.pack_rows_of_b(p.b, tile, self.depth, p.k, ragged, p.is_complex)
        if p.b.has_contiguous_k(p.b.row) and not p.is_complex:
            return pack_b.pack_columns_of_b(p.b, tile, self.depth, p.k, ragged, self.plan.b_storage == "panels")
        return pack_b.pack_any_b(p.b, tile, self.depth, p.k, p.is_complex)

    def _add_sums(self, f: KernelFunction, *arguments: Value) -> None:
        """Calls the function that adds up the columns of panels."""
        sizes = f.index(self.depth), f.index(self.plan.product.k)
        f.call_function(pack_b.sum_columns_of_b(self.plan.tile), *arguments, *sizes)

    def _units(self, f: KernelFunction, columns: IndexValue) -> IndexValue:
        """Returns the units that the packing of B counts: steps of K if its rows are contiguous, else panels."""
        if self.plan.product.b.has_contiguous_rows:
            return self.plan.product.k // (2 if self.plan.product.is_complex else 1)
        return f.ceil_divide(columns, self.plan.tile.columns)

    def _clear_padding(self, f: KernelFunction, packed: Value) -> None:
        """Sets the rows of panels of B past the last step to zero, which tile registers multiply by those of A."""
        padding, k = self.depth - self.plan.product.k, self.plan.product.k
        if not self.plan.in_tile_registers or not padding:
            return
        with f.loop(self.plan.columns, self.plan.tile.columns) as column:
            start = f.add(f.multiply(column.index, self.depth), k * self.plan.tile.columns)
            f.fill(f.at(packed, start, self._element), 0, padding * self.plan.tile.columns * size_of(self._element))

    def tasks(self) -> list[KernelFunction]:
        """Writes `(context, chunk)`: a share of the packing of B into the workspace; and of the sums of its columns."""
        f = KernelFunction(f"{self.name}.pack_task", context=PTR, chunk=I64).as_call_only()
        context, chunk = f.parameters
        _, b, _, packed, columns = f.unpack(context, *CONTEXT)
        first, count = f.share(self._units(f, columns), 1, self._pack_chunks(f), chunk)
        with f.when(f.compare("ne", f.index(count), f.index(0))):
            self._pack(f, b, packed, columns, f.index(first), f.index(count))
        if not self.corrected:
            return [f]
        s = KernelFunction(f"{self.name}.sum_task", context=PTR, chunk=I64).as_call_only()
        context, chunk = s.parameters
        _, _, _, packed, columns = s.unpack(context, *CONTEXT)
        first, count = s.share(s.ceil_divide(columns, self.plan.tile.columns), 1, self._sum_chunks(), chunk)
        with s.when(s.compare("ne", s.index(count), s.index(0))):
            self._add_sums(s, packed, s.index(first), s.index(count))
        return [f, s]

    def run(self, f: KernelFunction, packed: Value, context: Value) -> None:
        """Runs the tasks, whose context has the address of the panels too."""
        on = f.threads_if(self.plan.parallel)
        self._clear_padding(f, packed)
        f.run_chunks(f"{self.name}.pack_task", context, self._pack_chunks(f), on)
        if self.corrected:
            f.run_chunks(f"{self.name}.sum_task", context, self._sum_chunks(), on)

    def _sum_chunks(self) -> int:
        return min(16, -(-self.plan.columns // self.plan.tile.columns))

    def _pack_chunks(self, f: KernelFunction) -> int:
        units = self._units(f, self.plan.columns)
        assert isinstance(units, int)
        return min(16, units)
