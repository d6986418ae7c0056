"""Rotations of pairs of rows, which make all rows of a matrix orthogonal: one-sided Jacobi (Hestenes).

A rotation makes two rows orthogonal to each other, and puts the longer one first. Sweeps over all pairs follow until
none needs a rotation, so that rows are sorted by length in the end. Everything is in f64, whatever the program's type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from hloom.backends.cpu.elements.functions.lanes import Lanes, at_most, muladd, sqrt, where
from hloom.backends.cpu.kernels.kernel_function import KernelFunction
from hloom.lir import F64, I64, PTR, IndexValue, Type, Value, constant
from hloom.system.records import record
from hloom.target import align_up

MAX_SWEEPS = 40
"""Sweeps after which rows count as not orthogonal; six to ten are usual."""
NULL = 2.0**-400
"""Squared length below which a row counts as zero, where the longest elements are about 1."""


@record(slots=True)
class Rows:
    """Rows of `length` elements in memory, each followed by `extra` ones, which are rotated but not multiplied.

    `parts` is 2 for complex elements, whose imaginary parts follow all real ones of their row. Both ranges of elements
    are padded with zeros to whole vectors.
    """

    count: int
    length: int
    extra: int
    parts: int
    vector: Type

    @property
    def padded(self) -> int:
        """Elements from the start of a row to its extra ones."""
        return align_up(self.length, self.vector.width)

    @property
    def pitch(self) -> int:
        """Elements of a row, of one part."""
        return self.padded + align_up(self.extra, self.vector.width)

    @property
    def byte_size(self) -> int:
        """Bytes of a row."""
        return 8 * self.parts * self.pitch

    def at(self, f: KernelFunction, rows: Value, row: IndexValue, column: IndexValue = 0, part: int = 0) -> Value:
        """Returns the address of an element."""
        position = f.add(f.multiply(row, self.parts * self.pitch), f.add(column, part * self.pitch))
        return f.at(rows, position, "double")

    def vectors(self, f: KernelFunction, row: Value, column: IndexValue) -> list[Lanes]:
        """Loads the parts of a vector of elements."""
        return [Lanes(f, f.load(self.at(f, row, 0, column, part), self.vector, 8)) for part in range(self.parts)]

    def store(self, f: KernelFunction, values: Iterable[Lanes], row: Value, column: IndexValue) -> None:
        """Stores the parts of a vector of elements."""
        for part, value in enumerate(values):
            f.store(value.value, self.at(f, row, 0, column, part), 8)


def jacobi_functions(name: str, rows: Rows, tolerance: float) -> list[KernelFunction]:
    """Returns `name.sweeps(rows, left)` with the functions that it calls, and those below.

    It makes rows orthogonal up to `tolerance`, relative to the product of their lengths, and stores in the word `left`
    whether there still are others. Rows with a NaN are left as they are.
    """
    return [
        _products(name, rows),
        _rotation(name, rows),
        _pair(name, rows, tolerance),
        _sweeps(name, rows),
        _quotient(name, rows),
        _difference(name, rows),
    ]


def inner_products(f: KernelFunction, name: str, rows: Rows, a: Value, b: Value) -> list[Lanes]:
    """Returns |a|^2, |b|^2 and the parts of the product of a and the conjugate of b."""
    sums = f.slot(F64, 4)
    f.call_void(f"{name}.products", a, b, sums)
    return [Lanes(f, f.load(f.at(sums, k, "double"), F64, 8)) for k in range(2 + rows.parts)]


def _products(name: str, rows: Rows) -> KernelFunction:
    f = KernelFunction(f"{name}.products", a=PTR, b=PTR, sums=PTR)
    vector = rows.vector
    with f.loop(rows.padded, vector.width, carried=[constant(vector, 0)] * (2 + rows.parts)) as loop:
        x, y = (rows.vectors(f, f[row], loop.index) for row in "ab")
        factors = [zip(x, x, strict=True), zip(y, y, strict=True), zip(x, y, strict=True)]
        if rows.parts == 2:
            factors.append(zip((x[1], -x[0]), y, strict=True))
        for k, pairs in enumerate(factors):
            for left, right in pairs:
                loop.carried[k] = f.fmuladd(left.value, right.value, loop.carried[k])
    for k, lanes in enumerate(loop.carried):
        name_of_sum = f"llvm.vector.reduce.fadd.{vector.suffix}"
        total = f.call(name_of_sum, F64, constant(F64, -0.0), lanes, flags="reassoc")
        f.store(total, f.at(f["sums"], k, "double"), 8)
    return f


def _each_vector(
    f: KernelFunction, rows: Rows, length: int, changed: Callable[[Sequence[Lanes], Sequence[Lanes]], Sequence[Lanes]]
) -> None:
    """Replaces the vectors of `b` by a function of those of `a` and `b`, which returns those of `a` after them, too."""
    with f.loop(length, rows.vector.width) as loop:
        found = changed(*(rows.vectors(f, f[row], loop.index) for row in "ab"))
        rows.store(f, found[: rows.parts], f["b"], loop.index)
        rows.store(f, found[rows.parts :], f["a"], loop.index)


def _splat(f: KernelFunction, rows: Rows, *parameters: str) -> list[Lanes]:
    return [Lanes(f, f.splat(f[parameter], rows.vector.width)) for parameter in parameters]


def _rotation(name: str, rows: Rows) -> KernelFunction:
    """Writes `name.rotate(a, b, c, re, im)`: a becomes c a + s b, and b becomes c b - conj(s) a; s is re + i im."""
    f = KernelFunction(f"{name}.rotate", a=PTR, b=PTR, c=F64, re=F64, im=F64)
    c, re, im = _splat(f, rows, "c", "re", "im")

    def rotated(x: Sequence[Lanes], y: Sequence[Lanes]) -> list[Lanes]:
        if rows.parts == 1:
            return [muladd(-re, x[0], c * y[0]), muladd(re, y[0], c * x[0])]
        return [
            muladd(-im, x[1], muladd(-re, x[0], c * y[0])),
            muladd(im, x[0], muladd(-re, x[1], c * y[1])),
            muladd(-im, y[1], muladd(re, y[0], c * x[0])),
            muladd(im, y[0], muladd(re, y[1], c * x[1])),
        ]

    _each_vector(f, rows, rows.pitch, rotated)
    return f


def _difference(name: str, rows: Rows) -> KernelFunction:
    """Writes `name.subtract(a, b, re, im)`, which subtracts (re + i im) a from b, without its extra elements."""
    f = KernelFunction(f"{name}.subtract", a=PTR, b=PTR, re=F64, im=F64)
    re, im = _splat(f, rows, "re", "im")

    def less(x: Sequence[Lanes], y: Sequence[Lanes]) -> list[Lanes]:
        if rows.parts == 1:
            return [muladd(-re, x[0], y[0])]
        return [muladd(im, x[1], muladd(-re, x[0], y[0])), muladd(-im, x[0], muladd(-re, x[1], y[1]))]

    _each_vector(f, rows, rows.padded, less)
    return f


def _quotient(name: str, rows: Rows) -> KernelFunction:
    """Writes `name.divide(row, divisor)`, which divides a row, without its extra elements."""
    f = KernelFunction(f"{name}.divide", row=PTR, divisor=F64)
    (divisor,) = _splat(f, rows, "divisor")
    with f.loop(rows.padded, rows.vector.width) as loop:
        rows.store(f, [x / divisor for x in rows.vectors(f, f["row"], loop.index)], f["row"], loop.index)
    return f


def _pair(name: str, rows: Rows, tolerance: float) -> KernelFunction:
    """Writes `name.pair(a, b, left)`, which rotates two rows unless they are orthogonal, and sorted by length.

    Of the two angles it is the smaller one if that leaves the longer row first. Without a NaN, both rows count.
    """
    f = KernelFunction(f"{name}.pair", a=PTR, b=PTR, left=PTR)
    alpha, beta, *product = inner_products(f, name, rows, f["a"], f["b"])
    size = abs(product[0]) if rows.parts == 1 else sqrt(product[0] * product[0] + product[1] * product[1])
    is_longer = beta > alpha
    is_oblique = (size > sqrt(alpha) * sqrt(beta) * tolerance) & (at_most(alpha, beta) > NULL)
    with f.when((is_longer | is_oblique).value):
        difference, double = abs(alpha - beta), size * 2.0
        tangent = double / (difference + sqrt(muladd(difference, difference, double * double)))
        cosine = 1.0 / sqrt(muladd(tangent, tangent, 1.0))
        sine = cosine * tangent
        c, s = where(is_longer, sine, cosine), where(is_longer, cosine, sine)
        is_zero = size.equals(0.0)
        re = s * where(is_zero, 1.0, product[0] / size)
        im = s * where(is_zero, 0.0, product[1] / size) if rows.parts == 2 else s.like(0.0)
        f.call_void(f"{name}.rotate", f["a"], f["b"], c.value, re.value, im.value)
    with f.when(is_oblique.value):
        f.store(constant(I64, 1), f["left"], 8)
    return f


def _sweeps(name: str, rows: Rows) -> KernelFunction:
    f = KernelFunction(f"{name}.sweeps", rows=PTR, left=PTR)
    sweep = f.variable(constant(I64, 0))
    f.store(constant(I64, 1), f["left"], 8)

    def goes_on() -> Value:
        is_left = f.compare("ne", f.load(f["left"], I64, 8), constant(I64, 0))
        return f.binary("and", is_left, f.compare("ult", sweep.get(), constant(I64, MAX_SWEEPS)))

    with f.repeat(goes_on):
        f.store(constant(I64, 0), f["left"], 8)
        sweep.set(f.index(f.add(sweep.get(), 1)))
        with f.each(0, rows.count) as i, f.each(f.add(i, 1), rows.count) as j:
            f.call_void(f"{name}.pair", *(rows.at(f, f["rows"], row) for row in (i, j)), f["left"])
    return f


def completion(name: str, rows: Rows, count: int) -> KernelFunction:
    """Returns `name.complete(rows, weights, first)`: orthonormal rows from `first` to `count`, besides those before.

    Each begins as the unit vector that the rows before it represent least; `weights` is memory for as many numbers as
    a row has, how much they represent each of these vectors.
    """
    f = KernelFunction(f"{name}.complete", rows=PTR, weights=PTR, first=I64)
    f.fill(f["weights"], 0, 8 * rows.length)
    with f.each(0, f["first"]) as k:
        _weigh(f, rows, k)
    with f.each(f["first"], count) as k:
        row = rows.at(f, f["rows"], k)
        for part in range(rows.parts):
            f.fill(rows.at(f, row, 0, 0, part), 0, 8 * rows.padded)
        f.store(constant(F64, 1), rows.at(f, row, 0, _least(f, rows.length)), 8)
        with f.loop(2), f.each(0, k) as other:
            before = rows.at(f, f["rows"], other)
            _, _, *product = inner_products(f, name, rows, row, before)
            parts = [product[0], product[1] if rows.parts == 2 else product[0].like(0.0)]
            f.call_void(f"{name}.subtract", before, row, *(part.value for part in parts))
        f.call_void(f"{name}.divide", row, sqrt(inner_products(f, name, rows, row, row)[0]).value)
        _weigh(f, rows, k)
    return f


def _weigh(f: KernelFunction, rows: Rows, row: Value) -> None:
    """Adds the squares of the elements of a row to the weights."""
    with f.each(0, rows.length) as column:
        address = f.at(f["weights"], column, "double")
        total = Lanes(f, f.load(address, F64, 8))
        for part in range(rows.parts):
            x = Lanes(f, f.load(rows.at(f, f["rows"], row, column, part), F64, 8))
            total = muladd(x, x, total)
        f.store(total.value, address, 8)


def _least(f: KernelFunction, count: int) -> Value:
    """Returns the position of the first of the smallest weights."""
    best, position = f.variable(constant(F64, float("inf"))), f.variable(constant(I64, 0))
    with f.each(0, count) as column:
        weight = f.load(f.at(f["weights"], column, "double"), F64, 8)
        is_less = f.compare("olt", weight, best.get())
        position.set(f.select(is_less, column, position.get()))
        best.set(f.select(is_less, weight, best.get()))
    return position.get()
