"""Cholesky factorisation of a large matrix A = U^T U, block of rows by block of rows.

A block of rows of U is computed in two steps: its square on the diagonal, on one thread, and the rows right of it, by
substitution. Tasks do so slab by slab of columns, after they subtract the product of the block before with itself. The
first one computes the slabs that have the next square, and factors it while the others run (look-ahead). LAPACK's lower
triangle, a row-major upper one, is U as it is; its upper triangle is U's transpose.
"""

from __future__ import annotations

import math
from dataclasses import replace

from hloom.backends.cpu.kernels.code import KernelCode, aligned, code_of, entry_function
from hloom.backends.cpu.kernels.kernel_function import KernelFunction, task_function
from hloom.backends.cpu.kernels.linear_algebra.blocks import (
    FEW,
    Inner,
    Square,
    record_failure,
    tile_copy,
)
from hloom.backends.cpu.kernels.linear_algebra.sizes import MIN_CHOLESKY_ORDER
from hloom.ir import Instruction
from hloom.lir import I32, I64, PTR, IndexValue, Value, constant, type_of
from hloom.runtime.custom_calls.fortran import RoutineCall
from hloom.target import Target

BLOCKS = ((1024, 64), (1 << 31, 128))
"""Rows of a block, by the largest order of a matrix: large ones take longer on one thread, and save memory traffic."""


def emit(name: str, instruction: Instruction, call: RoutineCall, target: Target) -> KernelCode | None:
    """Returns the code of LAPACK's potrf, or of hloom's `cholesky`, of f32 and f64; None if the matrices are small."""
    if call.routine[1:] not in ("potrf", "cholesky") or call.routine[0] not in "sd":
        return None
    order = call.operands[0].sizes[0]
    if call.routine[1:] == "potrf" and (order < MIN_CHOLESKY_ORDER or len(call.results) != 2):
        return None
    size = call.operands[0].dtype.itemsize
    type = type_of("float" if size == 4 else "double", target.vector_bytes // size)
    block = next(block for limit, block in BLOCKS if order <= limit)
    return _Cholesky(name, instruction, call, Square(order, type, block), target).code()


class _Cholesky:
    """Writes the functions: `name` calls tasks for each block; these get the matrix and the first row of the block."""

    def __init__(
        self, name: str, instruction: Instruction, call: RoutineCall, square: Square, target: Target
    ) -> None:  # fmt: skip
        self.name, self.instruction, self.call, self.square, self.target = name, instruction, call, square, target
        self.is_complete = call.routine[1:] == "cholesky"
        """Whether the whole result is written: zeros in the other triangle, and NaN if there is no factor."""
        self.is_symmetric, self.is_whole = map(bool, call.arguments) if self.is_complete else (False, False)
        self.is_transposed = self.is_complete or call.arguments[0] == "U"
        self.lines = -(-square.order // square.line)

    def code(self) -> KernelCode:
        f, square = entry_function(self.name, self.instruction), self.square
        on = f.threads_if(self.target.threads > 1)
        matrix, size = f["scratch"], square.order**2 * square.bytes
        scales = f.at(matrix, square.matrix_bytes, "i8")
        with f.loop(self.call.count) as k:
            operand, result = (f.at(f[array], f.multiply(k.index, size), "i8") for array in ("operand0", "result0"))
            own = f.at(scales, square.padded, square.type.element)
            info = own if self.is_complete else f.at(f["result1"], k.index, "i32")
            f.store(constant(I32, 0), info, 4)
            arrays = f.pack(operand, result, matrix)
            f.run_chunks(f"{self.name}.read", arrays, square.padded // square.line, on)
            f.call_void(f"{self.name}.diagonal", matrix, scales, f.index(0), info)
            with f.loop(square.padded - square.block, square.block) as block:
                first = f.index(block.index)
                rest = f.subtract(square.padded - 2 * square.block, first)
                context, tasks = f.pack(matrix, scales, first, info), f.add(f.divide(rest, square.slab), 1)
                f.run_chunks(f"{self.name}.step", context, tasks, on)
            f.run_chunks(f"{self.name}.write", arrays, self.lines, on)
            if self.is_complete:
                self._mark_failure(f, result, info)
        inner = Inner(square, square.at)
        functions = [self._read(), self._diagonal(), self._step(), self._slab(), self._update(), self._write(), f]
        functions += [inner.update(f"{self.name}.update"), inner.substitution(f"{self.name}.solve", is_unit=False)]
        read = (square.order, square.pitch)
        functions.append(
            Inner(replace(square, block=FEW, height=square.rows), square.at).update(f"{self.name}.subtract")
        )
        functions.append(tile_copy(f"{self.name}.write.tile", square, read[::-1], self.is_transposed))
        functions.append(tile_copy(f"{self.name}.read.tile", square, read, self.is_transposed, self.is_symmetric))
        return code_of(self.name, functions, square.matrix_bytes + aligned((square.padded + 1) * square.bytes))

    def _mark_failure(self, f: KernelFunction, result: Value, info: Value) -> None:
        """Fills the triangle of a matrix without a factor, or all of it, with NaN."""
        order, scalar = self.square.order, self.square.type.scalar
        fails = f.compare("ne", f.load(info, I32, 4), constant(I32, 0))
        with f.when(fails), f.each(0, order) as i, f.each(0, order if self.is_whole else f.add(i, 1)) as j:
            address = f.at(result, f.add(f.multiply(i, order), j), scalar.element)
            f.store(constant(scalar, math.nan), address, self.square.bytes)

    # Steps

    def _diagonal(self) -> KernelFunction:
        """Writes `name(matrix, scales, first, info)`, which factorises the square on the diagonal from row `first` on.

        It stores the reciprocals of the diagonal, and the number of the first row whose square root is not positive. A
        few rows are computed, one by one, before their product is subtracted from those below.
        """
        f, square = KernelFunction(f"{self.name}.diagonal", matrix=PTR, scales=PTR, first=I64, info=PTR), self.square
        block = square.at(f, f["matrix"], f["first"], f["first"])
        with f.loop(square.block, FEW) as few:
            end = f.index(f.add(few.index, FEW))
            with f.loop(end, first=few.index) as j:
                self._row(f, block, j.index, end)
            with f.each(end, square.block, square.tile_rows) as row:
                slab = f.index(f.subtract(row, f.remainder(row, square.slab)))
                with f.each(slab, square.block, square.slab) as column:
                    rows = [square.at(f, block, few.index, position) for position in (row, column)]
                    f.call_void(f"{self.name}.subtract", *rows, square.at(f, block, row, column))
        return f

    def _row(self, f: KernelFunction, block: Value, j: IndexValue, end: Value) -> None:
        """Computes a row of a square on the diagonal, and subtracts multiples of it from those up to `end`."""
        type, square = self.square.type, self.square
        diagonal = square.at(f, block, j, j)
        pivot = f.load(diagonal, type.scalar, square.bytes)
        fails = f.compare("ule", pivot, constant(type.scalar, 0))
        record_failure(f, f["info"], fails, f.add(f["first"], j))
        root = f.intrinsic("sqrt", pivot)
        scale = f.binary("fdiv", constant(type.scalar, 1), root)
        f.store(scale, f.at(f["scales"], f.add(f["first"], j), type.element), square.bytes)
        row = self._vectors(f, block, j)
        scaled = [f.binary("fmul", f.load(p, type, square.bytes), f.splat(scale, type.width)) for p in row]
        for value, address in zip(scaled, row, strict=True):
            f.store(value, address, square.bytes)
        f.store(root, diagonal, square.bytes)
        with f.each(f.add(j, 1), end) as i:
            factor = f.load(square.at(f, block, j, i), type.scalar, square.bytes)
            negated = f.splat(f.fneg(factor), type.width)
            for value, address in zip(scaled, self._vectors(f, block, i), strict=True):
                f.store(f.fmuladd(negated, value, f.load(address, type, square.bytes)), address, square.bytes)

    def _vectors(self, f: KernelFunction, block: Value, row: IndexValue) -> list[Value]:
        """Returns the addresses of the vectors of a row of a block."""
        width = self.square.type.width
        return [self.square.at(f, block, row, column) for column in range(0, self.square.block, width)]

    def _step(self) -> KernelFunction:
        """Writes the task of a slab of columns right of the block, the longest first, or of the block's next one.

        The first task computes the next block, and factorises its square, while others compute their slabs.
        """
        f, square = task_function(f"{self.name}.step"), self.square
        matrix, scales, first, info = f.unpack(f["context"], PTR, PTR, I64, PTR)
        following, is_first = f.index(f.add(first, square.block)), f.compare("eq", f["chunk"], f.index(0))
        with f.when(is_first):
            with f.each(following, f.add(following, square.block), square.slab) as column:
                f.call_void(f"{self.name}.slab", matrix, scales, first, column)
                f.call_void(f"{self.name}.product", matrix, first, following, column)
            f.call_void(f"{self.name}.diagonal", matrix, scales, following, info)
        with f.unless(is_first):
            column = f.index(f.subtract(square.padded, f.multiply(f["chunk"], square.slab)))
            f.call_void(f"{self.name}.slab", matrix, scales, first, column)
        return f

    def _slab(self) -> KernelFunction:
        """Writes `name(matrix, scales, first, column)`, which computes a slab of the rows from `first` on.

        The product of the block of rows before them is subtracted from these and from those below.
        """
        f, square = KernelFunction(f"{self.name}.slab", matrix=PTR, scales=PTR, first=I64, column=I64), self.square
        matrix, scales, first, column = (f[name] for name in ("matrix", "scales", "first", "column"))
        with f.unless(f.compare("eq", first, f.index(0))):
            f.call_void(f"{self.name}.product", matrix, f.index(f.subtract(first, square.block)), first, column)
        own = f.at(scales, first, square.type.element)
        f.call_void(f"{self.name}.solve", square.at(f, matrix, first, first), own, square.at(f, matrix, first, column))
        return f

    def _update(self) -> KernelFunction:
        """Writes `name(matrix, block, start, column)`, which subtracts the product of a block of rows with itself.

        It does so in a slab of columns, from row `start` down to the diagonal.
        """
        f, square = KernelFunction(f"{self.name}.product", matrix=PTR, block=I64, start=I64, column=I64), self.square
        matrix, block, column = f["matrix"], f["block"], f["column"]
        b = square.at(f, matrix, block, column)
        with f.each(f["start"], f.add(column, square.slab), square.tile_rows) as row:
            f.call_void(f"{self.name}.update", square.at(f, matrix, block, row), b, square.at(f, matrix, row, column))
        return f

    # Copies

    def _read(self) -> KernelFunction:
        """Writes the task that copies some rows of U, and those of the operand to the result."""
        f, square = task_function(f"{self.name}.read"), self.square
        operand, result, matrix = f.unpack(f["context"], *[PTR] * 3)
        first = f.multiply(f["chunk"], square.line)
        self._clear(f, matrix, f.index(first))
        rows = f.index(f.minimum(f.left(square.order, first), square.line))
        if not self.is_complete:
            with f.when(f.compare("ne", operand, result)):
                start = f.multiply(first, square.order * square.bytes)
                size = f.multiply(rows, square.order * square.bytes)
                f.copy(f.at(result, start, "i8"), f.at(operand, start, "i8"), size)
        with f.each(f["chunk"], self.lines) as other:
            source, target, sizes = self._tile(f, operand, matrix, first, other)
            mirrored = [self._inside(f, operand, first, other)] if self.is_symmetric else []
            sizes = sizes[::-1] if self.is_transposed else sizes
            f.call_void(f"{self.name}.read.tile", source, *mirrored, target, *sizes)
        with f.each(rows, square.line) as past:
            row = f.add(first, past)
            one = constant(square.type.scalar, 1)
            f.store(one, square.at(f, matrix, row, row), square.bytes)
        return f

    def _clear(self, f: KernelFunction, matrix: Value, first: Value) -> None:
        """Clears what is computed with beside the operand's triangle: squares on the diagonal, and padding."""
        square = self.square
        block = f.index(f.subtract(first, f.remainder(first, square.block)))
        with f.each(first, f.add(first, square.line)) as row:
            own = square.at(f, matrix, row, block)
            for column, count in square.parts(f, 0, square.block):
                f.fill(square.at(f, own, 0, column), 0, count * square.bytes)
            for column, count in square.parts(f, square.order, square.padded):
                f.fill(square.at(f, matrix, row, column), 0, count * square.bytes)

    def _write(self) -> KernelFunction:
        """Writes the task that copies some rows to the result: of U, or of its transpose."""
        f, square = task_function(f"{self.name}.write"), self.square
        _, result, matrix = f.unpack(f["context"], *[PTR] * 3)
        first = f.multiply(f["chunk"], square.line)
        ends = (0, f["chunk"]) if self.is_transposed else (f.add(f["chunk"], 1), self.lines)
        with f.each(*ends) as other:
            row, column = (other, f["chunk"]) if self.is_transposed else (f["chunk"], other)
            target, source, sizes = self._tile(f, result, matrix, f.multiply(row, square.line), column)
            f.call_void(f"{self.name}.write.tile", source, target, *sizes)
        end = f.minimum(f.add(first, square.line), square.order)
        with f.each(first, end) as i:
            if self.is_complete:
                start = f.at(result, f.add(f.multiply(i, square.order), i), square.type.element)
                f.fill(start, 0, f.multiply(f.subtract(square.order, i), square.bytes))
            with f.each(i, end) as j:
                value = f.load(square.at(f, matrix, i, j), square.type.scalar, square.bytes)
                f.store(value, self._outside(f, result, i, j), square.bytes)
        return f

    def _tile(
        self, f: KernelFunction, outside: Value, matrix: Value, first: IndexValue, line: IndexValue
    ) -> tuple[Value, Value, list[Value]]:
        """Returns the addresses of a tile of rows from `first` on, in the array and in the copy, and its sizes in U."""
        square, column = self.square, f.multiply(line, self.square.line)
        sizes = [f.index(f.minimum(f.left(square.order, start), square.line)) for start in (first, column)]
        return self._outside(f, outside, first, column), square.at(f, matrix, first, column), sizes

    def _inside(self, f: KernelFunction, array: Value, first: IndexValue, line: IndexValue) -> Value:
        """Returns the address in a row-major array of the tile whose transpose `_tile` reads."""
        column = f.multiply(line, self.square.line)
        return f.at(array, f.add(f.multiply(first, self.square.order), column), self.square.type.element)

    def _outside(self, f: KernelFunction, array: Value, row: IndexValue, column: IndexValue) -> Value:
        """Returns the address in the operand or result of an element of U."""
        i, j = (column, row) if self.is_transposed else (row, column)
        return f.at(array, f.add(f.multiply(i, self.square.order), j), self.square.type.element)
