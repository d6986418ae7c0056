"""Emits steps into the current function: kernels, copies, loops, branches, calls."""

from __future__ import annotations

import itertools
import re
from collections import Counter
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
from hloom.backends.cpu.codegen.merge_functions import is_long
from hloom.backends.cpu.codegen.nest_functions import NestFunction, NestFunctions
from hloom.backends.cpu.codegen.polls import emit_poll, poll_period
from hloom.backends.cpu.codegen.step_function import StepFunction
from hloom.backends.cpu.codegen.step_timer import StepTimer, is_timed
from hloom.backends.cpu.program.buffer_assignment import Assignment
from hloom.backends.cpu.program.interface import (
    REQUEST_MASK,
    REQUEST_WORD,
    TABLE,
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
from hloom.lir import (
    I8,
    I32,
    I64,
    PTR,
    VOID,
    CallAttribute,
    Function,
    FunctionBuilder,
    Global,
    Value,
    constant,
)
from hloom.loops.expressions import Constant
from hloom.loops.nest import Kernel, Nest, invariant_select

INLINED_LENGTH = 200
"""Maximum number of instructions of a single-threaded function that is inlined into the loop that calls it."""
INLINED_ONCE = 64
"""Maximum number of instructions of an inlined function that runs once, and whose results no loop uses: other threads
compile longer ones.
"""
INLINED_COST = 2048
"""Maximum work of an inlined function in element additions; otherwise the cost of a call is negligible."""
INLINED_COPIES, COPIES_IN_LOOPS = 512, 4096
"""Maximum numbers of instructions of all inlined copies of a function, and of those that differ from it in constants
only, outside of loops and in all: the others of these become one (`merge_functions`).
"""
_CONSTANT = re.compile(r"i64 ((?:%\w+, )?)-?\d+")  # begins with letters, which `re` finds at once


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
        self.functions = NestFunctions(vector_bytes, has_locations)
        self.task: LoopTask | None = None
        """Task of a loop that is being emitted; None in the program's own functions."""
        self.tasks: dict[str, Function] = {}
        self.tables: list[Global] = []
        """Call tables: steps that are data."""
        self.inlined: set[str] = set()
        """Names of the functions that calls inline."""
        self.copies: Counter[str] = Counter()
        """Numbers of inlined instructions, by the text of a function without its constants."""
        self.called: set[str] = set()
        self.polls = True
        self.current = StepFunction(FunctionBuilder(Function("", [])))

    # The function

    @contextmanager
    def function(self, builder: FunctionBuilder) -> Iterator[FunctionBuilder]:
        """Context manager in which another function is emitted; the current function continues afterwards."""
        outside = self.current, self.task
        self.current = StepFunction(builder)
        yield builder
        self.current, self.task = outside

    def pointer(self, buffer: Buffer) -> Value:
        """Returns the address of a buffer: a task's pointer, an arena or slot offset, the stack, or a table entry."""
        buffer = self.assignment.representative(buffer)
        if self.task is not None and buffer in self.task.pointers:
            return self.task.pointers[buffer]
        if buffer.kind == "temp":
            in_task = self.task is not None
            offsets = self.task.offsets if self.task is not None else self.assignment.offsets
            offset = offsets.get(buffer)
            if offset is not None:
                base = self.current.values["slot"] if in_task else self.current.value("arena")
                return self.current.builder.element_pointer(base, constant(I64, offset), "i8")
            if buffer not in self.current.stack:
                self.current.stack[buffer] = self.current.stack_memory(buffer.byte_size)
            return self.current.stack[buffer]
        if buffer not in self.current.pointers:
            self.current.pointers[buffer] = self.current.table_entry(self.table_starts[buffer.kind] + buffer.index)
        return self.current.pointers[buffer]

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
            is_whole = self.task is None or self.task.part is None
            timed = is_whole and is_timed(step) and not self.assignment.is_elided(step)
            with self.time(step) if timed else nullcontext():
                self._step(step, depth)

    def time(self, step: Step) -> AbstractContextManager[None]:
        """Context manager that times the code of a step, if steps are timed."""
        return nullcontext() if self.timer is None else self.timer.time(self.current.builder, step)

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
        frame = self.current.frame([*map(self.pointer, step.buffers), *map(self.current.value, THREADS)])
        self.current.builder.call_void(f"{step.code.entry}.call", frame, constant(I64, 0))

    def _is_call(self, step: Step) -> bool:
        """Whether the step may be an entry of a call table: all its buffers are reachable from the program's table."""
        if not isinstance(step, (KernelStep, CodeStep, CopyStep)):
            return False
        representatives = map(self.assignment.representative, step.buffers)
        return all(buffer.kind != "temp" or buffer in self.assignment.offsets for buffer in representatives)

    def _write_table(self, steps: Sequence[Step]) -> None:
        """Emits a run of call steps as a call table."""
        calls = [call for step in steps for call in self._table_calls(step)]
        if not calls:
            return
        self.tables.append(table_of(f"calls{len(self.tables)}", calls))
        frame = self.current.memory_of_calls("frame", max(len(call.pointers) for call in calls))
        table, count = self.current.builder.address_of(self.tables[-1]), constant(I64, len(calls))
        self.current.builder.call_pointer(
            self.current.value("run_calls"), VOID, self.current.values["table"], frame, table, count
        )

    def _table_calls(self, step: Step) -> Iterator[TableCall]:
        step = self._as_kernel(step)
        match step:
            case KernelStep():
                for position, nest in enumerate(step.kernel.nests):
                    function = self.functions.of(step.kernel, position, nest, self._chunk(step, nest))
                    pointers = [self._table_address(step.buffers[k]) for k in function.buffers]
                    yield TableCall(function.needed_task().name, pointers, chunks=function.chunks)
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
            b, width = self.current.builder, constant(I64, step.target.type.byte_width)
            start = b.binary("mul", part.first, width)
            size = b.binary("mul", b.binary("sub", part.last, part.first), width)
            target, source = b.element_pointer(target, start, "i8"), b.element_pointer(source, start, "i8")
        self.copy_memory(target, source, size)

    def copy_memory(self, target: Value, source: Value, size: Value) -> None:
        """Emits a memcpy of `size` bytes."""
        self.current.builder.copy(target, source, size)

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
        b = self.current.builder
        head, body, done = b.label("while"), b.label("body"), b.label("done")
        b.branch(head)
        b.start(head)
        if self.polls:
            self.poll(step, done)
        self.write_steps(step.condition, depth + 1)
        predicate = b.load(self.pointer(step.predicate), I8, 1)
        b.branch_if(b.compare("ne", predicate, constant(I8, 0)), body, done)
        b.start(body)
        is_timed = self.timer is not None and self.task is None
        with self.timer.iteration(b, step) if self.timer is not None and is_timed else nullcontext():
            self.write_steps(step.body, depth + 1)
        b.branch(head)
        b.start(done)

    def poll(self, step: WhileStep, done: str) -> None:
        """Emits a poll of the host, after which a task that is to stop branches to `done`."""
        part = self.task.part if self.task is not None else None
        share = part.loop.block / part.loop.size if part is not None else 1.0
        period = poll_period(step, self.assignment, share)
        emit_poll(self.current, step.loop_index, period, None if self.task is None else done)

    def _conditional(self, step: ConditionalStep, depth: int) -> None:
        b = self.current.builder
        labels = [b.label("branch") for _ in step.branches]
        done = b.label("done")
        if step.selector.type.is_pred:
            chosen = b.compare("ne", b.load(self.pointer(step.selector), I8, 1), constant(I8, 0))
            b.branch_if(chosen, labels[0], labels[1])
        else:
            index = b.load(self.pointer(step.selector), I32, 4)
            b.switch(index, labels)
        for label, branch in zip(labels, step.branches, strict=True):
            b.start(label)
            self.write_steps(branch, depth)
            b.branch(done)
        b.start(done)

    def _host(self, step: HostStep | WaitStep) -> None:
        """Emits a host call with the addresses of all arrays that the instruction reads and writes."""
        b = self.current.builder
        frame = self.current.frame([self.pointer(buffer) for buffer in step.start.buffers])
        word = b.element_pointer(self.current.value("host_data"), constant(I64, REQUEST_WORD), "i64")
        next_id = b.binary("add", b.load(word, I64, 8), constant(I64, 2))
        b.store(next_id, word, 8)
        request_id = b.binary("and", next_id, constant(I64, REQUEST_MASK))
        arguments = self.current.value("host_data"), request_id, constant(I64, step.site), frame
        status = b.call_pointer(self.current.value("host_call"), I32, *arguments)
        return_if(b, b.binary("xor", status, b.convert("trunc", request_id, "i32")))

    def _call(self, step: CallStep) -> None:
        """Emits the call of a subroutine, with a table of its own arena, the thread pool, the host and the buffers."""
        b = self.current.builder
        arena = self.pointer(step.scratch) if step.scratch.byte_size else constant(PTR, 0)
        table = self.current.subroutine_table(len(step.buffers))
        b.store(arena, table, 8)
        b.pack(*map(self.pointer, step.buffers), context=b.at(table, len(TABLE), "i64"))
        return_if(b, b.call(step.subroutine.name, I32, table))

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
        b = self.current.builder
        part = self._elements(step)
        chunk = nest.schedule.chunk or nest.loops[0].extent if part is not None else self._chunk(step, nest)
        function = self.functions.of(step.kernel, position, nest, chunk)
        pointers = [self.pointer(step.buffers[k]) for k in function.buffers]
        name = function.function.name
        if part is not None:
            self._call_nest(function, *pointers, part.first, part.last)
            return
        if function.chunk and self.task is None:
            fork = self.current.value("pool"), self.current.value("parallel_for")
            b.run_chunks(
                function.needed_task().name, self.current.frame(pointers), constant(I64, function.chunks), fork
            )
            return
        inline = nest.cost <= INLINED_COST and self._may_inline(step, function, depth)
        if inline:
            self.inlined.add(name)
        bounds = constant(I64, 0), constant(I64, function.extent)
        self._call_nest(function, *pointers, *bounds, attribute=CallAttribute.ALWAYS_INLINE if inline else None)

    def _may_inline(self, step: KernelStep, nest: NestFunction, depth: int) -> bool:
        """Whether a call of a nest may inline it; counts the copy then.

        Stack memory whose address no call gets is a register, which pays in loops.
        """
        used = {self.assignment.representative(step.buffers[k]) for k in nest.buffers}
        on_stack = used & self.current.stack.keys()
        repeats = depth > 0 or not on_stack.isdisjoint(self.assignment.in_regions)
        if not (depth or on_stack) or nest.function.length > (INLINED_LENGTH if repeats else INLINED_ONCE):
            return False
        return self._may_copy(nest.function, depth)

    def _may_copy(self, function: Function, depth: int) -> bool:
        """Whether one more call of a function, or of one alike, may inline it; counts it then."""
        if not is_long(function):
            return True
        text = _CONSTANT.sub(r"i64 \1", function.body_text())
        copies = self.copies[text] + function.length
        if copies > (COPIES_IN_LOOPS if depth else INLINED_COPIES):
            return False
        self.copies[text] = copies
        return True

    def _call_nest(self, nest: NestFunction, *arguments: Value, attribute: CallAttribute | None = None) -> None:
        self.called.add(nest.function.name)
        self.current.builder.call_void(nest.function.name, *arguments, attribute=attribute)
