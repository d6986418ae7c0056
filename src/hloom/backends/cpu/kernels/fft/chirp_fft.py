"""Transforms whose lengths have large prime factors, by Bluestein's algorithm: as a convolution with a chirp.

With c_j = exp(-i pi j^2 / n), element k of the transform is c_k times the sum over j of (x_j c_j) conj(c_(k-j)): a
convolution, which transforms of a longer length compute.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from hloom.backends.cpu.kernels.fft.lane_fft import Complex, LaneFft, multiply
from hloom.backends.cpu.kernels.kernel_function import KernelFunction
from hloom.lir import PTR, Value, constant
from hloom.passes.legalize.fft_lengths import chirp_of


@dataclass(frozen=True)
class ChirpFft(LaneFft):
    """A transform of any length n on `lanes` sequences, in arrays of `size` elements each."""

    @property
    def size(self) -> int:
        """A power of two that holds the convolution."""
        return chirp_size(self.n)

    @property
    def ends_in_second(self) -> bool:
        return False

    @cached_property
    def longer(self) -> LaneFft:
        """The transform that computes the convolution."""
        return LaneFft(self.size, self.lanes, self.vector)

    @cached_property
    def table(self) -> np.ndarray[Any, Any]:
        """The chirp, the transform of its conjugate over the size, the factors of the longer transform."""
        chirp, kernel = chirp_of(self.n, self.size)
        pairs = [each.view(np.float64) for each in (chirp, kernel / self.size)]
        longer = self.longer.table
        return np.concatenate([*pairs, longer]).astype(longer.dtype)

    def function(self, name: str) -> KernelFunction:
        """Returns `name(re, im, re2, im2, table)`; the longer transform is `name.longer`."""
        f = KernelFunction(name, re=PTR, im=PTR, re2=PTR, im2=PTR, table=PTR)
        first, second = (f["re"], f["im"]), (f["re2"], f["im2"])
        chirp, kernel = f["table"], f.at(f["table"], 2 * self.n, self.vector.element)
        factors = f.at(f["table"], 2 * (self.n + self.size), self.vector.element)
        self._scaled(f, first, first, chirp, self.n)
        self._clear(f, first)
        f.call_void(f"{name}.longer", *first, *second, factors)
        result, spare = (second, first) if self.longer.ends_in_second else (first, second)
        self._scaled(f, result, result, kernel, self.size)
        # The inverse transform: real and imaginary parts are swapped.
        f.call_void(f"{name}.longer", result[1], result[0], spare[1], spare[0], factors)
        back = spare if self.longer.ends_in_second else result
        self._scaled(f, back, first, chirp, self.n)
        return f

    def functions(self, name: str) -> list[KernelFunction]:
        return [*self.longer.functions(f"{name}.longer"), self.function(name)]

    def _scaled(self, f: KernelFunction, source: Complex, target: Complex, factors: Value, count: int) -> None:
        """Multiplies `count` elements by factors of the table."""
        with f.loop(count) as loop:
            factor = self.factor(f, factors, loop.index)
            for offset in self.offsets(f, loop.index):
                self.store(f, multiply(f, self.load(f, source, offset), factor), target, offset)

    def _clear(self, f: KernelFunction, arrays: Complex) -> None:
        zero = constant(self.vector, 0.0)
        with f.loop(self.size, first=self.n) as loop:
            for offset in self.offsets(f, loop.index):
                self.store(f, (zero, zero), arrays, offset)


def chirp_size(n: int) -> int:
    """Returns the length of the convolution, a power of two."""
    return 1 << (2 * n - 2).bit_length()
