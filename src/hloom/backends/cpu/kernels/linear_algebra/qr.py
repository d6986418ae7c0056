"""QR factorisation of a large matrix by Householder reflections, and their product, block of columns by block.

A block of columns, from the diagonal down, is transposed into a panel and factored there. Its reflections together are
I - V T V^T (compact WY). Tasks apply their transpose to the columns right of it, slab by slab: W = V^T C is a product,
and so are T^T W and what is subtracted from C. The first task does so for the next block, and factors it while the
others run (look-ahead): V and T alternate between two positions in memory. The product of all is computed from the
identity, with the last block first.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

from hloom.backends.cpu.kernels.code import KernelCode, code_of, entry_function
from hloom.backends.cpu.kernels.kernel_function import KernelFunction, task_function
from hloom.backends.cpu.kernels.linear_algebra.blocks import SIDE, Inner, Square, tile_copy
from hloom.backends.cpu.kernels.linear_algebra.householder import Reflections, triangle
from hloom.ir import Instruction
from hloom.lir import I64, PTR, IndexValue, Value, constant, type_of
from hloom.runtime.custom_calls.fortran import RoutineCall
from hloom.target import Target, align_up

MIN_SIZE = 48
"""Rows, and columns, from which blocks are faster than LAPACK's routine."""
BLOCK = 32
"""Columns of a panel."""
OWN = ("columns", "vectors", "triangle")
"""Arrays of a block, which tasks read while the next block is factored."""


def emit(name: str, instruction: Instruction, call: RoutineCall, target: Target) -> KernelCode | None:
    """Returns the code of LAPACK's geqrf and orgqr of f32 and f64; None if the matrices are small, or for no
    reflections.
    """
    if call.routine not in ("sgeqrf", "dgeqrf", "sorgqr", "dorgqr") or min(call.operands[0].sizes) < MIN_SIZE:
        return None
    if not call.operands[-1].elements:
        return None
    return _Blocks(name, instruction, call, target).code()


class _Blocks:
    """Writes the functions: `name` calls tasks for each block; these find their arrays in scratch memory."""

    def __init__(self, name: str, instruction: Instruction, call: RoutineCall, target: Target) -> None:
        self.name, self.instruction, self.call = name, instruction, call
        self.is_parallel = target.threads > 1
        self.is_product = call.routine.endswith("orgqr")
        (self.m, self.n), dtype = call.operands[0].sizes, call.operands[0].dtype
        (self.count,) = (call.operands[1] if self.is_product else call.results[1]).sizes
        type = type_of("float" if dtype.itemsize == 4 else "double", target.vector_bytes // dtype.itemsize)
        self.rows = align_up(self.m, SIDE)
        self.square, self.narrow = Square(self.n, type, BLOCK, self.rows), Square(BLOCK, type, BLOCK)
        self.layouts = {
            "vectors": replace(self.narrow, height=self.rows),
            "triangle": self.narrow,
            "matrix": self.square,
            "products": self.narrow,
            "w": replace(self.square, height=2 * BLOCK),
        }
        if self.is_product:
            self.layouts["given"] = self.square
        self.pitch = self.rows + self.square.line
        self.panel = Reflections(name, self.square, self.pitch)
        elements = {
            "columns": BLOCK * self.pitch,
            **{array: layout.elements for array, layout in self.layouts.items()},
            "panel": BLOCK * self.pitch,
            "taus": align_up(self.count, SIDE),
        }
        self.own_elements = sum(elements[array] for array in OWN)
        self.elements = sum(elements.values()) + self.own_elements
        starts = zip(elements, itertools.accumulate(elements.values(), initial=0), strict=False)
        self.starts = {array: start if array in OWN else start + self.own_elements for array, start in starts}
        """Offsets of the arrays, in elements, in the part of a block or in scratch memory, which begins with two parts:
        of V as `columns`, each a row of memory, and as `vectors`, which are its rows."""

    def code(self) -> KernelCode:
        f, square = entry_function(self.name, self.instruction), self.square
        on, scratch = f.threads_if(self.is_parallel), f["scratch"]
        given, found = f["operand1" if self.is_product else "result1"], self._array(f, scratch, "taus")
        with f.loop(self.call.count) as k:
            arrays = [
                f.at(f[each], f.multiply(k.index, self.m * self.n), square.type.element)
                for each in ("operand0", "result0")
            ]
            taus = f.at(given, f.multiply(k.index, self.count), square.type.element)
            if self.is_product:
                f.fill(found, 0, align_up(self.count, SIDE) * square.bytes)
                f.copy(found, taus, self.count * square.bytes)
            context = f.pack(*arrays, scratch)
            f.run_chunks(f"{self.name}.read", context, self.rows // square.line, on)
            self._run_blocks(f, on)
            f.run_chunks(f"{self.name}.write", context, self.rows // square.line, on)
            if not self.is_product:
                f.copy(taus, found, self.count * square.bytes)
        return code_of(self.name, [*self._functions(), f], self.elements * square.bytes)

    def _run_blocks(self, f: KernelFunction, on: tuple[Value, Value] | None) -> None:
        blocks = -(-self.count // BLOCK)
        start = f.index((blocks - 1) * BLOCK if self.is_product else 0)
        f.call_void(f"{self.name}.block", f["scratch"], self._own(f, f["scratch"], start), start)
        with f.loop(blocks) as block:
            step = f.subtract(blocks - 1, block.index) if self.is_product else block.index
            first = f.index(f.multiply(step, BLOCK))
            taken = 0 if self.is_product else 2 * BLOCK
            slabs = f.divide(f.left(self.square.padded, f.add(first, taken)), self.square.slab)
            f.run_chunks(f"{self.name}.step", f.pack(f["scratch"], first), f.add(slabs, 1), on)

    def _functions(self) -> list[KernelFunction]:
        name, square, narrow = self.name, self.square, self.narrow
        wide, own = (square.pitch, self.pitch), (self.pitch, narrow.pitch)
        functions = [self._read(), self._write(), self._block(), self._step(), self._slab()]
        functions.append(Inner(square, self.panel.at).update(f"{name}.update"))
        functions.append(Inner(square, narrow.at).product(f"{name}.product"))
        functions.append(Inner(narrow, narrow.at).product(f"{name}.gram"))
        functions.append(triangle(f"{name}.triangle", narrow, is_transposed=self.is_product))
        if self.is_product:
            functions.append(tile_copy(f"{name}.load", square, (square.pitch, narrow.pitch), is_transposed=False))
            functions.append(tile_copy(f"{name}.transpose", square, own[::-1], is_transposed=True))
            return functions
        functions.append(tile_copy(f"{name}.load", square, wide, is_transposed=True))
        functions.append(tile_copy(f"{name}.store", square, wide[::-1], is_transposed=True))
        functions.append(tile_copy(f"{name}.transpose", square, own, is_transposed=True))
        return functions + self.panel.functions()

    # Arrays

    def _array(self, f: KernelFunction, scratch: Value, array: str) -> Value:
        return f.at(scratch, self.starts[array], self.square.type.element)

    def _own(self, f: KernelFunction, scratch: Value, first: IndexValue) -> Value:
        """Returns the part of scratch memory of the block of columns from `first` on."""
        odd = f.remainder(f.divide(first, BLOCK), 2)
        return f.at(scratch, f.multiply(odd, self.own_elements), self.square.type.element)

    def _in(
        self, f: KernelFunction, scratch: Value, row: IndexValue, column: IndexValue, array: str = "matrix"
    ) -> Value:
        return self.layouts[array].at(f, self._array(f, scratch, array), row, column)

    def _in_columns(self, f: KernelFunction, scratch: Value, row: IndexValue, column: IndexValue, array: str) -> Value:
        return self.panel.at(f, self._array(f, scratch, array), column, row)

    # Steps

    def _block(self) -> KernelFunction:
        """Writes `name(scratch, own, first)`, which stores V and T of the block of columns from `first` on."""
        f, square = KernelFunction(f"{self.name}.block", scratch=PTR, own=PTR, first=I64), self.square
        scratch, own, first = f["scratch"], f["own"], f["first"]
        rows = f.index(f.subtract(self.rows, first))
        taus = f.at(self._array(f, scratch, "taus"), first, square.type.element)
        (self._load_vectors if self.is_product else self._factor)(f, rows, taus)
        for i in range(0, BLOCK, square.tile_rows):
            for j in range(0, BLOCK, square.slab):
                a, b = (self._in(f, own, 0, k, "vectors") for k in (i, j))
                f.call_void(f"{self.name}.gram", a, b, self._in(f, scratch, i, j, "products"), rows)
        arrays = self._array(f, scratch, "products"), taus, self._array(f, own, "triangle")
        f.call_void(f"{self.name}.triangle", *arrays)
        return f

    def _factor(self, f: KernelFunction, rows: Value, taus: Value) -> None:
        """Factors a panel, and stores its columns in the matrix and the vectors of the reflections."""
        scratch, own, first, side = f["scratch"], f["own"], f["first"], f.index(self.square.line)
        panel, columns = self._array(f, scratch, "panel"), self._array(f, own, "columns")
        for row, column in self.square.tiles(f, rows):
            source = self._in(f, scratch, f.add(first, row), f.add(first, column))
            f.call_void(f"{self.name}.load", source, self._in_columns(f, scratch, row, column, "panel"), side, side)
        f.call_void(f"{self.name}.factor", panel, columns, rows, taus)
        for row, column in self.square.tiles(f, rows):
            target = self._in(f, scratch, f.add(first, row), f.add(first, column))
            f.call_void(f"{self.name}.store", self._in_columns(f, scratch, row, column, "panel"), target, side, side)
            source = self._in_columns(f, own, row, column, "columns")
            f.call_void(f"{self.name}.transpose", source, self._in(f, own, row, column, "vectors"), side, side)

    def _load_vectors(self, f: KernelFunction, rows: Value, taus: Value) -> None:
        """Copies the vectors of the reflections, with the ones and zeros that the given matrix has not."""
        scratch, own, first, side = f["scratch"], f["own"], f["first"], f.index(self.square.line)
        for row, column in self.square.tiles(f, rows):
            source = self._in(f, scratch, f.add(first, row), f.add(first, column), "given")
            f.call_void(f"{self.name}.load", source, self._in(f, own, row, column, "vectors"), side, side)
        scalar, size = self.square.type.scalar, self.square.bytes
        with f.loop(BLOCK) as i:
            f.store(constant(scalar, 1), self._in(f, own, i.index, i.index, "vectors"), size)
            with f.each(f.add(i.index, 1), BLOCK) as j:
                f.store(constant(scalar, 0), self._in(f, own, i.index, j, "vectors"), size)
        for row, column in self.square.tiles(f, rows):
            source = self._in(f, own, row, column, "vectors")
            f.call_void(f"{self.name}.transpose", source, self._in_columns(f, own, row, column, "columns"), side, side)

    def _step(self) -> KernelFunction:
        """Writes the task of a slab of columns, or, as the first one, of the next block.

        The columns of the next block of a factorisation are changed before it is factored.
        """
        f, square = task_function(f"{self.name}.step"), self.square
        scratch, first = f.unpack(f["context"], PTR, I64)
        own, following = self._own(f, scratch, first), f.index(f.add(first, BLOCK))
        is_first = f.compare("eq", f["chunk"], f.index(0))
        with f.when(is_first):
            if self.is_product:
                other, exists = f.index(f.subtract(first, BLOCK)), f.compare("ne", first, f.index(0))
            else:
                other, exists = following, f.compare("ult", following, f.index(self.count))
                with f.each(following, f.minimum(f.add(following, BLOCK), square.padded), square.slab) as column:
                    f.call_void(f"{self.name}.slab", scratch, own, first, column)
            with f.when(exists):
                f.call_void(f"{self.name}.block", scratch, self._own(f, scratch, other), other)
        with f.unless(is_first):
            slabs = f.multiply(f.subtract(f["chunk"], 1), square.slab)
            column = f.index(f.add(f.add(first, 0 if self.is_product else 2 * BLOCK), slabs))
            f.call_void(f"{self.name}.slab", scratch, own, first, column)
        return f

    def _slab(self) -> KernelFunction:
        """Writes `name(scratch, own, first, column)`, which applies a block to a slab of columns."""
        names = {"scratch": PTR, "own": PTR, "first": I64, "column": I64}
        f, square = KernelFunction(f"{self.name}.slab", **names), self.square
        scratch, own, first, column = (f[each] for each in names)
        rows = f.index(f.subtract(self.rows, first))
        c, tiles = self._in(f, scratch, first, column), range(0, BLOCK, square.tile_rows)
        for k, (array, source, steps) in enumerate((("vectors", c, rows), ("triangle", None, f.index(BLOCK)))):
            w = [self._in(f, scratch, row, column, "w") for row in (0, BLOCK)]
            for i in tiles:
                a, b = self._in(f, own, 0, i, array), w[0] if source is None else source
                f.call_void(f"{self.name}.product", a, b, square.at(f, w[k], i, 0), steps)
        with f.each(0, rows, square.tile_rows) as row:
            a = self._in_columns(f, own, row, 0, "columns")
            f.call_void(f"{self.name}.update", a, w[1], square.at(f, c, row, 0))
        return f

    # Copies

    def _read(self) -> KernelFunction:
        """Writes the task that copies some rows of the operand; of a product the matrix is the identity before."""
        f, square = task_function(f"{self.name}.read"), self.square
        a, _, scratch = f.unpack(f["context"], *[PTR] * 3)
        first, copy = f.multiply(f["chunk"], square.line), "given" if self.is_product else "matrix"
        for array in {"matrix", copy}:
            square.clear(f, self._array(f, scratch, array), first, square.line)
        with f.each(first, f.minimum(f.add(first, square.line), self.m)) as row:
            source = f.at(a, f.multiply(row, self.n), square.type.element)
            columns = self.count if self.is_product else self.n
            square.read_row(f, source, self._array(f, scratch, copy), row, columns)
        if self.is_product:
            with f.each(first, f.minimum(f.add(first, square.line), self.n)) as i:
                f.store(constant(square.type.scalar, 1), self._in(f, scratch, i, i), square.bytes)
        return f

    def _write(self) -> KernelFunction:
        """Writes the task that copies some rows to the result."""
        f, square = task_function(f"{self.name}.write"), self.square
        _, result, scratch = f.unpack(f["context"], *[PTR] * 3)
        square.write_rows(f, result, self._array(f, scratch, "matrix"), self.m)
        return f
