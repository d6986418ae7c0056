"""Arithmetic of factorisations on elements that are real or complex, in scalars or lanes of vectors."""

from __future__ import annotations

from collections.abc import Sequence

from hloom.backends.cpu.elements.functions import complex_arithmetic
from hloom.backends.cpu.elements.functions.lanes import Lanes, muladd, where
from hloom.backends.cpu.kernels.kernel_function import KernelFunction
from hloom.system.records import record


@record(slots=True)
class Complex:
    """A complex element."""

    real: Lanes
    imag: Lanes


Scalar = Lanes | Complex


def scalar(parts: Sequence[Lanes]) -> Scalar:
    """Returns the element with these parts, one or two."""
    return parts[0] if len(parts) == 1 else Complex(*parts)


def parts_of(x: Scalar) -> list[Lanes]:
    """Returns the parts of an element: itself, or the real and the imaginary part."""
    return [x] if isinstance(x, Lanes) else [x.real, x.imag]


def real_part(x: Scalar) -> Lanes:
    """Returns the real part."""
    return parts_of(x)[0]


def from_real(x: Lanes, like: Scalar) -> Scalar:
    """Returns a real number as an element, complex if `like` is."""
    return scalar([x, x.like(0.0)][: len(parts_of(like))])


def conjugate(x: Scalar) -> Scalar:
    """Returns the conjugate."""
    return x if isinstance(x, Lanes) else Complex(x.real, -x.imag)


def negated(x: Scalar) -> Scalar:
    """Returns -x."""
    return scalar([-part for part in parts_of(x)])


def magnitude(x: Scalar) -> Lanes:
    """Returns |re| + |im|, by which LAPACK compares complex elements."""
    first, *others = map(abs, parts_of(x))
    return first + others[0] if others else first


def difference(a: Scalar, b: Scalar) -> Scalar:
    """Returns a - b."""
    return scalar([x - y for x, y in zip(parts_of(a), parts_of(b), strict=True)])


def product(a: Scalar, b: Scalar) -> Scalar:
    """Returns a * b."""
    if isinstance(a, Lanes) or isinstance(b, Lanes):
        return scalar([x * y for x in parts_of(a) for y in parts_of(b)])
    return Complex(*complex_arithmetic.multiply((a.real, a.imag), (b.real, b.imag)))


def quotient(a: Scalar, b: Scalar) -> Scalar:
    """Returns a / b, where the divisor may be real."""
    if isinstance(b, Lanes):
        return scalar([x / b for x in parts_of(a)])
    real, imag = parts_of(a)
    return Complex(*complex_arithmetic.quotient((real, imag), (b.real, b.imag)))


def less_product(value: Scalar, a: Scalar, b: Scalar) -> Scalar:
    """Returns value - a * b."""
    return plus_product(value, negated(a), b)


def plus_product(value: Scalar, a: Scalar, b: Scalar) -> Scalar:
    """Returns value + a * b."""
    if isinstance(value, Lanes):
        return muladd(real_part(a), real_part(b), value)
    (p, q), (r, s) = parts_of(a), parts_of(b)
    return Complex(muladd(-q, s, muladd(p, r, value.real)), muladd(q, r, muladd(p, s, value.imag)))


def chosen(condition: Lanes, a: Scalar, b: Scalar) -> Scalar:
    """Selects a where the condition holds, else b."""
    return scalar([where(condition, x, y) for x, y in zip(parts_of(a), parts_of(b), strict=True)])


class Sum:
    """A stack variable for an element, which loops update."""

    def __init__(self, f: KernelFunction, initial: Scalar) -> None:
        self.f, self.parts = f, [f.variable(part.value) for part in parts_of(initial)]

    def get(self) -> Scalar:
        """Loads the current value."""
        return scalar([Lanes(self.f, part.get()) for part in self.parts])

    def set(self, value: Scalar) -> None:
        """Stores a new value."""
        for part, own in zip(parts_of(value), self.parts, strict=True):
            own.set(part.value)
