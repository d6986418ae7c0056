"""dce: removes instructions that neither the result nor a side effect depends on (GEN-11)."""

from __future__ import annotations

from typing import ClassVar

from hloom.ir import Computation, Instruction, Module, callees_first
from hloom.ops.control_flow import While
from hloom.ops.structure import GetTupleElement, Parameter, Tuple
from hloom.passes.edit import Edit, callers, effectful_computations, has_control_edges, has_effect, loops_of
from hloom.shape import Shape
from hloom.system.records import record


@record
class DeadCodeElimination:
    """Removes dead instructions, dead elements of loop states, and computations that are not called.

    Before: an instruction that neither the root nor an effect depends on, by operands or control edges; an element of
    a while's tuple that only computes its own next value. After: neither. Parameters are kept. Elements are removed
    only from loops whose body and condition have no other caller and read their tuples by get-tuple-element only.
    """

    name: ClassVar[str] = "dce"
    optional: ClassVar[bool] = True

    def run(self, module: Module) -> int:
        """Removes dead code; returns the number of instructions, elements and computations removed."""
        effectful = effectful_computations(module)
        changes = sum(_remove_dead(computation, effectful) for computation in module.computations)
        shrunk = _shrink_loops(module, effectful)
        if shrunk:
            changes += shrunk + sum(_remove_dead(computation, effectful) for computation in module.computations)
        return changes + remove_unused_computations(module)


def remove_unused_computations(module: Module) -> int:
    """Removes the computations that the entry does not reach; returns their number."""
    used = set(callees_first(module.entry))
    before = len(module.computations)
    module.computations = [computation for computation in module.computations if computation in used]
    return before - len(module.computations)


def _remove_dead(computation: Computation, effectful: set[Computation]) -> int:
    root = computation.root

    def is_dead(i: Instruction) -> bool:
        return not (
            i.users or i is root or i.control_successors or isinstance(i.op, Parameter) or has_effect(i, effectful)
        )

    stack = [instruction for instruction in computation.instructions if is_dead(instruction)]
    dead = dict.fromkeys(stack)
    while stack:
        instruction = stack.pop()
        instruction.disconnect()
        instruction.parent = None
        for before in (*instruction.operands, *instruction.control_predecessors):
            if before not in dead and is_dead(before):
                dead[before] = None
                stack.append(before)
    if dead:
        computation.root = root
        computation.instructions = [instruction for instruction in computation.instructions if instruction not in dead]
    return len(dead)


# Dead elements of loop states


def _shrink_loops(module: Module, effectful: set[Computation]) -> int:
    """Removes dead elements from the tuples of loops, inner loops first; returns their number."""
    loops = loops_of(module)
    if not loops:
        return 0
    calling = callers(module)
    return sum(_shrink_loop(loop, effectful) for loop in loops if _can_shrink(loop, calling))


def _can_shrink(loop: Instruction, calling: dict[Computation, list[Instruction]]) -> bool:
    """Whether the loop's tuple is only read by get-tuple-element, and body and condition have no other caller."""
    op = loop.op
    assert isinstance(op, While) and loop.parent is not None
    values = (loop, op.body.parameters[0], op.condition.parameters[0])
    return (
        loop.shape.is_tuple
        and loop is not loop.parent.root
        and not has_control_edges(loop)
        and loop.sharding is None
        and all(len(calling[computation]) == 1 for computation in (op.body, op.condition))
        and all(isinstance(user.op, GetTupleElement) for value in values for user in value.users)
        and isinstance(op.body.root.op, Tuple)
        and not op.body.root.users
    )


def _shrink_loop(loop: Instruction, effectful: set[Computation]) -> int:
    op = loop.op
    assert isinstance(op, While)
    live, needed = _live_elements(loop, op, effectful)
    kept = sorted(live)
    dead = len(loop.shape.elements) - len(kept)
    if not dead:
        return 0
    shape = Shape.tuple_of(loop.shape.elements[k] for k in kept)
    _shrink_body(op.body, shape, kept, needed)
    edit = Edit(op.condition)
    _shrink_parameter(edit, shape, kept)
    edit.finish()
    _shrink_caller(loop, op, shape, kept)
    return dead


def _live_elements(loop: Instruction, op: While, effectful: set[Computation]) -> tuple[set[int], set[Instruction]]:
    """Returns the indices of live elements, and, if others are dead, the instructions of the body that compute them.

    An element is live if a user of the loop, the condition, or an effect or live element of the body depends on it.
    """
    (parameter,) = op.body.parameters
    root = op.body.root
    live = {_index(user) for value in (loop, op.condition.parameters[0]) for user in value.users}
    needed: set[Instruction] = set()
    if len(live) == len(root.operands):
        return live, needed
    stack = [root.operands[k] for k in live]
    stack += [i for i in op.body.instructions if has_effect(i, effectful) or has_control_edges(i)]
    while stack and len(live) < len(root.operands):
        instruction = stack.pop()
        if instruction in needed:
            continue
        needed.add(instruction)
        if instruction in parameter.users and _index(instruction) not in live:
            live.add(_index(instruction))
            stack.append(root.operands[_index(instruction)])
        stack += [operand for operand in instruction.operands if operand is not parameter]
    return live, needed


def _shrink_body(body: Computation, shape: Shape, kept: list[int], needed: set[Instruction]) -> None:
    edit = Edit(body)
    root = body.root
    body.root = edit.add(Tuple(), [root.operands[k] for k in kept], shape, root)
    for instruction in body.instructions:
        if instruction not in needed and not isinstance(instruction.op, Parameter):
            edit.remove(instruction)
    _shrink_parameter(edit, shape, kept)
    edit.finish()


def _shrink_parameter(edit: Edit, shape: Shape, kept: list[int]) -> None:
    (old,) = edit.computation.parameters
    _redirect_elements(edit, old, edit.add(Parameter(number=0), [], shape, old), kept)
    edit.remove(old)


def _shrink_caller(loop: Instruction, op: While, shape: Shape, kept: list[int]) -> None:
    """Replaces the loop by one whose tuple has only the kept elements."""
    assert loop.parent is not None
    edit = Edit(loop.parent)
    (init,) = loop.operands
    parts = [edit.add(GetTupleElement(index=k), [init], init.shape.elements[k], loop) for k in kept]
    new = edit.add(op, [edit.add(Tuple(), parts, shape, loop)], shape, loop)
    new.frontend_attributes, new.backend_config = dict(loop.frontend_attributes), loop.backend_config
    _redirect_elements(edit, loop, new, kept)
    edit.remove(loop)
    edit.finish()


def _redirect_elements(edit: Edit, old: Instruction, new: Instruction, kept: list[int]) -> None:
    """Makes the get-tuple-elements of `old` read `new`, which has only the kept elements."""
    for element in [*old.users]:
        op = GetTupleElement(index=kept.index(_index(element)))
        edit.replace(element, edit.add(op, [new], element.shape, element))


def _index(element: Instruction) -> int:
    op = element.op
    assert isinstance(op, GetTupleElement)
    return op.index
