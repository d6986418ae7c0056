"""fft-lengths: Fourier transforms of lengths without kernels, expressed by transforms of lengths that have kernels.

There are kernels for rows of length up to `MAX_LENGTH`, or a product of two such lengths, and for columns of length up
to `MAX_LENGTH`. Other lengths, above all those with large prime factors, are computed as a convolution with a chirp
(Bluestein's algorithm): with c_j = exp(-i pi j^2 / n), element k of the transform is c_k times the sum over j of
(x_j c_j) conj(c_(k-j)).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from hloom.ir import Instruction, Module
from hloom.numerics import roots_of_unity
from hloom.ops.attributes import FftType, PaddingDimension
from hloom.ops.elementwise_binary import Complex, Multiply
from hloom.ops.elementwise_unary import Imag, Negate, Real
from hloom.ops.fft import Fft
from hloom.ops.pad import Concatenate, Pad
from hloom.ops.transpose import Reverse, Transpose
from hloom.passes.op_builder import OpBuilder, expand_each
from hloom.system.records import record

MAX_LENGTH = 2048
"""Length of sequences up to which a vector of them, one per lane, stays in the second-level cache."""

MAX_PRIME = 31
"""Largest radix of a butterfly, whose cost is quadratic."""
MIN_PADDED_LENGTH, MAX_PADDED_ROWS = 64, 4
"""Bounds for transforms that are padded although they have a kernel, which would leave lanes without rows."""

ComplexVector = np.ndarray[Any, np.dtype[np.complex128]]


@record
class FftLengths:
    """Before: an fft of any lengths. After: ffts of one or several dimensions with kernels for their lengths.

    Long columns are transposed to rows, long real sequences of odd length become complex, and lengths with large prime
    factors are convolved with a chirp. Lengths whose convolution would exceed `MAX_LENGTH` squared are left alone. If
    `batch_invariant` is set, the number of rows decides nothing.
    """

    name: ClassVar[str] = "fft-lengths"
    operations: ClassVar[tuple[type, ...]] = (Fft,)
    batch_invariant: bool = False

    def run(self, module: Module) -> int:
        """Expands the transforms; returns their number."""
        max_rows = 0 if self.batch_invariant else MAX_PADDED_ROWS
        return expand_each(module, Fft, functools.partial(_expanded, max_rows))


def factors(n: int) -> tuple[int, int] | None:
    """Returns (1, n) for a length up to `MAX_LENGTH`, and `product_of_two(n)` for others."""
    return (1, n) if n <= MAX_LENGTH else product_of_two(n)


def product_of_two(n: int) -> tuple[int, int] | None:
    """Returns the two factors up to `MAX_LENGTH` of a length that are closest to each other, ascending, if any."""
    fitting = [a for a in range(math.isqrt(n), 0, -1) if n % a == 0 and n // a <= MAX_LENGTH]
    return (fitting[0], n // fitting[0]) if fitting else None


def radices_of(n: int) -> tuple[int, ...] | None:
    """Returns the radices of the butterflies of a length, in order; None if a prime factor exceeds `MAX_PRIME`.

    Powers of two and of three have as few factors as possible: each passes over the sequence once.
    """
    twos = (n & -n).bit_length() - 1
    fours = (-twos % 3) if twos > 1 else 0
    found = [8] * ((twos - 2 * fours) // 3) + [4] * fours + [2] * (twos == 1)
    n >>= twos
    for radix in (9, *range(3, MAX_PRIME + 1, 2)):
        while n % radix == 0:
            found.append(radix)
            n //= radix
    return tuple(found) if n == 1 else None


def has_code(kind: FftType, lengths: Sequence[int]) -> bool:
    """Whether kernels transform arrays with these lengths of the last dimensions."""
    *others, last = lengths
    is_half = kind in (FftType.RFFT, FftType.IRFFT) and last > MAX_LENGTH
    if max(others, default=0) > MAX_LENGTH or (is_half and last % 2):
        return False
    return factors(last // 2 if is_half else last) is not None


def _expanded(max_rows: int, op: Fft, build: OpBuilder, old: Instruction, _: Module) -> Instruction | None:
    if not old.shape.element_count or 0 in op.fft_length:
        return None
    is_faster_by_chirp = _is_faster_by_chirp(old, op, max_rows)
    if has_code(op.fft_type, op.fft_length) and not is_faster_by_chirp:
        return None
    if len(op.fft_length) == 1 and not _can_expand(op.fft_type, op.fft_length[0]):
        return None
    axes = dict(zip(range(old.shape.rank - len(op.fft_length), old.shape.rank), op.fft_length, strict=True))
    last, value = old.shape.rank - 1, old.operands[0]
    if is_faster_by_chirp:
        return _by_chirp(build, value, op.fft_type, op.fft_length[-1])
    if op.fft_type in (FftType.FFT, FftType.IFFT):
        return _complex(build, value, op.fft_type, axes)
    n = axes.pop(last)
    # RFFT transforms the last dimension first, from real to complex; IRFFT last, from complex to real.
    if op.fft_type is FftType.RFFT:
        return _complex(build, _of_rows(build, value, op.fft_type, n), FftType.FFT, axes)
    return _of_rows(build, _complex(build, value, FftType.IFFT, axes), op.fft_type, n)


def _complex(build: OpBuilder, x: Instruction, kind: FftType, axes: dict[int, int]) -> Instruction:
    """Transforms dimensions, given with their lengths, together; those without kernels one by one as rows."""
    long = [axis for axis, n in axes.items() if n > MAX_LENGTH and has_code(kind, [n])][:1]
    short = [axis for axis, n in axes.items() if n <= MAX_LENGTH]
    for axis, n in axes.items():
        if axis not in (*long, *short):
            x = _on_last_dimensions(build, x, [axis], functools.partial(_of_rows, build, kind=kind, n=n))
    at_once = [*short, *long]
    if not at_once:
        return x
    lengths = tuple(axes[axis] for axis in at_once)
    return _on_last_dimensions(build, x, at_once, lambda rows: build(Fft(fft_type=kind, fft_length=lengths), rows))


def _on_last_dimensions(
    build: OpBuilder, x: Instruction, axes: Sequence[int], transform: Callable[[Instruction], Instruction]
) -> Instruction:
    """Applies a transform to an array whose dimensions `axes` are moved to the end, and moves them back."""
    order = [axis for axis in range(x.shape.rank) if axis not in axes] + [*axes]
    if order == sorted(order):
        return transform(x)
    back = tuple(order.index(axis) for axis in range(x.shape.rank))
    return build(Transpose(permutation=back), transform(build(Transpose(permutation=tuple(order)), x)))


def _is_faster_by_chirp(old: Instruction, op: Fft, max_rows: int) -> bool:
    """Whether fewer than `max_rows` rows, of a length with a large prime factor, leave lanes empty."""
    n = op.fft_length[-1]
    is_complex = op.fft_type in (FftType.FFT, FftType.IFFT)
    rows = math.prod(old.shape.dimensions[:-1])
    return (
        len(op.fft_length) == 1
        and rows < max_rows
        and MIN_PADDED_LENGTH <= n <= MAX_LENGTH
        and is_complex
        and not radices_of(n)
    )


def _can_expand(kind: FftType, n: int) -> bool:
    return has_code(kind, [n]) or factors(n) is not None or _chirp_length(n) is not None


def _of_rows(build: OpBuilder, x: Instruction, kind: FftType, n: int) -> Instruction:
    """Transforms rows of length n."""
    if has_code(kind, [n]) or not _can_expand(kind, n):
        return build(Fft(fft_type=kind, fft_length=(n,)), x)
    if kind is FftType.RFFT:
        zeros = build.broadcast(build.constant(0, x.shape.element_type), x.shape)
        whole = _of_rows(build, build(Complex(), x, zeros), FftType.FFT, n)
        return build.slice_dimension(whole, whole.shape.rank - 1, 0, n // 2 + 1)
    if kind is FftType.IRFFT:
        return build(Real(), _of_rows(build, _whole_spectrum(build, x, n), FftType.IFFT, n))
    return _by_chirp(build, x, kind, n)


def _by_chirp(build: OpBuilder, x: Instruction, kind: FftType, n: int) -> Instruction:
    if kind is FftType.IFFT:
        scale = build.broadcast(build.constant(1 / n, x.shape.element_type), x.shape)
        forward = _conjugate(build, _chirped(build, _conjugate(build, x), n))
        return build(Multiply(), forward, scale)
    return _chirped(build, x, n)


def _whole_spectrum(build: OpBuilder, half: Instruction, n: int) -> Instruction:
    """Returns the spectrum of a real sequence of length n from its first half: the rest is the reversed conjugate."""
    last = half.shape.rank - 1
    rest = build(Reverse(dimensions=(last,)), build.slice_dimension(half, last, 1, n - n // 2 - 1))
    return build(Concatenate(dimension=last), half, _conjugate(build, rest))


def _conjugate(build: OpBuilder, x: Instruction) -> Instruction:
    return build(Complex(), build(Real(), x), build(Negate(), build(Imag(), x)))


def _chirped(build: OpBuilder, x: Instruction, n: int) -> Instruction:
    """Transforms complex rows by a convolution with a chirp."""
    size = _chirp_length(n)
    assert size is not None
    chirp, kernel = chirp_of(n, size)
    padding = PaddingDimension(0, size - n)
    edges = (*[PaddingDimension()] * (x.shape.rank - 1), padding)
    zero = build.constant(0, x.shape.element_type)
    longer = build(Pad(padding_config=edges), _times(build, x, chirp), zero)
    spectrum = build(Fft(fft_type=FftType.FFT, fft_length=(size,)), longer)
    back = build(Fft(fft_type=FftType.IFFT, fft_length=(size,)), _times(build, spectrum, kernel))
    return _times(build, build.slice_dimension(back, back.shape.rank - 1, 0, n), chirp)


def chirp_of(n: int, size: int) -> tuple[ComplexVector, ComplexVector]:
    """Returns the chirp of length n, and the Fourier transform, of length `size`, of the kernel of the convolution.

    The kernel is the conjugate chirp at indices 0 to n - 1 and, reversed, at -1 to -(n - 1) modulo `size`.
    """
    squares = np.arange(n, dtype=np.int64) ** 2 % (2 * n)
    chirp = roots_of_unity(squares, 2 * n)
    around = np.zeros(size, np.complex128)
    around[:n] = chirp.conj()
    around[size - n + 1 :] = chirp.conj()[:0:-1]
    return chirp, np.fft.fft(around)


def _times(build: OpBuilder, x: Instruction, values: ComplexVector) -> Instruction:
    """Multiplies each row by the same vector."""
    factor = build.constant(values, x.shape.element_type)
    return build(Multiply(), x, build.broadcast(factor, x.shape, (x.shape.rank - 1,)))


def _chirp_length(n: int) -> int | None:
    """Returns the smallest length that has a kernel and is 9, 5, 3 or 1 times a power of two, for the convolution."""
    power = (2 * n - 2).bit_length()
    lengths = [factor << max(0, power - shift) for factor, shift in ((9, 4), (5, 3), (3, 2), (1, 0))]
    fitting = [length for length in sorted(lengths) if length >= 2 * n - 1 and factors(length) is not None]
    return fitting[0] if fitting else None
