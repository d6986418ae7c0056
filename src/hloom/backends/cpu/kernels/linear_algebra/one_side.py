"""Triangular systems with one right-hand side, a vector of unknowns at a time.

Of a triangle whose rows are contiguous, the products of the vector's rows with all unknowns before them are subtracted
first; of one whose columns are, the products of its columns with the unknowns from the sides after them at the end. In
between, the unknowns are computed one by one from the square on the diagonal, which is transposed in registers if it is
of rows. The last block overlaps the one before it.
"""

from __future__ import annotations

from hloom.backends.cpu.elements.transpose import transpose
from hloom.backends.cpu.kernels.code import KernelCode, code_of, entry_function
from hloom.backends.cpu.kernels.kernel_function import KernelFunction, task_function
from hloom.ir import Instruction
from hloom.lir import I64, PTR, Value, constant, type_of
from hloom.runtime.custom_calls.fortran import RoutineCall
from hloom.target import Target

MIN_ORDER = 32
"""Unknowns from which this is faster than BLAS and than a loop over elements."""
ELEMENT_COST = 0.25
"""Cost of an element of a triangle, in additions."""


def emit(name: str, instruction: Instruction, call: RoutineCall, target: Target) -> KernelCode | None:
    """Returns the code of BLAS's trsm of f32 and f64; None for several sides and small triangles."""
    order = call.operands[0].sizes[0]
    if call.routine not in ("strsm", "dtrsm") or order < MIN_ORDER or call.operands[1].elements != order:
        return None
    return _OneSide(name, instruction, call, target).code()


class _OneSide:
    """Writes the loop over the systems of a batch. Unknowns are computed where the solution is."""

    def __init__(self, name: str, instruction: Instruction, call: RoutineCall, target: Target) -> None:
        self.name, self.instruction, self.call = name, instruction, call
        side, triangle, transposed, diagonal = call.arguments[:4]
        self.is_unit = diagonal == "U"
        self.has_rows = (transposed == "N") == (side == "R")
        # x a = b is a^T x^T = b^T.
        self.is_forward = ((triangle == "U") == (transposed == "N")) == (side == "R")
        self.order, self.bytes = call.operands[0].sizes[0], call.operands[0].dtype.itemsize
        self.type = type_of("float" if self.bytes == 4 else "double", target.vector_bytes // self.bytes)
        self.shares = target.tasks(call.count, call.count * self.order**2 * ELEMENT_COST)

    def code(self) -> KernelCode:
        f = entry_function(self.name, self.instruction)
        f.run_chunks(f"{self.name}.systems", f.pack(f["operand0"], f["operand1"], f["result0"]), self.shares, f.threads)
        return code_of(self.name, [self._systems(), self._block(), f])

    def _systems(self) -> KernelFunction:
        """Writes the task that solves a share of the systems."""
        f, n, width, element = task_function(f"{self.name}.systems"), self.order, self.type.width, self.type.element
        operands = f.unpack(f["context"], *[PTR] * 3)
        first, count = f.share(self.call.count, 1, self.shares, f["chunk"])
        with f.each(first, f.add(first, count)) as k:
            sizes = (n * n, n, n)
            a, b, x = (f.at(p, f.multiply(k, size), element) for p, size in zip(operands, sizes, strict=True))
            if not self.has_rows:
                f.copy(x, b, n * self.bytes)
            with f.loop(n, width) as block:
                start = f.index(f.minimum(block.index, n - width))
                f.call_void(f"{self.name}.block", a, b, x, start, f.index(f.subtract(block.index, start)))
        return f

    def _block(self) -> KernelFunction:
        """Writes `name(a, b, x, first, solved)`, which computes a vector of unknowns after the `first` ones.

        The first `solved` of the vector are known: the solution may be where the right-hand side was.
        """
        f = KernelFunction(f"{self.name}.block", a=PTR, b=PTR, x=PTR, first=I64, solved=I64)
        n, type, element, width = self.order, self.type, self.type.element, self.type.width
        start = f["first"] if self.is_forward else f.subtract(n - width, f["first"])
        known = f.index(0 if self.is_forward else f.subtract(n, f["first"]))
        rows = [f.at(f["a"], f.multiply(f.add(start, k), n), element) for k in range(width)]
        squares = [f.load(f.at(row, start, element), type, self.bytes) for row in rows]
        found = left = f.load(f.at(f["x"], start, element), type, self.bytes)
        if self.has_rows:
            sums = self._products(f, rows, known)
            left = f.binary("fsub", f.load(f.at(f["b"], start, element), type, self.bytes), sums)
        columns = transpose(f, squares) if self.has_rows else squares
        for step in range(width):
            k = step if self.is_forward else width - 1 - step
            value = f.extract(left, k)
            if not self.is_unit:
                value = f.binary("fdiv", value, f.extract(squares[k], k))
            is_known = f.compare("ult", f.index(step), f["solved"])
            value = f.select(is_known, f.extract(found, k), value)
            found = f.insert(found, value, k)
            less = f.fmuladd(f.fneg(columns[k]), f.splat(value, width), left)
            left = less if self.has_rows else f.select(is_known, left, less)
        f.store(found, f.at(f["x"], start, element), self.bytes)
        if not self.has_rows:
            self._eliminate(f, rows, f.index(start), found)
        return f

    def _eliminate(self, f: KernelFunction, columns: list[Value], start: Value, unknowns: Value) -> None:
        """Subtracts the products of columns with the unknowns from `start` on from the sides that are left."""
        type, element, width = self.type, self.type.element, self.type.width
        first, end = (f.add(start, width), self.order) if self.is_forward else (0, start)
        whole = f.index(f.subtract(end, f.remainder(f.subtract(end, first), width)))
        factors = [f.splat(f.fneg(f.extract(unknowns, k)), width) for k in range(width)]

        def subtract(row: Value, mask: Value | None) -> None:
            addresses = [f.at(column, row, element) for column in (f["x"], *columns)]
            side, *values = (f.load_masked(address, type, self.bytes, mask) for address in addresses)
            for factor, value in zip(factors, values, strict=True):
                side = f.fmuladd(factor, value, side)
            f.store_masked(side, addresses[0], self.bytes, mask)

        with f.each(first, whole, width) as row:
            subtract(row, None)
        with f.unless(f.compare("eq", whole, f.index(end))):
            subtract(whole, f.first_lanes(f.subtract(end, whole), width))

    def _products(self, f: KernelFunction, rows: list[Value], known: Value) -> Value:
        """Returns the products of rows with the unknowns that are solved, from column `known` on, as a vector."""
        type, element, width = self.type, self.type.element, self.type.width
        end = f.index(f.add(known, f["first"]))
        whole = f.index(f.subtract(end, f.remainder(f["first"], width)))
        totals = [f.variable(constant(type, 0)) for _ in rows]

        def add(column: Value, mask: Value | None) -> None:
            addresses = [f.at(row, column, element) for row in (f["x"], *rows)]
            x, *values = (f.load_masked(address, type, self.bytes, mask) for address in addresses)
            for total, value in zip(totals, values, strict=True):
                total.set(f.fmuladd(value, x, total.get()))

        with f.each(known, whole, width) as column:
            add(column, None)
        with f.unless(f.compare("eq", whole, end)):
            add(whole, f.first_lanes(f.subtract(end, whole), width))
        columns = transpose(f, [total.get() for total in totals])
        while len(columns) > 1:
            columns = [f.binary("fadd", a, b) for a, b in zip(columns[::2], columns[1::2], strict=True)]
        return columns[0]
