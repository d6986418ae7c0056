"""Predicts a step of a program on a cluster: the time of its parts, their traffic, and the memory of a device.

The program is the one that the CPU backend's passes produce. Each instruction takes the time of its arithmetic or of
its memory accesses, whichever is longer; loops of unknown trip count run once, of branches the longest is taken.
Nothing overlaps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from hloom.analysis.counted_loop import trip_count
from hloom.analysis.flops import bytes_of, count_flops_of
from hloom.analysis.traffic import run_counts, traffic_of
from hloom.backends.cpu.llvm.processor import processor
from hloom.backends.cpu.pipeline import Topology, cpu_pipeline
from hloom.backends.cpu.program.buffer_assignment import assign_buffers
from hloom.backends.cpu.program.build_program import build_program
from hloom.ir import Computation, Instruction, Module, callees_first
from hloom.ops.collectives import CollectivePermute
from hloom.ops.control_flow import Call, Conditional, While
from hloom.ops.replica_groups import Collective
from hloom.ops.traits import Communication, ControlFlow, NoWork
from hloom.passes import clone_module, run_passes
from hloom.scaling.cluster import Cluster
from hloom.scaling.collective_times import Estimate, estimate
from hloom.system.records import record
from hloom.target import Target


@record
class Part:
    """An instruction of a step; `seconds` and `sent` (bytes) are totals over all `times` that it runs."""

    instruction: Instruction
    times: int
    seconds: float
    sent: int
    algorithm: str
    """The algorithm of a collective; the limiting resource of a computation."""

    def repeated(self, times: int) -> Part:
        """The part for a number of executions, from that for one."""
        return replace(self, times=times, seconds=times * self.seconds, sent=times * self.sent)

    @property
    def is_collective(self) -> bool:
        """Whether the instruction communicates."""
        return isinstance(self.instruction.op, Communication)


@record
class Prediction:
    """The cost of a step per device: its parts, the longest first, and its peak memory in bytes."""

    parts: list[Part]
    peak_bytes: int
    has_unknown_loops: bool

    @property
    def seconds(self) -> float:
        """The time of the step."""
        return sum(part.seconds for part in self.parts)

    def seconds_of(self, *, collectives: bool) -> float:
        """The time of the collectives, or of all other parts."""
        return sum(part.seconds for part in self.parts if part.is_collective is collectives)


@record
class _Run:
    """The devices that run a step."""

    replicas: int
    partitions: int
    cluster: Cluster


def predict(module: Module, replicas: int, cluster: Cluster) -> Prediction:
    """Predicts the cost of a module, the program of one device, on `replicas` times its number of partitions."""
    optimized = clone_module(module)
    run_passes(optimized, cpu_pipeline(Topology.RANKS))
    run = _Run(replicas, module.num_partitions, cluster)
    found = list(_parts(optimized.entry, run))
    program = build_program(optimized, Target(processor().vector_bytes, threads=1))
    assignment = assign_buffers(program, donate=True)
    entry_bytes = sum(b.byte_size for kind in ("parameter", "output", "constant") for b in program.of_kind(kind))
    donated_bytes = sum(program.of_kind("output")[index].byte_size for index in assignment.donated)
    loops = [i for i in optimized.instructions() if isinstance(i.op, While)]
    return Prediction(
        sorted(found, key=lambda part: -part.seconds),
        entry_bytes - donated_bytes + assignment.arena_bytes,
        any(trip_count(loop) is None for loop in loops),
    )


def _parts(entry: Computation, run: _Run) -> Iterator[Part]:
    """Yields the parts of a step, each with the number of its executions."""
    order = callees_first(entry)
    parts: dict[Computation, list[Part]] = {}
    seconds: dict[Computation, float] = {}
    for computation in order:
        parts[computation] = [part for i in computation.instructions if (part := _part(i, run))]
        inside = (each for i in computation.instructions for each in _called(i, seconds, run))
        seconds[computation] = sum(part.seconds for part in parts[computation])
        seconds[computation] += sum(count * seconds[called] for called, count in inside)
    times = run_counts(entry, lambda instruction: _called(instruction, seconds, run))
    for computation in reversed(order):
        if count := times.get(computation):
            yield from (part.repeated(count) for part in parts[computation])


def _called(instruction: Instruction, seconds: dict[Computation, float], run: _Run) -> list[tuple[Computation, int]]:
    """The computations that an instruction runs, with the number of times."""
    match op := instruction.op:
        case While():
            return [(computation, trip_count(instruction) or 1) for computation in op.computations]
        case Conditional():
            return [(max(op.branch_computations, key=lambda branch: seconds[branch]), 1)]
        case Call():
            return [(op.computation, 1)]
    return []


def _part(instruction: Instruction, run: _Run) -> Part | None:
    op = instruction.op
    if isinstance(op, (Collective, CollectivePermute)):
        return _collective(op, instruction, run)
    if isinstance(op, (NoWork, ControlFlow)):
        return None
    return _computation(instruction, run.cluster)


def _collective(op: Collective | CollectivePermute, instruction: Instruction, run: _Run) -> Part:
    """The part of a collective, which takes as long as the slowest of its groups."""
    moved = traffic_of(instruction, 1, run.replicas, run.partitions)
    groups = op.device_groups(run.replicas, run.partitions)
    if isinstance(op, CollectivePermute):
        groups = [[group[k] for k in pair] for group in groups for pair in op.source_target_pairs]
        groups = [group for group in groups if group[0] != group[1]]
    estimates = [estimate(type(op), moved.operand_bytes, group, run.cluster) for group in groups]
    slowest = max(estimates, key=lambda each: each.seconds, default=Estimate(0.0, "alone"))
    return Part(instruction, 1, slowest.seconds, moved.sent, slowest.algorithm)


def _computation(instruction: Instruction, cluster: Cluster) -> Part:
    working = (count_flops_of(instruction) or 0) / cluster.flops
    moving = bytes_of(instruction) / cluster.memory_rate
    limit = "arithmetic" if working > moving else "memory"
    return Part(instruction, 1, max(working, moving), 0, limit)
