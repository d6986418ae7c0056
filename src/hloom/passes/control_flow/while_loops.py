"""Simplification of while loops: removing loops that run at most once, and hoisting loop-invariant instructions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from hloom.analysis.counted_loop import carried_index, trip_count
from hloom.ir import Computation, Instruction, Module
from hloom.ops.broadcast import Broadcast
from hloom.ops.control_flow import While
from hloom.ops.custom_call import CustomCall
from hloom.ops.structure import GetTupleElement, Parameter, Tuple
from hloom.ops.traits import ControlFlow, Identity, Structural, View
from hloom.passes.control_flow.call_inliner import inline
from hloom.passes.edit import Edit, callers, effectful_computations, has_control_edges, has_effect, loops_of
from hloom.shape import Shape
from hloom.system.records import record


def invariant_elements(body: Computation) -> dict[int, list[Instruction]]:
    """Returns the loop-invariant elements of the body's tuple: index -> the instructions of the body that read it.

    An element is invariant if the root of the body forwards the parameter's element at the same index.
    """
    root = body.root
    readers: dict[int | None, list[Instruction]] = {}
    for reader in body.parameters[0].users if isinstance(root.op, Tuple) else ():
        readers.setdefault(carried_index(reader, body), []).append(reader)
    forwarded = (k for k, value in enumerate(root.operands) if k in readers and carried_index(value, body) == k)
    return {k: readers[k] for k in forwarded}


@record
class WhileLoopSimplifier:
    """Before: a counted loop with 0 or 1 iterations. After: its initial value, or its body, inlined.

    Loops with effects in the condition and loops with control edges are left alone.
    """

    name: ClassVar[str] = "simplify-while-loops"
    optional: ClassVar[bool] = True
    operations: ClassVar[tuple[type, ...]] = (While,)

    def run(self, module: Module) -> int:
        """Removes the loops; returns their number."""
        loops = loops_of(module)
        effectful = effectful_computations(module) if loops else set()
        return sum(_simplify(loop, effectful) for loop in loops)


def _simplify(loop: Instruction, effectful: set[Computation]) -> bool:
    op = loop.op
    assert isinstance(op, While) and loop.parent is not None
    if has_control_edges(loop) or op.condition in effectful or trip_count(loop) not in (0, 1):
        return False
    edit = Edit(loop.parent)
    if trip_count(loop):
        inline(edit, loop, op.body, loop.operands)
    else:
        edit.redirect(loop, loop.operands[0])
        edit.remove(loop)
    edit.finish()
    return True


# Loop-invariant code motion

_FREE = (Structural, View, Identity, Broadcast)
"""Operations that are too cheap for an element of the tuple: hoisted only as operands of other hoisted instructions."""


@record
class WhileLoopInvariantCodeMotion:
    """Before: an instruction in a loop's body that depends on constants and invariant elements only. After: computed
    once before the loop, and carried as a further element.

    Needs a body and a condition that no other instruction calls, on a tuple that is only read by get-tuple-element.
    Instructions with effects, control flow, free operations, and results larger than their operands stay in the body.
    """

    name: ClassVar[str] = "while-loop-invariant-code-motion"
    optional: ClassVar[bool] = True
    operations: ClassVar[tuple[type, ...]] = (While,)

    def run(self, module: Module) -> int:
        """Hoists instructions; returns their number."""
        loops, changes = loops_of(module), 0
        if not loops:
            return 0
        effectful, calling = effectful_computations(module), callers(module)
        for loop in loops:
            op = loop.op
            assert isinstance(op, While)
            has_own_computations = (
                len(calling[op.body]) == len(calling[op.condition]) == 1 and op.body is not op.condition
            )
            if (
                has_own_computations
                and loop.shape.is_tuple
                and isinstance(op.body.root.op, Tuple)
                and not has_control_edges(loop)
            ):
                changes += _hoist(loop, op, effectful)
        return changes


def _hoist(loop: Instruction, op: While, effectful: set[Computation]) -> int:
    (parameter,) = op.body.parameters
    users = (*parameter.users, *op.condition.parameters[0].users)
    if not all(isinstance(user.op, GetTupleElement) for user in users):
        return 0
    invariant = _invariant_instructions(op.body, effectful)
    hoisted = [
        i
        for i in invariant
        if not isinstance(i.op, _FREE) and not _exceeds_operands(i) and any(user not in invariant for user in i.users)
    ]
    if hoisted:
        _carry(loop, op, hoisted)
    return len(hoisted)


def _invariant_instructions(body: Computation, effectful: set[Computation]) -> dict[Instruction, None]:
    """Returns the instructions of the body that have the same value in every iteration."""
    reads = {i for readers in invariant_elements(body).values() for i in readers}
    found: dict[Instruction, None] = {}
    for instruction in body.instructions:
        if instruction in reads or (
            not instruction.op.is_pinned
            and not isinstance(instruction.op, (ControlFlow, CustomCall))
            and instruction.shape.is_array
            and not has_effect(instruction, effectful)
            and not has_control_edges(instruction)
            and all(operand in found for operand in instruction.operands)
        ):
            found[instruction] = None
    return found


def _exceeds_operands(instruction: Instruction) -> bool:
    return instruction.shape.byte_size > sum(operand.byte_size for operand in instruction.operand_shapes)


def _carry(loop: Instruction, op: While, hoisted: Sequence[Instruction]) -> None:
    """Computes hoisted instructions before the loop, and carries their values as further elements of its tuple."""
    assert loop.parent is not None
    edit = Edit(loop.parent)
    first = len(loop.shape.elements)
    results = widen_loop(edit, loop, _copy_outside(edit, loop, hoisted))
    _forward(op.body, first, hoisted)
    loop.replace_all_uses_with(edit.add(Tuple(), results[:first], loop.shape, loop))
    edit.remove(loop)
    edit.finish()


def widen_loop(edit: Edit, loop: Instruction, values: Sequence[Instruction]) -> list[Instruction]:
    """Adds a loop like `loop`, with its computations, that carries further elements with these initial values; returns
    the elements of its result.

    The root of the body still lacks the new elements, and `loop` is still in use.
    """
    op, (init,) = loop.op, loop.operands
    assert isinstance(op, While)
    elements = [edit.add(GetTupleElement(index=k), [init], s, loop) for k, s in enumerate(init.shape.elements)]
    shape = Shape.tuple_of([*loop.shape.elements, *(value.shape for value in values)])
    wide_init = edit.add(Tuple(), [*elements, *values], shape, loop)
    _widen_parameter(op.condition, shape)
    _widen_parameter(op.body, shape)
    wide = edit.add(op, [wide_init], shape, loop)
    wide.frontend_attributes, wide.backend_config = dict(loop.frontend_attributes), loop.backend_config
    return [edit.add(GetTupleElement(index=k), [wide], s, loop) for k, s in enumerate(shape.elements)]


def _copy_outside(edit: Edit, loop: Instruction, hoisted: Sequence[Instruction]) -> list[Instruction]:
    """Copies instructions of the body, and their operands, before the loop; returns the copies of `hoisted`."""
    (init,) = loop.operands
    copies: dict[Instruction, Instruction] = {}
    stack = [*reversed(hoisted)]
    while stack:
        old = stack[-1]
        index = carried_index(old, old.parent) if old.parent is not None else None
        missing = [] if index is not None else [operand for operand in old.operands if operand not in copies]
        if missing:
            stack += missing
            continue
        stack.pop()
        if old not in copies:
            operands = [init] if index is not None else [copies[operand] for operand in old.operands]
            copies[old] = edit.add(old.op, operands, old.shape, loop)
            copies[old].metadata, copies[old].sharding = dict(old.metadata), old.sharding
    return [copies[old] for old in hoisted]


def _widen_parameter(computation: Computation, shape: Shape) -> None:
    edit = Edit(computation)
    (old,) = computation.parameters
    old.replace_all_uses_with(edit.add(Parameter(number=0), (), shape, old))
    edit.remove(old)
    edit.finish()


def _forward(body: Computation, first: int, hoisted: Sequence[Instruction]) -> None:
    """Reads the values of hoisted instructions from elements of the tuple, from index `first` on, and forwards them."""
    (parameter,) = body.parameters
    edit = Edit(body)
    carried = []
    for k, old in enumerate(hoisted):
        new = edit.add(GetTupleElement(index=first + k), [parameter], old.shape, old)
        carried.append(new)
        edit.replace(old, new)
    root = body.root
    body.root = edit.add(Tuple(), [*root.operands, *carried], parameter.shape, root)
    edit.remove_unused(root)
    edit.finish()
