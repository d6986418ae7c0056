"""Products whose factors are taken out of the sums, and which are computed again where results are not finite.

Elements times a factor may be summed without it, and the sum multiplied, with fewer instructions and roundings. This
differs from sums of the products only where a sum without the factor overflows, and where factors are infinite, NaN, or
so large that products with elements overflow. Results are then not finite, and the product is computed again as it is
written.
"""

from __future__ import annotations

from dataclasses import replace

from hloom.backends.cpu.elements.small_values import SmallInteger
from hloom.backends.cpu.kernels.code import KernelCode, call_code
from hloom.backends.cpu.kernels.kernel_function import KernelFunction, shared_function
from hloom.backends.cpu.kernels.products.product import MatmulSpec
from hloom.backends.cpu.kernels.scaled_floats import ScaledFloats
from hloom.lir import I64, PTR, Attribute, Function, Type, Value, constant, type_of
from hloom.system.records import record
from hloom.target import Target
from hloom.types import PrimitiveType

SAMPLE = 1 << 8
"""Zero points that are looked at before."""
MIN_TERMS = 1 << 8
"""Terms of a sum beside which looking at the result takes no time."""


@record
class Sample:
    """An array of f32 with some elements, which the fast code needs to be small integers."""

    array: Value
    elements: int
    op: SmallInteger

    def holds(self, f: KernelFunction) -> Value:
        """Whether some of the numbers are."""
        with f.loop(self.elements, self.elements // SAMPLE | 1, carried=[constant(type_of("i1"), True)]) as loop:
            number = f.load(f.at(self.array, loop.index, "float"), type_of("float"), 4)
            loop.carried = [f.binary("and", loop.carried[0], self.op.holds(f, number))]
        return loop.carried[0]


def can_be_repeated(spec: MatmulSpec, target: Target) -> bool:
    """Whether a product may be computed again: rows of a batch-invariant one must not depend on other rows."""
    return spec.k >= MIN_TERMS and spec.out_type is PrimitiveType.F32 and not target.batch_invariant


def repeated_if_infinite(
    f: KernelFunction,
    fast: KernelCode,
    exact: KernelCode,
    out: Value,
    spec: MatmulSpec,
    sample: Sample | None = None,
) -> KernelCode:
    """Completes the entry `f`, which calls the fast code, and the exact one if a result is not finite. The fast code is
    that of a sample of integers if one is given.
    """
    found = f.slot(I64, 1)
    f.pack(f.index(1), context=found)
    with f.when(None if sample is None else sample.holds(f)):
        call_code(f, fast)
        look = _look(type_of("float", f.register_bytes // 4))
        f.call_function(look, out, f.index(spec.batch * spec.m * spec.n), found)
    (is_infinite,) = f.unpack(found, I64)
    with f.when(f.convert("trunc", is_infinite, "i1")):
        call_code(f, exact)
    for function in exact.functions:
        function.attributes |= {Attribute.CALL_ONLY}  # rarely runs, so that LLVM need not optimise it
    functions = *fast.functions, *exact.functions, f.finish()
    return replace(
        fast, functions=functions, scratch_bytes=max(fast.scratch_bytes, exact.scratch_bytes), entry=f.function.name
    )


def _look(type: Type) -> Function:
    """Returns the function that finds whether numbers in an array are infinite or NaN."""
    floats = ScaledFloats(type)

    def write(f: KernelFunction) -> None:
        found = floats.look(f, f["array"], f["elements"], f.index(type.width))
        is_infinite = f.compare("ugt", found.exponent, f.index(2 * floats.bias))
        f.pack(f.convert("zext", is_infinite, "i64"), context=f["found"])

    return shared_function(f"repeated.look.{type.suffix}", write, array=PTR, elements=I64, found=PTR)
