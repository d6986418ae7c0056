"""Emission of element-wise operations on complex numbers."""

from __future__ import annotations

import functools
from collections.abc import Callable

from hloom.backends.cpu.elements.conversions import convert
from hloom.backends.cpu.elements.functions import complex_math
from hloom.backends.cpu.elements.functions.complex_arithmetic import Pair, modulus, multiply
from hloom.backends.cpu.elements.functions.lanes import Lanes
from hloom.backends.cpu.elements.scalar_function import ScalarFunctionCall, apply_function
from hloom.backends.cpu.elements.types import Element, map_parts
from hloom.lir import Builder, Value, constant
from hloom.loops.expressions import Apply
from hloom.ops.attributes import ComparisonDirection
from hloom.ops.compare import Compare
from hloom.ops.convert import BitcastConvert, Convert
from hloom.ops.elementwise_binary import Add, Multiply, Subtract
from hloom.ops.elementwise_unary import Abs, Imag, Negate, Real
from hloom.ops.operation import Operation
from hloom.ops.registry import Registry

Values = tuple[Value, Value]
"""The registers of a real and an imaginary part."""

COMPLEX = Registry[..., Element]()
"""Emits operations on complex elements, as those of `ops.REAL`."""

COMPLEX.add(ScalarFunctionCall, apply_function)


# Mathematical functions


def _on_pairs(function: Callable[..., Pair], in_f64: bool = True) -> Callable[..., Element]:
    def emit(op: Operation, b: Builder, e: Apply, *operands: Values) -> Element:
        element = operands[0][0].type.element
        real, imaginary = function(*(_lanes(b, z, "double" if in_f64 else element) for z in operands))
        return real.to(element).value, imaginary.to(element).value

    return emit


def _lanes(b: Builder, z: Values, element: str) -> Pair:
    return Lanes(b, z[0]).to(element), Lanes(b, z[1]).to(element)


for _declaration, _function in complex_math.FUNCTIONS.items():
    COMPLEX.add(_declaration, _on_pairs(_function))
COMPLEX.add(Multiply, _on_pairs(multiply, in_f64=False))


@COMPLEX.rule(Abs)
def _abs(op: Abs, b: Builder, e: Apply, z: Values) -> Element:
    return modulus(_lanes(b, z, z[0].type.element)).value


# Operations on each part


def _partwise(instruction: str) -> Callable[..., Element]:
    def emit(op: Operation, b: Builder, e: Apply, z: Values, w: Values) -> Element:
        return map_parts(functools.partial(b.binary, instruction), z, w)

    return emit


COMPLEX.add(Add, _partwise("fadd"))
COMPLEX.add(Subtract, _partwise("fsub"))


@COMPLEX.rule(Negate)
def _negate(op: Negate, b: Builder, e: Apply, z: Values) -> Element:
    return map_parts(b.fneg, z)


@COMPLEX.rule(Real)
def _real(op: Real, b: Builder, e: Apply, z: Values) -> Element:
    return z[0]


@COMPLEX.rule(Imag)
def _imag(op: Imag, b: Builder, e: Apply, z: Values) -> Element:
    return z[1]


# Comparisons and conversions


@COMPLEX.rule(Compare)
def _compare(op: Compare, b: Builder, e: Apply, z: Values, w: Values) -> Element:
    if op.direction is ComparisonDirection.EQ:
        return b.binary("and", b.compare("oeq", z[0], w[0]), b.compare("oeq", z[1], w[1]))
    return b.binary("or", b.compare("une", z[0], w[0]), b.compare("une", z[1], w[1]))


@COMPLEX.rule(Convert)
def _convert(op: Convert, b: Builder, e: Apply, z: Values) -> Element:
    source = e.operands[0].type.real
    if e.type.is_complex:
        return convert(b, z[0], source, e.type.real), convert(b, z[1], source, e.type.real)
    if e.type.is_pred:
        zero = constant(z[0].type, 0)
        return b.binary("or", b.compare("une", z[0], zero), b.compare("une", z[1], zero))
    return convert(b, z[0], source, e.type)


@COMPLEX.rule(BitcastConvert)
def _bitcast_convert(op: BitcastConvert, b: Builder, e: Apply, z: Values) -> Element:
    return z
