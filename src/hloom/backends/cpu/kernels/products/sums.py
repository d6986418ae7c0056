"""Long sums of products: K is cut into blocks, and no chain of additions is long, so that errors stay small (GEN-13).

A block is summed from zero in registers, and its sums are added to those of the blocks before it. Of very many blocks
some are added up as a group, and the sums of groups to totals. Where errors are random, a chain of n additions errs by
about sqrt(n), and of several chains side by side errors cancel: with blocks of 7 sqrt(K) the sum errs by about as much
for every K. Integers wrap around and need none of this.
"""

from __future__ import annotations

import math

from hloom.backends.cpu.llvm.function import Function
from hloom.backends.cpu.llvm.text import Index, Type, Value, constant

MAX_STEPS = 512  # of a block
MIN_STEPS = 64  # of a block: fewer would be stored and added again more often than errors ask for
MIN_GROUP_BLOCKS = 16  # at least


def block_length(steps: int, depth: int, parts: int = 1) -> int:
    """How many of `steps` that are worked on together are summed from zero, where `depth` is all of K; `parts` times
    fewer where that costs nothing, or terms take several steps."""
    blocks = parts * max(math.isqrt(depth) // 7, math.ceil(depth / MAX_STEPS))
    return max(min(steps, MIN_STEPS), math.ceil(steps / max(1, round(steps * blocks / depth))))


def group_length(depth: int) -> int:
    """How many steps of K have their blocks added up in one chain."""
    return MAX_STEPS * chain_length(depth // MAX_STEPS, MIN_GROUP_BLOCKS)


def chain_length(count: int, minimum: int) -> int:
    """How many of `count` sums to add in one chain: `minimum`, or, of very many, about as many as there are chains."""
    return max(minimum, math.isqrt(count))


def move_sums(f: Function, type: Type, sums: Value, totals: Value, count: Index) -> None:
    """Adds sums of a block of K to the totals, in vectors of the type, and leaves zeros in their place."""
    with f.loop(count, type.width) as loop:
        source, target = f.at(sums, loop.index, type.element), f.at(totals, loop.index, type.element)
        f.store(f.binary(addition(type), f.load(target, type, 64), f.load(source, type, 64)), target, 64)
        f.store(constant(type, 0), source, 64)


def addition(type: Type) -> str:
    """LLVM's instruction that adds values of a type."""
    return "fadd" if type.is_float else "add"


def sums_of_group(
    f: Function, type: Type, sums: Value, totals: Value, count: int, is_first: Value, is_last: Value
) -> Value:
    """Where the sums of the next block are added, of `count` sums and as many totals.

    Before the first block of a group the sums of the group before come to the totals. The last block of all is added
    to the totals themselves.
    """
    with f.when(f.binary("or", is_first, is_last)):
        move_sums(f, type, sums, totals, count)
    return f.select(is_last, totals, sums)


def multiplication(type: Type) -> str:
    return "fmul" if type.is_float else "mul"
