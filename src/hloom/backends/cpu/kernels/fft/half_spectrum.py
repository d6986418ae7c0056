"""Long real sequences as complex ones of half the length: the even elements are real parts, the odd ones imaginary.

With Z the transform of those, h its length and w = exp(-i pi / h), E = (Z[k] + conj Z[h-k]) / 2 and O = -i w^k (Z[k] -
conj Z[h-k]) / 2: element k of the spectrum is E + O, element h - k is conj(E - O). The inverse is analogous.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hloom.backends.cpu.kernels.fft.complex_vectors import Complex, add, multiply, subtract
from hloom.backends.cpu.kernels.kernel_function import KernelFunction, task_function
from hloom.lir import PTR, IndexValue, Value, constant
from hloom.numerics import roots_of_unity
from hloom.system.records import record
from hloom.types import PrimitiveType

FINE_POWERS = 256
"""Powers of w are products of a fine one below this number and a coarse one."""


def convert_pair(
    f: KernelFunction, z: Complex, mirrored: Complex, power: Complex, backwards: bool
) -> tuple[Complex, Complex]:
    """Returns twice elements k and h - k of the spectrum, from those of Z and w^k; if `backwards`, twice those of Z."""
    conjugate = (mirrored[0], f.fneg(mirrored[1]))
    total, difference = add(f, z, conjugate), subtract(f, z, conjugate)
    re, im = multiply(f, difference, (power[0], f.fneg(power[1])) if backwards else power)
    odd = (f.fneg(im), re) if backwards else (im, f.fneg(re))
    re, im = subtract(f, total, odd)
    return add(f, total, odd), (re, f.fneg(im))


def convert_ends(f: KernelFunction, ends: Sequence[Complex]) -> list[Complex]:
    """Returns twice the first and the last element of the spectrum, from Z's first; from both, twice Z's first."""
    re = ends[0][0]
    if len(ends) == 2:
        return [(f.binary("fadd", re, ends[1][0]), f.binary("fsub", re, ends[1][0]))]
    zero = constant(re.type, 0.0)
    values = [f.binary(opcode, re, ends[0][1]) for opcode in ("fadd", "fsub")]
    return [(f.binary("fadd", value, value), zero) for value in values]


@record
class HalfSpectrum:
    """The task that converts h elements to the spectrum of h + 1, or back if `backwards`; both in chunks."""

    name: str
    type: PrimitiveType
    h: int
    backwards: bool
    chunks: int

    @property
    def element(self) -> str:
        """LLVM's type of a real part."""
        return "float" if self.type is PrimitiveType.C64 else "double"

    def table(self) -> np.ndarray[Any, Any]:
        """Returns the fine powers of w, then the coarse ones."""
        powers = np.concatenate([np.arange(FINE_POWERS), FINE_POWERS * np.arange(self.h // FINE_POWERS + 1)])
        return roots_of_unity(powers, 2 * self.h).view(np.float64).astype(self.type.real.dtype)

    def function(self) -> KernelFunction:
        """Returns `name(context, chunk)`; the context has source, target and table."""
        f = task_function(self.name)
        source, target, table = f.unpack(f["context"], PTR, PTR, PTR)
        # Pairs k, h - k from 1 on; the first chunk also converts the ends.
        start, count = f.share(self.h // 2, 1, self.chunks, f["chunk"])
        with f.when(f.compare("eq", f["chunk"], f.index(0))):
            self._ends(f, source, target)
        with f.each(f.add(start, 1), f.add(f.add(start, count), 1)) as k:
            mirrored = f.subtract(self.h, k)
            pair = self._load(f, source, k), self._load(f, source, mirrored)
            for value, index in zip(
                convert_pair(f, *pair, self._power(f, table, k), self.backwards), (k, mirrored), strict=True
            ):
                self._store(f, value, target, index)
        return f

    def _power(self, f: KernelFunction, table: Value, k: Value) -> Complex:
        fine = self._load(f, table, f.remainder(k, FINE_POWERS))
        coarse = self._load(f, table, f.add(f.divide(k, FINE_POWERS), FINE_POWERS))
        return multiply(f, fine, coarse)

    def _ends(self, f: KernelFunction, source: Value, target: Value) -> None:
        ends = [self._load(f, source, k) for k in ((0, self.h) if self.backwards else (0,))]
        for k, value in zip((0, self.h), convert_ends(f, ends), strict=False):
            self._store(f, value, target, k)

    def _load(self, f: KernelFunction, array: Value, index: IndexValue) -> Complex:
        value = f.load_lanes(f.element_at(array, index, self.type), self.type)
        assert isinstance(value, tuple)
        return value

    def _store(self, f: KernelFunction, value: Complex, array: Value, index: IndexValue) -> None:
        f.store_lanes(value, f.element_at(array, index, self.type), self.type)
