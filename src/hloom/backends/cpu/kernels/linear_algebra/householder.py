"""The panel of a QR factorisation: Householder reflections, one by one, and the triangle that joins them.

A reflection I - tau v v^T, where v is zero above a row and 1 in it, zeroes a column below that row. Together those of a
panel are I - V T V^T, where the columns of V are their vectors, and T is an upper triangle (compact WY).
"""

from __future__ import annotations

from hloom.backends.cpu.elements.functions.lanes import Lanes, muladd, sqrt, where, with_sign_of
from hloom.backends.cpu.kernels.kernel_function import KernelFunction
from hloom.backends.cpu.kernels.linear_algebra.blocks import Square
from hloom.backends.cpu.kernels.linear_algebra.panel import GROUPS, Columns
from hloom.lir import I64, PTR, Value, constant


class Reflections(Columns):
    """Writes the functions of a panel of `square.block` columns."""

    def functions(self) -> list[KernelFunction]:
        """Returns `name.factor(panel, vectors, rows, taus)` and the functions that it calls.

        It replaces columns of `rows` elements by those of R and, below its diagonal, the vectors of the reflections.
        These are also stored as columns of their own, with zeros and ones.
        """
        return [self._factor(), self._reflection(), *map(self._reflected, GROUPS)]

    def _factor(self) -> KernelFunction:
        f = KernelFunction(f"{self.name}.factor", panel=PTR, vectors=PTR, rows=I64, taus=PTR)
        with f.loop(self.square.block) as j:
            row, tau = f.index(j.index), f.at(f["taus"], j.index, self.type.element)
            column, vector = (self.at(f, f[each], row, 0) for each in ("panel", "vectors"))
            f.call_void(f"{self.name}.reflection", column, vector, row, f["rows"], tau)
            for count, first in self.groups(f, f.add(row, 1), self.square.block):
                columns = self.at(f, f["panel"], first, 0)
                f.call_void(f"{self.name}.reflected{count}", columns, vector, row, f["rows"], tau)
        return f

    def _reflection(self) -> KernelFunction:
        """Writes `name(column, vector, row, rows, tau)`, which computes a reflection and applies it to its column.

        Elements are multiplied by a power of two near the inverse of the largest, so that squares are in range.
        """
        f = KernelFunction(f"{self.name}.reflection", column=PTR, vector=PTR, row=I64, rows=I64, tau=PTR)
        scale, inverse = self._scales(f)
        square = self._square_below(f, scale)
        alpha = Lanes(f, self.element(f, f["column"], f["row"]))
        scaled, is_identity = alpha * scale, square.equals(0.0)
        beta = -with_sign_of(sqrt(muladd(scaled, scaled, square)), scaled)
        tau = where(is_identity, 0.0, (beta - scaled) / beta)
        factor = where(is_identity, 0.0, 1.0 / (scaled - beta))
        f.fill(f["vector"], 0, f.multiply(f["row"], self.square.bytes))
        for_all = [Lanes(f, f.splat(each.value, self.type.width)) for each in (scale, factor)]
        with f.loop(f["rows"], self.type.width, first=self.vector_of(f, f["row"])) as loop:
            value = Lanes(f, self.load(f, f["column"], loop.index))
            is_below = Lanes(f, f.compare("ugt", self.lanes(f, loop.index), self.splat(f, f["row"])))
            below = value * for_all[0] * for_all[1]
            self.store(f, where(is_below, below, value).value, f["column"], loop.index)
            self.store(f, where(is_below, below, 0.0).value, f["vector"], loop.index)
        targets = (f.at(f[each], f["row"], self.type.element) for each in ("vector", "column"))
        diagonal = where(is_identity, alpha, beta * inverse)
        for value, target in zip((alpha.like(1.0), diagonal, tau), (*targets, f["tau"]), strict=True):
            f.store(value.value, target, self.square.bytes)
        return f

    def _scales(self, f: KernelFunction) -> tuple[Lanes, Lanes]:
        """Returns a power of two by which the elements from a row on are at most about 1, and its inverse."""
        word, row, width = self.type.integer, self.splat(f, f["row"]), self.type.width
        start = self.vector_of(f, f["row"])
        with f.loop(f["rows"], width, first=start, carried=[constant(word, 0)]) as loop:
            is_before = f.compare("ult", self.lanes(f, loop.index), row)
            found = f.select(is_before, constant(word, 0), self.magnitudes(f, loop.index))
            loop.carried[0] = f.intrinsic("umax", loop.carried[0], found)
        largest = Lanes(f, f.call(f"llvm.vector.reduce.umax.{word.suffix}", word.scalar, loop.carried[0]))
        mantissa, bias = largest.mantissa_bits, 127 if largest.type.bits == 32 else 1023
        exponent = largest & (2 * bias + 1) << mantissa
        exponent = exponent.intrinsic("umax", 1 << mantissa).intrinsic("umin", (2 * bias - 1) << mantissa)
        return (exponent.like(2 * bias << mantissa) - exponent).float, exponent.float

    def _square_below(self, f: KernelFunction, scale: Lanes) -> Lanes:
        """Returns the sum of the squares of the scaled elements below the row."""
        row, zero = self.splat(f, f["row"]), constant(self.type, 0)
        factor = f.splat(scale.value, self.type.width)
        with f.loop(f["rows"], self.type.width, first=self.vector_of(f, f["row"]), carried=[zero]) as loop:
            is_below = f.compare("ugt", self.lanes(f, loop.index), row)
            value = f.binary("fmul", f.select(is_below, self.load(f, f["column"], loop.index), zero), factor)
            loop.carried[0] = f.fmuladd(value, value, loop.carried[0])
        return Lanes(f, self._total(f, loop.carried[0]))

    def _total(self, f: KernelFunction, lanes: Value) -> Value:
        name, start = f"llvm.vector.reduce.fadd.{lanes.type.suffix}", constant(self.type.scalar, -0.0)
        return f.call(name, self.type.scalar, start, lanes, flags="reassoc")

    def _reflected(self, count: int) -> KernelFunction:
        """Writes `name(columns, vector, row, rows, tau)`, which applies a reflection to some columns.

        The sums of a group hide the latency of additions.
        """
        f = KernelFunction(f"{self.name}.reflected{count}", columns=PTR, vector=PTR, row=I64, rows=I64, tau=PTR)
        start, zero = self.vector_of(f, f["row"]), constant(self.type, 0)
        columns = [self.at(f, f["columns"], k, 0) for k in range(count)]
        tau = f.load(f["tau"], self.type.scalar, self.square.bytes)
        with f.unless(f.compare("oeq", tau, constant(self.type.scalar, 0))):
            with f.loop(f["rows"], self.type.width, first=start, carried=[zero] * count) as loop:
                vector = self.load(f, f["vector"], loop.index)
                for k, column in enumerate(columns):
                    loop.carried[k] = f.fmuladd(vector, self.load(f, column, loop.index), loop.carried[k])
            totals = [f.binary("fmul", f.fneg(tau), self._total(f, lanes)) for lanes in loop.carried]
            factors = [f.splat(total, self.type.width) for total in totals]
            with f.loop(f["rows"], self.type.width, first=start) as again:
                vector = self.load(f, f["vector"], again.index)
                for column, factor in zip(columns, factors, strict=True):
                    value = f.fmuladd(factor, vector, self.load(f, column, again.index))
                    self.store(f, value, column, again.index)
        return f


def triangle(name: str, square: Square, is_transposed: bool) -> KernelFunction:
    """Returns `name(products, taus, t)`, which computes T from the products V^T V, row by row, or its transpose.

    Its inverse has the products above the diagonal, where the reciprocals of taus are, so that rows are found by
    substitution: those of T from the last to the first. If a tau is zero, so are its row and its column.
    """
    f = KernelFunction(name, products=PTR, taus=PTR, t=PTR)
    type, block = square.type, square.block
    starts = range(0, block, type.width)
    with f.loop(block) as step:
        i = f.index(step.index) if is_transposed else f.subtract(block - 1, step.index)
        sums = [f.variable(constant(type, 0)) for _ in starts]
        with f.each(*((0, i) if is_transposed else (f.add(i, 1), block))) as k:
            factor = f.fneg(f.load(square.at(f, f["products"], i, k), type.scalar, square.bytes))
            for start, total in zip(starts, sums, strict=True):
                row = f.load(square.at(f, f["t"], k, start), type, square.bytes)
                total.set(f.fmuladd(f.splat(factor, type.width), row, total.get()))
        tau = f.load(f.at(f["taus"], i, type.element), type.scalar, square.bytes)
        for start, total in zip(starts, sums, strict=True):
            value = f.binary("fmul", f.splat(tau, type.width), total.get())
            f.store(value, square.at(f, f["t"], i, start), square.bytes)
        f.store(tau, square.at(f, f["t"], i, i), square.bytes)
    return f
