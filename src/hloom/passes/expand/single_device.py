"""single-device: replaces collectives over a single device by their operands, and replica-id by 0."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from hloom.ir import Instruction, Module
from hloom.passes.op_builder import Expander, OpBuilder, expand_all
from hloom.shape import Shape
from hloom.types import PrimitiveType


@dataclass(frozen=True)
class SingleDeviceCollectives:
    """Before: all-reduce(%x) and other collectives; replica-id, partition-id. After: %x; 0.

    Needs a program for a single device. A collective-permute that does not send to device 0 returns zeros. Ragged
    collectives are left alone.
    """

    name: ClassVar[str] = "single-device"

    def run(self, module: Module) -> int:
        """Replaces the collectives; returns their number."""
        return expand_all(module, _EXPANDERS)


def _forward_operands(build: OpBuilder, old: Instruction, module: Module) -> Instruction | None:
    """Returns the operands, as a tuple if the result is one."""
    given = build.tuple(*old.operands) if old.shape.is_tuple else old.operands[0]
    return given if given.shape.compatible(old.shape) else None


def _permute(build: OpBuilder, old: Instruction, module: Module) -> Instruction | None:
    op: Any = old.op
    if any(operand.shape.is_tuple for operand in old.operands):
        return None
    if any(pair == (0, 0) for pair in op.source_target_pairs):
        return _forward_operands(build, old, module)
    return zeros(build, old.shape)


def zeros(build: OpBuilder, shape: Shape) -> Instruction:
    """Builds zeros of an array or tuple shape."""
    if shape.is_tuple:
        return build.tuple(*(zeros(build, element) for element in shape.elements))
    return build.broadcast(build.constant(0, shape.element_type), shape)


def _zero_id(build: OpBuilder, old: Instruction, module: Module) -> Instruction:
    return build.constant(0, PrimitiveType.U32)


_EXPANDERS: dict[str, Expander] = {
    "all-gather": _forward_operands,
    "all-reduce": _forward_operands,
    "all-to-all": _forward_operands,
    "collective-broadcast": _forward_operands,
    "collective-permute": _permute,
    "partition-id": _zero_id,
    "reduce-scatter": _forward_operands,
    "replica-id": _zero_id,
}
