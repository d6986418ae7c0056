"""Where every buffer lies: copies are removed by sharing memory, what is left gets an offset in one arena.

Steps are numbered in the order in which they stand, loops and branches included. A buffer is alive between a step that
writes it and the last step that reads what was written. Two buffers can share memory if neither is written while the
other is alive (Chaitin's condition), copies between them aside.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from hloom.backends.cpu.program.program import (
    Buffer,
    CallStep,
    CodeStep,
    ConditionalStep,
    CopyStep,
    HostStep,
    KernelStep,
    Place,
    Program,
    Step,
    Subroutine,
    WaitStep,
    WhileStep,
    leaves,
)

PlainStep = KernelStep | CodeStep | CopyStep | HostStep | WaitStep | CallStep
"""Steps that run no other steps."""
STACK_BYTES = 64
"""Temporaries of at most so many bytes lie on the stack, where they may end up in registers."""
STACK_SLOTS = 128
"""So many at most, but for those that loops use."""
ALIGNMENT = 64


@dataclass(slots=True)
class Assignment:
    """`home` maps a buffer to the one whose memory it shares; `offsets` gives arena offsets of homes.

    Homes without an offset lie on the stack. `donated` maps the numbers of outputs to those of the parameters whose
    memory they share: the program then finds such a parameter's value where the output goes.
    """

    home: dict[Buffer, Buffer] = field(default_factory=dict)
    offsets: dict[Buffer, int] = field(default_factory=dict)
    arena_bytes: int = 0
    donated: dict[int, int] = field(default_factory=dict)
    inside: dict[Subroutine, Assignment] = field(default_factory=dict)
    """Those of the program's subroutines."""

    def of(self, buffer: Buffer) -> Buffer:
        while (shared := self.home.get(buffer)) is not None:
            buffer = shared
        return buffer


@dataclass(frozen=True, slots=True)
class Use:
    """One step's access to a buffer. `region`: the loops and branches around it, from the outermost."""

    position: int
    reads: bool
    writes: bool
    step: Step
    region: tuple[Region, ...]
    part: int
    """The part of the program that the step is in (see `Program.parts`)."""


@dataclass(eq=False, slots=True)
class Region:
    """A loop, or one branch of a conditional: the positions after `start` up to `end`."""

    is_loop: bool
    start: int
    end: int = 0
    exit: int = 0
    """Where a loop is left: the end of its condition."""


Interval = tuple[int, int]
"""(a, b): what step a wrote is read, last, by step b."""


def live_intervals(uses: Sequence[Use], start: int, end: int) -> list[Interval]:
    """Between which steps the buffer holds a value that is still read. `uses` are in order of position."""
    intervals: list[Interval] = []
    _scan(list(uses), 0, start, end, False, intervals)
    return intervals


def _scan(uses: list[Use], depth: int, start: int, end: int, live: bool, found: list[Interval]) -> bool:
    """Walks backwards through a region; `live` is whether the value is read after it. Whether it is read before."""
    until = end
    position = len(uses)
    while position:
        position -= 1
        use = uses[position]
        if len(use.region) > depth:
            region = use.region[depth]
            first = position
            while first and len(uses[first - 1].region) > depth and uses[first - 1].region[depth] is region:
                first -= 1
            inside = uses[first : position + 1]
            position = first
            if live:
                found.append((region.end, until))
            live = _scan_region(inside, depth, region, live, found)
            until = region.start
            continue
        if use.writes and not use.reads:
            if live:
                found.append((use.position, until))
            live = False
        elif use.writes and live:
            found.append((use.position, until))
            until = use.position
        if use.reads and not live:
            live, until = True, use.position
    if live:
        found.append((start, until))
    return live


def _scan_region(uses: list[Use], depth: int, region: Region, live: bool, found: list[Interval]) -> bool:
    """A branch may not be taken. A loop is left after its condition, and its body leads to the condition again."""
    if not region.is_loop:
        return _scan(uses, depth + 1, region.start, region.end, live, found) or live
    condition = [use for use in uses if use.position <= region.exit]
    body = [use for use in uses if use.position > region.exit]
    mark, before = len(found), False
    for _ in range(2):
        del found[mark:]
        after_condition = _scan(body, depth + 1, region.exit, region.end, before, found) or live
        before = _scan(condition, depth + 1, region.start, region.exit, after_condition, found)
    return before


def assign_buffers(program: Program, donate: bool = False) -> Assignment:
    """Removes copies, then places every temporary.

    With `donate`, outputs take the memory of parameters that the module's input_output_alias pairs them with, and of
    buffer donors of their size, where the program allows it.
    """
    inside = {}
    for subroutine in program.subroutines:
        inside[subroutine] = _Assigner(subroutine.program).run(donate=False)
        for scratch in subroutine.scratches:
            scratch.dimensions = (inside[subroutine].arena_bytes,)
    assignment = _Assigner(program).run(donate)
    assignment.inside = inside
    return assignment


class _Assigner:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.assignment = Assignment()
        self.uses: dict[Buffer, list[Use]] = {}
        self.copies: list[tuple[Buffer, Buffer]] = []
        self.in_place: list[tuple[Buffer, Buffer]] = []
        self.count = 0
        self.part = 0

    def run(self, donate: bool) -> Assignment:
        for number, steps in enumerate(self.program.parts()):
            self.part = number
            self._number(steps, ())
        self._read_results()
        for first, second in [*self.copies, *self.in_place]:
            self._try_to_share(first, second)
        if donate:
            self._share_donated()
        self._place()
        return self.assignment

    # Uses

    def _number(self, steps: list[Step], region: tuple[Region, ...]) -> None:
        for step in steps:
            self.count += 1
            if isinstance(step, WhileStep):
                loop = Region(True, self.count)
                self._number(step.condition, (*region, loop))
                self.count += 1
                self._use(step.predicate, True, False, step, (*region, loop))
                loop.exit = self.count
                self._number(step.body, (*region, loop))
                self.count += 1
                loop.end = self.count
            elif isinstance(step, ConditionalStep):
                self._use(step.selector, True, False, step, region)
                for steps_of_branch in step.branches:
                    branch = Region(False, self.count)
                    self._number(steps_of_branch, (*region, branch))
                    self.count += 1
                    branch.end = self.count
            else:
                self._plain(step, region)

    def _plain(self, step: PlainStep, region: tuple[Region, ...]) -> None:
        read = dict.fromkeys(buffer for buffer, writes in accesses(step) if not writes)
        written = dict.fromkeys(buffer for buffer, writes in accesses(step) if writes)
        partly = set()
        if isinstance(step, CopyStep):
            self.copies.append((step.source, step.target))
        elif isinstance(step, KernelStep):
            partly = {step.buffers[k] for k in step.partial}
            for output, source in step.kernel.in_place:
                if step.buffers[source].type.byte_width == step.buffers[output].type.byte_width:
                    self.in_place.append((step.buffers[source], step.buffers[output]))
        for buffer in dict.fromkeys([*read, *written]):
            self._use(buffer, buffer in read or buffer in partly, buffer in written, step, region)

    def _use(self, buffer: Buffer, reads: bool, writes: bool, step: Step, region: tuple[Region, ...]) -> None:
        self.uses.setdefault(buffer, []).append(Use(self.count, reads, writes, step, region, self.part))

    def _read_results(self) -> None:
        """The caller reads the outputs in the end."""
        self.count += 1
        for leaf in leaves(self.program.result):
            if isinstance(leaf, Buffer):
                self._use(leaf, True, False, CopyStep(leaf, leaf), ())

    # Sharing

    def _share_donated(self) -> None:
        """Outputs take the place of donated parameters that they do not overwrite too early."""
        program, module = self.program, self.program.module
        for alias in module.input_output_alias:
            parameter = _part(program.parameters[alias.parameter_number], alias.parameter_index)
            self._try_to_donate(parameter, _part(program.result, alias.output_index))
        for donor in module.buffer_donors:
            parameter = _part(program.parameters[donor.parameter_number], donor.parameter_index)
            for output in leaves(program.result):
                if self._try_to_donate(parameter, output):
                    break

    def _try_to_donate(self, parameter: Place, output: Place) -> bool:
        if not isinstance(parameter, Buffer) or not isinstance(output, Buffer):
            return False
        taken = output.number in self.assignment.donated or parameter in self.assignment.home
        if taken or (parameter.type, parameter.byte_size) != (output.type, output.byte_size):
            return False
        self.uses.setdefault(parameter, [])
        if self._overwrites(output, parameter):
            return False
        self._merge(parameter, output)
        self.assignment.donated[output.number] = parameter.number
        return True

    def _try_to_share(self, first: Buffer, second: Buffer) -> None:
        """Makes two buffers one where neither is written while the other holds a value that is still read."""
        a, b = self.assignment.of(first), self.assignment.of(second)
        if a is b or a.byte_size != b.byte_size:
            return
        if {a.kind, b.kind} - {"temp", "output"} or a.kind == b.kind == "output":
            return
        if a.kind != b.kind and a.byte_size <= STACK_BYTES:
            # On the stack it may end up in registers.
            return
        if self._overwrites(a, b) or self._overwrites(b, a):
            return
        keep, drop = (a, b) if a.kind == "output" else (b, a)
        self._merge(drop, keep)

    def _merge(self, drop: Buffer, keep: Buffer) -> None:
        self.assignment.home[drop] = keep
        merged = sorted([*self.uses[keep], *self.uses.pop(drop)], key=lambda use: use.position)
        self.uses[keep] = _joined(merged, self.assignment)

    def _overwrites(self, writer: Buffer, holder: Buffer) -> bool:
        """Whether a step writes `writer` while `holder` is alive; copies between the two do not count."""
        writes = [use for use in self.uses[writer] if use.writes]
        intervals = live_intervals(self.uses[holder], 0, self.count + 1)
        for use in writes:
            if isinstance(use.step, CopyStep) and self.assignment.of(use.step.source) is holder:
                continue
            for a, b in intervals:
                if a < use.position < b or use.position == a:
                    return True
                if use.position == b and not self._in_place(use.step, writer, holder):
                    return True
        return False

    def _in_place(self, step: Step, written: Buffer, read: Buffer) -> bool:
        """Whether the step reads every element of one buffer before it writes the same element of the other."""
        if not isinstance(step, KernelStep):
            return False
        homes = [self.assignment.of(buffer) for buffer in step.buffers]
        roles = [kind.role for kind in step.kernel.buffers]
        outputs = [k for k, home in enumerate(homes) if home is written and roles[k] == "output"]
        inputs = [k for k, home in enumerate(homes) if home is read and roles[k] == "input"]
        same_width = len({step.buffers[k].type.byte_width for k in (*outputs, *inputs)}) == 1
        return same_width and all((o, i) in step.kernel.in_place for o in outputs for i in inputs)

    # The arena

    def _place(self) -> None:
        """Best fit, in the order of first use."""
        intervals = []
        small = [b for b in self.uses if b.kind == "temp" and b.byte_size <= STACK_BYTES]
        small = [b for b in small if len({use.part for use in self.uses[b]}) == 1]
        # After an error others may still write to what they exchange.
        small = [b for b in small if not any(isinstance(use.step, WaitStep) for use in self.uses[b])]
        on_stack = {b for b in small if any(use.region for use in self.uses[b])} | set(small[:STACK_SLOTS])
        for buffer, uses in self.uses.items():
            if buffer.kind == "temp" and buffer not in on_stack:
                live = live_intervals(uses, 0, self.count + 1)
                first = min([uses[0].position, *(a for a, _ in live)])
                last = max([uses[-1].position, *(b for _, b in live)])
                intervals.append((first, last, buffer))
        intervals.sort(key=lambda item: item[0])
        free = _FreeList()
        active: list[tuple[int, int, int]] = []
        for first, last, buffer in intervals:
            while active and active[0][0] < first:
                _, offset, size = active.pop(0)
                free.release(offset, size)
            size = -(-buffer.byte_size // ALIGNMENT) * ALIGNMENT
            offset = free.take(size)
            self.assignment.offsets[buffer] = offset
            bisect.insort(active, (last, offset, size))
        self.assignment.arena_bytes = free.end


class _FreeList:
    """Free parts of the arena by offset; the arena grows at its end."""

    def __init__(self) -> None:
        self.parts: list[tuple[int, int]] = []
        self.end = 0

    def take(self, size: int) -> int:
        fitting = [(length, offset) for offset, length in self.parts if length >= size]
        if fitting:
            length, offset = min(fitting)
            self.parts.remove((offset, length))
            if length > size:
                bisect.insort(self.parts, (offset + size, length - size))
            return offset
        if self.parts and sum(self.parts[-1]) == self.end:
            offset, _ = self.parts.pop()
            self.end = offset + size
            return offset
        self.end += size
        return self.end - size

    def release(self, offset: int, size: int) -> None:
        position = bisect.bisect(self.parts, (offset, 0))
        if position < len(self.parts) and self.parts[position][0] == offset + size:
            size += self.parts.pop(position)[1]
        if position and sum(self.parts[position - 1]) == offset:
            offset, before = self.parts.pop(position - 1)
            size += before
        bisect.insort(self.parts, (offset, size))


def _joined(uses: list[Use], assignment: Assignment) -> list[Use]:
    """The uses of a shared buffer: copies to itself vanish, and what one step does is one use."""
    result: list[Use] = []
    for use in uses:
        if _copies_to_itself(use.step, assignment):
            continue
        if result and result[-1].step is use.step and result[-1].position == use.position:
            old = result.pop()
            # In place, the reads come before the writes of the same elements: the old value is read, then lost.
            reads, writes = old.reads or use.reads, old.writes or use.writes
            result.append(replace(use, reads=reads, writes=writes))
        else:
            result.append(use)
    return result


def _part(place: Place, index: tuple[int, ...]) -> Place:
    """The part of a value at an index of a tuple shape."""
    for position in index:
        place = place[position]
    return place


def _copies_to_itself(step: Step, assignment: Assignment) -> bool:
    if not isinstance(step, CopyStep) or step.source is step.target:
        return False
    return assignment.of(step.source) is assignment.of(step.target)


def accesses(step: Step) -> Iterator[tuple[Buffer, bool]]:
    """The buffers that a plain step reads (False) and writes (True)."""
    if isinstance(step, CopyStep):
        yield step.source, False
        yield step.target, True
    elif isinstance(step, KernelStep):
        for position, buffer in enumerate(step.buffers):
            writes = step.kernel.buffers[position].role in ("output", "temporary")
            if writes or position in step.kernel.reads:
                yield buffer, writes
    elif isinstance(step, CallStep):
        for buffer in (*step.operands, *step.constants):
            yield buffer, False
        for buffer in (*step.results, step.scratch):
            yield buffer, True
    elif isinstance(step, CodeStep):
        for position, buffer in enumerate(step.buffers):
            yield buffer, position >= step.operands
    elif isinstance(step, HostStep):
        for place in step.operands:
            for leaf in leaves(place):
                if isinstance(leaf, Buffer):
                    yield leaf, False
        for leaf in leaves(step.result):
            if isinstance(leaf, Buffer):
                yield leaf, True
    elif isinstance(step, WaitStep):
        yield from ((buffer, False) for buffer, _ in accesses(step.start))
