"""Costs of computing values inside their users, in additions of one element."""

from __future__ import annotations

from collections.abc import Container

from hloom.ir import Computation, Instruction
from hloom.passes.fusion.access_patterns import access_pattern, reduced_count

RECOMPUTED_COST = 12
"""Cost of an element, in additions, up to which computing it again is cheaper than storing and reading it."""
SMALL_REDUCTION = 8
"""Elements up to which a reduction is fused like an element-wise operation."""


def chain_costs(computation: Computation, fusible: Container[Instruction]) -> dict[Instruction, float]:
    """Returns the cost of one element of each fusible instruction if all its fusible producers are computed with it."""
    costs: dict[Instruction, float] = {}
    for instruction in computation.instructions:
        if instruction in fusible:
            before = sum(min(costs.get(o, 0.0), 200.0) for o in dict.fromkeys(instruction.operands))
            costs[instruction] = float(reduced_count(instruction) or instruction.op.cost) + before
    return costs


def reducing_instructions(computation: Computation, fusible: Container[Instruction]) -> set[Instruction]:
    """Returns the instructions whose kernel would contain a reduction of more than SMALL_REDUCTION elements if every
    possible fusion were made."""
    found: set[Instruction] = set()
    for instruction in computation.instructions:
        if instruction not in fusible:
            continue
        if reduced_count(instruction) > SMALL_REDUCTION or any(
            operand in found and access_pattern(instruction, operand) is not None for operand in instruction.operands
        ):
            found.add(instruction)
    return found
