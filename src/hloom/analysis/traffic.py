"""The traffic between the devices of a program: its collectives, and the bytes that each of them moves."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator

from hloom.analysis.counted_loop import trip_count
from hloom.ir import Computation, Instruction, Module, callees_first
from hloom.ops.collectives import AllGather, AllReduce, CollectivePermute
from hloom.ops.control_flow import While
from hloom.ops.replica_groups import Collective
from hloom.ops.traits import CallLike, Communication
from hloom.system.records import record

Runs = Iterable[tuple[Computation, int | None]]
"""The computations that an instruction runs, with the number of times; None if the number is unknown."""


@record
class Traffic:
    """The traffic of one collective.

    `members` is the size of its groups; `times` the number of executions, None in loops of unknown trip count. `sent`
    is the number of bytes that one device sends each time, by the algorithms that send least: a ring for all-reduce,
    all-gather and reduce-scatter; everything but the device's own block for all-to-all; the operand for permutations.
    """

    instruction: Instruction
    members: int
    times: int | None
    sent: int

    @property
    def operand_bytes(self) -> int:
        """The bytes that one device contributes each time."""
        return _operand_bytes(self.instruction)


def _operand_bytes(instruction: Instruction) -> int:
    return sum(leaf.byte_size for shape in instruction.operand_shapes for leaf in shape.leaves())


def traffic(module: Module, replicas: int | None = None) -> list[Traffic]:
    """The collectives of a program in program order, those in loops once, with the number of executions."""
    replicas = module.replica_count if replicas is None else replicas
    times = run_counts(module.entry, _runs_of)
    found = _collectives(module.entry, set())
    return [traffic_of(i, times[computation], replicas, module.num_partitions) for i, computation in found]


def run_counts(entry: Computation, runs_of: Callable[[Instruction], Runs]) -> dict[Computation, int | None]:
    """The number of times that each computation runs in one run of `entry`; None if it is unknown.

    `runs_of` returns the computations that an instruction runs, with the number of times.
    """
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
    op = instruction.op
    trips = trip_count(instruction) if isinstance(op, While) else 1
    return [(called, trips) for called in op.computations if isinstance(op, CallLike)]


def _collectives(computation: Computation, seen: set[Computation]) -> Iterator[tuple[Instruction, Computation]]:
    """Yields the collectives of a computation and of those that it runs, each once, with its computation."""
    seen.add(computation)
    for instruction in computation.instructions:
        op = instruction.op
        if isinstance(op, Communication):
            yield instruction, computation
        for called in op.computations if isinstance(op, CallLike) else ():
            if called not in seen:
                yield from _collectives(called, seen)


def traffic_of(instruction: Instruction, times: int | None, replicas: int, partitions: int) -> Traffic:
    """The traffic of one collective, on `replicas` x `partitions` devices."""
    op = instruction.op
    size = _operand_bytes(instruction)
    if isinstance(op, CollectivePermute):
        return Traffic(instruction, 2, times, size)
    assert isinstance(op, Collective)
    members = max(map(len, op.device_groups(replicas, partitions)))
    factor = 2 if isinstance(op, AllReduce) else members if isinstance(op, AllGather) else 1
    return Traffic(instruction, members, times, math.ceil(factor * size * (members - 1) / members))
