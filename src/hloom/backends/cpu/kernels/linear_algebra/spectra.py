"""Eigenvalues of symmetric and Hermitian matrices, and singular values, without LAPACK: by one-sided Jacobi.

Rotations J make the rows of a matrix W orthogonal: J W = S V^H, which is a singular value decomposition. W is the
matrix, or its transpose if that has fewer rows; J is built up in the extra elements of rows. A symmetric matrix gets a
multiple of the identity added, so that it is positive definite, and J is its V^H: the rows themselves are eigenvectors.
The extra elements are the matrix itself, and become those of J A, from which eigenvalues follow without the shift.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hloom.backends.cpu.elements.functions.lanes import Lanes, sqrt, where
from hloom.backends.cpu.kernels.code import KernelCode, aligned, code_of, entry_function
from hloom.backends.cpu.kernels.kernel_function import KernelFunction, StackVariable, task_function
from hloom.backends.cpu.kernels.linear_algebra.jacobi import (
    NULL,
    Rows,
    completion,
    inner_products,
    jacobi_functions,
)
from hloom.ir import Instruction
from hloom.lir import F64, I32, I64, PTR, IndexValue, Value, constant, type_of
from hloom.runtime.custom_calls.fortran import Matrices, RoutineCall
from hloom.system.records import record
from hloom.target import Target

TOLERANCES = {4: 2.0**-32, 8: 2.0**-52}
"""Cosine of two rows that count as orthogonal, by the bytes of a real element; times the root of their length."""
ELEMENT_COST = 100
"""Cost of an element of a matrix, in additions, for each of its rows."""
NOT_FINITE, NOT_CONVERGED = -4, 1
"""The status of LAPACK's gesdd for a matrix with infinities or NaN, and that of failed iterations."""


def emit(name: str, instruction: Instruction, call: RoutineCall, target: Target) -> KernelCode | None:
    """Returns the code of LAPACK's syevd, heevd, gesdd and gesvd; None for other routines, or if the program may call
    LAPACK.
    """
    write = _WRITERS.get(call.routine[1:])
    if target.has_lapack or write is None:
        return None
    return _Spectra(name, instruction, call, target, write).code()


@record(slots=True)
class _Array:
    """A matrix or vector of the program, whose elements are read and written as f64."""

    f: KernelFunction
    memory: Value
    matrices: Matrices

    @property
    def parts(self) -> int:
        return 2 if self.matrices.dtype.kind == "c" else 1

    def load(self, i: IndexValue, j: IndexValue) -> list[Lanes]:
        """Loads the parts of an element."""
        element = self._element
        loaded = (self.f.load(self._at(i, j, part), type_of(element), 4) for part in range(self.parts))
        return [Lanes(self.f, value).to("double") for value in loaded]

    def store(self, parts: Sequence[Lanes], i: IndexValue, j: IndexValue = 0) -> None:
        """Stores an element."""
        for part, value in enumerate(parts):
            self.f.store(value.to(self._element).value, self._at(i, j, part), 4)

    @property
    def _element(self) -> str:
        return "float" if self.matrices.dtype.itemsize == 4 * self.parts else "double"

    def _at(self, i: IndexValue, j: IndexValue, part: int) -> Value:
        f, (columns,) = self.f, self.matrices.sizes[1:] or (1,)
        position = f.add(f.multiply(i, columns), j)
        return f.at(self.memory, f.add(f.multiply(position, self.parts), part), self._element)


class _Spectra:
    """Writes the loop over the matrices of a batch, each share of which has private rows."""

    def __init__(
        self, name: str, instruction: Instruction, call: RoutineCall, target: Target, write: _Writer
    ) -> None:  # fmt: skip
        self.name, self.instruction, self.call, self.write = name, instruction, call, write
        self.sizes = call.operands[0].sizes
        self.mode = str(call.arguments[0])
        self.count, length = min(self.sizes), max(self.sizes)
        is_eigen = write is _eigen
        extra = length if is_eigen else self.count if self.mode != "N" else 0
        self.total = length if not is_eigen and self.mode == "A" else self.count
        dtype = call.operands[0].dtype
        parts = 2 if dtype.kind == "c" else 1
        self.rows = Rows(self.count, length, extra, parts, type_of("double", target.vector_bytes // 8))
        self.tolerance = TOLERANCES[dtype.itemsize // parts] * max(1, length) ** 0.5
        work = call.operands[0].elements * self.count * ELEMENT_COST
        self.shares = target.tasks(call.count, call.count * work)
        self.bytes = aligned(self.total * self.rows.byte_size) + aligned(8 * length)

    def code(self) -> KernelCode:
        f = entry_function(self.name, self.instruction)
        if self.call.count:
            f.run_chunks(f"{self.name}.matrices", f.pack(*f.parameters[:-2]), self.shares, f.threads)
        functions = [self._matrices(), *jacobi_functions(self.name, self.rows, self.tolerance), f]
        if self.write is _singular:
            functions.append(completion(self.name, self.rows, self.total))
        return code_of(self.name, functions, self.shares * self.bytes)

    def _matrices(self) -> KernelFunction:
        """Writes the task that decomposes the matrices of its share."""
        f, call = task_function(f"{self.name}.matrices"), self.call
        words = f.unpack(f["context"], *[PTR] * (len(call.operands) + len(call.results) + 1))
        memory = f.at(words[-1], f.multiply(f["chunk"], self.bytes), "i8")
        first, count = f.share(call.count, 1, self.shares, f["chunk"])
        with f.each(first, f.add(first, count)) as k:
            arrays = [
                _Array(f, f.at(word, f.multiply(k, matrices.byte_size), "i8"), matrices)
                for word, matrices in zip(words, (*call.operands, *call.results), strict=False)
            ]
            for result in arrays[1:]:
                f.fill(result.memory, 0, result.matrices.byte_size)
            f.fill(memory, 0, self.bytes)
            if call.operands[0].elements:
                left = self.write(self, f, memory, arrays)
                f.store(left, arrays[-1].memory, 4)
        return f

    # Steps

    def read(self, f: KernelFunction, rows: Value, position: tuple[Value, Value], element: Sequence[Lanes]) -> None:
        """Stores an element of W."""
        for part, value in enumerate(element):
            f.store(value.value, self.rows.at(f, rows, *position, part), 8)

    def scale(self, f: KernelFunction, rows: Value) -> Lanes:
        """Divides all rows by a power of two near the largest element, and returns it; NaN unless all are finite."""
        largest, bad = f.variable(constant(F64, 0)), f.variable(constant(F64, 0))
        with f.each(0, self.count * self.rows.byte_size // 8) as k:
            x = Lanes(f, f.load(f.at(rows, k, "double"), F64, 8))
            bad.set((Lanes(f, bad.get()) + x * 0.0).value)
            before = Lanes(f, largest.get())
            largest.set(where(abs(x) > before, abs(x), before).value)
        exponent = f.binary("and", Lanes(f, largest.get()).bits.value, constant(I64, 0x7FF << 52))
        power = Lanes(f, f.intrinsic("umax", exponent, constant(I64, 1 << 52))).float + Lanes(f, bad.get())
        with f.each(0, self.count) as i:
            f.call_void(f"{self.name}.divide", self.rows.at(f, rows, i), power.value)
        return power

    def sweep(self, f: KernelFunction, rows: Value, power: Lanes) -> Value:
        """Makes rows orthogonal; returns the status."""
        left = f.slot(I64, 1)
        f.call_void(f"{self.name}.sweeps", rows, left)
        failed = f.compare("ne", f.load(left, I64, 8), constant(I64, 0))
        status = f.select(failed, constant(I32, NOT_CONVERGED), constant(I32, 0))
        return f.select(power.compare("uno", power).value, constant(I32, NOT_FINITE), status)

    def products(self, f: KernelFunction, a: Value, b: Value) -> list[Lanes]:
        """Returns |a|^2, |b|^2 and the parts of the product of two rows."""
        return inner_products(f, self.name, self.rows, a, b)

    def element(self, f: KernelFunction, row: Value, column: IndexValue, is_conjugate: bool = False) -> list[Lanes]:
        """Loads an element of a row."""
        addresses = (self.rows.at(f, row, 0, column, part) for part in range(self.rows.parts))
        return conjugate([Lanes(f, f.load(address, F64, 8)) for address in addresses], is_conjugate)


def conjugate(parts: list[Lanes], is_conjugate: bool = True) -> list[Lanes]:
    """Returns the conjugate of an element, or the element."""
    return [parts[0], *(-part if is_conjugate else part for part in parts[1:])]


_Writer = Callable[[_Spectra, KernelFunction, Value, Sequence[_Array]], Value]
"""Writes the decomposition of one matrix, with operands and results, in some memory; returns its status."""


def _eigen(s: _Spectra, f: KernelFunction, rows: Value, arrays: Sequence[_Array]) -> Value:
    """Eigenvalues in ascending order, and eigenvectors as columns."""
    (a, vectors, values, _), r, n = arrays, s.rows, s.count
    with f.each(0, n) as i, f.each(0, f.add(i, 1)) as j:
        given = a.load(i, j) if s.call.arguments[1] == "L" else conjugate(a.load(j, i))
        is_diagonal = f.compare("eq", i, j)
        parts = [given[0], *(Lanes(f, f.select(is_diagonal, constant(F64, 0), part.value)) for part in given[1:])]
        s.read(f, rows, (i, j), parts)
        s.read(f, rows, (j, i), conjugate(parts))
    power = s.scale(f, rows)
    _shift(s, f, rows)
    status = s.sweep(f, rows, power)
    previous = f.variable(constant(F64, float("-inf")))
    with f.each(0, n) as k:
        row = r.at(f, rows, f.subtract(n - 1, k))
        f.call_void(f"{s.name}.divide", row, sqrt(s.products(f, row, row)[0]).value)
        value = s.products(f, r.at(f, row, 0, r.padded), row)[2] * power
        _store_ascending(f, value, previous, values, k)
        if s.mode == "V":
            with f.each(0, n) as i:
                vectors.store(s.element(f, row, i, is_conjugate=True), i, k)
    return status


def _shift(s: _Spectra, f: KernelFunction, rows: Value) -> None:
    """Copies the matrix to the extra elements, and adds twice its Frobenius norm, which is at least its spectral norm,
    to the diagonal.
    """
    r, squares = s.rows, f.variable(constant(F64, 1))
    with f.each(0, s.count) as i:
        row = r.at(f, rows, i)
        for part in range(r.parts):
            f.copy(r.at(f, row, 0, r.padded, part), r.at(f, row, 0, 0, part), 8 * r.padded)
        squares.set((Lanes(f, squares.get()) + s.products(f, row, row)[0]).value)
    shift = sqrt(Lanes(f, squares.get())) * 2.0
    with f.each(0, s.count) as i:
        (diagonal, *_) = s.element(f, r.at(f, rows, i), i)
        f.store((diagonal + shift).value, r.at(f, rows, i, i), 8)


def _store_ascending(f: KernelFunction, value: Lanes, previous: StackVariable, values: _Array, k: Value) -> None:
    """Stores an eigenvalue. The order is that with the shift, so equal ones may differ by an error of rounding."""
    before = Lanes(f, previous.get())
    ascending = where(value < before, before, value)
    previous.set(ascending.value)
    values.store([ascending], k)


def _singular(s: _Spectra, f: KernelFunction, rows: Value, arrays: Sequence[_Array]) -> Value:
    """Singular values in descending order, left vectors as columns and right ones as rows."""
    (a, _, values, u, vt, _), r = arrays, s.rows
    m, n = s.sizes
    is_tall = m > n
    with f.each(0, s.count) as i, f.each(0, r.length) as j:
        s.read(f, rows, (i, j), a.load(j, i) if is_tall else a.load(i, j))
    power = s.scale(f, rows)
    if s.mode != "N":
        with f.each(0, s.count) as i:
            f.store(constant(F64, 1), r.at(f, rows, i, f.add(i, r.padded)), 8)
    status, valid = s.sweep(f, rows, power), f.variable(constant(I64, 0))
    with f.each(0, s.count) as k:
        row = r.at(f, rows, k)
        square = s.products(f, row, row)[0]
        values.store([sqrt(square) * power], k)
        with f.unless((square < NULL).value):
            f.call_void(f"{s.name}.divide", row, sqrt(square).value)
            valid.set(f.index(f.add(valid.get(), 1)))
    if s.mode != "N":
        weights = f.at(rows, aligned(s.total * r.byte_size), "i8")
        f.call_void(f"{s.name}.complete", rows, weights, valid.get())
        _store_vectors(s, f, rows, *((u, vt) if is_tall else (vt, u)))
    return status


def _store_vectors(s: _Spectra, f: KernelFunction, rows: Value, long: _Array, short: _Array) -> None:
    """Stores the rows, and the conjugate of the rotations, which are the vectors of the other side."""
    is_tall = s.sizes[0] > s.sizes[1]
    with f.each(0, s.total) as k, f.each(0, s.rows.length) as j:
        long.store(s.element(f, s.rows.at(f, rows, k), j), *((j, k) if is_tall else (k, j)))
    with f.each(0, s.count) as k, f.each(0, s.count) as j:
        parts = s.element(f, s.rows.at(f, rows, k), f.add(j, s.rows.padded), is_conjugate=True)
        short.store(parts, *((k, j) if is_tall else (j, k)))


_WRITERS: dict[str, _Writer] = {"syevd": _eigen, "heevd": _eigen, "gesdd": _singular, "gesvd": _singular}
