"""LU factorisation of a large square matrix with partial pivoting, block of columns by block of columns.

A block of columns, from the diagonal down, is transposed into columns that are rows of memory, factored, transposed
back, and copied to a panel, in slabs. Then tasks swap the rows of the other columns, slab by slab. Right of the panel
they also compute the slab's rows of U, by substitution, and subtract the product of the panel and these rows from those
below. The first task does so for the next block of columns, and factors it while the others run (look-ahead): panels
alternate between two positions in memory.
"""

from __future__ import annotations

from dataclasses import replace

from hloom.backends.cpu.kernels.code import KernelCode, aligned, code_of, entry_function
from hloom.backends.cpu.kernels.kernel_function import KernelFunction, task_function
from hloom.backends.cpu.kernels.linear_algebra.blocks import VECTORS, Inner, Square, tile_copy
from hloom.backends.cpu.kernels.linear_algebra.panel import Columns, panel_functions
from hloom.ir import Instruction
from hloom.lir import I32, I64, PTR, Value, constant, type_of
from hloom.runtime.custom_calls.fortran import RoutineCall
from hloom.target import CACHE_LINE, Target

MIN_ORDER = 96
"""Rows of a matrix from which blocks are faster than LAPACK's routine."""
BLOCKS = ((768, 32), (1 << 31, 64))
"""Columns of a panel, by the largest order of a matrix: wide panels take longer, and save traffic with memory."""


def emit(name: str, instruction: Instruction, call: RoutineCall, target: Target) -> KernelCode | None:
    """Returns the code of LAPACK's getrf of square f32 and f64; None if the matrices are small."""
    if call.routine not in ("sgetrf", "dgetrf") or len(call.results) != 3:
        return None
    order, columns = call.operands[0].sizes
    if order != columns or order < MIN_ORDER:
        return None
    size = call.operands[0].dtype.itemsize
    type = type_of("float" if size == 4 else "double", target.vector_bytes // size)
    block = next(block for limit, block in BLOCKS if order <= limit)
    return _Lu(name, instruction, call, Square(order, type, block), target).code()


class _Lu:
    """Writes the functions: `name` calls tasks for each block."""

    def __init__(
        self, name: str, instruction: Instruction, call: RoutineCall, square: Square, target: Target
    ) -> None:  # fmt: skip
        self.name, self.instruction, self.call, self.square, self.target = name, instruction, call, square, target
        self.pitch = square.padded + CACHE_LINE // square.bytes
        self.columns = Columns(name, square, self.pitch)
        self.column_bytes = aligned(square.block * self.pitch * square.bytes)
        self.panel = replace(square, height=square.block)
        self.lines = square.padded // square.line

    def code(self) -> KernelCode:
        f, square = entry_function(self.name, self.instruction), self.square
        on = f.threads_if(self.target.threads > 1)
        matrix, panels = f["scratch"], f.at(f["scratch"], square.matrix_bytes + self.column_bytes, "i8")
        swaps = f.at(panels, 2 * self.panel.matrix_bytes, "i8")
        size, tasks = square.order**2 * square.bytes, (square.padded - 2 * square.block) // square.slab + 1
        with f.loop(self.call.count) as k:
            operand, result = (f.at(f[array], f.multiply(k.index, size), "i8") for array in ("operand0", "result0"))
            info = f.at(f["result2"], k.index, "i32")
            f.store(constant(I32, 0), info, 4)
            f.run_chunks(f"{self.name}.read", f.pack(operand, matrix), self.lines, on)
            f.call_void(f"{self.name}.panel", matrix, panels, f.index(0), swaps, info)
            with f.loop(square.padded, square.block) as block:
                context = f.pack(matrix, panels, f.index(block.index), swaps, info)
                f.run_chunks(f"{self.name}.step", context, tasks, on)
            f.run_chunks(f"{self.name}.write", f.pack(result, matrix), self.lines, on)
            f.copy(f.at(f["result1"], f.multiply(k.index, square.order), "i32"), swaps, 4 * square.order)
        inner = Inner(square, self.panel.at)
        functions = [self._read(), self._panel(), self._step(), self._slab(), self._write(), f]
        functions += [inner.update(f"{self.name}.update"), inner.substitution(f"{self.name}.solve", is_unit=True)]
        functions += panel_functions(self.name, square, self.pitch)
        functions.append(tile_copy(f"{self.name}.load", square, (square.pitch, self.pitch), is_transposed=True))
        functions.append(tile_copy(f"{self.name}.store", square, (self.pitch, square.pitch), is_transposed=True))
        functions.append(tile_copy(f"{self.name}.keep", square, (self.pitch, self.panel.pitch), is_transposed=False))
        scratch = square.matrix_bytes + self.column_bytes + 2 * self.panel.matrix_bytes + aligned(4 * square.padded)
        return code_of(self.name, functions, scratch)

    def _panel(self) -> KernelFunction:
        """Writes `name(matrix, panel, first, swaps, info)`, which factors the block of columns from `first` on."""
        f = KernelFunction(f"{self.name}.panel", matrix=PTR, panel=PTR, first=I64, swaps=PTR, info=PTR)
        square, first, side = self.square, f["first"], f.index(self.square.line)
        rows, columns = f.index(f.subtract(square.padded, first)), f.at(f["matrix"], square.matrix_bytes, "i8")
        for row, column in square.tiles(f, rows):
            source = square.at(f, f["matrix"], f.add(first, row), f.add(first, column))
            f.call_void(f"{self.name}.load", source, self.columns.at(f, columns, column, row), side, side)
        f.call_void(f"{self.name}.factor", columns, rows, first, f["swaps"], f["info"])
        for row, column in square.tiles(f, rows):
            target = square.at(f, f["matrix"], f.add(first, row), f.add(first, column))
            source = self.columns.at(f, columns, column, row)
            f.call_void(f"{self.name}.store", source, target, side, side)
            f.call_void(f"{self.name}.keep", source, self.panel.at(f, f["panel"], column, row), side, side)
        return f

    def _step(self) -> KernelFunction:
        """Writes the task of a slab of columns, or, as the first one, of the block after that of the panel.

        After the last block comes the first one. There are at least two.
        """
        f, square = task_function(f"{self.name}.step"), self.square
        matrix, panels, first, swaps, info = f.unpack(f["context"], PTR, PTR, I64, PTR, PTR)
        odd = f.remainder(f.divide(first, square.block), 2)
        panel, other = (f.at(panels, f.multiply(k, self.panel.matrix_bytes), "i8") for k in (odd, f.subtract(1, odd)))
        following, is_first = f.index(f.add(first, square.block)), f.compare("eq", f["chunk"], f.index(0))
        with f.when(is_first):
            with f.loop(square.block, square.slab) as inside:
                column = f.index(f.remainder(f.add(following, inside.index), square.padded))
                f.call_void(f"{self.name}.slab", matrix, panel, first, swaps, column)
            with f.unless(f.compare("eq", following, f.index(square.padded))):
                f.call_void(f"{self.name}.panel", matrix, other, following, swaps, info)
        with f.unless(is_first):
            slabs = f.multiply(f.subtract(f["chunk"], 1), square.slab)
            column = f.index(f.remainder(f.add(f.add(following, square.block), slabs), square.padded))
            f.call_void(f"{self.name}.slab", matrix, panel, first, swaps, column)
        return f

    def _slab(self) -> KernelFunction:
        """Writes `name(matrix, panel, first, swaps, column)`, which applies a panel to a slab of other columns."""
        names = {"matrix": PTR, "panel": PTR, "first": I64, "swaps": PTR, "column": I64}
        f, square = KernelFunction(f"{self.name}.slab", **names), self.square
        matrix, panel, first, swaps, column = (f[each] for each in names)
        after = f.compare("ugt", column, first)
        self._swap(f, square.at(f, matrix, 0, column), first, swaps)
        with f.when(after):
            b = square.at(f, matrix, first, column)
            f.call_void(f"{self.name}.solve", panel, panel, b)
            with f.each(f.add(first, square.block), square.padded, square.tile_rows) as row:
                a = self.panel.at(f, panel, 0, f.subtract(row, first))
                f.call_void(f"{self.name}.update", a, b, square.at(f, matrix, row, column))
        return f

    def _swap(self, f: KernelFunction, slab: Value, first: Value, swaps: Value) -> None:
        """Swaps rows of a slab as the panel's were."""
        square, type = self.square, self.square.type
        with f.loop(square.block) as step:
            row = f.add(first, step.index)
            number = f.convert("zext", f.load(f.at(swaps, row, "i32"), I32, 4), "i64")
            addresses = [square.at(f, slab, other, 0) for other in (row, f.subtract(number, 1))]
            for v in range(VECTORS):
                a, b = (f.at(address, v * type.width, type.element) for address in addresses)
                values = [f.load(address, type, square.bytes) for address in (a, b)]
                f.store(values[1], a, square.bytes)
                f.store(values[0], b, square.bytes)

    # Copies

    def _read(self) -> KernelFunction:
        """Writes the task that copies some rows of the operand; those past it are of an identity."""
        f, square = task_function(f"{self.name}.read"), self.square
        operand, matrix = f.unpack(f["context"], PTR, PTR)
        first = f.multiply(f["chunk"], square.line)
        square.clear(f, matrix, first, square.line)
        with f.each(first, f.add(first, square.line)) as row:
            inside = f.compare("ult", row, f.index(square.order))
            with f.when(inside):
                source = f.at(operand, f.multiply(row, square.order), square.type.element)
                square.read_row(f, source, matrix, row, square.order)
            with f.unless(inside):
                f.store(constant(square.type.scalar, 1), square.at(f, matrix, row, row), square.bytes)
        return f

    def _write(self) -> KernelFunction:
        """Writes the task that copies some rows to the result."""
        f, square = task_function(f"{self.name}.write"), self.square
        result, matrix = f.unpack(f["context"], PTR, PTR)
        square.write_rows(f, result, matrix, square.order)
        return f
