"""map-inline: maps of element-wise computations (spec 90)."""

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

    Maps of computations that are not all scalars, constants and element-wise operations stay, and so do several of one
    that has more than `max_callee` instructions; `inline` comes first.
    """

    name: ClassVar[str] = "map-inline"
    max_callee: int = 500

    def run(self, module: Module) -> int:
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
