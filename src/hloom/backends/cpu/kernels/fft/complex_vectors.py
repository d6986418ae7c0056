"""Arithmetic of complex numbers whose real and imaginary parts are vectors each, and transforms of a few of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hloom.backends.cpu.kernels.kernel_function import KernelFunction
from hloom.lir import Value, constant
from hloom.numerics import roots_of_unity

Complex = tuple[Value, Value]


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
        pairs = [*zip(butterfly(f, a[::2]), _rotated(f, butterfly(f, a[1::2])), strict=True)]
        return [_plus(f, even, odd, sign * scale) for sign in (1, -1) for even, (odd, scale) in pairs]
    return _square_butterfly(f, a, 3) if len(a) == 9 else _odd_butterfly(f, a)


def _square_butterfly(f: KernelFunction, a: Sequence[Complex], n: int) -> list[Complex]:
    """Transforms n n elements along the columns of a matrix [n][n], and then, times factors, along its rows."""
    columns = [butterfly(f, a[column::n]) for column in range(n)]
    rows = [[_times_root(f, columns[column][k], column * k, n * n) for column in range(n)] for k in range(n)]
    return [value for values in zip(*(butterfly(f, row) for row in rows), strict=True) for value in values]


def _times_root(f: KernelFunction, a: Complex, power: int, order: int) -> Complex:
    """Returns a times a power of the root of unity of an order."""
    if power == 0:
        return a
    root, type = complex(roots_of_unity(np.array(power), order)), a[0].type
    return multiply(f, a, (constant(type, root.real), constant(type, root.imag)))


def _rotated(f: KernelFunction, a: Sequence[Complex]) -> list[tuple[Complex, float]]:
    """Returns four elements times the powers of w = exp(-i pi / 4) = (1 - i) / sqrt(2), each with a scale to apply."""

    def unscaled(re: Value, im: Value) -> Complex:
        return f.binary("fadd", re, im), f.binary("fsub", im, re)

    half, (re, im), (re3, im3) = 0.5**0.5, a[2], unscaled(*a[3])
    return [(a[0], 1.0), (unscaled(*a[1]), half), ((im, f.fneg(re)), 1.0), ((im3, f.fneg(re3)), half)]


def _plus(f: KernelFunction, a: Complex, b: Complex, scale: float) -> Complex:
    """Returns a + scale b."""
    if abs(scale) == 1.0:
        return add(f, a, b) if scale > 0 else subtract(f, a, b)
    factor = constant(a[0].type, scale)
    return f.fmuladd(b[0], factor, a[0]), f.fmuladd(b[1], factor, a[1])


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
