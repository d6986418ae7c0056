"""Blocked sums of products: K is split into blocks, and no chain of additions is long, so that errors stay small
(GEN-13).

A block is summed from zero in registers, and its sums are added to those of the preceding blocks. If there are very
many blocks, they are added in groups, and the sums of groups to totals. If errors are random, a chain of n additions
errs by about sqrt(n), and errors of several parallel chains cancel: with blocks of 7 sqrt(K) the sum errs by about as
much for every K. Integers wrap around and need none of this.
"""

from __future__ import annotations

import math

from hloom.backends.cpu.kernels.kernel_function import KernelFunction
from hloom.lir import IndexValue, Type, Value, constant, type_of
from hloom.types import PrimitiveType

MAX_STEPS = 512  # of a block
MIN_STEPS = 64  # of a block: shorter ones would be stored and added more often than accuracy requires
MIN_GROUP_BLOCKS = 16


def accumulator(lhs: PrimitiveType, rhs: PrimitiveType, out: PrimitiveType) -> Type:
    """Returns the type of the sums. Raises ValueError if there is no code for the element types."""
    types = (lhs, rhs, out)
    real = [type.real for type in types]
    is_one_kind = len({(type.is_integer, type.is_complex) for type in types}) == 1
    if not is_one_kind or not all(map(_is_supported, real)):
        raise ValueError(f"no matrix product of {types[0]} and {types[1]} to {types[2]}")
    if out.is_integer:
        return type_of("i64" if out.bits == 64 else "i32")
    if PrimitiveType.F64 not in real:
        return type_of("float")
    if real[2].bits == 16:
        raise ValueError(f"a product of f64 would be rounded twice to {types[2]}")
    return type_of("double")


def can_multiply(lhs: PrimitiveType, rhs: PrimitiveType, out: PrimitiveType) -> bool:
    """Whether there is native code for products of these element types."""
    try:
        accumulator(lhs, rhs, out)
    except ValueError:
        return False
    return True


def _is_supported(type: PrimitiveType) -> bool:
    """Whether products of real numbers of a type have code."""
    return (type.is_integer and type.bits >= 8) or (type.is_float and type.bits >= 16)


def block_length(steps: int, depth: int, parts: int = 1) -> int:
    """Returns the number of steps to sum from zero, of `steps` that are computed together and `depth` in all.

    It is `parts` times smaller if that costs nothing, or if terms take several steps.
    """
    blocks = parts * max(math.isqrt(depth) // 7, math.ceil(depth / MAX_STEPS))
    return max(min(steps, MIN_STEPS), math.ceil(steps / max(1, round(steps * blocks / depth))))


def group_length(depth: int) -> int:
    """Returns the number of steps of K whose blocks are added in one chain."""
    return MAX_STEPS * chain_length(depth // MAX_STEPS, MIN_GROUP_BLOCKS)


def chain_length(count: int, minimum: int) -> int:
    """Returns how many of `count` sums to add in one chain: `minimum`, or of very many, about as many as there are
    chains.
    """
    return max(minimum, math.isqrt(count))


def move_sums(f: KernelFunction, type: Type, sums: Value, totals: Value, count: IndexValue) -> None:
    """Adds the sums of a block of K to the totals, in vectors of the type, and sets the sums to zero."""
    with f.loop(count, type.width) as loop:
        source, target = f.at(sums, loop.index, type.element), f.at(totals, loop.index, type.element)
        f.store(f.binary(addition(type), f.load(target, type, 64), f.load(source, type, 64)), target, 64)
        f.store(constant(type, 0), source, 64)


def addition(type: Type) -> str:
    """Returns the opcode of LLVM's addition for a type."""
    return "fadd" if type.is_float else "add"


def sums_of_group(
    f: KernelFunction, type: Type, sums: Value, totals: Value, count: int, is_first: Value, is_last: Value
) -> Value:
    """Returns the address to which the next block adds its sums: the totals for the last block, else the sums.

    Before the first block of a group, the sums of the preceding group are added to the totals. There are `count` sums
    and as many totals.
    """
    with f.when(f.binary("or", is_first, is_last)):
        move_sums(f, type, sums, totals, count)
    return f.select(is_last, totals, sums)


def multiplication(type: Type) -> str:
    """Returns the opcode of LLVM's multiplication for a type."""
    return "fmul" if type.is_float else "mul"


def add_pairwise(f: KernelFunction, total: Value, *sums: Value) -> Value:
    """Adds sums to a total, after adding them in pairs."""
    add, rest = addition(total.type), [*sums]
    while len(rest) > 1:
        even = len(rest) // 2 * 2
        rest = [f.binary(add, a, b) for a, b in zip(rest[:even:2], rest[1:even:2], strict=True)] + rest[even:]
    return f.binary(add, total, rest[0])
