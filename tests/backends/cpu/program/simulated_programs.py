"""Programs of random steps, and a simulation of them on memory as laid out by an assignment.

Memory is a dictionary of cells. A buffer has one cell for every 64 bytes. Cells of the arena are identified by offset,
so buffers that overlap in the arena overlap here. The value of a cell is a hash of how it was computed.
"""

from __future__ import annotations

import random
from collections.abc import Hashable, Iterator

from hloom.backends.cpu.program.buffer_assignment import Assignment
from hloom.backends.cpu.program.program import (
    Buffer,
    CodeStep,
    ConditionalStep,
    CopyStep,
    HostStep,
    KernelStep,
    ParallelLoop,
    Program,
    Step,
    WhileStep,
    leaves,
)
from hloom.loops.nest import BufferType, Kernel
from hloom.target import CACHE_LINE
from hloom.types import PrimitiveType

F32 = PrimitiveType.F32
CELL = CACHE_LINE
MAX_ITERATIONS = 4
PARTS = 4
"""Number of slices of an array that a parallel loop writes, each a cell."""
PART = "part"
"""Name of the kernel that writes a slice."""


class Drawer:
    """Draws programs like those built from modules: each step writes new buffers, loops copy their states.

    Conditions of loops compute on arrays only if `busy_conditions`. With `parallel_loops` some loops may be parallel.
    """

    def __init__(self, seed: int, busy_conditions: bool, parallel_loops: bool = False) -> None:
        self.random = random.Random(seed)
        self.busy_conditions = busy_conditions
        self.parallel_loops = parallel_loops
        self.counts: dict[str, int] = {}
        self.program = Program(module=None, plans={})  # type: ignore[arg-type]

    def draw(self) -> Program:
        program = self.program
        known = [self.buffer("parameter", size) for size in (16, 32, 32, 48)]
        known.append(self.buffer("constant", 32))
        program.parameters = known[:-1]
        known = self.block(program.steps, known, depth=0)
        results = self.random.choices(known[-5:], k=self.random.randint(1, 4))
        program.result = tuple(self.buffer("output", r.dimensions[0]) for r in results)
        program.steps += [CopyStep(to, origin) for to, origin in zip(program.result, results)]
        return program

    def buffer(self, kind: str, size: int) -> Buffer:
        number = self.counts.get(kind, 0)
        self.counts[kind] = number + 1
        made = Buffer(kind, number, F32, (size,))
        self.program.buffers.append(made)
        return made

    def temp(self) -> Buffer:
        return self.buffer("temp", self.random.choice((16, 32, 32, 32, 48)))

    def block(self, steps: list[Step], known: list[Buffer], depth: int) -> list[Buffer]:
        """Appends steps. Returns `known` and the buffers that they wrote."""
        known = list(known)
        for _ in range(self.random.randint(1, 5)):
            kind = self.random.choices(["kernel", "code", "scatter", "host", "loop", "branches"], [6, 1, 1, 1, 2, 1])[0]
            if kind == "loop" and depth < 2 and self.parallel_loops and self.random.random() < 0.7:
                known.append(self.parallel_loop(steps, known, depth))
            elif kind == "loop" and depth < 2:
                known += self.loop(steps, known, depth)
            elif kind == "branches" and depth < 2:
                known.append(self.branches(steps, known, depth))
            elif kind == "code":
                operands, result = self.random.choices(known, k=2), self.temp()
                steps.append(CodeStep(None, "", [*operands, result, self.temp()], 2))  # type: ignore[arg-type]
                known.append(result)
            elif kind == "scatter":
                source, update = self.random.choices(known, k=2)
                result = self.buffer("temp", source.dimensions[0])
                steps.append(CopyStep(result, source))
                steps.append(CodeStep(None, "", [result, update, result], 2))  # type: ignore[arg-type]
                known.append(result)
            elif kind == "host":
                operands, result = self.random.choices(known, k=2), self.temp()
                steps.append(HostStep(None, operands, (result,), 0))  # type: ignore[arg-type]
                known.append(result)
            else:
                known += self.kernel(steps, known)
        return known

    def kernel(self, steps: list[Step], known: list[Buffer]) -> list[Buffer]:
        """A kernel with one or two results; some compute in place if sizes agree, some update a slice."""
        chosen = list(dict.fromkeys(self.random.choices(known[-6:], k=self.random.randint(1, 3))))
        results = [self.temp() for _ in range(self.random.choice((1, 1, 2)))]
        count = len(chosen)
        partial: tuple[int, ...] = ()
        if self.random.random() < 0.2:
            results = [self.buffer("temp", chosen[0].dimensions[0])]
            steps.append(CopyStep(results[0], chosen[0]))
            partial = (count,)
        # An operand that one result reads in place is read in place by all results.
        one_size = len({r.dimensions for r in results}) == 1 and not partial
        in_place = [i for i, b in enumerate(chosen) if b.dimensions == results[0].dimensions and one_size]
        in_place = [i for i in in_place if self.random.random() < 0.7]
        pairs = [(count + k, i) for k in range(len(results)) for i in in_place]
        roles = ["input"] * count + ["output"] * len(results)
        types = [BufferType(F32, b.dimensions[0], role) for b, role in zip([*chosen, *results], roles)]
        reads = frozenset(range(1 if partial and count > 1 else 0, count))
        kernel = Kernel(types, [], None, frozenset(pairs), reads)  # type: ignore[arg-type]
        steps.append(KernelStep(kernel, [*chosen, *results], f"k{self.random.random()}", partial))
        return results

    def loop(self, steps: list[Step], known: list[Buffer], depth: int) -> list[Buffer]:
        initial = self.random.choices(known, k=self.random.randint(1, 3))
        state = [self.buffer("temp", b.dimensions[0]) for b in initial]
        steps += [CopyStep(to, origin) for to, origin in zip(state, initial)]
        condition: list[Step] = []
        if self.busy_conditions:
            predicate = self.random.choice(self.block(condition, [*known, *state], depth + 1)[-3:])
        else:
            predicate = self.buffer("temp", 16)
            types = [BufferType(F32, state[-1].dimensions[0], "input"), BufferType(F32, 16, "output")]
            kernel = Kernel(types, [], None, reads=frozenset((0,)))  # type: ignore[arg-type]
            condition.append(KernelStep(kernel, [state[-1], predicate], "predicate"))
        body: list[Step] = []
        inside = self.block(body, [*state, *known, *state], depth + 1)
        chosen = [self.random.choice([b for b in inside[len(known) - 2 :] if b.dimensions == s.dimensions]
                                     or [s]) for s in state]  # fmt: skip
        saved = {b: self.buffer("temp", b.dimensions[0]) for b in dict.fromkeys(chosen) if b in state}
        body += [CopyStep(copy, b) for b, copy in saved.items()]
        body += [CopyStep(s, saved.get(b, b)) for s, b in zip(state, chosen) if s is not b]
        steps.append(WhileStep("w", condition, predicate, body, 0))
        return state

    def parallel_loop(self, steps: list[Step], known: list[Buffer], depth: int) -> Buffer:
        """A loop whose iterations each write a cell of an array, computed from shared buffers and the counter.

        Some iterations also read the array or a running value, and so have loop-carried dependences.
        """
        state, counter, predicate = self.buffer("temp", 16 * PARTS), self.buffer("temp", 16), self.buffer("temp", 16)
        whole = [b for b in known if b.dimensions == state.dimensions]
        if whole:
            steps.append(CopyStep(state, self.random.choice(whole)))
        else:
            steps.append(CodeStep(None, "", [known[0], state], 1))  # type: ignore[arg-type]
        body: list[Step] = []
        running = self.buffer("temp", 32)
        steps.append(CodeStep(None, "", [known[0], running], 1))  # type: ignore[arg-type]
        more = [b for b in (state, running) if self.random.random() < 0.1]
        update = self.block(body, [*known, counter, *more], depth + 1)[-1]
        if more:
            result = self.buffer("temp", 32)
            body.append(CodeStep(None, "", [update, *more, result], 1 + len(more)))  # type: ignore[arg-type]
            update = result
        if running in more:
            body.append(CopyStep(running, update))
        result, following = self.buffer("temp", 16 * PARTS), self.buffer("temp", 16)
        body.append(CopyStep(result, state))
        buffers = [update, counter, result]
        roles = ["input", "input", "output"]
        types = [BufferType(F32, b.dimensions[0], role) for b, role in zip(buffers, roles)]
        kernel = Kernel(types, [], None, reads=frozenset((0, 1)))  # type: ignore[arg-type]
        body.append(KernelStep(kernel, buffers, PART, (2,)))
        condition: list[Step] = []
        for part, to in ((body, following), (condition, predicate)):
            types = [BufferType(F32, 16, "input"), BufferType(F32, 16, "output")]
            kernel = Kernel(types, [], None, frozenset({(1, 0)}), frozenset((0,)))  # type: ignore[arg-type]
            part.append(KernelStep(kernel, [counter, to], f"k{self.random.random()}"))
        body += [CopyStep(state, result), CopyStep(counter, following)]
        parallel = ParallelLoop(counter, 0, 1, PARTS, [state], self.random.choice((1, 2, 3)))
        steps.append(WhileStep("w", condition, predicate, body, 0, parallel))
        return state

    def branches(self, steps: list[Step], known: list[Buffer], depth: int) -> Buffer:
        result = self.temp()
        branches = []
        for _ in range(self.random.randint(2, 3)):
            branch: list[Step] = []
            inside = self.block(branch, known, depth + 1)
            same = [b for b in inside if b.dimensions == result.dimensions]
            branch.append(CopyStep(result, self.random.choice(same[-3:])))
            branches.append(branch)
        steps.append(ConditionalStep(self.random.choice(known), branches))
        return result


class Simulation:
    """Runs a program on one memory; without an assignment each buffer has memory of its own."""

    def __init__(self, program: Program, assignment: Assignment | None) -> None:
        self.program, self.assignment = program, assignment
        self.memory: dict[Hashable, int] = {}
        self.slots: dict[WhileStep, int] = {}
        """Slot of the iteration that is running, for each parallel loop."""

    def results(self) -> list[list[int]]:
        for buffer in self.program.buffers:
            if buffer.kind in ("parameter", "constant"):
                self.write_all(buffer, [hash((repr(buffer), k)) for k in range(cells(buffer))])
        for _ in self.run(self.program.steps):
            pass
        return [self.read_all(leaf) for leaf in leaves(self.program.result)]

    def cell(self, buffer: Buffer, k: int) -> Hashable:
        if self.assignment is None:
            return buffer, k
        buffer = self.assignment.representative(buffer)
        for loop, slot in self.slots.items():
            memory = self.assignment.parallel_loops[loop]
            if buffer in memory.offsets:
                return (memory.offset + slot * memory.slot_bytes + memory.offsets[buffer]) // CELL + k
            if buffer in memory.private:
                return loop, slot, buffer, k
        return self.assignment.offsets[buffer] // CELL + k if buffer in self.assignment.offsets else (buffer, k)

    def read_all(self, buffer: Buffer) -> list[int]:
        return [self.memory.get(self.cell(buffer, k), 0) for k in range(cells(buffer))]

    def write_all(self, buffer: Buffer, values: list[int]) -> None:
        for k, value in enumerate(values):
            self.memory[self.cell(buffer, k)] = value

    def run(self, steps: list[Step]) -> Iterator[None]:
        """Runs steps, yielding after each, so that parallel iterations interleave."""
        for step in steps:
            if isinstance(step, CopyStep):
                self.write_all(step.target, self.read_all(step.source))
            elif isinstance(step, KernelStep) and step.name == PART:
                self.run_part(step)
            elif isinstance(step, KernelStep):
                self.run_kernel(step)
            elif isinstance(step, WhileStep) and step.parallel is not None:
                yield from self.run_parallel(step, step.parallel)
            elif isinstance(step, WhileStep):
                yield from self.run_while(step)
            elif isinstance(step, ConditionalStep):
                yield from self.run(step.branches[sum(self.read_all(step.selector)) % len(step.branches)])
            else:
                self.run_whole(step)
            yield

    def run_part(self, step: KernelStep) -> None:
        """Writes the cell of the last buffer that the counter selects."""
        update, counter, array = step.buffers
        (at,) = self.read_all(counter)
        self.memory[self.cell(array, at)] = hash(tuple(self.read_all(update)))

    def run_parallel(self, step: WhileStep, parallel: ParallelLoop) -> Iterator[None]:
        is_parallel = self.assignment is not None and step in self.assignment.parallel_loops
        waiting = list(range(parallel.trips))
        running: list[tuple[int, Iterator[None]]] = []
        while waiting or running:
            if waiting and len(running) < (parallel.tasks if is_parallel else 1):
                slot = min({*range(parallel.tasks)} - {slot for slot, _ in running})
                if is_parallel:
                    self.slots[step] = slot
                self.write_all(parallel.counter, [waiting.pop(0)])
                running.append((slot, self.run(step.body)))
            slot, steps = running.pop(0)
            if is_parallel:
                self.slots[step] = slot
            if next(steps, self) is None:
                running.append((slot, steps))
            self.slots.pop(step, None)
            yield

    def run_kernel(self, step: KernelStep) -> None:
        """Runs a kernel cell by cell: in-place operands are read cell by cell, others at any time."""
        outputs = [k for k, b in enumerate(step.kernel.buffers) if b.role == "output"]
        for at in range(max(cells(step.buffers[k]) for k in outputs)):
            new = {}
            for k in outputs:
                if at >= cells(step.buffers[k]) or (k in step.partial and at == 0):
                    continue
                read = []
                for i in sorted(step.kernel.reads):
                    values = self.read_all(step.buffers[i])
                    read.append(values[at] if (k, i) in step.kernel.in_place else tuple(values))
                new[self.cell(step.buffers[k], at)] = hash((step.name, k, at, *read))
            self.memory.update(new)

    def run_whole(self, step: CodeStep | HostStep) -> None:
        """Runs a step that may read and write at any time; only a scatter's operand may share memory with a result."""
        if isinstance(step, CodeStep):
            operands, results = step.buffers[: step.operand_count], step.buffers[step.operand_count :]
        else:
            operands, results = list(step.operands), list(step.result)
        first = [self.read_all(b) for b in operands]
        changed = {self.cell(b, k) for b in results for k in range(cells(b))} - {
            self.cell(b, k) for b in operands if b in results for k in range(cells(b))
        }
        for b in operands:
            assert not changed & {self.cell(b, k) for k in range(cells(b))}, f"{b} is overwritten while it is read"
        for number, b in enumerate(results):
            self.write_all(b, [hash((str(first), number, k)) for k in range(cells(b))])

    def run_while(self, step: WhileStep) -> Iterator[None]:
        for _ in range(MAX_ITERATIONS):
            yield from self.run(step.condition)
            if sum(self.read_all(step.predicate)) % 5 == 0:
                return
            yield from self.run(step.body)
        yield from self.run(step.condition)


def cells(buffer: Buffer) -> int:
    return -(-buffer.byte_size // CELL)
