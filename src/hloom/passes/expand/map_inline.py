"""map-inline: maps of element-wise computations as element-wise operations on arrays (spec 90)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import ClassVar

from hloom.ir import Computation, Instruction, Module
from hloom.ops.reduce import Map
from hloom.passes.op_builder import OpBuilder, expand_all


@dataclass(frozen=True)
class MapInliner:
    """Before: map(%a, ..), to_apply=f. After: the instructions of f on whole arrays, constants broadcast.

    Needs `inline` before. Maps of computations with other than scalar element-wise operations and constants are left
    alone; so are several maps of one computation of more than `max_callee` instructions.
    """

    name: ClassVar[str] = "map-inline"
    max_callee: int = 500

    def run(self, module: Module) -> int:
        """Inlines the maps; returns their number."""
        uses = Counter(i.op.computation for i in module.instructions() if isinstance(i.op, Map))

        def expand(build: OpBuilder, old: Instruction, module: Module) -> Instruction | None:
            computation: Computation = old.op.computation  # type: ignore[attr-defined]
            is_long = uses[computation] > 1 and len(computation.instructions) > self.max_callee
            return None if is_long or not _is_elementwise(computation) else _inline(build, old, computation)

        return expand_all(module, {"map": expand})


def _inline(build: OpBuilder, old: Instruction, computation: Computation) -> Instruction:
    new: dict[Instruction, Instruction] = {}
    for inner in computation.instructions:
        if inner.opcode == "parameter":
            new[inner] = old.operands[inner.op.number]  # type: ignore[attr-defined]
        elif inner.opcode == "constant":
            new[inner] = build.broadcast(build(inner.op), old.shape)
        else:
            shape = old.shape.with_element_type(inner.shape.element_type).without_layout()
            new[inner] = build(inner.op, *(new[operand] for operand in inner.operands), shape=shape)
    return new[computation.root]


def _is_elementwise(computation: Computation) -> bool:
    return all(
        i.shape.is_scalar and (i.op.elementwise or i.opcode in ("parameter", "constant")) and not i.op.has_side_effect
        for i in computation.instructions
    )
