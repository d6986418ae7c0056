"""Where every buffer lies: copies are removed by sharing memory, what is left gets an offset in one arena.

Steps are numbered in the order in which they stand, loops and branches included. A buffer is alive between a step that
writes it and the last step that reads what was written. Two buffers can share memory if neither is written while the
other is alive (Chaitin's condition), copies between them aside.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from hloom.backends.cpu.program.arena import best_fit
from hloom.backends.cpu.program.life import Life
from hloom.backends.cpu.program.liveness import Region, Use, accesses
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
    Rounds,
    Step,
    Subroutine,
    WaitStep,
    WhileStep,
    leaves,
)
from hloom.types import PrimitiveType

PlainStep = KernelStep | CodeStep | CopyStep | HostStep | WaitStep | CallStep
"""Steps that run no other steps."""
STACK_BYTES = 64
"""Temporaries of at most so many bytes lie on the stack, where they may end up in registers."""
STACK_SLOTS = 128
"""So many at most, but for those that loops use."""
MAX_ROUND_BYTES = 8 << 20
"""Of memory that a round has for itself, where several run at once: the kernels of larger ones fill the threads."""
MAX_BYTES_AT_ONCE = 256 << 20


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
    rounds: dict[WhileStep, RoundMemory] = field(default_factory=dict)
    """Of loops whose rounds run at once."""

    def of(self, buffer: Buffer) -> Buffer:
        """The buffer whose memory it has; what lies on the way there is remembered."""
        home = buffer
        while (shared := self.home.get(home)) is not None:
            home = shared
        while buffer is not home:
            self.home[buffer], buffer = home, self.home[buffer]
        return home


@dataclass(eq=False, slots=True)
class RoundMemory:
    """What the rounds of a loop that run at once need: each `slot_bytes` of its own, from `offset` of the arena on."""

    private: list[Buffer]
    """Homes that each round has for itself; those without an offset lie on the stack."""
    shared: list[Buffer]
    """All other homes that the loop uses."""
    offsets: dict[Buffer, int]
    """Within a slot."""
    slot_bytes: int
    offset: int = 0


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
        self.lives: dict[Buffer, Life] = {}
        """Of the homes that sharing was tried for."""
        self.copies: list[tuple[Buffer, Buffer]] = []
        self.in_place: list[tuple[Buffer, Buffer]] = []
        self.loops: list[tuple[WhileStep, tuple[Region, ...]]] = []
        """Each with the loops and branches up to its own."""
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
        self.uses = {home: self._own_uses(uses) for home, uses in self.uses.items()}
        self._part_rounds()
        self._place()
        return self.assignment

    # Uses

    def _number(self, steps: list[Step], region: tuple[Region, ...]) -> None:
        for step in steps:
            self.count += 1
            if isinstance(step, WhileStep):
                loop = Region(self.count, [])
                loop.branches.append(loop)
                self.loops.append((step, (*region, loop)))
                self._number(step.condition, (*region, loop))
                self.count += 1
                self._use(step.predicate, True, False, step, (*region, loop))
                loop.exit = self.count
                self._number(step.body, (*region, loop))
                self.count += 1
                loop.end = self.count
            elif isinstance(step, ConditionalStep):
                self._use(step.selector, True, False, step, region)
                branches: list[Region] = []
                for steps_of_branch in step.branches:
                    branch = Region(self.count, branches)
                    branches.append(branch)
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
        free: dict[tuple[PrimitiveType, int], list[Buffer]] = {}
        for output in leaves(program.result) if module.buffer_donors else ():
            if isinstance(output, Buffer) and output.number not in self.assignment.donated:
                free.setdefault((output.type, output.byte_size), []).append(output)
        for donor in module.buffer_donors:
            parameter = _part(program.parameters[donor.parameter_number], donor.parameter_index)
            fitting = free.get((parameter.type, parameter.byte_size), []) if isinstance(parameter, Buffer) else []
            taken = next((k for k, output in enumerate(fitting) if self._try_to_donate(parameter, output)), None)
            if taken is not None:
                del fitting[taken]

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
        """Gives two homes one place. What there is less of is added to the other: many may come together."""
        few, many = sorted((self._life(drop), self._life(keep)), key=lambda life: len(life.writes))
        few_uses, many_uses = sorted((self.uses.pop(drop), self.uses[keep]), key=len)
        self.assignment.home[drop] = keep
        many.join(few)
        many_uses += few_uses
        for use in few_uses:
            if _copies_to_itself(use.step, self.assignment):
                many.forget(use)
        self.uses[keep], self.lives[keep] = many_uses, many
        del self.lives[drop]

    def _life(self, home: Buffer) -> Life:
        if home not in self.lives:
            self.lives[home] = Life.of(self.uses[home], 0, self.count + 1)
        return self.lives[home]

    def _overwrites(self, writer: Buffer, holder: Buffer) -> bool:
        """Whether a step writes `writer` while `holder` is alive; copies between the two do not count."""
        writes, alive = self._life(writer), self._life(holder)
        for use, end in alive.meets(writes):
            if isinstance(use.step, CopyStep) and self.assignment.of(use.step.source) is holder:
                continue
            if use.position != end or not self._in_place(use.step, writer, holder):
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

    def _own_uses(self, uses: list[Use]) -> list[Use]:
        """In order, without copies to the place itself; what one step does is one use."""
        joined: dict[tuple[int, int], Use] = {}
        for use in uses:
            if not _copies_to_itself(use.step, self.assignment):
                old = joined.setdefault((use.position, id(use.step)), use)
                joined[use.position, id(use.step)] = replace(
                    old, reads=old.reads or use.reads, writes=old.writes or use.writes
                )
        return sorted(joined.values(), key=lambda use: use.position)

    # Rounds that run at once

    def _part_rounds(self) -> None:
        """Gives memory of their own to the rounds of loops that may run at once, the outermost such loops."""
        at_once: set[Region] = set()
        inside: dict[Region, dict[Buffer, list[Use]]] = {r[-1]: {} for step, r in self.loops if step.rounds is not None}
        for home, uses in self.uses.items() if inside else ():
            for use in uses:
                for region in use.region:
                    if region in inside:
                        inside[region].setdefault(home, []).append(use)
        for step, regions in self.loops:
            if step.rounds is not None and at_once.isdisjoint(regions):
                memory = self._round_memory(step.rounds, regions[-1], inside[regions[-1]])
                if memory is not None:
                    at_once.add(regions[-1])
                    self.assignment.rounds[step] = memory

    def _round_memory(self, rounds: Rounds, loop: Region, uses: dict[Buffer, list[Use]]) -> RoundMemory | None:
        """None where a round needs what another one leaves, or too much memory.

        What no step outside of the loop reads or writes, one in the same round has written before it is read: what
        comes from another round was something before the first one.
        """
        counter = self.assignment.of(rounds.counter)
        arrays = {self.assignment.of(array) for array in rounds.arrays}
        private, shared = [counter], []
        for home, inside in uses.items():
            if home is counter:
                continue
            if not any(use.writes for use in inside) or (home in arrays and _only_in_parts(inside)):
                shared.append(home)
            elif home.kind == "temp" and len(inside) == len(self.uses[home]):
                private.append(home)
            else:
                return None
        if any(use.position > loop.end for use in self.uses[counter]) or counter.kind != "temp":
            return None
        intervals = [self._interval(home) for home in private if home.byte_size > STACK_BYTES]
        offsets, size = best_fit(intervals)
        small_enough = size <= MAX_ROUND_BYTES and size * rounds.at_once <= MAX_BYTES_AT_ONCE
        return RoundMemory(private, shared, offsets, size) if small_enough else None

    # The arena

    def _place(self) -> None:
        own = {home for memory in self.assignment.rounds.values() for home in memory.private}
        small = [b for b in self.uses if b.kind == "temp" and b.byte_size <= STACK_BYTES and b not in own]
        small = [b for b in small if len({use.part for use in self.uses[b]}) == 1]
        # After an error others may still write to what they exchange.
        small = [b for b in small if not any(isinstance(use.step, WaitStep) for use in self.uses[b])]
        on_stack = {b for b in small if any(use.region for use in self.uses[b])} | set(small[:STACK_SLOTS])
        placed = [b for b in self.uses if b.kind == "temp" and b not in on_stack and b not in own]
        intervals: list[tuple[int, int, int, Buffer | WhileStep]] = [self._interval(buffer) for buffer in placed]
        for step, regions in self.loops:
            memory = self.assignment.rounds.get(step)
            if memory is not None and step.rounds is not None:
                size = memory.slot_bytes * step.rounds.at_once
                intervals.append((regions[-1].start, regions[-1].end, size, step))
        offsets, self.assignment.arena_bytes = best_fit(intervals)
        for key, offset in offsets.items():
            if isinstance(key, Buffer):
                self.assignment.offsets[key] = offset
            else:
                self.assignment.rounds[key].offset = offset

    def _interval(self, buffer: Buffer) -> tuple[int, int, int, Buffer]:
        """From where to where the buffer needs its memory."""
        positions = [use.position for use in self.uses[buffer]]
        positions += self._life(buffer).ends()
        return min(positions), max(positions), buffer.byte_size, buffer


def _only_in_parts(uses: Sequence[Use]) -> bool:
    """Whether all that is done with an array is that one step writes a part of it."""
    steps = [use.step for use in uses]
    return len(steps) == 1 and isinstance(steps[0], KernelStep) and bool(steps[0].partial)


def _part(place: Place, index: tuple[int, ...]) -> Place:
    """The part of a value at an index of a tuple shape."""
    for position in index:
        place = place[position]
    return place


def _copies_to_itself(step: Step, assignment: Assignment) -> bool:
    if not isinstance(step, CopyStep) or step.source is step.target:
        return False
    return assignment.of(step.source) is assignment.of(step.target)
