"""Delta debugging: reduces a module that shows a fault to a minimal one.

A move makes the module smaller and is accepted if the fault remains. Moves are tried from those that remove most to
those that remove a single instruction, until none is accepted:

- `enter`: the computation of a call, a loop, a branch or a fusion becomes the entry;
- `end early`: an instruction of the entry becomes its result;
- `begin late`: instructions become parameters, half of them at first, then smaller parts;
- `inline`: calls and fusions are inlined, a loop is replaced by one execution of its body, a conditional by a branch;
- `drop metadata`: removes metadata, layouts and annotations;
- `bypass`: users of an instruction read one of its operands instead, or a zero.

If the case has arguments, an instruction that becomes a parameter gets the value that it had.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from hloom.errors import HloomError
from hloom.faults.case import Case, interpret
from hloom.ir import Computation, Instruction, Module
from hloom.literal import Literal
from hloom.ops.broadcast import Broadcast
from hloom.ops.control_flow import Call, Conditional, Fusion, While
from hloom.ops.structure import Constant, Parameter, Tuple
from hloom.passes import clone_module
from hloom.passes.control_flow.call_inliner import inline
from hloom.passes.edit import Edit, has_control_edges
from hloom.passes.extract import extract
from hloom.passes.simplify.dead_code import DeadCodeElimination
from hloom.shape import Shape
from hloom.text import print_module
from hloom.values import Value
from hloom.verifier import verify_module

Test = Callable[[Case], bool]
Progress = Callable[[str, int], None]

MAX_BYPASS_SIZE = 300
"""Largest number of instructions of a module for which `bypass` is tried."""


def reduce(case: Case, test: Test, progress: Progress | None = None) -> Case:
    """Returns the smallest case found for which `test` returns True; `case` itself if it does not.

    `progress(move, size)` is called for each accepted move. An HloomError of the test counts as False.

    >>> from hloom import faults
    >>> text = "HloModule m  ENTRY e { x = f32[8] parameter(0)  y = f32[8] negate(x)  ROOT z = f32[8] log(y) }"
    >>> case = faults.Case.random(hl.parse(text), seed=0)
    >>> small = faults.reduce(case, lambda case: any(i.opcode == "log" for i in case.module.instructions()))
    >>> [instruction.opcode for instruction in small.module.instructions()]
    ['parameter', 'log']
    """
    return _Reduction(test, progress).run(case)


class _Reduction:
    def __init__(self, test: Test, progress: Progress | None) -> None:
        self.test, self.progress = test, progress
        self.seen: dict[str, bool] = {}

    def run(self, case: Case) -> Case:
        if not self.shows(case):
            return case
        while True:
            size = case.size
            for move in (_enter, _end_early):
                case = self.repeat(move, case)
            case = self.begin_late(case)
            for move in (_inline, _drop_metadata, _bypass):
                case = self.repeat(move, case)
            if case.size >= size:
                return case

    def shows(self, case: Case) -> bool:
        """Whether a case is a valid module that shows the fault."""
        key = print_module(case.module, metadata=False)
        if key not in self.seen:
            try:
                verify_module(case.module)
                self.seen[key] = bool(self.test(case))
            except HloomError:
                self.seen[key] = False
        return self.seen[key]

    def repeat(self, move: Callable[[Case], Iterator[Case]], case: Case) -> Case:
        """Accepts the first result of a move that shows the fault, until there is none."""
        found: Case | None = case
        while found is not None:
            case = found
            found = next((smaller for smaller in move(case) if self.shows(smaller)), None)
            if found is not None and self.progress is not None:
                self.progress(move.__name__.strip("_").replace("_", " "), found.size)
        return case

    def begin_late(self, case: Case) -> Case:
        """Instructions become parameters: half of all, quarters, .., one."""
        count = max(1, len(_steps(case)) // 2)
        while count:
            position = 0
            while position < len(steps := _steps(case)):
                chosen = set(steps[position : position + count]) - {case.module.entry.root}
                smaller = case.extract([case.module.entry.root], chosen) if chosen else case
                if smaller.size < case.size and self.shows(smaller):
                    case = smaller
                    if self.progress is not None:
                        self.progress("begin late", case.size)
                else:
                    position += count
            count //= 2
        return case


def _steps(case: Case) -> list[Instruction]:
    """Instructions of the entry without its parameters."""
    return [i for i in case.module.entry.instructions if not isinstance(i.op, Parameter)]


def _enter(case: Case) -> Iterator[Case]:
    for caller in _steps(case):
        if not isinstance(caller.op, (Call, Conditional, Fusion, While)):
            continue
        for callee in caller.op.computations:
            if len(callee.instructions) < 2:
                continue
            module, outside = extract(case.module.name, [callee.root], callee.parameters)
            if case.arguments is None:
                yield Case(module)
                continue
            for arguments in _arguments_of(case, caller, callee):
                yield Case(module, tuple(arguments[p.parameter_number] for p in outside))


def _arguments_of(case: Case, caller: Instruction, callee: Computation) -> list[list[Value]]:
    """The arguments of a callee; for a loop, those of the first iteration and of the last one."""
    op = caller.op
    operands = case.values(caller.operands)
    if isinstance(op, Conditional):
        return [[operands[1 + [*op.computations].index(callee)]]]
    if not isinstance(op, While):
        return [operands]
    states: list[Value] = []

    def observe(instruction: Instruction, _: Sequence[Value], value: Value) -> None:
        if instruction is op.body.root:
            states[:] = [*states[-1:], value]  # the last two: operand and result of the last iteration

    interpret(case.module, case.arguments or (), observe)
    return [operands, *([[states[0]]] if len(states) == 2 else [])]


def _end_early(case: Case) -> Iterator[Case]:
    """Ends the entry at an instruction: 16 evenly spaced ones, from early to late, and the root's operands."""
    steps = [i for i in _steps(case) if i is not case.module.entry.root and (i.shape.is_array or i.shape.is_tuple)]
    stride = max(1, len(steps) // 16)
    chosen = dict.fromkeys([*steps[stride - 1 :: stride], *case.module.entry.root.operands])
    for instruction in chosen:
        if not isinstance(instruction.op, Parameter):
            yield case.extract([instruction])


def _inline(case: Case) -> Iterator[Case]:
    entry = case.module.entry
    for position, instruction in enumerate(entry.instructions):
        op = instruction.op
        if isinstance(op, (Call, Fusion)):
            (callee,) = op.computations
            calls = [(callee, instruction.operands)]
        elif isinstance(op, While):
            calls = [(op.body, instruction.operands)]
        elif isinstance(op, Conditional):
            calls = [(branch, [instruction.operands[1 + k]]) for k, branch in enumerate(op.computations)]
        else:
            continue
        for choice in range(len(calls)):
            yield _edited(case, position, choice)


def _edited(case: Case, position: int, choice: int) -> Case:
    """Replaces an instruction of the entry by an inlined call; `choice` selects the branch of a conditional."""
    module = clone_module(case.module)
    instruction = module.entry.instructions[position]
    op = instruction.op
    edit = Edit(module.entry)
    if not isinstance(op, (Call, Fusion)):
        branches = [op.body] if isinstance(op, While) else [*op.computations]
        operands = instruction.operands if isinstance(op, While) else [instruction.operands[1 + choice]]
        call = edit.add(Call(computation=branches[choice]), operands, instruction.shape, instruction)
        edit.replace(instruction, call)
    edit.finish()
    edit = Edit(module.entry)
    called = [i for i in module.entry.instructions if isinstance(i.op, (Call, Fusion))]
    for call in [i for i in called if not has_control_edges(i)]:
        (callee,) = call.op.computations
        inline(edit, call, callee, call.operands)
    edit.finish()
    return _tidied(case, module)


def _drop_metadata(case: Case) -> Iterator[Case]:
    module = clone_module(case.module)
    module.entry_parameter_layouts = module.entry_result_layout = None
    module.input_output_alias, module.buffer_donors, module.stack_frames = [], [], {}
    module.frontend_attributes, module.extra_attributes, module.is_scheduled = {}, {}, False
    for instruction in module.instructions():
        instruction.metadata, instruction.frontend_attributes, instruction.extra_attributes = {}, {}, {}
        instruction.backend_config, instruction.sharding = "", None
    stripped = _tidied(case, module)
    if print_module(stripped.module) != print_module(case.module):
        yield stripped


def _bypass(case: Case) -> Iterator[Case]:
    """Bypasses a single instruction of any computation."""
    if case.size > MAX_BYPASS_SIZE:
        return
    for index, computation in enumerate(case.module.computations):
        for position, instruction in enumerate(computation.instructions):
            if isinstance(instruction.op, (Parameter, Constant, Tuple)):
                continue
            for k, operand in enumerate(instruction.operands):
                if operand.shape.compatible(instruction.shape):
                    yield _bypassed(case, index, position, k)
            is_splat = isinstance(instruction.op, Broadcast) and isinstance(instruction.operands[0].op, Constant)
            if instruction.shape.is_array and not instruction.shape.is_dynamic and not is_splat:
                yield _bypassed(case, index, position, None)


def _bypassed(case: Case, index: int, position: int, operand: int | None) -> Case:
    module = clone_module(case.module)
    computation = module.computations[index]
    old = computation.instructions[position]
    edit = Edit(computation)
    edit.replace(old, old.operands[operand] if operand is not None else _zero(edit, old))
    edit.finish()
    return _tidied(case, module)


def _zero(edit: Edit, like: Instruction) -> Instruction:
    shape = like.shape
    literal = Literal.from_numpy(np.zeros((), shape.element_type.dtype))
    scalar = edit.add(Constant(literal=literal), [], Shape.array(shape.element_type, ()), like)
    if not shape.dimensions:
        return scalar
    return edit.add(Broadcast(broadcast_dimensions=()), [scalar], shape, like)


def _tidied(case: Case, module: Module) -> Case:
    """The case of a changed module, without dead code and unused parameters."""
    DeadCodeElimination().run(module)
    tidy, outside = extract(module.name, [module.entry.root])
    if case.arguments is None:
        return Case(tidy)
    return Case(tidy, tuple(case.arguments[p.parameter_number] for p in outside))
