"""Arrays of floats times powers of two, exactly, and without the cost of subnormal numbers where processors have it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from hloom.backends.cpu.kernels.kernel_function import KernelFunction, copied_function, size_of
from hloom.lir import I64, PTR, Function, IndexValue, Type, Value, constant
from hloom.system.records import record


class Found(NamedTuple):
    """Findings in an array: the exponent in the bits of the largest number, and how many are subnormal."""

    exponent: Value
    subnormals: Value


@record
class ScaledFloats:
    """Functions of arrays of floats, in vectors of `type`."""

    type: Type

    @property
    def mantissa(self) -> int:
        """Bits of the mantissa; subnormal numbers times two to this power are normal."""
        return {"float": 23, "double": 52}[self.type.element]

    @property
    def bias(self) -> int:
        """The exponent in the bits of 1."""
        return (1 << (self.type.bits - self.mantissa - 2)) - 1

    def look(self, f: KernelFunction, source: Value, elements: Value, distance: Value) -> Found:
        """Returns what is found in the vectors of an array that are a distance apart, in elements."""
        found = f.slot(I64, 2)
        parameters = {"source": PTR, "elements": I64, "distance": I64, "found": PTR}
        f.call_function(self._function("look", self._look, parameters), source, elements, distance, found)
        return Found(*f.unpack(found, I64, I64))

    def multiply(self, f: KernelFunction, source: Value, target: Value, elements: Value, power: Value) -> None:
        """Writes a copy of an array times 2^power, at least that of the mantissa. Nothing may overflow."""
        parameters = {"source": PTR, "target": PTR, "elements": I64, "power": I64}
        f.call_function(self._function("multiply", self._multiply, parameters), source, target, elements, power)

    def divide(self, f: KernelFunction, array: Value, elements: Value, power: Value) -> None:
        """Divides an array by 2^power, whose reciprocal is a normal number."""
        parameters = {"array": PTR, "elements": I64, "power": I64}
        f.call_function(self._function("divide", self._divide, parameters), array, elements, power)

    def _function(self, name: str, write: Callable[[KernelFunction], None], parameters: dict[str, Type]) -> Function:
        return copied_function(f"scaled.{name}.{self.type.suffix}", write, **parameters)

    def _look(self, f: KernelFunction) -> None:
        source, elements, distance, found = f.parameters
        word = self.type.integer
        zero, one = constant(word, 0), constant(word, 1)
        with f.loop(elements, distance, carried=[zero, zero]) as loop:
            magnitude = self._magnitude(f, self._load(f, source, loop.index, elements))
            loop.carried[0] = f.intrinsic("umax", loop.carried[0], magnitude)
            is_subnormal = f.compare("ult", f.binary("sub", magnitude, one), constant(word, (1 << self.mantissa) - 1))
            loop.carried[1] = f.binary("add", loop.carried[1], f.select(is_subnormal, one, zero))
        largest, subnormals = (
            f.call(f"llvm.vector.reduce.{name}.{word.suffix}", word.scalar, lanes)
            for name, lanes in zip(("umax", "add"), loop.carried, strict=True)
        )
        exponent = f.binary("lshr", largest, constant(word.scalar, self.mantissa))
        f.pack(_as_index(f, exponent), _as_index(f, subnormals), context=found)

    def _multiply(self, f: KernelFunction) -> None:
        """Adds to exponents. The bits of a subnormal number, after those of a normal one, are those of the sum of it,
        scaled, and this; additions of subnormal numbers are fast.
        """
        source, target, elements, power = f.parameters
        word = self.type.integer
        added = self._splat(f, f.binary("shl", power, f.index(self.mantissa)))
        normal = constant(word, 1 << self.mantissa)
        beside = f.binary("add", added, normal)
        with f.loop(elements, self.type.width) as loop:
            value = self._load(f, source, loop.index, elements)
            magnitude = self._magnitude(f, value)
            sum = f.bitcast(f.binary("or", magnitude, beside), self.type)
            small = f.bitcast(f.binary("fsub", sum, f.bitcast(beside, self.type)), word)
            is_normal = f.compare("uge", magnitude, normal)
            scaled = f.select(is_normal, f.binary("add", magnitude, added), small)
            sign = f.binary("xor", value, magnitude)
            self._store(f, f.binary("or", scaled, sign), target, loop.index, elements)

    def _divide(self, f: KernelFunction) -> None:
        array, elements, power = f.parameters
        bits = f.binary("shl", f.index(f.subtract(self.bias, power)), f.index(self.mantissa))
        factor = f.bitcast(self._splat(f, bits), self.type)
        with f.loop(elements, self.type.width) as loop:
            value = f.bitcast(self._load(f, array, loop.index, elements), self.type)
            product = f.bitcast(f.binary("fmul", value, factor), self.type.integer)
            self._store(f, product, array, loop.index, elements)

    def _magnitude(self, f: KernelFunction, bits: Value) -> Value:
        return f.binary("and", bits, constant(bits.type, (1 << (self.type.bits - 1)) - 1))

    def _splat(self, f: KernelFunction, number: Value) -> Value:
        """Returns a number in each word of a vector."""
        word = self.type.integer
        return f.splat(number if word.bits == 64 else f.convert("trunc", number, word.element), word.width)

    def _load(self, f: KernelFunction, array: Value, index: IndexValue, elements: Value) -> Value:
        """Loads the bits of a vector, with zeros past the end."""
        word, mask = self.type.integer, f.first_lanes(f.left(elements, index), self.type.width)
        return f.load_masked(f.at(array, index, word.element), word, size_of(word.element), mask)

    def _store(self, f: KernelFunction, bits: Value, array: Value, index: IndexValue, elements: Value) -> None:
        mask = f.first_lanes(f.left(elements, index), self.type.width)
        f.store_masked(bits, f.at(array, index, bits.type.element), size_of(bits.type.element), mask)


def _as_index(f: KernelFunction, word: Value) -> Value:
    return word if word.type is I64 else f.convert("zext", word, "i64")
