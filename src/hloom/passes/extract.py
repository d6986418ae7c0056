"""Extraction of instructions as a module of their own."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from hloom.ir import Computation, Instruction, Module, called_by, clone_graph, dependencies, reachable
from hloom.ops.structure import Parameter, Tuple
from hloom.passes.edit import copy_annotations
from hloom.shape import Shape


def extract(
    name: str, roots: Sequence[Instruction], inputs: Collection[Instruction] = ()
) -> tuple[Module, list[Instruction]]:
    """Builds a module that computes `roots`, of one computation or several (as a tuple if there are several).

    Returns the module and the instruction that each of its parameters replaces: the `inputs` and parameters of the
    computations that the roots need.
    """
    needed = _needed(roots, inputs)
    outside = [i for i in needed if i in inputs or isinstance(i.op, Parameter)]
    ordinals = {instruction: k for k, instruction in enumerate(outside)}
    copies = _callee_copies(needed, ordinals)
    entry = Computation(_computations(roots)[0].name)
    new: dict[Instruction, Instruction] = {}
    for old in needed:
        is_parameter = old in ordinals
        op = Parameter(number=ordinals[old]) if is_parameter else old.op.with_computations(copies.__getitem__)
        operands = [] if is_parameter else [new[operand] for operand in old.operands]
        new[old] = entry.add(Instruction(old.name, old.shape, op, operands))
        copy_annotations(old, new[old])
        new[old].location = old.location
        # Stack frame ids refer to tables of the other module.
        new[old].metadata = {key: value for key, value in old.metadata.items() if key != "stack_frame_id"}
        for before in [] if is_parameter else old.control_predecessors:
            if before not in ordinals:
                new[before].add_control_dependency(new[old])
    entry.root = new[roots[0]] if len(roots) == 1 else _tuple(entry, [new[root] for root in roots])
    module = Module(name)
    for copy in copies.values():
        module.add(copy)
    module.add(entry, entry=True)
    return module, outside


def _callee_copies(needed: Iterable[Instruction], ordinals: Collection[Instruction]) -> dict[Computation, Computation]:
    """Copies of the computations that the instructions call, callees first."""
    return clone_graph(*called_by(instruction for instruction in needed if instruction not in ordinals))


def _tuple(entry: Computation, elements: list[Instruction]) -> Instruction:
    shape = Shape.tuple_of(element.shape for element in elements)
    names = {instruction.name for instruction in entry.instructions}
    name = next(n for n in ("result", *(f"result.{k}" for k in range(len(names) + 1))) if n not in names)
    return entry.add(Instruction(name, shape, Tuple(), elements))


def _needed(roots: Sequence[Instruction], inputs: Collection[Instruction]) -> list[Instruction]:
    """Instructions that the roots need, in the order of their computations; operands of `inputs` are not needed."""
    found = reachable(roots, lambda instruction: () if instruction in inputs else dependencies(instruction))
    return [i for computation in _computations(roots) for i in computation.instructions if i in found]


def _computations(roots: Sequence[Instruction]) -> list[Computation]:
    return [*dict.fromkeys(root.parent for root in roots if root.parent is not None)]
