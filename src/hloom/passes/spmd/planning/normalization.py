"""Normalizes a module before it is partitioned."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from hloom.ir import Computation, Instruction, Module, callees_first, clone_computation
from hloom.ops.broadcast import Broadcast, Iota
from hloom.ops.control_flow import Call, Conditional, While
from hloom.ops.rng import Rng
from hloom.ops.structure import Constant, GetTupleElement, Tuple
from hloom.passes.control_flow.call_inliner import inline
from hloom.passes.edit import Edit, callees_first_of, has_control_edges
from hloom.passes.simplify.dead_code import DeadCodeElimination
from hloom.passes.spmd.shardings.markers import CONSTRAINTS, ENTRIES, EXITS, GROUPS, MANUAL, marker


def normalize(module: Module) -> None:
    """Reduces a module to the entry and the bodies of control flow, each of which has a single caller.

    Calls are inlined. Loops and branches that share a computation get copies of it, and users that share a cheap source
    get copies of that. Markers are removed from computations of scalars.
    """
    _mark_manual_rngs(module)
    for computation in callees_first_of(module):
        _inline_calls(computation)
    module.computations = callees_first(module.entry)
    _duplicate_shared_bodies(module)
    partitioned = control_flow_computations(module)
    for computation in module.computations:
        if computation in partitioned:
            _duplicate_sources(computation)
        else:
            _remove_markers(computation)
    DeadCodeElimination().run(module)


def _mark_manual_rngs(module: Module) -> None:
    """Marks random numbers in bodies of manual regions, which are drawn per partition; others are replicated."""
    for call in [i for i in module.instructions() if isinstance(i.op, Call)]:
        if any(marker(source) in ENTRIES for source in _neighbors(call, lambda i: i.operands)) or any(
            marker(user) in EXITS for user in _neighbors(call, lambda i: i.users)
        ):
            (body,) = call.op.computations
            for instruction in (i for computation in callees_first(body) for i in computation.instructions):
                if isinstance(instruction.op, Rng):
                    instruction.sharding = MANUAL


def _neighbors(start: Instruction, following: Callable[[Instruction], Iterable[Instruction]]) -> Iterator[Instruction]:
    """Yields the adjacent instructions in a direction, looking through tuples and constraints."""
    for instruction in following(start):
        yield instruction
        if isinstance(instruction.op, (GetTupleElement, Tuple)) or marker(instruction) in CONSTRAINTS:
            yield from _neighbors(instruction, following)


def control_flow_computations(module: Module) -> set[Computation]:
    """The entry and the bodies of loops and branches, nested ones included."""
    found = {module.entry}
    for computation in reversed(callees_first(module.entry)):
        if computation in found:
            for instruction in computation.instructions:
                if isinstance(instruction.op, (While, Conditional)):
                    found |= {*instruction.op.computations}
    return found


def _inline_calls(computation: Computation) -> None:
    calls = [i for i in computation.instructions if isinstance(i.op, Call) and not has_control_edges(i)]
    edit = Edit(computation)
    for call in calls:
        (callee,) = call.op.computations
        inline(edit, call, callee, call.operands)
    edit.finish()


def _duplicate_shared_bodies(module: Module) -> None:
    """Copies the computations that several loops or branches run: each may be sharded differently."""
    seen: set[Computation] = set()
    names = {computation.name for computation in module.computations}

    def unshared(computation: Computation) -> Computation:
        if computation not in seen:
            seen.add(computation)
            return computation
        copy = clone_computation(computation, lambda callee: callee)
        while copy.name in names:
            copy.name += ".copy"
        names.add(copy.name)
        seen.add(copy)
        return module.add(copy)

    waiting = [module.entry]
    while waiting:
        for instruction in waiting.pop().instructions:
            if isinstance(instruction.op, (While, Conditional)):
                instruction.op = instruction.op.with_computations(unshared)
                waiting += instruction.op.computations
    module.computations = callees_first(module.entry)


def _duplicate_sources(computation: Computation) -> None:
    """Copies constants, iotas and broadcasts of scalars, so that each has a single user.

    Users that want them in different shardings would otherwise need communication.
    """
    edit = Edit(computation)
    for source in computation.instructions:
        if not source.shape.is_array or not source.shape.rank or not _is_cheap(source):
            continue
        if any(marker(user) in GROUPS for user in source.users):
            continue
        for user in [*source.users][1:]:
            copy = edit.add(source.op, source.operands, source.shape, source)
            for position, operand in enumerate(user.operands):
                if operand is source:
                    user.replace_operand(position, copy)
    edit.finish()


def _is_cheap(source: Instruction) -> bool:
    if isinstance(source.op, Broadcast):
        return not source.operands[0].shape.rank
    return isinstance(source.op, (Constant, Iota))


def remove_annotations(module: Module) -> None:
    """Removes all annotations and markers: on a single partition each value is its own block."""
    for computation in module.computations:
        for instruction in computation.instructions:
            instruction.sharding = None
        _remove_markers(computation)


def _remove_markers(computation: Computation) -> None:
    edit = Edit(computation)
    for instruction in computation.instructions:
        if not marker(instruction):
            continue
        value = instruction.operands[0]
        if instruction.shape.is_tuple:
            value = edit.add(Tuple(), instruction.operands, instruction.shape, instruction)
        instruction.replace_all_uses_with(value)
        edit.remove(instruction)
    edit.finish()
