"""Products of operands with subnormal numbers, from copies of the operands times a power of two.

A multiply-add with a subnormal operand or result takes hundreds of cycles on Intel's processors. The entry looks at a
sample of both operands. If subnormal numbers would cost more than copies of the operands, and nothing overflows, the
plain product gets copies in which no number is subnormal, and its result is scaled back. This differs from the plain
product only where sums underflow, and is closer there. It depends on the operands alone, not on threads.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

from hloom.backends.cpu.elements.types import memory_element
from hloom.backends.cpu.kernels.code import KernelCode, entry_address, entry_of
from hloom.backends.cpu.kernels.kernel_function import KernelFunction, shared_function, size_of
from hloom.backends.cpu.kernels.products.product import MatmulSpec
from hloom.backends.cpu.kernels.scaled_floats import Found, ScaledFloats
from hloom.backends.cpu.llvm.processor import processor
from hloom.lir import I1, I64, PTR, VOID, Attribute, Function, Global, Type, Value, constant, index_value
from hloom.system.records import record
from hloom.target import CACHE_LINE, L2_BYTES, Target

MIN_WORK = 1 << 21
"""Multiply-adds of a product beside which the smallest sample costs nothing."""
CACHED_WORK, SAMPLED_WORK = 1 << 16, 1 << 20
"""Multiply-adds for each vector in the sample of an operand in the second cache, and of a larger one."""
FAST_SUBNORMALS = "clzero"
"""A feature of x86 processors, AMD's since Zen, that multiply and add subnormal numbers about as fast as others."""
CACHED_BYTES = L2_BYTES // 4
"""Bytes of an operand that the second cache holds beside others."""
MIN_SAMPLE, MAX_SAMPLE = 8, 1 << 10
"""Vectors in a sample."""
PARAMETERS = dict.fromkeys(("lhs", "rhs", "out", "scratch", "pool", "parallel_for", "plain", "sizes"), PTR)


@record
class ScaledProduct:
    """A product of contiguous arrays of floats by their elements, the terms of a sum, and the type of a vector."""

    type: Type
    lhs: int
    rhs: int
    out: int
    terms: int

    def code(self, name: str, plain: KernelCode) -> KernelCode:
        """Returns the code of the product from that of the plain one."""
        f = entry_of(name, "lhs", "rhs", "out")
        sizes = *self._sizes(self.lhs), *self._sizes(self.rhs), self.out, self.terms
        table = f.address_of(Global(f"{name}.sizes", [index_value(number) for number in sizes]))
        writer = _Writer(ScaledFloats(self.type))
        product = shared_function(f"scaled.product.{self.type.suffix}", writer.product, [writer.copies()], **PARAMETERS)
        f.call_function(product, *f.parameters, entry_address(f, plain), table)
        return replace(plain, functions=(*plain.functions, f.finish()), entry=name)

    def _sizes(self, elements: int) -> tuple[int, int, int]:
        """Returns the numbers of an `_Operand`.

        Rows often have a power of two of vectors: an odd number of them apart, vectors are not of the same columns.
        """
        work = self.out * self.terms
        is_cached = elements * size_of(self.type.element) <= CACHED_BYTES
        sample = min(max(work // (CACHED_WORK if is_cached else SAMPLED_WORK), MIN_SAMPLE), MAX_SAMPLE)
        vectors = math.ceil(elements / self.type.width)
        distance = math.ceil(vectors / sample) | 1
        copied = (self.lhs + self.rhs + self.out) / work
        return elements, distance * self.type.width, math.ceil(math.ceil(vectors / distance) * copied)


def scaled_product(spec: MatmulSpec, vector: Type, target: Target) -> ScaledProduct | None:
    """Returns the product of floats of one type as a scaled one; None for other products and other processors, if
    strides leave gaps or repeat elements, and for small ones.

    Rows of a batch-invariant product must not depend on other rows.
    """
    if processor().architecture != "x86_64" or processor().has(FAST_SUBNORMALS):
        return None
    if target.batch_invariant or not target.has_heap:
        return None
    types = {type.real for type in (spec.lhs_type, spec.rhs_type, spec.out_type)}
    if [memory_element(type) for type in types] != [vector.element] or not vector.is_float:
        return None
    b, m, n, k = spec.batch, spec.m, spec.n, spec.k
    arrays = ((b, m, k), spec.lhs_strides), ((b, k, n), spec.rhs_strides), ((b, m, n), spec.out_strides)
    if not all(_is_contiguous(sizes, strides) for sizes, strides in arrays):
        return None
    parts = 2 if spec.is_complex else 1
    lhs, rhs, out = (parts * math.prod(sizes) for sizes, _ in arrays)
    return ScaledProduct(vector, lhs, rhs, out, parts * k) if out * parts * k >= MIN_WORK else None


def _is_contiguous(sizes: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether elements with these strides are all of an array."""
    expected = 1
    for stride, size in sorted(zip(strides, sizes, strict=True)):
        if size > 1:
            if stride != expected:
                return False
            expected *= size
    return True


class _Operand(NamedTuple):
    """An operand: its elements, their distance in the sample, and how many subnormal numbers in it cost more than
    copies.
    """

    address: Value
    elements: Value
    distance: Value
    costly: Value


@record
class _Writer:
    """Writes the function that products share."""

    floats: ScaledFloats

    def product(self, f: KernelFunction) -> None:
        """Looks at samples, and multiplies the operands as they are, or scaled."""
        operands = self._operands(f)
        lhs, rhs = (self.floats.look(f, o.address, o.elements, o.distance) for o in operands)
        is_slow = self._underflow(f, lhs, rhs)
        for found, operand in zip((lhs, rhs), operands, strict=True):
            is_slow = f.binary("or", is_slow, f.compare("uge", found.subnormals, operand.costly))
        with f.unless(is_slow):
            f.call_pointer(f["plain"], VOID, *f.parameters[:6])
        with f.when(is_slow):
            f.call_function(self.copies(), *f.parameters)

    def copies(self) -> Function:
        """Returns the function for operands with subnormal numbers, which rarely runs, so that LLVM need not optimise
        it.
        """
        copies = shared_function(f"scaled.copies.{self.floats.type.suffix}", self.scaled, **PARAMETERS)
        copies.attributes |= {Attribute.CALL_ONLY}
        return copies

    def scaled(self, f: KernelFunction) -> None:
        """Multiplies a copy of each operand that has subnormal numbers, or else of the right one, if nothing overflows
        and there is memory.
        """
        operands, floats, zero = self._operands(f), self.floats, f.index(0)
        lhs, rhs = (floats.look(f, o.address, o.elements, f.index(floats.type.width)) for o in operands)
        in_lhs = f.compare("ne", lhs.subnormals, zero)
        in_rhs = f.binary("or", f.compare("ne", rhs.subnormals, zero), f.compare("eq", lhs.subnormals, zero))
        both = f.convert("zext", f.binary("and", in_lhs, in_rhs), "i64")
        elements, terms = f.unpack(f.at(f["sizes"], 6, "i64"), I64, I64)
        power = self._power(f, lhs, rhs, terms, both)
        fits = f.compare("sge", power, f.index(floats.mantissa))
        memory, first, second = self._memory(f, operands[0].elements, operands[1].elements, fits)
        fits = f.binary("and", fits, f.compare("ne", memory, constant(PTR, 0)))
        factors = [
            self._copied(f, operand, copy, power, f.binary("and", fits, has_any))
            for operand, copy, has_any in zip(operands, (first, second), (in_lhs, in_rhs), strict=True)
        ]
        f.call_pointer(f["plain"], VOID, *factors, *f.parameters[2:6])
        with f.when(fits):
            floats.divide(f, f["out"], elements, f.binary("shl", power, both))
        f.call_void("free", memory)

    def _memory(self, f: KernelFunction, lhs: Value, rhs: Value, fits: Value) -> tuple[Value, Value, Value]:
        """Returns memory for copies, if there is any, and the addresses of both, whose cache lines are whole."""
        size, line = size_of(self.floats.type.element), CACHE_LINE
        lines = [f.multiply(f.ceil_divide(f.multiply(elements, size), line), line) for elements in (lhs, rhs)]
        wanted = f.index(f.add(f.add(*lines), line))
        memory = f.call("malloc", PTR, f.select(fits, wanted, f.index(line)))
        (address,) = f.unpack(f.pack(memory), I64)
        first = f.at(memory, f.binary("and", f.index(f.subtract(0, address)), f.index(line - 1)), "i8")
        return memory, first, f.at(first, lines[0], "i8")

    def _operands(self, f: KernelFunction) -> tuple[_Operand, _Operand]:
        sizes = f.unpack(f["sizes"], *[I64] * 6)
        return _Operand(f["lhs"], *sizes[:3]), _Operand(f["rhs"], *sizes[3:])

    def _copied(self, f: KernelFunction, operand: _Operand, copy: Value, power: Value, is_copied: Value) -> Value:
        """Returns the address of a copy times 2^power, or that of the operand."""
        with f.when(is_copied):
            self.floats.multiply(f, operand.address, copy, operand.elements, power)
        return f.select(is_copied, copy, operand.address)

    def _power(self, f: KernelFunction, lhs: Found, rhs: Found, terms: Value, both: Value) -> Value:
        """Returns the power of two of each copy with which neither it nor a sum overflows; -1 if numbers are infinite.

        An exponent e stands for magnitudes below 2^(e + 1 - bias), and the terms are fewer than 2^(64 - leading zeros).
        """
        bias, zeros = self.floats.bias, f.call("llvm.ctlz.i64", I64, terms, constant(I1, False))
        largest = f.intrinsic("umax", lhs.exponent, rhs.exponent)
        of_products = f.add(lhs.exponent, rhs.exponent)
        free = f.subtract(f.add(3 * bias - 2 - 64, zeros), of_products)
        # The result is divided by a power of two whose reciprocal is a normal number.
        shared = f.binary("ashr", f.intrinsic("smin", f.index(free), f.index(bias - 1)), both)
        power = f.intrinsic("smin", shared, f.index(f.subtract(2 * bias - 1, largest)))
        return f.select(f.compare("ule", largest, f.index(2 * bias)), power, f.index(-1))

    def _underflow(self, f: KernelFunction, lhs: Found, rhs: Found) -> Value:
        """Whether all products of numbers that are not larger are subnormal, or nearly."""
        limit = self.floats.bias + self.floats.mantissa
        are_small = f.compare("ult", f.index(f.add(lhs.exponent, rhs.exponent)), f.index(limit))
        smaller = f.intrinsic("umin", lhs.exponent, rhs.exponent)
        return f.binary("and", are_small, f.compare("ne", smaller, f.index(0)))
