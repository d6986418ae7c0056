"""Buffer assignment: coalesces buffers to remove copies, and assigns arena offsets to the rest.

Positions number the steps in program order, inner steps included. A buffer is live from the step that writes it to the
last step that reads the value. Two buffers interfere if one is written while the other is live; writes by copies
between the two, and by kernels that compute element by element in place, do not count. Source and target of each copy
are coalesced if they do not interfere, as in Chaitin's register allocator: the copy then disappears.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from hloom.backends.cpu.llvm.processor import processor
from hloom.backends.cpu.program.arena import best_fit
from hloom.backends.cpu.program.live_range import LiveRange
from hloom.backends.cpu.program.liveness import Region, Use
from hloom.backends.cpu.program.program import (
    Buffer,
    BufferTree,
    ConditionalStep,
    CopyStep,
    KernelStep,
    ParallelLoop,
    Program,
    Step,
    Subroutine,
    WaitStep,
    WhileStep,
)
from hloom.types import PrimitiveType
from hloom.values import leaves

STACK_REGISTERS = 4
"""Maximum size of a temporary on the stack, in vector registers, to which LLVM may promote it."""
MAX_STACK_BUFFERS = 128
"""Maximum number of temporaries on the stack, in addition to those used in loops."""
MAX_ITERATION_BYTES = 8 << 20
"""Maximum private memory of an iteration of a parallel loop; larger kernels use all threads anyway."""
MAX_PARALLEL_BYTES = 256 << 20
"""Maximum private memory of a parallel loop, over all its tasks."""


def _stack_bytes() -> int:
    """Returns the maximum size of a temporary on the stack; two registers of 64 bytes are enough for most rows."""
    return STACK_REGISTERS * min(processor().vector_bytes, 32)


@dataclass(slots=True)
class Assignment:
    """Maps buffers to the representatives of their coalesced sets, and representatives to arena offsets in bytes.

    Temporaries without an offset lie on the stack. `donated` maps the index of an output to that of the parameter whose
    memory it takes: the program then reads the parameter from the output's address.
    """

    coalesced_into: dict[Buffer, Buffer] = field(default_factory=dict)
    offsets: dict[Buffer, int] = field(default_factory=dict)
    arena_bytes: int = 0
    donated: dict[int, int] = field(default_factory=dict)
    subroutines: dict[Subroutine, Assignment] = field(default_factory=dict)
    """Assignments of the program's subroutines."""
    parallel_loops: dict[WhileStep, ParallelLoopMemory] = field(default_factory=dict)
    """Memory of the loops that run in parallel."""
    in_regions: frozenset[Buffer] = frozenset()
    """Representatives on the stack that loops or branches use."""
    stack_bytes: int = field(default_factory=_stack_bytes)
    """Maximum size of a temporary on the stack."""

    def representative(self, buffer: Buffer) -> Buffer:
        """Returns the representative of a buffer's coalesced set, compressing the path to it."""
        representative = buffer
        while (shared := self.coalesced_into.get(representative)) is not None:
            representative = shared
        while buffer is not representative:
            self.coalesced_into[buffer], buffer = representative, self.coalesced_into[buffer]
        return representative

    def is_elided(self, step: Step) -> bool:
        """Whether the step is a copy that needs no code: source and target share memory or are empty."""
        if not isinstance(step, CopyStep):
            return False
        return not step.target.byte_size or self.representative(step.source) is self.representative(step.target)


@dataclass(eq=False, slots=True)
class ParallelLoopMemory:
    """Memory of a parallel loop: each task has a slot of `slot_bytes`, the first at `offset` in the arena."""

    private: list[Buffer]
    """Representatives of which each task has its own copy; those without an offset are on its stack."""
    shared: list[Buffer]
    """All other representatives that the loop uses."""
    offsets: dict[Buffer, int]
    """Offsets of private buffers in a slot."""
    slot_bytes: int
    offset: int = 0


def assign_buffers(program: Program, donate: bool = False) -> Assignment:
    """Coalesces buffers, then assigns an arena offset or the stack to every temporary.

    With `donate`, outputs take the memory of the parameters that input_output_alias pairs them with, or of buffer
    donors of equal size, unless they interfere.
    """
    subroutines = {}
    for subroutine in program.subroutines:
        subroutines[subroutine] = _Assigner(subroutine.program).run(donate=False)
        for scratch in subroutine.scratches:
            scratch.dimensions = (subroutines[subroutine].arena_bytes,)
    assignment = _Assigner(program).run(donate)
    assignment.subroutines = subroutines
    return assignment


class _Assigner:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.assignment = Assignment()
        self.uses: dict[Buffer, list[Use]] = {}
        self.live_ranges: dict[Buffer, LiveRange] = {}
        """Live ranges of representatives, computed when first needed."""
        self.copies: list[tuple[Buffer, Buffer]] = []
        self.in_place: list[tuple[Buffer, Buffer]] = []
        self.loops: list[tuple[WhileStep, tuple[Region, ...]]] = []
        """Loops with their enclosing regions, including their own."""
        self.position = 0
        self.part = 0

    def run(self, donate: bool) -> Assignment:
        for part, steps in enumerate(self.program.parts()):
            self.part = part
            self._visit(steps, ())
        self._add_result_uses()
        for first, second in [*self.copies, *self.in_place]:
            self._try_to_coalesce(first, second)
        if donate:
            self._coalesce_donated()
        self.uses = {buffer: self._distinct_uses(uses) for buffer, uses in self.uses.items()}
        self._assign_parallel_loops()
        self._assign_offsets()
        return self.assignment

    # Uses

    def _visit(self, steps: list[Step], region: tuple[Region, ...]) -> None:
        for step in steps:
            self.position += 1
            match step:
                case WhileStep():
                    self._visit_loop(step, region)
                    continue
                case ConditionalStep():
                    self._add_uses(step, region)
                    self._visit_branches(step, region)
                    continue
                case CopyStep():
                    self.copies.append((step.source, step.target))
                case KernelStep():
                    for output, source in step.kernel.in_place:
                        if step.buffers[source].type.byte_width == step.buffers[output].type.byte_width:
                            self.in_place.append((step.buffers[source], step.buffers[output]))
            self._add_uses(step, region)

    def _visit_loop(self, step: WhileStep, region: tuple[Region, ...]) -> None:
        loop = Region(self.position, [])
        loop.branches.append(loop)
        self.loops.append((step, (*region, loop)))
        for buffer in step.filled:
            self._add_use(buffer, step, region, writes=True)
        self._visit(step.condition, (*region, loop))
        self.position += 1
        self._add_uses(step, (*region, loop))
        loop.exit = self.position
        self._visit(step.body, (*region, loop))
        self.position += 1
        loop.end = self.position

    def _visit_branches(self, step: ConditionalStep, region: tuple[Region, ...]) -> None:
        branches: list[Region] = []
        for steps in step.branches:
            branch = Region(self.position, branches)
            branches.append(branch)
            self._visit(steps, (*region, branch))
            self.position += 1
            branch.end = self.position

    def _add_uses(self, step: Step, region: tuple[Region, ...]) -> None:
        """Records the uses of a step itself at the current position."""
        read, written = dict.fromkeys(step.reads), dict.fromkeys(step.writes)
        for buffer in read | written:
            self._add_use(buffer, step, region, reads=buffer in read, writes=buffer in written)

    def _add_use(
        self, buffer: Buffer, step: Step, region: tuple[Region, ...], *, reads: bool = False, writes: bool = False
    ) -> None:
        self.uses.setdefault(buffer, []).append(Use(self.position, reads, writes, step, region, self.part))

    def _add_result_uses(self) -> None:
        """Records that the caller reads the outputs at the end."""
        self.position += 1
        for leaf in leaves(self.program.result):
            if isinstance(leaf, Buffer):
                self._add_use(leaf, CopyStep(leaf, leaf), (), reads=True)

    # Coalescing

    def _coalesce_donated(self) -> None:
        """Coalesces outputs with donated parameters that they do not interfere with."""
        program, module = self.program, self.program.module
        for alias in module.input_output_alias:
            parameter = _subtree(program.parameters[alias.parameter_number], alias.parameter_index)
            self._try_to_donate(parameter, _subtree(program.result, alias.output_index))
        free: dict[tuple[PrimitiveType, int], list[Buffer]] = {}
        for output in leaves(program.result) if module.buffer_donors else ():
            if isinstance(output, Buffer) and output.index not in self.assignment.donated:
                free.setdefault((output.type, output.byte_size), []).append(output)
        for donor in module.buffer_donors:
            parameter = _subtree(program.parameters[donor.parameter_number], donor.parameter_index)
            fitting = free.get((parameter.type, parameter.byte_size), []) if isinstance(parameter, Buffer) else []
            taken = next((k for k, output in enumerate(fitting) if self._try_to_donate(parameter, output)), None)
            if taken is not None:
                del fitting[taken]

    def _try_to_donate(self, parameter: BufferTree, output: BufferTree) -> bool:
        if not isinstance(parameter, Buffer) or not isinstance(output, Buffer):
            return False
        taken = output.index in self.assignment.donated or parameter in self.assignment.coalesced_into
        if taken or (parameter.type, parameter.byte_size) != (output.type, output.byte_size):
            return False
        self.uses.setdefault(parameter, [])
        if self._interferes(output, parameter):
            return False
        self._coalesce(parameter, output)
        self.assignment.donated[output.index] = parameter.index
        return True

    def _try_to_coalesce(self, first: Buffer, second: Buffer) -> None:
        """Coalesces two buffers of equal size if they do not interfere."""
        a, b = self.assignment.representative(first), self.assignment.representative(second)
        if a is b or a.byte_size != b.byte_size:
            return
        if {a.kind, b.kind} - {"temp", "output"} or a.kind == b.kind == "output":
            return
        if a.kind != b.kind and a.byte_size <= self.assignment.stack_bytes:
            # A small temporary is faster on the stack, where LLVM may promote it to registers.
            return
        if self._interferes(a, b) or self._interferes(b, a):
            return
        keep, drop = (a, b) if a.kind == "output" else (b, a)
        self._coalesce(drop, keep)

    def _coalesce(self, drop: Buffer, keep: Buffer) -> None:
        """Coalesces two representatives; the smaller live range is merged into the larger one."""
        few, many = sorted(
            (self._live_range(drop), self._live_range(keep)), key=lambda live_range: len(live_range.writes)
        )
        few_uses, many_uses = sorted((self.uses.pop(drop), self.uses[keep]), key=len)
        self.assignment.coalesced_into[drop] = keep
        many.merge(few)
        many_uses += few_uses
        for use in few_uses:
            if _is_self_copy(use.step, self.assignment):
                many.remove(use)
        self.uses[keep], self.live_ranges[keep] = many_uses, many
        del self.live_ranges[drop]

    def _live_range(self, buffer: Buffer) -> LiveRange:
        if buffer not in self.live_ranges:
            self.live_ranges[buffer] = LiveRange.of(self.uses[buffer], 0, self.position + 1)
        return self.live_ranges[buffer]

    def _interferes(self, writer: Buffer, holder: Buffer) -> bool:
        """Interference test: whether a step writes `writer` while `holder` is live.

        Copies between the two, and in-place kernels at the end of the live interval, do not count.
        """
        for use, end in self._live_range(holder).interfering_writes(self._live_range(writer)):
            if isinstance(use.step, CopyStep) and self.assignment.representative(use.step.source) is holder:
                continue
            if use.position != end or not self._computes_in_place(use.step, writer, holder):
                return True
        return False

    def _computes_in_place(self, step: Step, written: Buffer, read: Buffer) -> bool:
        """Whether the step reads each element of one buffer before it writes that of the other."""
        if not isinstance(step, KernelStep):
            return False
        buffers = [self.assignment.representative(buffer) for buffer in step.buffers]
        roles = [kind.role for kind in step.kernel.buffers]
        outputs = [k for k, buffer in enumerate(buffers) if buffer is written and roles[k] == "output"]
        inputs = [k for k, buffer in enumerate(buffers) if buffer is read and roles[k] == "input"]
        same_width = len({step.buffers[k].type.byte_width for k in (*outputs, *inputs)}) == 1
        return same_width and all((o, i) in step.kernel.in_place for o in outputs for i in inputs)

    def _distinct_uses(self, uses: list[Use]) -> list[Use]:
        """Returns the uses in program order, one for each step, without self copies."""
        joined: dict[tuple[int, int], Use] = {}
        for use in uses:
            if not _is_self_copy(use.step, self.assignment):
                old = joined.setdefault((use.position, id(use.step)), use)
                if old is not use:
                    both = replace(old, reads=old.reads or use.reads, writes=old.writes or use.writes)
                    joined[use.position, id(use.step)] = both
        return sorted(joined.values(), key=lambda use: use.position)

    # Parallel loops

    def _assign_parallel_loops(self) -> None:
        """Gives the outermost parallel loops private memory for their tasks."""
        assigned: set[Region] = set()
        loop_uses: dict[Region, dict[Buffer, list[Use]]] = {
            r[-1]: {} for step, r in self.loops if step.parallel is not None
        }
        for buffer, uses in self.uses.items() if loop_uses else ():
            for use in uses:
                for region in use.region:
                    if region in loop_uses:
                        loop_uses[region].setdefault(buffer, []).append(use)
        for step, regions in self.loops:
            if step.parallel is not None and assigned.isdisjoint(regions):
                memory = self._parallel_memory(step.parallel, regions[-1], loop_uses[regions[-1]])
                if memory is not None:
                    assigned.add(regions[-1])
                    self.assignment.parallel_loops[step] = memory

    def _parallel_memory(
        self, parallel: ParallelLoop, loop: Region, uses: dict[Buffer, list[Use]]
    ) -> ParallelLoopMemory | None:
        """Returns the memory of a parallel loop, or None if iterations depend on each other or need too much.

        A temporary that is used inside the loop only is private: each iteration writes it before reading it, because
        the first iteration could not read it otherwise.
        """
        counter = self.assignment.representative(parallel.counter)
        arrays = {self.assignment.representative(array) for array in parallel.arrays}
        private, shared = [counter], []
        for buffer, loop_uses in uses.items():
            if buffer is counter:
                continue
            if not any(use.writes for use in loop_uses) or (buffer in arrays and _is_partial_write(loop_uses)):
                shared.append(buffer)
            elif buffer.kind == "temp" and len(loop_uses) == len(self.uses[buffer]):
                private.append(buffer)
            else:
                return None
        if any(use.position > loop.end for use in self.uses[counter]) or counter.kind != "temp":
            return None
        intervals = [self._interval(buffer) for buffer in private if buffer.byte_size > self.assignment.stack_bytes]
        offsets, size = best_fit(intervals)
        small_enough = size <= MAX_ITERATION_BYTES and size * parallel.tasks <= MAX_PARALLEL_BYTES
        return ParallelLoopMemory(private, shared, offsets, size) if small_enough else None

    # The arena

    def _assign_offsets(self) -> None:
        private = {buffer for memory in self.assignment.parallel_loops.values() for buffer in memory.private}
        stack_bytes = self.assignment.stack_bytes
        small = [b for b in self.uses if b.kind == "temp" and b.byte_size <= stack_bytes and b not in private]
        small = [b for b in small if len({use.part for use in self.uses[b]}) == 1]
        # After an error other ranks may still write to the buffers of a collective.
        small = [b for b in small if not any(isinstance(use.step, WaitStep) for use in self.uses[b])]
        self.assignment.in_regions = frozenset(b for b in small if any(use.region for use in self.uses[b]))
        on_stack = self.assignment.in_regions | set(small[:MAX_STACK_BUFFERS])
        in_arena = [b for b in self.uses if b.kind == "temp" and b not in on_stack and b not in private]
        intervals: list[tuple[int, int, int, Buffer | WhileStep]] = [self._interval(buffer) for buffer in in_arena]
        for step, regions in self.loops:
            memory = self.assignment.parallel_loops.get(step)
            if memory is not None and step.parallel is not None:
                size = memory.slot_bytes * step.parallel.tasks
                intervals.append((regions[-1].start, regions[-1].end, size, step))
        offsets, self.assignment.arena_bytes = best_fit(intervals)
        for key, offset in offsets.items():
            if isinstance(key, Buffer):
                self.assignment.offsets[key] = offset
            else:
                self.assignment.parallel_loops[key].offset = offset

    def _interval(self, buffer: Buffer) -> tuple[int, int, int, Buffer]:
        """Returns the positions between which a buffer needs memory, its size in bytes, and the buffer."""
        positions = [use.position for use in self.uses[buffer]]
        positions += self._live_range(buffer).bounds()
        return min(positions), max(positions), buffer.byte_size, buffer


def _is_partial_write(uses: Sequence[Use]) -> bool:
    """Whether the only use of an array is one kernel that writes a slice of it."""
    steps = [use.step for use in uses]
    return len(steps) == 1 and isinstance(steps[0], KernelStep) and bool(steps[0].partial)


def _subtree(tree: BufferTree, index: tuple[int, ...]) -> BufferTree:
    """Returns the element of a tree at an index of a tuple shape."""
    for position in index:
        tree = tree[position]
    return tree


def _is_self_copy(step: Step, assignment: Assignment) -> bool:
    if not isinstance(step, CopyStep) or step.source is step.target:
        return False
    return assignment.representative(step.source) is assignment.representative(step.target)
