"""Costs of computing values inside their users, in additions of one element."""

from __future__ import annotations

import math
from collections.abc import Container

from hloom.ir import Computation, Instruction
from hloom.ops.broadcast import Broadcast
from hloom.ops.reduce import Reduce
from hloom.passes.fusion.access_patterns import access_pattern, reduced_count
from hloom.target import L2_BYTES

RECOMPUTED_COST = 12
"""Cost of an element, in additions, up to which computing it again is cheaper than storing and reading it."""
PAIR_COST, WIDE_PAIR_COST = 8 * RECOMPUTED_COST, 4 * RECOMPUTED_COST
"""Costs up to which values of pairs are computed again, since their arrays leave the caches of a core; the second is
for f64, whose divisions and roots take twice as long beside other operations."""
MIN_PAIR_BYTES = 2 * L2_BYTES
"""Size of the smallest array of values of pairs."""
MIN_PAIRS = 64
"""Elements of an array of values of pairs for each element of any array that they are computed from."""
MAX_PAIR_SUM = 3
"""Elements of sums inside values of pairs: longer ones are added up in another order where loops differ."""
SMALL_REDUCTION = 8
"""Elements up to which a reduction is fused like an element-wise operation."""


def chain_costs(computation: Computation, fusible: Container[Instruction]) -> dict[Instruction, float]:
    """Returns the cost of one element of each fusible instruction if all its fusible producers are computed with it."""
    costs: dict[Instruction, float] = {}
    for instruction in computation.instructions:
        if instruction in fusible:
            before = sum([min(costs[o], 200.0) for o in dict.fromkeys(instruction.operands) if o in costs])
            costs[instruction] = float(reduced_count(instruction) or instruction.op.cost) + before
    return costs


def reducing_instructions(
    computation: Computation, fusible: Container[Instruction], apart: Container[Instruction]
) -> set[Instruction]:
    """Returns the instructions whose kernel would contain a reduction of more than SMALL_REDUCTION elements if every
    possible fusion were made, but for those of operands of instructions `apart`."""
    found: set[Instruction] = set()
    for instruction in computation.instructions:
        if instruction not in fusible or instruction in apart:
            continue
        if reduced_count(instruction) > SMALL_REDUCTION or any(
            operand in found and access_pattern(instruction, operand) is not None for operand in instruction.operands
        ):
            found.add(instruction)
    return found


def pair_values(computation: Computation, fusible: Container[Instruction]) -> set[Instruction]:
    """Returns the large arrays that are computed from much smaller ones, such as functions of all pairs of points.

    They have the same bits wherever they are computed, since they contain no long sums.
    """
    if not any(i.shape.is_array and i.shape.byte_size >= MIN_PAIR_BYTES for i in computation.instructions):
        return set()
    read: dict[Instruction, float] = {}
    for instruction in computation.instructions:
        if instruction in fusible:
            sizes = [
                read[o] if o in read else float(o.shape.element_count) for o in instruction.operands if o.shape.is_array
            ]
            is_long = reduced_count(instruction) > MAX_PAIR_SUM and instruction.shape.byte_size >= MIN_PAIR_BYTES
            read[instruction] = math.inf if is_long else max(sizes, default=0.0)
    return {
        i
        for i, most in read.items()
        if i.shape.is_array and MIN_PAIRS * most <= i.shape.element_count and i.shape.byte_size >= MIN_PAIR_BYTES
    }


def repeats_pairs(instruction: Instruction, fusible: Container[Instruction], count: float) -> bool:
    """Whether it pays to compute values of pairs `count` times instead of storing them."""
    limit = WIDE_PAIR_COST if instruction.shape.element_type.bits >= 64 else PAIR_COST
    return total_cost(instruction, fusible) * (count - 1.0) <= limit


def total_cost(instruction: Instruction, fusible: Container[Instruction]) -> float:
    """Returns the cost of one element of an instruction with all its fusible producers, each of which counts once."""
    found, stack, total = {instruction}, [instruction], 0.0
    while stack:
        member = stack.pop()
        total += (reduced_count(member) or member.op.cost) * next(member.shape.leaves()).element_count
        new = [operand for operand in dict.fromkeys(member.operands) if operand in fusible and operand not in found]
        found.update(new)
        stack += new
    return total / max(1, next(instruction.shape.leaves()).element_count)


def reduced_apart(pairs: set[Instruction]) -> set[Instruction]:
    """Returns the broadcasts among values of pairs that are reduced in another access pattern than any broadcast has.

    Reductions that these broadcasts repeat are stored, since they are much smaller than the values of pairs.
    """
    stack = [
        operand
        for operand in pairs
        if any(isinstance(user.op, Reduce) and access_pattern(user, operand) is None for user in operand.users)
    ]
    found = set(stack)
    while stack:
        new = pairs.intersection(stack.pop().operands) - found
        found |= new
        stack += new
    return {instruction for instruction in found if isinstance(instruction.op, Broadcast)}
