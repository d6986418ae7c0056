"""What the devices of a program send to each other: the collectives, and the bytes that each moves."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from hloom.counted_loop import trip_count
from hloom.ir import Computation, Instruction, Module, callees_first
from hloom.ops.collectives import Collective, CollectivePermute

Runs = Iterable[tuple[Computation, int | None]]
"""Computations that an instruction runs, and how often each time."""


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

    @property
    def operand_bytes(self) -> int:
        """What one device gives each time."""
        return _operand_bytes(self.instruction)


def _operand_bytes(instruction: Instruction) -> int:
    return sum(leaf.byte_size for shape in instruction.operand_shapes for leaf in shape.leaves())


def traffic(module: Module, replicas: int | None = None) -> list[Traffic]:
    """The collectives of a program in the order in which they stand; of loops each once, with how often they run."""
    replicas = module.replica_count if replicas is None else replicas
    times = run_counts(module.entry, _runs_of)
    found = _collectives(module.entry, set())
    return [traffic_of(i, times[computation], replicas, module.num_partitions) for i, computation in found]


_RUNNING = ("call", "conditional", "fusion", "while", "async-start")
"""What runs the computations that it names as they are."""


def run_counts(entry: Computation, runs_of: Callable[[Instruction], Runs]) -> dict[Computation, int | None]:
    """How often each computation runs in one run of `entry`, by what each instruction runs; None where nobody knows."""
    found: dict[Computation, int | None] = {entry: 1}
    for computation in reversed(callees_first(entry)):
        times = found.get(computation, 0)
        for instruction in computation.instructions if times != 0 else ():
            for called, trips in runs_of(instruction):
                inner = None if times is None or trips is None else times * trips
                before = found.get(called, 0)
                found[called] = None if inner is None or before is None else before + inner
    return found


def _runs_of(instruction: Instruction) -> Runs:
    trips = trip_count(instruction) if instruction.opcode == "while" else 1
    return [(called, trips) for called in instruction.op.computations if instruction.opcode in _RUNNING]


def _collectives(computation: Computation, seen: set[Computation]) -> Iterator[tuple[Instruction, Computation]]:
    """Those of a computation and of what it runs, each once, in the order in which they stand; and where they do."""
    seen.add(computation)
    for instruction in computation.instructions:
        if isinstance(instruction.op, (Collective, CollectivePermute)):
            yield instruction, computation
        for called in instruction.op.computations if instruction.opcode in _RUNNING else ():
            if called not in seen:
                yield from _collectives(called, seen)


def traffic_of(instruction: Instruction, times: int | None, replicas: int, partitions: int) -> Traffic:
    """What one collective sends, on so many replicas of so many partitions."""
    op = instruction.op
    size = _operand_bytes(instruction)
    if isinstance(op, CollectivePermute):
        return Traffic(instruction, 2, times, size)
    assert isinstance(op, Collective)
    members = max(map(len, op.device_groups(replicas, partitions)))
    parts = {"all-reduce": 2, "all-reduce-start": 2, "all-gather": members, "all-gather-start": members}
    factor = parts.get(instruction.opcode, 1)
    return Traffic(instruction, members, times, math.ceil(factor * size * (members - 1) / members))
