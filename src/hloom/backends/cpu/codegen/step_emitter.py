"""Emits steps into the current function: kernels, copies, loops, branches, calls."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

from hloom.backends.cpu.codegen.blocked_loop import blocked_loop, is_blocked_step
from hloom.backends.cpu.codegen.call_tables import (
    COPY,
    MIN_CALLS,
    THREADS,
    TableAddress,
    TableCall,
    kernel_arguments,
    table_of,
)
from hloom.backends.cpu.codegen.loop_tasks import (
    LoopPart,
    LoopTask,
    return_if,
    write_blocked_loop,
    write_parallel_loop,
)
from hloom.backends.cpu.codegen.nest_functions import NestFunctions
from hloom.backends.cpu.codegen.step_timer import StepTimer, is_timed
from hloom.backends.cpu.llvm.text import I8, I32, I64, PTR, Builder, Value, constant
from hloom.backends.cpu.program.buffer_assignment import Assignment
from hloom.backends.cpu.program.interface import (
    CLOCK,
    IN_BLOCK,
    IN_LOOP,
    POLL_CYCLES,
    REQUEST_MASK,
    REQUEST_WORD,
    TABLE,
    loop_site,
    table_starts,
)
from hloom.backends.cpu.program.program import (
    Buffer,
    CallStep,
    CodeStep,
    ConditionalStep,
    CopyStep,
    HostStep,
    KernelStep,
    Program,
    Step,
    WaitStep,
    WhileStep,
)
from hloom.loops.expressions import Constant
from hloom.loops.nest import Kernel, Nest, invariant_select, nest_cost

INLINED_LINES = 200
"""Maximum length in lines of a single-threaded function that is inlined into the loop that calls it."""
INLINED_COST = 2048
"""Maximum work of an inlined function in element additions; otherwise the cost of a call is negligible."""
INLINED_CALLS = 64
"""Maximum number of calls that inline one function."""
POLL_COST = 8192
"""Work in element additions after which a loop reads the clock, some microseconds."""

POLL_HEAD = [
    "  %poll.ticks = alloca i32, align 4",
    "  %poll.last = alloca i64, align 8",
    "  store i32 0, ptr %poll.ticks, align 4",
    f"  %poll.first = call i64 @{CLOCK}()",
    "  store i64 %poll.first, ptr %poll.last, align 8",
]
"""Prologue of a function with polling loops: a counter of iterations, and the clock at the last poll."""


class StepEmitter:
    """Emitter of the current function, and of the functions that its steps call: nests, kernels and tasks."""

    def __init__(
        self,
        program: Program,
        assignment: Assignment,
        vector_bytes: int,
        timer: StepTimer | None = None,
        has_locations: bool = False,
    ) -> None:
        self.program = program
        self.timer = timer
        self.assignment = assignment
        self.table_starts = table_starts(program)
        self.builder = Builder()
        self.functions = NestFunctions(vector_bytes, has_locations)
        self.task: LoopTask | None = None
        """Task of a loop that is being emitted; None in the program's own functions."""
        self.tasks: dict[str, list[str]] = {}
        self.tables: list[str] = []
        """Call tables: steps that are data."""
        self.stack: dict[Buffer, Value] = {}
        self.pointers: dict[Buffer, str] = {}
        self.head: list[str] = []
        self.frame_size = 1
        self.callee_words = 0
        """Size in words of the table for the subroutines that the function calls."""
        self.inlined: dict[str, int] = {}
        self.called: set[str] = set()
        self.polls = True

    def pointer(self, buffer: Buffer) -> Value:
        """Returns the address of a buffer: a task's pointer, an arena or slot offset, the stack, or a table entry."""
        buffer = self.assignment.representative(buffer)
        if self.task is not None and buffer in self.task.pointers:
            return self.task.pointers[buffer]
        if buffer.kind == "temp":
            base, offsets = ("arena", self.assignment.offsets) if self.task is None else ("slot", self.task.offsets)
            offset = offsets.get(buffer)
            if offset is not None:
                return self.builder.emit(f"getelementptr i8, ptr %{base}, i64 {offset}", PTR)
            if buffer not in self.stack:
                self.stack[buffer] = self.stack_memory(buffer.byte_size)
            return self.stack[buffer]
        if buffer not in self.pointers:
            name = f"%{buffer.kind}{buffer.index}"
            position = self.table_starts[buffer.kind] + buffer.index
            self.head.append(f"  {name}.p = getelementptr ptr, ptr %table, i64 {position}")
            self.head.append(f"  {name} = load ptr, ptr {name}.p, align 8")
            self.pointers[buffer] = name
        return Value(self.pointers[buffer], PTR)

    # The function

    @contextmanager
    def function(self) -> Iterator[Builder]:
        """Context manager in which another function is emitted; the current function continues afterwards."""
        outside = self.builder, self.stack, self.pointers, self.head, self.frame_size, self.task
        self.builder = Builder()
        self.builder.declarations = outside[0].declarations
        self.stack, self.pointers, self.head, self.frame_size = {}, {}, [], 1
        yield self.builder
        self.builder, self.stack, self.pointers, self.head, self.frame_size, self.task = outside

    def function_head(self) -> list[str]:
        """Returns the first lines of the function that was emitted."""
        return [f"  %frame = alloca [{self.frame_size} x ptr], align 16", *self.head]

    def stack_memory(self, size: int) -> Value:
        """Allocates `size` bytes in the stack frame of the current function."""
        name = f"%stack{len(self.head)}"
        self.head.append(f"  {name} = alloca [{max(size, 1)} x i8], align 64")
        return Value(name, PTR)

    # Steps

    def write_steps(self, steps: Sequence[Step], depth: int) -> None:
        """Emits steps, runs of calls outside of loops as tables; `depth` is the number of enclosing loops."""
        if depth or self.timer is not None:
            self._write_code(steps, depth)
            return
        for is_data, group in itertools.groupby(steps, self._is_call):
            run = list(group)
            if is_data and len(run) >= MIN_CALLS:
                self._write_table(run)
            else:
                self._write_code(run, depth)

    def _write_code(self, steps: Sequence[Step], depth: int) -> None:
        for step in steps:
            timed = self.task is None and is_timed(step) and not self.assignment.is_elided(step)
            with self.time(step) if timed else nullcontext():
                self._step(step, depth)

    def time(self, step: Step) -> AbstractContextManager[None]:
        """Context manager that times the code of a step, if steps are timed."""
        return nullcontext() if self.timer is None else self.timer.time(self.builder, step)

    def _step(self, step: Step, depth: int) -> None:
        step = self._as_kernel(step)
        match step:
            case KernelStep():
                for position, nest in enumerate(step.kernel.nests):
                    self._nest(step, position, nest, depth)
            case CodeStep():
                self._code(step)
            case CopyStep():
                self._copy(step)
            case WhileStep():
                self._while(step, depth)
            case ConditionalStep():
                self._conditional(step, depth)
            case CallStep():
                self._call(step)
            case HostStep() | WaitStep():
                self._host(step)

    def _as_kernel(self, step: Step) -> Step:
        """Returns the kernel step of a copy that runs on several threads; any other step unchanged."""
        match step:
            case CopyStep(kernel=Kernel() as kernel) if self.task is None and not self.assignment.is_elided(step):
                return KernelStep(kernel, step.buffers, "copy")
        return step

    def _code(self, step: CodeStep) -> None:
        self.fill_frame([*map(self.pointer, step.buffers), *(Value(f"%{name}", PTR) for name in THREADS)])
        self.builder.line(f"call void @{step.code.entry}.call(ptr %frame, i64 0)")

    def _is_call(self, step: Step) -> bool:
        """Whether the step may be an entry of a call table: all its buffers are reachable from the program's table."""
        if not isinstance(step, (KernelStep, CodeStep, CopyStep)):
            return False
        representatives = map(self.assignment.representative, step.buffers)
        return all(buffer.kind != "temp" or buffer in self.assignment.offsets for buffer in representatives)

    def _write_table(self, steps: Sequence[Step]) -> None:
        """Emits a run of call steps as a call table."""
        calls = [call for step in steps for call in self._table_calls(step)]
        name = f"calls{len(self.tables)}"
        self.tables.append(table_of(name, calls))
        self.frame_size = max([self.frame_size, *(len(call.pointers) for call in calls)])
        self.builder.line(f"call void %run_calls(ptr %table, ptr %frame, ptr @{name}, i64 {len(calls)})")

    def _table_calls(self, step: Step) -> Iterator[TableCall]:
        step = self._as_kernel(step)
        match step:
            case KernelStep():
                for position, nest in enumerate(step.kernel.nests):
                    function = self.functions.of(step.kernel, position, nest, self._chunk(step, nest))
                    pointers = [self._table_address(step.buffers[k]) for k in function.buffers]
                    yield TableCall(function.needed_task(), pointers, chunks=function.chunks)
            case CodeStep():
                yield TableCall(f"{step.code.entry}.call", kernel_arguments(map(self._table_address, step.buffers)))
            case CopyStep() if not self.assignment.is_elided(step):
                pointers = [self._table_address(step.target), self._table_address(step.source)]
                yield TableCall(COPY, pointers, argument=step.target.byte_size)

    def _table_address(self, buffer: Buffer) -> TableAddress:
        buffer = self.assignment.representative(buffer)
        if buffer.kind == "temp":
            return TABLE.index("arena"), self.assignment.offsets[buffer]
        return self.table_starts[buffer.kind] + buffer.index, 0

    def _copy(self, step: CopyStep) -> None:
        if self.assignment.is_elided(step):
            return
        target, source = self.pointer(step.target), self.pointer(step.source)
        size = constant(I64, step.target.byte_size)
        part = self._elements(step)
        if part is not None:
            b, width = self.builder, constant(I64, step.target.type.byte_width)
            start = b.binary("mul", part.first, width)
            size = b.binary("mul", b.binary("sub", part.last, part.first), width)
            target, source = b.element_pointer(target, start, "i8"), b.element_pointer(source, start, "i8")
        self.copy_memory(target, source, size)

    def copy_memory(self, target: Value, source: Value, size: Value) -> None:
        """Emits a memcpy of `size` bytes."""
        self.builder.line(f"call void @llvm.memcpy.p0.p0.i64({target}, {source}, {size}, i1 false)")

    def _while(self, step: WhileStep, depth: int) -> None:
        memory = self.assignment.parallel_loops.get(step)
        blocked = blocked_loop(step, self.assignment) if self.task is None and memory is None else None
        if memory is not None:
            with self.time(step):
                write_parallel_loop(self, step, memory)
        elif blocked is not None:
            with self.time(step):
                write_blocked_loop(self, step, blocked)
        else:
            self.plain_while(step, depth)

    def plain_while(self, step: WhileStep, depth: int) -> None:
        """Emits a serial loop."""
        b = self.builder
        head, body, done = b.label("while"), b.label("body"), b.label("done")
        b.branch(head)
        b.start(head)
        if self.polls:
            self.poll(step, done)
        self.write_steps(step.condition, depth + 1)
        predicate = b.load(self.pointer(step.predicate), I8, 1)
        b.branch_if(b.compare("ne", predicate, constant(I8, 0)), body, done)
        b.start(body)
        self.write_steps(step.body, depth + 1)
        b.branch(head)
        b.start(done)

    def poll(self, step: WhileStep, done: str) -> None:
        """Emits code that reads the clock every few microseconds and polls the host every few milliseconds.

        If the host stops the program, the function returns 1, or a task branches to `done`.
        """
        b = self.builder
        if POLL_HEAD[0] not in self.head:
            self.head += POLL_HEAD
        look, poll, stop, go = (b.label(hint) for hint in ("look", "poll", "stop", "go"))
        part = self.task.part if self.task is not None else None
        share = part.loop.block / part.loop.size if part is not None else 1.0
        period = self._poll_period(step, share)
        if period > 1:
            ticks = b.binary("add", b.load(Value("%poll.ticks", PTR), I32, 4), constant(I32, 1))
            b.store(ticks, Value("%poll.ticks", PTR), 4)
            due = b.compare("eq", b.binary("and", ticks, constant(I32, period - 1)), constant(I32, 0))
            b.branch_if(due, look, go)
        else:
            b.branch(look)
        b.start(look)
        now = b.emit(f"call i64 @{CLOCK}()", I64)
        passed = b.binary("sub", now, b.load(Value("%poll.last", PTR), I64, 8))
        b.branch_if(b.compare("ugt", passed, constant(I64, POLL_CYCLES)), poll, go)
        b.start(poll)
        b.store(now, Value("%poll.last", PTR), 8)
        b.declarations[f"declare i64 @{CLOCK}()"] = None
        point = IN_LOOP if self.task is None else IN_BLOCK
        failed = b.emit(f"call i32 %poll(ptr %host_data, i64 {loop_site(step.loop_index)}, i64 {point}) #2", I32)
        b.branch_if(b.compare("ne", failed, constant(I32, 0)), stop, go)
        b.start(stop)
        if self.task is None:
            b.line("ret i32 1")
        else:
            b.branch(done)
        b.start(go)

    def _poll_period(self, step: WhileStep, share: float) -> int:
        """Returns after how many iterations a loop reads the clock, a power of 2.

        In blocked loops an iteration does only the `share` of the work of the whole arrays.
        """
        cost = 8.0
        for inner in (*step.condition, *step.body):
            match inner:
                case KernelStep():
                    cost += inner.nest_work
                case CopyStep():
                    cost += 0 if self.assignment.is_elided(inner) else inner.target.byte_size // 16
                case _:
                    return 1
        return 1 << max(0, (POLL_COST // max(8, int(cost * share))).bit_length() - 1)

    def _conditional(self, step: ConditionalStep, depth: int) -> None:
        b = self.builder
        labels = [b.label("branch") for _ in step.branches]
        done = b.label("done")
        if step.selector.type.is_pred:
            chosen = b.compare("ne", b.load(self.pointer(step.selector), I8, 1), constant(I8, 0))
            b.branch_if(chosen, labels[0], labels[1])
        else:
            index = b.load(self.pointer(step.selector), I32, 4)
            cases = " ".join(f"i32 {k}, label %{label}" for k, label in enumerate(labels))
            b.line(f"switch {index}, label %{labels[-1]} [ {cases} ]")
        for label, branch in zip(labels, step.branches, strict=True):
            b.start(label)
            self.write_steps(branch, depth)
            b.branch(done)
        b.start(done)

    def _host(self, step: HostStep | WaitStep) -> None:
        """Emits a host call with the addresses of all arrays that the instruction reads and writes."""
        b = self.builder
        self.fill_frame([self.pointer(buffer) for buffer in step.start.buffers])
        word = b.element_pointer(Value("%host_data", PTR), constant(I64, REQUEST_WORD), "i64")
        next_id = b.binary("add", b.load(word, I64, 8), constant(I64, 2))
        b.store(next_id, word, 8)
        request_id = b.binary("and", next_id, constant(I64, REQUEST_MASK))
        status = b.emit(f"call i32 %host_call(ptr %host_data, {request_id}, i64 {step.site}, ptr %frame)", I32)
        return_if(b, b.binary("xor", status, b.emit(f"trunc {request_id} to i32", I32)))

    def _call(self, step: CallStep) -> None:
        """Emits the call of a subroutine, with a table of its own arena, the thread pool, the host and the buffers."""
        b = self.builder
        self.callee_words = max(self.callee_words, len(TABLE) + len(step.buffers))
        arena = self.pointer(step.scratch) if step.scratch.byte_size else Value("null", PTR)
        positions = [0, *range(len(TABLE), len(TABLE) + len(step.buffers))]
        for position, pointer in zip(positions, [arena, *map(self.pointer, step.buffers)], strict=True):
            b.store(pointer, b.element_pointer(Value("%callee", PTR), constant(I64, position), "ptr"), 8)
        return_if(b, b.emit(f"call i32 @{step.subroutine.name}(ptr %callee)", I32))

    def fill_frame(self, pointers: list[Value]) -> None:
        """Emits stores of pointers to the frame, which grows as needed."""
        b = self.builder
        self.frame_size = max(self.frame_size, len(pointers))
        for position, pointer in enumerate(pointers):
            address = b.element_pointer(Value("%frame", PTR), constant(I64, position), "ptr")
            b.store(pointer, address, 8)

    def _elements(self, step: Step) -> LoopPart | None:
        """Returns the elements that a step of a blocked loop computes; None for other steps."""
        part = self.task.part if self.task is not None else None
        return part if part is not None and is_blocked_step(step, self.assignment, part.loop) else None

    # Nests

    def _chunk(self, step: KernelStep, nest: Nest) -> int:
        """Chunk size of a nest; 0, for one thread, if the nest conditionally updates a result in place.

        Such nests mostly find nothing to do, so waking threads does not pay.
        """
        choice = invariant_select(nest)
        if choice is None or not isinstance(choice.other, Constant):
            return nest.schedule.chunk
        written, kept = (
            self.assignment.representative(step.buffers[k]) for k in (nest.stores[0].buffer, choice.kept.buffer)
        )
        return 0 if written is kept else nest.schedule.chunk

    def _nest(self, step: KernelStep, position: int, nest: Nest, depth: int) -> None:
        b = self.builder
        part = self._elements(step)
        chunk = nest.schedule.chunk or nest.loops[0].extent if part is not None else self._chunk(step, nest)
        function = self.functions.of(step.kernel, position, nest, chunk)
        pointers = [self.pointer(step.buffers[k]) for k in function.buffers]
        if part is not None:
            arguments = ", ".join(map(str, [*pointers, part.first, part.last]))
            self.called.add(function.name)
            b.line(f"call void @{function.name}({arguments})")
            return
        if function.chunk and self.task is None:
            self.fill_frame(pointers)
            b.line(
                f"call void %parallel_for(ptr %pool, ptr @{function.needed_task()}, ptr %frame, i64 {function.chunks})"
            )
            return
        arguments = ", ".join([*map(str, pointers), "i64 0", f"i64 {function.extent}"])
        calls = self.inlined.get(function.name, 0)
        is_short = len(function.lines) <= INLINED_LINES and nest_cost(nest) <= INLINED_COST
        inline = is_short and calls < INLINED_CALLS and depth > 0
        self.inlined[function.name] = calls + inline
        self.called.add(function.name)
        b.line(f"call void @{function.name}({arguments}){' #1' if inline else ''}")
