"""fft: Fourier transforms of the last 1 to 3 dimensions (spec 83)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hloom.ops.attributes import FftType
from hloom.ops.context import Context
from hloom.ops.kinds import INTS, EnumKind
from hloom.ops.operation import Operation, attribute
from hloom.ops.rules import check_array
from hloom.shape import Ints, Shape
from hloom.types import PrimitiveType
from hloom.values import Array

MIN_PARALLEL_ELEMENTS = 1 << 15
"""The minimum number of elements for which threads are used: smaller transforms end before other threads start."""


class Fft(Operation, opcode="fft", builder="fft"):
    """Computes the discrete Fourier transform of the last 1 to 3 dimensions (FFT-1 to FFT-5).

    FFT and IFFT map complex to complex arrays, RFFT real arrays to the non-redundant half of the complex result, IRFFT
    such halves back. `fft_length` holds the lengths in the time domain, which are the sizes of the transformed
    dimensions. Inverse transforms divide by the number of elements.
    """

    operands = {"operand": "complex numbers, or floats for RFFT; other dimensions are batches"}
    fft_type: FftType = attribute(EnumKind(FftType), doc="kind of transform")
    fft_length: Ints = attribute(INTS, doc="lengths of the 1 to 3 last dimensions in the time domain")

    def infer(self, operand: Shape) -> Shape:
        check_array(self, "FFT-6", operand)
        lengths, kind = self.fft_length, self.fft_type
        if not 1 <= len(lengths) <= 3 or len(lengths) > operand.rank:
            self.reject("FFT-1", f"needs 1 to 3 lengths, at most the rank of {operand}, got {list(lengths)}")
        if any(length < 0 for length in lengths):
            self.reject("FFT-1", f"lengths are >= 0, got {list(lengths)}")
        element_type = operand.element_type
        real = kind is FftType.RFFT
        if real != (element_type in (PrimitiveType.F32, PrimitiveType.F64)) or not (real or element_type.is_complex):
            wanted = "f32 or f64" if real else "c64 or c128"
            self.reject("FFT-6", f"{kind.value} takes {wanted}, got {operand}")
        sizes = list(operand.dimensions)
        if kind in (FftType.RFFT, FftType.IRFFT):
            self._check_sizes(operand)
        if real:
            complex_type = element_type.complex
            assert complex_type is not None
            sizes[-1], element_type = self._half, complex_type
        elif kind is FftType.IRFFT:
            sizes[-1], element_type = lengths[-1], element_type.real
        return Shape.array(element_type, sizes, operand.dynamic_dimensions)

    @property
    def _half(self) -> int:
        """The size of the spectrum of real data along the last dimension."""
        return self.fft_length[-1] // 2 + 1 if self.fft_length[-1] else 0

    def _check_sizes(self, operand: Shape) -> None:
        lengths, kind = self.fft_length, self.fft_type
        expected = [*lengths[:-1], self._half if kind is FftType.IRFFT else lengths[-1]]
        if list(operand.dimensions[operand.rank - len(lengths) :]) != expected and operand.element_count:
            self.reject("FFT-6", f"{kind.value} of length {list(lengths)} takes last sizes {expected}, got {operand}")

    def check_run(self, replicas: int, partitions: int, result: Shape, operands: Sequence[Shape]) -> None:
        """Checks that lengths are the sizes of the operand, except that the transform of length 0 is zeros (FFT-6)."""
        if 0 not in self.fft_length:
            self._check_sizes(*operands)

    def evaluate(self, ctx: Context, operand: Array) -> Array:
        import scipy.fft

        if not operand.size or not ctx.shape.element_count or 0 in self.fft_length:
            return np.zeros(ctx.shape.dimensions, ctx.shape.element_type.dtype)
        function: Any = {
            FftType.FFT: scipy.fft.fftn,
            FftType.IFFT: scipy.fft.ifftn,
            FftType.RFFT: scipy.fft.rfftn,
            FftType.IRFFT: scipy.fft.irfftn,
        }[self.fft_type]
        axes = range(operand.ndim - len(self.fft_length), operand.ndim)
        threads = ctx.threads if operand.size >= MIN_PARALLEL_ELEMENTS else 1
        destination = ctx.destination
        if destination is not None and self.fft_type in (FftType.FFT, FftType.IFFT):
            # Transform in place: large transforms are limited by memory bandwidth.
            destination[...] = operand
            done: Array = function(destination, s=self.fft_length, axes=axes, overwrite_x=True, workers=threads)
            return destination if np.may_share_memory(done, destination) else done
        result: Array = function(operand, s=self.fft_length, axes=axes, workers=threads)
        return result.astype(ctx.shape.element_type.dtype, copy=False)
