"""Solution of a large triangular system: slabs of right-hand sides, which tasks solve block of rows by block of rows.

Every system is solved as L X = B with a lower triangle L: the triangle is transposed as the routine says, and an upper
one is read from its last row to its first. The rows of L are copied to columns, as the inner loops read them.
"""

from __future__ import annotations

from hloom.backends.cpu.kernels.code import KernelCode, aligned, code_of, entry_function
from hloom.backends.cpu.kernels.kernel_function import KernelFunction, task_function
from hloom.backends.cpu.kernels.linear_algebra.blocks import SIDE, VECTORS, Inner, Square
from hloom.backends.cpu.kernels.linear_algebra.views import View, copy_square
from hloom.ir import Instruction
from hloom.lir import PTR, Value, constant, type_of
from hloom.runtime.custom_calls.fortran import RoutineCall
from hloom.target import Target

MIN_ORDER = 32
"""Unknowns, and right-hand sides, from which blocks are faster than BLAS and than a loop over elements."""


def emit(name: str, instruction: Instruction, call: RoutineCall, target: Target) -> KernelCode | None:
    """Returns the code of BLAS's trsm of f32 and f64; None if it is better called, or matrices are small.

    OpenBLAS solves for several right-hand sides on threads of its own. Calls from several threads at once then wait for
    each other in loops, for milliseconds: batches are solved here, whatever the number of their sides.
    """
    order = call.operands[0].sizes[0]
    if call.routine not in ("strsm", "dtrsm") or order < MIN_ORDER:
        return None
    sides = call.operands[1].elements // order
    is_one_thread = sides == 1 or call.count == 1
    if sides < MIN_ORDER and is_one_thread and not target.batch_invariant:
        return None
    return _Solve(name, instruction, call, target).code()


class _Solve:
    """Writes the functions: `name` copies each triangle and its right-hand sides, and calls a task for each slab."""

    def __init__(self, name: str, instruction: Instruction, call: RoutineCall, target: Target) -> None:
        self.name, self.instruction, self.call, self.target = name, instruction, call, target
        side, triangle, transposed, diagonal = call.arguments[:4]
        self.is_left, self.is_unit = side == "R", diagonal == "U"
        is_lower = (triangle == "U") == (transposed == "N")
        # x a = b is a^T x^T = b^T.
        self.is_forward = is_lower == self.is_left
        self.is_transposed = (transposed == "N") != self.is_left
        size = call.operands[0].dtype.itemsize
        type = type_of("float" if size == 4 else "double", target.vector_bytes // size)
        order = call.operands[0].sizes[0]
        self.triangle = Square(order, type, SIDE)
        self.count = call.operands[1].elements // order
        self.sides = Square(VECTORS * type.width, type, SIDE)
        self.slabs = -(-self.count // self.sides.slab)
        self.slab_elements = self.triangle.padded * self.sides.pitch

    def code(self) -> KernelCode:
        f, triangle = entry_function(self.name, self.instruction), self.triangle
        on = f.threads_if(self.target.threads > 1)
        rows = f.at(f["scratch"], triangle.matrix_bytes, "i8")
        scales = f.at(rows, self.slabs * self.slab_elements, triangle.type.element)
        sizes = [matrices.byte_size for matrices in self.call.operands]
        with f.loop(self.call.count) as k:
            a, b, x = (
                f.at(f[array], f.multiply(k.index, size), "i8")
                for array, size in (("operand0", sizes[0]), ("operand1", sizes[1]), ("result0", sizes[1]))
            )
            context = f.pack(a, b, x, f["scratch"], rows, scales)
            for step, tasks in (
                ("triangle", triangle.padded // triangle.line),
                ("slab", self.slabs),
            ):
                f.run_chunks(f"{self.name}.{step}", context, tasks, on)
        inner = Inner(self.sides, triangle.at)
        functions = [self._triangle(), self._slab(), f]
        functions += [inner.update(f"{self.name}.update"), inner.substitution(f"{self.name}.solve", self.is_unit)]
        elements = self.slabs * self.slab_elements + triangle.padded
        scratch = triangle.matrix_bytes + aligned(elements * triangle.bytes)
        return code_of(self.name, functions, scratch)

    def _view(self, memory: Value) -> View:
        """The right-hand sides, or the solutions, as columns, in an array of the program."""
        order, count = self.triangle.order, self.count
        pitch, back = (count if self.is_left else order), (not self.is_forward, False)
        return View(memory, self.triangle.type.element, (order, count), pitch, not self.is_left, back)

    def _triangle(self) -> KernelFunction:
        """Writes the task that copies some columns of L to rows, and stores the reciprocals of their diagonal."""
        f, square = task_function(f"{self.name}.triangle"), self.triangle
        a, _, _, rows, _, scales = f.unpack(f["context"], *[PTR] * 6)
        sizes, element, scalar = (square.order,) * 2, square.type.element, square.type.scalar
        given = View(a, element, sizes, square.order, self.is_transposed, (not self.is_forward,) * 2)
        first = f.index(f.multiply(f["chunk"], square.line))
        square.clear(f, rows, first, square.line)
        with f.each(first, square.order, square.line) as row:
            slab = f.multiply(f.subtract(row, f.remainder(row, square.pitch)), square.rows - 1)
            before = f.at(rows, f.index(slab), element)
            own = View(before, element, sizes, square.pitch, is_transposed=True)
            copy_square(f, given, own, row, first, square.line)
        with f.each(first, f.add(first, square.line)) as step:
            address, one = f.at(scales, step, element), constant(scalar, 1)
            f.store(one, address, square.bytes)
            with f.when(f.compare("ult", step, f.index(square.order))):
                diagonal = f.load(given.at(f, step, step), scalar, square.bytes)
                f.store(f.binary("fdiv", one, diagonal), address, square.bytes)
        return f

    def _slab(self) -> KernelFunction:
        """Writes the task that solves for a slab of columns."""
        f, triangle, sides = task_function(f"{self.name}.slab"), self.triangle, self.sides
        _, b, x, rows, memory, scales = f.unpack(f["context"], *[PTR] * 6)
        column, slab = f.index(f.multiply(f["chunk"], sides.slab)), f.multiply(f["chunk"], self.slab_elements)
        memory = f.at(memory, slab, sides.type.element)
        f.fill(memory, 0, self.slab_elements * sides.bytes)
        before = f.at(memory, f.subtract(0, column), sides.type.element)
        own = View(before, sides.type.element, (triangle.order, self.count), sides.pitch)
        self._copy(f, self._view(b), own, column)
        with f.loop(triangle.padded, SIDE) as block:
            first, solved = f.index(block.index), sides.at(f, memory, block.index, 0)
            f.call_void(
                f"{self.name}.solve", triangle.at(f, rows, first, first), f.at(scales, first, own.element), solved
            )
            with f.each(f.add(first, SIDE), triangle.padded, sides.tile_rows) as row:
                target = sides.at(f, memory, row, 0)
                f.call_void(f"{self.name}.update", triangle.at(f, rows, first, row), solved, target)
        self._copy(f, own, self._view(x), column)
        return f

    def _copy(self, f: KernelFunction, source: View, target: View, column: Value) -> None:
        """Copies a slab of columns."""
        side = min(self.sides.line, self.sides.slab)
        with f.each(0, self.triangle.order, side) as row:
            for k in range(0, self.sides.slab, side):
                copy_square(f, source, target, row, f.add(column, k), side)
