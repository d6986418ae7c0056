"""map-inline: maps of element-wise computations (spec 90)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hloom.ir import Computation, Instruction, Module
from hloom.ops.reduce import Map
from hloom.passes.expand.maker import Maker, expand_all


@dataclass(frozen=True)
class MapInliner:
    """Before: map(%a, ..), to_apply=f. After: the instructions of f on whole arrays, constants broadcast.

    Maps of computations that are not all scalars, constants and element-wise operations stay; `inline` comes first.
    """

    name: ClassVar[str] = "map-inline"

    def run(self, module: Module) -> int:
        return expand_all(module, {"map": _inline})


def _inline(make: Maker, old: Instruction, module: Module) -> Instruction | None:
    op = old.op
    assert isinstance(op, Map)
    if not _is_elementwise(op.computation):
        return None
    new: dict[Instruction, Instruction] = {}
    for inner in op.computation.instructions:
        if inner.opcode == "parameter":
            new[inner] = old.operands[inner.op.number]  # type: ignore[attr-defined]
        elif inner.opcode == "constant":
            new[inner] = make.broadcast(make(inner.op), old.shape)
        else:
            shape = old.shape.with_element_type(inner.shape.element_type).without_layout()
            new[inner] = make(inner.op, *(new[operand] for operand in inner.operands), shape=shape)
    return new[op.computation.root]


def _is_elementwise(computation: Computation) -> bool:
    return all(
        i.shape.is_scalar and (i.op.elementwise or i.opcode in ("parameter", "constant")) and not i.op.has_side_effect
        for i in computation.instructions
    )
