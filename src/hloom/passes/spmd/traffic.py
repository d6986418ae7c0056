"""What the devices of a program send to each other: the collectives, and the bytes that each moves."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from hloom.ir import Computation, Instruction, Module
from hloom.ops.collectives import Collective, CollectivePermute
from hloom.passes.control_flow.while_loops import trip_count


@dataclass(frozen=True)
class Traffic:
    """One collective: how many devices take part in a group, how often it runs, and what one device sends each time.

    `times` is None in loops whose rounds nobody knows. `sent` are bytes by the algorithms that send least: a ring for
    all-reduce, all-gather and reduce-scatter; what is not a device's own for all-to-all; the operand for permutations.
    """

    instruction: Instruction
    members: int
    times: int | None
    sent: int


def traffic(module: Module, replicas: int | None = None) -> list[Traffic]:
    """The collectives of a program in the order in which they stand; of loops each once, with how often they run."""
    replicas = module.replica_count if replicas is None else replicas
    found = _collectives(module.entry, 1)
    return [traffic_of(instruction, times, replicas, module.num_partitions) for instruction, times in found]


def _collectives(computation: Computation, times: int | None) -> Iterator[tuple[Instruction, int | None]]:
    for instruction in computation.instructions:
        if isinstance(instruction.op, (Collective, CollectivePermute)):
            yield instruction, times
        elif instruction.opcode in ("call", "conditional", "fusion", "while", "async-start"):
            rounds = trip_count(instruction) if instruction.opcode == "while" else 1
            inner = None if times is None or rounds is None else times * rounds
            for called in instruction.op.computations:
                yield from _collectives(called, inner)


def traffic_of(instruction: Instruction, times: int | None, replicas: int, partitions: int) -> Traffic:
    """What one collective sends, on so many replicas of so many partitions."""
    op = instruction.op
    size = sum(leaf.byte_size for operand in instruction.operands for leaf in operand.shape.leaves())
    if isinstance(op, CollectivePermute):
        return Traffic(instruction, 2, times, size)
    assert isinstance(op, Collective)
    members = max(map(len, op.device_groups(replicas, partitions)))
    parts = {"all-reduce": 2, "all-reduce-start": 2, "all-gather": members, "all-gather-start": members}
    factor = parts.get(instruction.opcode, 1)
    return Traffic(instruction, members, times, math.ceil(factor * size * (members - 1) / members))
