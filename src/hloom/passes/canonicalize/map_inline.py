"""map-inline: maps of element-wise computations as element-wise operations on arrays (spec 90)."""

from __future__ import annotations

from collections import Counter
from typing import ClassVar

from hloom.ir import Computation, Instruction, Module
from hloom.ops.reduce import Map
from hloom.ops.structure import Constant, Parameter
from hloom.passes.op_builder import OpBuilder, expand_each
from hloom.system.records import record


@record
class MapInliner:
    """Before: map(%a, ..), to_apply=f. After: the instructions of f on whole arrays, constants broadcast.

    Needs `inline` before. Maps of computations with other than scalar element-wise operations and constants are left
    alone; so are several maps of one computation of more than `max_callee` instructions.
    """

    name: ClassVar[str] = "map-inline"
    operations: ClassVar[tuple[type, ...]] = (Map,)
    max_callee: int = 500

    def run(self, module: Module) -> int:
        """Inlines the maps; returns their number."""
        uses = Counter(i.op.computation for i in module.instructions() if isinstance(i.op, Map))

        def expand(op: Map, build: OpBuilder, old: Instruction, module: Module) -> Instruction | None:
            computation = op.computation
            is_long = uses[computation] > 1 and len(computation.instructions) > self.max_callee
            return None if is_long or not _is_elementwise(computation) else _inline(build, old, computation)

        return expand_each(module, Map, expand)


def _inline(build: OpBuilder, old: Instruction, computation: Computation) -> Instruction:
    new: dict[Instruction, Instruction] = {}
    for inner in computation.instructions:
        op = inner.op
        if isinstance(op, Parameter):
            new[inner] = old.operands[op.number]
        elif isinstance(op, Constant):
            new[inner] = build.broadcast(build(op), old.shape)
        else:
            shape = old.shape.with_element_type(inner.shape.element_type).without_layout()
            new[inner] = build(op, *(new[operand] for operand in inner.operands), shape=shape)
    return new[computation.root]


def _is_elementwise(computation: Computation) -> bool:
    return all(
        i.shape.is_scalar and (i.op.elementwise or isinstance(i.op, (Parameter, Constant))) and not i.op.has_side_effect
        for i in computation.instructions
    )
