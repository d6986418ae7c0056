"""Writes loops as tasks for the thread pool: the blocks of an element-wise loop, and parallel loops.

A task captures the poll function and its argument, and has a stack of its own. Tasks that it forks run serially, on its
own thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

from hloom.backends.cpu.codegen.blocked_loop import BlockedLoop
from hloom.backends.cpu.codegen.polls import call_poll
from hloom.backends.cpu.codegen.step_function import StepFunction
from hloom.backends.cpu.kernels.kernel_function import PARALLEL_FOR, task_function
from hloom.backends.cpu.program.buffer_assignment import ParallelLoopMemory
from hloom.backends.cpu.program.interface import AFTER_BLOCKS, BEFORE_BLOCK, loop_site
from hloom.backends.cpu.program.program import Buffer, ParallelLoop, Step, WhileStep
from hloom.lir import (
    I32,
    I64,
    PTR,
    Function,
    FunctionBuilder,
    Value,
    constant,
    type_of,
)
from hloom.system.records import record


@record(slots=True)
class LoopPart:
    """Elements first <= i < last of a blocked loop."""

    loop: BlockedLoop
    first: Value
    last: Value


@dataclass(slots=True)
class LoopTask:
    """Memory of the task that is being emitted: known pointers, and offsets in its private slot."""

    pointers: dict[Buffer, Value]
    offsets: Mapping[Buffer, int] = field(default_factory=dict)
    part: LoopPart | None = None


class StepWriter(Protocol):
    """Interface of `step_emitter.py` that emits the steps of loops."""

    current: StepFunction
    task: LoopTask | None
    tasks: dict[str, Function]

    def pointer(self, buffer: Buffer) -> Value:
        """Returns the address of a buffer."""

    def copy_memory(self, target: Value, source: Value, size: Value) -> None:
        """Emits a copy of `size` bytes."""

    def function(self, builder: FunctionBuilder) -> AbstractContextManager[FunctionBuilder]:
        """Context manager in which another function is emitted."""

    def write_steps(self, steps: Sequence[Step], depth: int) -> None:
        """Emits steps; `depth` is the number of enclosing loops."""

    def plain_while(self, step: WhileStep, depth: int) -> None:
        """Emits a serial loop."""

    def poll(self, step: WhileStep, done: str) -> None:
        """Emits a poll of the host, which may branch to `done`."""


# Blocks


def write_blocked_loop(emitter: StepWriter, step: WhileStep, blocked: BlockedLoop) -> None:
    """Emits a blocked loop as a task for each block.

    Each task copies the scalars as they were before the loop; the task of block 0 copies the final values back.
    """
    scalars = blocked.scalars
    snapshots = _copied(emitter, scalars, map(emitter.pointer, scalars))
    context = [*snapshots, *map(emitter.pointer, (*scalars, *blocked.shared))]

    def write(b: FunctionBuilder, captured: Sequence[Value]) -> None:
        pointers = dict(zip(blocked.shared, captured[2 * len(scalars) :], strict=True))
        pointers |= zip(scalars, _copied(emitter, scalars, captured), strict=True)
        done = b.label("done")
        _leave_if_stopped(emitter, done)
        chunk = emitter.current.values["chunk"]
        first = b.binary("mul", chunk, constant(I64, blocked.block))
        end = b.binary("add", first, constant(I64, blocked.block))
        part = LoopPart(blocked, first, b.intrinsic("smin", end, constant(I64, blocked.size)))
        emitter.task = LoopTask(pointers, part=part)
        emitter.plain_while(step, depth=1)
        leave = b.label("leave")
        b.branch_if(b.compare("eq", chunk, constant(I64, 0)), leave, done)
        b.start(leave)
        for scalar, outer in zip(scalars, captured[len(scalars) :], strict=False):
            emitter.copy_memory(outer, pointers[scalar], constant(I64, scalar.byte_size))
        b.branch(done)
        b.start(done)

    _run_task(emitter, step, context, -(-blocked.size // blocked.block), write)


def _copied(emitter: StepWriter, scalars: Sequence[Buffer], sources: Iterable[Value]) -> list[Value]:
    """Copies scalars from their addresses to stack memory of the current function; returns the new addresses."""
    copies = []
    for scalar, source in zip(scalars, sources, strict=False):
        copies.append(emitter.current.stack_memory(scalar.byte_size))
        emitter.copy_memory(copies[-1], source, constant(I64, scalar.byte_size))
    return copies


# Parallel loops


def write_parallel_loop(emitter: StepWriter, step: WhileStep, memory: ParallelLoopMemory) -> None:
    """Emits a parallel loop as tasks that claim iterations from a shared counter until none is left."""
    parallel = step.parallel
    assert parallel is not None
    next_iteration = emitter.current.stack_memory(8)
    emitter.current.builder.store(constant(I64, 0), next_iteration, 8)
    slots = emitter.current.builder.element_pointer(emitter.current.value("arena"), constant(I64, memory.offset), "i8")
    context = [next_iteration, slots, *map(emitter.pointer, memory.shared)]

    def write(b: FunctionBuilder, captured: Sequence[Value]) -> None:
        counter, all_slots, *shared = captured
        offset = b.binary("mul", emitter.current.values["chunk"], constant(I64, memory.slot_bytes))
        emitter.current.values["slot"] = b.element_pointer(all_slots, offset, "i8")
        emitter.task = LoopTask(dict(zip(memory.shared, shared, strict=True)), memory.offsets)
        begin, run, done = (b.label(hint) for hint in ("iterate", "run", "done"))
        b.branch(begin)
        b.start(begin)
        # A poll that stops the task branches to its end.
        _leave_if_stopped(emitter, done)
        emitter.poll(step, done)
        iteration = b.atomic_update("add", counter, constant(I64, 1))
        b.branch_if(b.compare("slt", iteration, constant(I64, parallel.trips)), run, done)
        b.start(run)
        b.store(_counter_value(b, iteration, parallel), emitter.pointer(parallel.counter), parallel.counter.byte_size)
        emitter.write_steps(step.body, depth=1)
        b.branch(begin)
        b.start(done)

    _run_task(emitter, step, context, parallel.tasks, write)


def _counter_value(b: FunctionBuilder, iteration: Value, parallel: ParallelLoop) -> Value:
    value = b.binary("add", b.binary("mul", iteration, constant(I64, parallel.step)), constant(I64, parallel.first))
    type = type_of(f"i{parallel.counter.type.bits}")
    return value if type == I64 else b.convert("trunc", value, type.element)


# Tasks


def _run_task(
    emitter: StepWriter,
    step: WhileStep,
    context: Sequence[Value],
    chunks: int,
    write: Callable[[FunctionBuilder, Sequence[Value]], None],
) -> None:
    """Emits a task, whose body `write` emits, and the fork that runs it for each chunk.

    `context` are the values that the task captures.
    """
    b = emitter.current.builder
    captured = [*context, emitter.current.value("poll"), emitter.current.value("host_data")]
    task = task_function(f"loop{len(emitter.tasks)}.task")
    emitter.tasks[task.function.name] = task.function
    fork = emitter.current.value("pool"), emitter.current.value("parallel_for")
    b.run_chunks(task.function.name, emitter.current.frame(captured), chunks, fork)
    # A task that was stopped cannot return a status, so the caller polls for it.
    return_if(b, call_poll(emitter.current, loop_site(step.loop_index), AFTER_BLOCKS))
    with emitter.function(task):
        memory, emitter.current.values["chunk"] = task.function.parameters
        *values, poll, host_data = task.unpack(memory, *(value.type for value in captured))
        emitter.current.values |= {"poll": poll, "host_data": host_data, "pool": constant(PTR, 0)}
        emitter.current.values["parallel_for"] = task.address_of(PARALLEL_FOR)
        write(task, values)
        emitter.task = None
        task.finish()


def _leave_if_stopped(emitter: StepWriter, done: str) -> None:
    """Emits a branch to `done` if another task was stopped."""
    b = emitter.current.builder
    go = b.label("go")
    b.branch_if(b.compare("eq", call_poll(emitter.current, 0, BEFORE_BLOCK), constant(I32, 0)), go, done)
    b.start(go)


def return_if(b: FunctionBuilder, failed: Value) -> None:
    """Emits a return of 1 if a status is not 0."""
    with b.when(b.compare("ne", failed, constant(I32, 0))):
        b.ret(constant(I32, 1))
