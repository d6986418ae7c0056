"""Building of fusions: instructions move into computations of their own, and fusion instructions replace the roots."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from hloom.ir import Computation, Instruction, Module
from hloom.ops.attributes import FusionKind
from hloom.ops.control_flow import Fusion
from hloom.ops.reduce import Reduce
from hloom.ops.structure import GetTupleElement, Parameter, Tuple
from hloom.passes.edit import Edit
from hloom.shape import Shape


def build_fusion(module: Module, edit: Edit, roots: Sequence[Instruction], members: Collection[Instruction]) -> None:
    """Replaces the roots by a fusion instruction that computes copies of the members, which are listed operands first.

    Several roots are the elements of its tuple. The fusion is added where the last root was.
    """
    fused, operands = _fused_computation(f"fused_computation.{len(module.computations)}", roots, members)
    module.add(fused)
    module.computations.insert(0, module.computations.pop())
    kind = FusionKind.INPUT if any(isinstance(root.op, Reduce) for root in roots) else FusionKind.LOOP
    last = roots[-1]
    fusion = edit.add(Fusion(kind=kind, calls=fused), operands, fused.root.shape, last)
    if len(roots) == 1:
        edit.replace(last, fusion)
        return
    for position, root in enumerate(roots):
        edit.replace(root, edit.add(GetTupleElement(index=position), [fusion], root.shape, last))


def _fused_computation(
    name: str, roots: Sequence[Instruction], members: Collection[Instruction]
) -> tuple[Computation, list[Instruction]]:
    """Returns a computation with copies of the members, and the instructions to call it with."""
    fused = Computation(name)
    new: dict[Instruction, Instruction] = {}
    operands: list[Instruction] = []
    copies: list[Instruction] = []
    for member in members:
        for operand in member.operands:
            if operand not in members and operand not in new:
                parameter = Parameter(number=len(operands))
                new[operand] = fused.add(Instruction(f"param_{len(operands)}", operand.shape, parameter))
                operands.append(operand)
        copy = Instruction(member.name, member.shape, member.op, [new[o] for o in member.operands])
        copy.metadata, copy.location = dict(member.metadata), member.location
        new[member] = copy
        copies.append(copy)
    for copy in copies:
        fused.add(copy)
    results = [new[root] for root in roots]
    if len(results) == 1:
        fused.root = results[0]
    else:
        shape = Shape.tuple_of(root.shape for root in roots)
        fused.root = fused.add(Instruction("tuple", shape, Tuple(), results))
    return fused, operands
