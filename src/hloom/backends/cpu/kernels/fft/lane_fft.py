"""Transforms of sequences in lanes: [n][lanes], with real and imaginary parts in separate arrays.

Stockham's algorithm with radices 8, 4, 2 and odd primes: each stage reads a pair of arrays and writes another one, both
in order, so that every load and store is a vector of lanes. A sequence of r m elements, interleaved with others,
becomes r sequences of length m: element k of the p-th butterfly, times w^(p k), is stored at r p + k.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from hloom.backends.cpu.kernels.kernel_function import KernelFunction, shared_function, size_of
from hloom.lir import I64, PTR, Function, IndexValue, Type, Value, constant
from hloom.numerics import roots_of_unity
from hloom.passes.legalize.fft_lengths import radices_of

Complex = tuple[Value, Value]
_ARRAYS = "re", "im", "re2", "im2", "table"


@dataclass(frozen=True)
class LaneFft:
    """A transform of length n on `lanes` sequences, in vectors of type `vector`."""

    n: int
    lanes: int
    vector: Type

    @cached_property
    def radices(self) -> tuple[int, ...]:
        """The radices of the stages."""
        return radices_of(self.n) or ()

    @property
    def size(self) -> int:
        """Elements of each array, in each lane."""
        return self.n

    @property
    def ends_in_second(self) -> bool:
        """Whether the result is in the second pair of arrays."""
        return len(self.radices) % 2 == 1

    @property
    def align(self) -> int:
        """The alignment of elements, in bytes."""
        return size_of(self.vector.element)

    @cached_property
    def table(self) -> np.ndarray[Any, Any]:
        """The factors of all stages, real and imaginary parts alternately."""
        m, parts = self.n, [np.zeros(0)]
        for radix in self.radices:
            m //= radix
            if m > 1:
                roots = roots_of_unity(np.outer(np.arange(m), np.arange(1, radix)), radix * m)
                parts.append(roots.view(np.float64).reshape(-1))
        return np.concatenate(parts).astype(np.float32 if self.vector.element == "float" else np.float64)

    def functions(self, name: str) -> list[KernelFunction]:
        """Returns the functions of the transform, the last of which is `function`."""
        return [self.function(name)]

    def function(self, name: str) -> KernelFunction:
        """Returns `name(re, im, re2, im2, table)`, which calls a shared function for each stage."""
        f = KernelFunction(name, **dict.fromkeys(_ARRAYS, PTR)).as_call_only()
        source, target = (f["re"], f["im"]), (f["re2"], f["im2"])
        m, interleaved, table_offset = self.n, 1, 0
        for radix in self.radices:
            m //= radix
            table = f.at(f["table"], table_offset, self.vector.element)
            f.call_function(
                self.stage(radix, m == 1), *source, *target, table, f.index(m), f.index(interleaved * self.lanes)
            )
            table_offset += 2 * m * (radix - 1) if m > 1 else 0
            interleaved *= radix
            source, target = target, source
        return f

    def stage(self, radix: int, is_last: bool) -> Function:
        """Returns `(re, im, re2, im2, table, m, width)`: butterflies of elements that are m times `width` apart.

        Their results, `width` apart, are multiplied by factors, but for the last stage, whose m is 1.
        """
        name = f"fft.stage{radix}{'.last' if is_last else ''}.{self.vector.suffix}"
        write = functools.partial(self._write_stage, radix, is_last)
        return shared_function(name, write, **dict.fromkeys(_ARRAYS, PTR), m=I64, width=I64)

    def _write_stage(self, radix: int, is_last: bool, f: KernelFunction) -> None:
        m, width = (1 if is_last else f["m"]), f["width"]
        sources, targets = ([f.multiply(step, k) for k in range(radix)] for step in (f.multiply(width, m), width))
        with f.loop(m) as loop:
            row = f.multiply(loop.index, width)
            factors = [] if is_last else self._factors(f, radix, loop.index)
            with f.loop(width, self.vector.width or 1) as inner:
                first = f.add(row, inner.index)
                inputs = [self.load(f, (f["re"], f["im"]), f.add(first, each)) for each in sources]
                first = f.add(f.multiply(row, radix), inner.index)
                for k, value in enumerate(butterfly(f, inputs)):
                    value = multiply(f, value, factors[k - 1]) if factors and k else value
                    self.store(f, value, (f["re2"], f["im2"]), f.add(first, targets[k]))

    def _factors(self, f: KernelFunction, radix: int, p: IndexValue) -> list[Complex]:
        first = f.at(f["table"], f.multiply(p, 2 * (radix - 1)), self.vector.element)
        return [self.factor(f, first, k) for k in range(radix - 1)]

    def factor(self, f: KernelFunction, table: Value, index: IndexValue) -> Complex:
        """Loads a complex number of a table, in all lanes."""
        first = f.at(table, f.multiply(index, 2), self.vector.element)
        parts = (f.load(f.at(first, k, self.vector.element), self.vector.scalar, self.align) for k in range(2))
        re, im = (f.splat(part, self.vector.width) for part in parts)
        return re, im

    @property
    def vectors(self) -> range:
        """The first lane of each vector."""
        return range(0, self.lanes, self.vector.width or 1)

    def offsets(self, f: KernelFunction, element: IndexValue) -> list[IndexValue]:
        """Returns the offsets of an element's vectors."""
        return [f.add(f.multiply(element, self.lanes), lane) for lane in self.vectors]

    def load(self, f: KernelFunction, arrays: Complex, offset: IndexValue) -> Complex:
        """Loads the vectors at an offset of a pair of arrays."""
        re, im = (f.load(f.at(array, offset, self.vector.element), self.vector, self.align) for array in arrays)
        return re, im

    def store(self, f: KernelFunction, value: Complex, arrays: Complex, offset: IndexValue) -> None:
        """Stores vectors at an offset of a pair of arrays."""
        for part, array in zip(value, arrays, strict=True):
            f.store(part, f.at(array, offset, self.vector.element), self.align)


# Complex arithmetic


def add(f: KernelFunction, a: Complex, b: Complex) -> Complex:
    """Returns a + b."""
    return f.binary("fadd", a[0], b[0]), f.binary("fadd", a[1], b[1])


def subtract(f: KernelFunction, a: Complex, b: Complex) -> Complex:
    """Returns a - b."""
    return f.binary("fsub", a[0], b[0]), f.binary("fsub", a[1], b[1])


def multiply(f: KernelFunction, a: Complex, b: Complex) -> Complex:
    """Returns a * b."""
    re = f.fmuladd(a[0], b[0], f.fneg(f.binary("fmul", a[1], b[1])))
    return re, f.fmuladd(a[0], b[1], f.binary("fmul", a[1], b[0]))


def butterfly(f: KernelFunction, a: Sequence[Complex]) -> list[Complex]:
    """Returns the transform of a few elements."""
    if len(a) == 2:
        return [add(f, a[0], a[1]), subtract(f, a[0], a[1])]
    if len(a) == 4:
        even, odd = add(f, a[0], a[2]), subtract(f, a[0], a[2])
        both, (re, im) = add(f, a[1], a[3]), subtract(f, a[1], a[3])
        rotated = (im, f.fneg(re))  # times -i
        return [add(f, even, both), add(f, odd, rotated), subtract(f, even, both), subtract(f, odd, rotated)]
    if len(a) == 8:
        evens, odds = butterfly(f, a[::2]), _rotated(f, butterfly(f, a[1::2]))
        pairs = [*zip(evens, odds, strict=True)]
        return [add(f, *pair) for pair in pairs] + [subtract(f, *pair) for pair in pairs]
    return _odd_butterfly(f, a)


def _rotated(f: KernelFunction, a: Sequence[Complex]) -> list[Complex]:
    """Returns four elements times the powers of w = exp(-i pi / 4) = (1 - i) / sqrt(2)."""
    scale = constant(a[0][0].type, 0.5**0.5)

    def times_w(re: Value, im: Value) -> Complex:
        sum, difference = f.binary("fadd", re, im), f.binary("fsub", im, re)
        return f.binary("fmul", sum, scale), f.binary("fmul", difference, scale)

    (re, im), (re3, im3) = a[2], times_w(*a[3])
    return [a[0], times_w(*a[1]), (im, f.fneg(re)), (im3, f.fneg(re3))]


def _odd_butterfly(f: KernelFunction, a: Sequence[Complex]) -> list[Complex]:
    """Transforms by pairs j and n - j, which share a cosine, and have sines of opposite signs."""
    n, half = len(a), len(a) // 2
    sums = [add(f, a[j], a[n - j]) for j in range(1, half + 1)]
    differences = [subtract(f, a[j], a[n - j]) for j in range(1, half + 1)]
    total = a[0]
    for each in sums:
        total = add(f, total, each)
    outputs = [total] * n
    type = a[0][0].type
    for k in range(1, half + 1):
        re, im = a[0]
        across, along = constant(type, 0.0), constant(type, 0.0)
        for j in range(1, half + 1):
            root = complex(roots_of_unity(np.array(j * k), n))
            cosine, sine = constant(type, root.real), constant(type, -root.imag)
            re, im = f.fmuladd(sums[j - 1][0], cosine, re), f.fmuladd(sums[j - 1][1], cosine, im)
            along, across = (
                f.fmuladd(differences[j - 1][1], sine, along),
                f.fmuladd(differences[j - 1][0], sine, across),
            )
        rotated = (along, f.fneg(across))  # -i times the sum of the sines
        outputs[k], outputs[n - k] = add(f, (re, im), rotated), subtract(f, (re, im), rotated)
    return outputs
