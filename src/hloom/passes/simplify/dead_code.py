"""dce: removes what no result and no effect needs (GEN-11)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hloom.ir import Computation, Instruction, Module, callees_first
from hloom.ops.control_flow import While
from hloom.ops.structure import GetTupleElement, Parameter, Tuple
from hloom.passes.edit import Edit, callers, effectful_computations, has_control_edges, has_effect, loops_of
from hloom.shape import Shape


@dataclass(frozen=True)
class DeadCodeElimination:
    """Removes instructions without use, elements that loops carry for nothing, and computations that nobody calls.

    Before: an instruction that neither the root nor an effect depends on, by operands or control edges; an element of
    a while's tuple that only computes its own next value. After: neither. Parameters stay; of loops, only those with
    a body and a condition of their own, whose tuples are taken apart element by element, lose elements.
    """

    name: ClassVar[str] = "dce"
    optional: ClassVar[bool] = True

    def run(self, module: Module) -> int:
        effectful = effectful_computations(module)
        changes = sum(_remove_dead(computation, effectful) for computation in module.computations)
        shrunk = _shrink_loops(module, effectful)
        if shrunk:
            changes += shrunk + sum(_remove_dead(computation, effectful) for computation in module.computations)
        return changes + remove_unused_computations(module)


def remove_unused_computations(module: Module) -> int:
    """Removes the computations that the entry does not reach; gives their number."""
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
        _disconnect(instruction)
        for before in (*instruction.operands, *instruction.control_predecessors):
            if before not in dead and is_dead(before):
                dead[before] = None
                stack.append(before)
    if dead:
        computation.root = root
        computation.instructions = [instruction for instruction in computation.instructions if instruction not in dead]
    return len(dead)


def _disconnect(instruction: Instruction) -> None:
    for operand in instruction.operands:
        operand.users.pop(instruction, None)
    for before in instruction.control_predecessors:
        before.control_successors.remove(instruction)
    for after in instruction.control_successors:
        after.control_predecessors.remove(instruction)
    instruction.parent = None


# Elements that loops carry for nothing


def _shrink_loops(module: Module, effectful: set[Computation]) -> int:
    """Takes dead elements out of loops, inner loops first; gives the number of elements."""
    loops = loops_of(module)
    if not loops:
        return 0
    calling = callers(module)
    return sum(_shrink_loop(loop, effectful) for loop in loops if _can_shrink(loop, calling))


def _can_shrink(loop: Instruction, calling: dict[Computation, list[Instruction]]) -> bool:
    """True where the loop's tuple is taken apart everywhere, and body and condition are its own."""
    op = loop.op
    assert isinstance(op, While) and loop.parent is not None
    values = (loop, op.body.parameters[0], op.condition.parameters[0])
    return (
        loop.shape.is_tuple
        and loop is not loop.parent.root
        and not has_control_edges(loop)
        and loop.sharding is None
        and all(len(calling[computation]) == 1 for computation in (op.body, op.condition))
        and all(user.opcode == "get-tuple-element" for value in values for user in value.users)
        and op.body.root.opcode == "tuple"
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
    """The elements that a result, the condition, or an effect or a live element of the body needs, and what of the
    body computes them."""
    (parameter,) = op.body.parameters
    root = op.body.root
    live = {_index(user) for value in (loop, op.condition.parameters[0]) for user in value.users}
    needed: set[Instruction] = set()
    stack = [root.operands[k] for k in live]
    stack += [i for i in op.body.instructions if has_effect(i, effectful) or has_control_edges(i)]
    while stack:
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
        if instruction not in needed and instruction.opcode != "parameter":
            edit.remove(instruction)
    _shrink_parameter(edit, shape, kept)
    edit.finish()


def _shrink_parameter(edit: Edit, shape: Shape, kept: list[int]) -> None:
    (old,) = edit.computation.parameters
    _redirect_elements(edit, old, edit.add(Parameter(number=0), [], shape, old), kept)
    edit.remove(old)


def _shrink_caller(loop: Instruction, op: While, shape: Shape, kept: list[int]) -> None:
    """The same loop on a tuple of the elements kept."""
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
    """The elements that were taken from `old` are taken from `new`."""
    for element in [*old.users]:
        op = GetTupleElement(index=kept.index(_index(element)))
        edit.replace(element, edit.add(op, [new], element.shape, element))


def _index(element: Instruction) -> int:
    op = element.op
    assert isinstance(op, GetTupleElement)
    return op.index
