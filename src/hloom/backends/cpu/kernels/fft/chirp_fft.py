"""Transforms whose lengths have large prime factors, by Bluestein's algorithm: as a convolution with a chirp.

With c_j = exp(-i pi j^2 / n), element k of the transform is c_k times the sum over j of (x_j c_j) conj(c_(k-j)): a
convolution, which transforms of a longer length compute.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hloom.backends.cpu.kernels.fft.lane_fft import Access, LaneFft, Side, transform_function
from hloom.backends.cpu.kernels.fft.steps import Stage
from hloom.backends.cpu.kernels.kernel_function import KernelFunction
from hloom.lir import Value
from hloom.passes.legalize.fft_lengths import chirp_of
from hloom.system.lazy import cached_property
from hloom.system.records import record


@record
class ChirpFft(LaneFft):
    """A transform of any length n on `lanes` sequences, in arrays of `size` elements each."""

    @property
    def size(self) -> int:
        """A power of two that holds the convolution."""
        return chirp_size(self.n)

    @cached_property
    def longer(self) -> LaneFft:
        """The transform that computes the convolution."""
        return LaneFft(self.size, self.lanes, self.vector)

    @property
    def has_scale(self) -> bool:
        return True

    def table(self, scale: float = 1.0) -> np.ndarray[Any, Any]:
        """Returns the chirp, the transform of its conjugate over the size, and the factors of the longer transform."""
        chirp, kernel = chirp_of(self.n, self.size)
        # The chirp is symmetric, so that the transform of its conjugate is the conjugate of its transform.
        own = self.table_of(np.concatenate([chirp, kernel * (scale / self.size)]))
        return np.concatenate([own, self.longer.table()])

    def function(self, name: str, source: Access | None, target: Access | None) -> KernelFunction:
        f = transform_function(name).as_call_only()
        kernel, factors = (
            f.at(f["table"], offset, self.vector.element) for offset in (2 * self.n, 2 * (self.n + self.size))
        )
        before, first, second, after = self.sides(f, source, target)
        self._multiply(f, before, first, f["table"], self.n)
        self._clear(f, first)
        self.longer.transform(f, first, first, second, factors)
        self._multiply(f, second, second, kernel, self.size)
        # The inverse transform: real and imaginary parts are swapped.
        first_swapped, second_swapped = (Side(side.arrays[::-1]) for side in (first, second))
        self.longer.transform(f, second_swapped, second_swapped, first_swapped, factors)
        self._multiply(f, first, after, f["table"], self.n)
        return f

    def _multiply(self, f: KernelFunction, source: Side, target: Side, factors: Value, count: int) -> None:
        """Multiplies `count` elements by factors."""
        self.run_stage(f, Stage(1, "of all", count, 1, (1, 0, 0, 0), (1, 0, 0, 0)), source, target, factors)

    def _clear(self, f: KernelFunction, side: Side) -> None:
        """Sets the elements after a sequence to zero."""
        rest = self.advanced(f, side, self.n)
        for array in rest.arrays:
            f.fill(array, 0, (self.size - self.n) * self.lanes * self.align)


def chirp_size(n: int) -> int:
    """Returns the length of the convolution, a power of two."""
    return 1 << (2 * n - 2).bit_length()
