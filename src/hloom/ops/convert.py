"""Changes of element type: convert, bitcast-convert, reduce-precision, stochastic-convert (spec 8, 22, 96)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hloom.numerics import bits_of, convert, pack_narrow, reduce_precision, unpack_narrow
from hloom.ops.context import Context
from hloom.ops.indexing import Indexing, Indices, Read
from hloom.ops.kinds import INT
from hloom.ops.operation import Operation, attribute
from hloom.ops.rules import check_array
from hloom.ops.traits import Linear, NoWork
from hloom.shape import Shape
from hloom.types import BY_DTYPE, Kind
from hloom.values import Array


class Convert(Linear, Operation, opcode="convert"):
    """Converts elements to the element type of the result (CONVERT-1 to CONVERT-5).

    Conversions to floats round to nearest, ties to even; from floats to integers they truncate toward zero and clamp to
    the range, NaN gives 0.
    """

    see_also = ("bitcast-convert", "reduce-precision", "stochastic-convert")
    operands = {"operand": "array to convert"}
    elementwise = True

    def check(self, result: Shape, operand: Shape) -> None:
        check_array(self, "CONVERT-6", operand, result)
        if not result.same_dimensions(operand):
            self.reject("CONVERT-1", f"dimensions do not change, got {result} from {operand}")

    def evaluate(self, ctx: Context, operand: Array) -> Array:
        return convert(operand, ctx.shape.element_type.dtype)


class BitcastConvert(NoWork, Operation, opcode="bitcast-convert"):
    """Reinterprets the bits of the elements as another element type (BITCASTCONVERT-1).

    A narrower type adds a last dimension, of which index 0 is the least significant part; a wider one removes the last
    dimension, whose size must be the ratio of the widths (BITCASTCONVERT-2 to -4).
    """

    see_also = ("bitcast",)
    mixes_precision = False
    operands = {"operand": "array whose bits are read"}

    def check(self, result: Shape, operand: Shape) -> None:
        check_array(self, "BITCASTCONVERT-6", operand, result)
        old, new = operand.element_type, result.element_type
        if old.is_complex != new.is_complex or (old.is_pred != new.is_pred and old.bits != new.bits):
            self.reject("BITCASTCONVERT-6", f"{old} cannot be reinterpreted as {new}")
        if (
            list(result.dimensions) != self._dimensions(operand, result)
            or result.dynamic_dimensions[: operand.rank] != operand.dynamic_dimensions[: result.rank]
        ):
            self.reject("BITCASTCONVERT-2", f"{operand} gives {new}{self._dimensions(operand, result)}, got {result}")

    def _dimensions(self, operand: Shape, result: Shape) -> list[int]:
        old, new = operand.element_type.bits, result.element_type.bits
        if old >= new:
            return [*operand.dimensions, old // new] if old > new else list(operand.dimensions)
        if not operand.rank or operand.dimensions[-1] != new // old or operand.dynamic_dimensions[-1]:
            self.reject("BITCASTCONVERT-3", f"the last dimension of {operand} must have size {new // old}")
        return list(operand.dimensions[:-1])

    def evaluate(self, ctx: Context, operand: Array) -> Array:
        dtype = ctx.shape.element_type.dtype
        old, new = BY_DTYPE[operand.dtype].bits, BY_DTYPE[dtype].bits
        sizes = operand.shape if old == new else (*operand.shape, old // new) if old > new else operand.shape[:-1]
        packed = np.ascontiguousarray(operand).reshape(-1).view(np.uint8) if old >= 8 else pack_narrow(operand)
        values = packed.view(dtype) if new >= 8 else unpack_narrow(packed, math.prod(sizes), dtype)
        return values.reshape(sizes)

    def indexing(self, at: Indexing, index: Indices) -> list[Read] | None:
        # Parts of a wider element have an index that selects bits, not elements.
        return [Read(0, index)] if at.operands[0].rank == len(index) else None


class ReducePrecision(Operation, opcode="reduce-precision", builder="reduce_precision"):
    """Reduces the precision of elements: rounds to a float format with fewer bits and back (REDUCEPRECISION-1 to -5).

    Values below the smallest normal number of the format become zero.
    """

    operands = {"operand": "array of floats"}
    elementwise = True
    exponent_bits: int = attribute(INT, doc="bits of the exponent, 1 or more")
    mantissa_bits: int = attribute(INT, doc="bits of the mantissa, 0 or more")

    def infer(self, operand: Shape) -> Shape:
        check_array(self, "REDUCEPRECISION-6", operand)
        if not operand.element_type.is_float:
            self.reject("REDUCEPRECISION-6", f"takes floating-point elements, got {operand}")
        if self.exponent_bits < 1 or self.mantissa_bits < 0:
            self.reject(
                "REDUCEPRECISION-6",
                f"needs exponent_bits >= 1 and mantissa_bits >= 0, got {self.exponent_bits} and {self.mantissa_bits}",
            )
        return operand.without_layout()

    def evaluate(self, ctx: Context, operand: Array) -> Array:
        return reduce_precision(operand, self.exponent_bits, self.mantissa_bits)


class StochasticConvert(Operation, opcode="stochastic-convert"):
    """Converts floats to a narrower type with stochastic rounding (a later addition to XLA).

    A value between two numbers of the narrower type becomes the one or the other at random, the nearer one with the
    higher probability, so that the mean of many conversions is the value itself: sums of small updates in low precision
    do not stall. For integers, the fraction beyond the truncated value is compared with random / 2^bits; for floats,
    the random bits are added below the mantissa bits that are kept. Infinities and NaN are converted as by convert.
    """

    operands = {
        "operand": "array of floats",
        "random": "random bits: unsigned integers of the operand's width",
    }
    elementwise = True

    def check(self, result: Shape, operand: Shape, random: Shape) -> None:
        check_array(self, "CONVERT-6", operand, random, result)
        if not operand.element_type.is_float or random.element_type.kind is not Kind.UNSIGNED:
            self.reject("CONVERT-1", f"takes floats and unsigned random bits, got {operand} and {random}")
        if operand.element_type.bits != random.element_type.bits:
            self.reject("CONVERT-1", f"needs random bits of the operand's width, got {operand} and {random}")
        if not random.same_dimensions(operand) or not result.same_dimensions(operand):
            self.reject("CONVERT-1", f"dimensions must agree, got {operand}, {random} and {result}")

    def evaluate(self, ctx: Context, operand: Array, random: Array) -> Array:
        dtype = ctx.shape.element_type.dtype
        target = BY_DTYPE[dtype]
        if target.is_integer:
            x = np.abs(operand.astype(np.float64))
            whole = np.trunc(x)
            chance = random.astype(np.float64) / 2.0 ** BY_DTYPE[random.dtype].bits
            rounded = np.copysign(np.where(chance < x - whole, whole + 1, whole), operand.astype(np.float64))
            return convert(rounded, dtype)
        return _stochastic_float(operand, random, dtype)


def _stochastic_float(operand: Array, random: Array, dtype: np.dtype[Any]) -> Array:
    """Adds random bits below the last mantissa bit of the target type, then truncates."""
    drop = BY_DTYPE[operand.dtype].mantissa_bits - BY_DTYPE[dtype].mantissa_bits
    if drop <= 0:
        return convert(operand, dtype)
    bits = bits_of(np.ascontiguousarray(operand)).reshape(operand.shape)
    mask = bits.dtype.type((1 << drop) - 1)
    noise = random >> bits.dtype.type(BY_DTYPE[random.dtype].bits - drop)
    rounded = ((bits + noise) & ~mask).astype(bits.dtype).view(operand.dtype)
    return convert(np.where(np.isfinite(operand), rounded, operand), dtype)
