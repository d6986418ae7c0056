"""Writes loops as tasks for the thread pool: the blocks of an element-wise loop, and parallel loops.

A task has the poll function `%poll`, its argument `%host_data`, and a stack of its own. Tasks that it forks run
serially, on its own thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

from hloom.backends.cpu.codegen.blocked_loop import BlockedLoop
from hloom.backends.cpu.codegen.call_tables import from_frame
from hloom.backends.cpu.llvm.text import I32, I64, PTR, Builder, Value, constant, type_of
from hloom.backends.cpu.program.buffer_assignment import ParallelLoopMemory
from hloom.backends.cpu.program.interface import AFTER_BLOCKS, BEFORE_BLOCK, loop_site
from hloom.backends.cpu.program.program import Buffer, ParallelLoop, Step, WhileStep


@dataclass(frozen=True, slots=True)
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

    builder: Builder
    task: LoopTask | None
    tasks: dict[str, list[str]]

    def pointer(self, buffer: Buffer) -> Value:
        """Returns the address of a buffer."""

    def copy_memory(self, target: Value, source: Value, size: Value) -> None:
        """Emits a copy of `size` bytes."""

    def stack_memory(self, size: int) -> Value:
        """Allocates `size` bytes in the current function's stack frame."""

    def fill_frame(self, pointers: list[Value]) -> None:
        """Emits stores of pointers to the frame."""

    def function(self) -> AbstractContextManager[Builder]:
        """Context manager in which another function is emitted."""

    def function_head(self) -> list[str]:
        """Returns the first lines of the function that was emitted."""

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
    scalars, snapshots = blocked.scalars, []
    for scalar in scalars:
        snapshot = emitter.stack_memory(scalar.byte_size)
        emitter.copy_memory(snapshot, emitter.pointer(scalar), constant(I64, scalar.byte_size))
        snapshots.append(snapshot)
    context = [*snapshots, *map(emitter.pointer, (*scalars, *blocked.shared))]

    def write(b: Builder, captured: Sequence[Value]) -> None:
        pointers = dict(zip(blocked.shared, captured[2 * len(scalars) :], strict=True))
        for scalar, snapshot in zip(scalars, captured, strict=False):
            pointers[scalar] = emitter.stack_memory(scalar.byte_size)
            emitter.copy_memory(pointers[scalar], snapshot, constant(I64, scalar.byte_size))
        done = b.label("done")
        _leave_if_stopped(b, done)
        first = b.binary("mul", Value("%chunk", I64), constant(I64, blocked.block))
        end = b.binary("add", first, constant(I64, blocked.block))
        part = LoopPart(blocked, first, b.intrinsic("smin", end, constant(I64, blocked.size)))
        emitter.task = LoopTask(pointers, part=part)
        emitter.plain_while(step, depth=1)
        leave = b.label("leave")
        b.branch_if(b.compare("eq", Value("%chunk", I64), constant(I64, 0)), leave, done)
        b.start(leave)
        for scalar, outer in zip(scalars, captured[len(scalars) :], strict=False):
            emitter.copy_memory(outer, pointers[scalar], constant(I64, scalar.byte_size))
        b.branch(done)
        b.start(done)

    _run_task(emitter, step, context, -(-blocked.size // blocked.block), write)


# Parallel loops


def write_parallel_loop(emitter: StepWriter, step: WhileStep, memory: ParallelLoopMemory) -> None:
    """Emits a parallel loop as tasks that claim iterations from a shared counter until none is left."""
    parallel = step.parallel
    assert parallel is not None
    next_iteration = emitter.stack_memory(8)
    emitter.builder.store(constant(I64, 0), next_iteration, 8)
    slots = emitter.builder.emit(f"getelementptr i8, ptr %arena, i64 {memory.offset}", PTR)
    context = [next_iteration, slots, *map(emitter.pointer, memory.shared)]

    def write(b: Builder, captured: Sequence[Value]) -> None:
        counter, all_slots, *shared = captured
        offset = b.binary("mul", Value("%chunk", I64), constant(I64, memory.slot_bytes))
        b.line(f"%slot = getelementptr i8, {all_slots}, {offset}")
        emitter.task = LoopTask(dict(zip(memory.shared, shared, strict=True)), memory.offsets)
        begin, run, done = (b.label(hint) for hint in ("iterate", "run", "done"))
        b.branch(begin)
        b.start(begin)
        # A poll that stops the task branches to its end.
        _leave_if_stopped(b, done)
        emitter.poll(step, done)
        iteration = b.emit(f"atomicrmw add {counter}, i64 1 monotonic", I64)
        b.branch_if(b.compare("slt", iteration, constant(I64, parallel.trips)), run, done)
        b.start(run)
        b.store(_counter_value(b, iteration, parallel), emitter.pointer(parallel.counter), parallel.counter.byte_size)
        emitter.write_steps(step.body, depth=1)
        b.branch(begin)
        b.start(done)

    _run_task(emitter, step, context, parallel.tasks, write)


def _counter_value(b: Builder, iteration: Value, parallel: ParallelLoop) -> Value:
    value = b.binary("add", b.binary("mul", iteration, constant(I64, parallel.step)), constant(I64, parallel.first))
    type = type_of(f"i{parallel.counter.type.bits}")
    return value if type == I64 else b.emit(f"trunc {value} to {type}", type)


# Tasks


def _run_task(
    emitter: StepWriter,
    step: WhileStep,
    context: Sequence[Value],
    chunks: int,
    write: Callable[[Builder, Sequence[Value]], None],
) -> None:
    """Emits a task, whose body `write` emits, and the fork that runs it for each chunk.

    `context` are the values that the task captures.
    """
    b = emitter.builder
    name = f"loop{len(emitter.tasks)}.task"
    emitter.tasks[name] = []
    emitter.fill_frame([*context, Value("%poll", PTR), Value("%host_data", PTR)])
    b.line(f"call void %parallel_for(ptr %pool, ptr @{name}, ptr %frame, i64 {chunks})")
    # A task that was stopped cannot return a status, so the caller polls for it.
    return_if(
        b, b.emit(f"call i32 %poll(ptr %host_data, i64 {loop_site(step.loop_index)}, i64 {AFTER_BLOCKS}) #2", I32)
    )
    with emitter.function() as task_builder:
        captured = [from_frame(task_builder, k, "context") for k in range(len(context))]
        for k, word in enumerate(("poll", "host_data"), len(context)):
            address = task_builder.element_pointer(Value("%context", PTR), constant(I64, k), "ptr")
            task_builder.line(f"%{word} = load ptr, {address}, align 8")
        task_builder.line("%pool = getelementptr i8, ptr null, i64 0")
        task_builder.line("%parallel_for = getelementptr i8, ptr @parallel_for, i64 0")
        write(task_builder, captured)
        emitter.task = None
        emitter.tasks[name] = [
            f"define internal void @{name}(ptr %context, i64 %chunk) nounwind #0 {{\nentry:",
            *emitter.function_head(),
            *task_builder.lines,
            "  ret void\n}",
        ]


def _leave_if_stopped(b: Builder, done: str) -> None:
    """Emits a branch to `done` if another task was stopped."""
    go = b.label("go")
    stops = b.emit(f"call i32 %poll(ptr %host_data, i64 0, i64 {BEFORE_BLOCK})", I32)
    b.branch_if(b.compare("eq", stops, constant(I32, 0)), go, done)
    b.start(go)


def return_if(b: Builder, failed: Value) -> None:
    """Emits a return of 1 if a status is not 0."""
    stop, go = b.label("failed"), b.label("go")
    b.branch_if(b.compare("ne", failed, constant(I32, 0)), stop, go)
    b.start(stop)
    b.line("ret i32 1")
    b.start(go)
