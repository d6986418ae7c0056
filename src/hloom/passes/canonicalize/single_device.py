"""single-device: replaces collectives over a single device by their operands, and replica-id by 0."""

from __future__ import annotations

from typing import ClassVar

from hloom.ir import Instruction, Module
from hloom.ops.collectives import CollectivePermute
from hloom.ops.device_index import PartitionId, ReplicaId
from hloom.ops.operation import Operation
from hloom.ops.ragged_all_to_all import RaggedAllToAll
from hloom.ops.replica_groups import Collective
from hloom.ops.traits import Start
from hloom.passes.op_builder import Expanders, OpBuilder, expand_all
from hloom.system.records import record
from hloom.types import PrimitiveType


@record
class SingleDeviceCollectives:
    """Before: all-reduce(%x) and other collectives; replica-id, partition-id. After: %x; 0.

    Needs a program for a single device. A collective-permute that does not send to device 0 returns zeros. Ragged
    collectives are left alone.
    """

    name: ClassVar[str] = "single-device"
    operations: ClassVar[tuple[type, ...]] = (Collective, CollectivePermute, PartitionId, ReplicaId)

    def run(self, module: Module) -> int:
        """Replaces the collectives; returns their number."""
        return expand_all(module, _EXPANDERS)


_EXPANDERS = Expanders()


@_EXPANDERS.rule(Collective)
def _collective(op: Collective, build: OpBuilder, old: Instruction, module: Module) -> Instruction | None:
    return None if isinstance(op, (Start, RaggedAllToAll)) else _forwarded(build, old)


def _forwarded(build: OpBuilder, old: Instruction) -> Instruction | None:
    """Returns the operands, as a tuple if the result is one."""
    given = build.tuple(*old.operands) if old.shape.is_tuple else old.operands[0]
    return given if given.shape.compatible(old.shape) else None


@_EXPANDERS.rule(CollectivePermute)
def _permute(op: CollectivePermute, build: OpBuilder, old: Instruction, module: Module) -> Instruction | None:
    if isinstance(op, Start) or any(operand.shape.is_tuple for operand in old.operands):
        return None
    if any(pair == (0, 0) for pair in op.source_target_pairs):
        return _forwarded(build, old)
    return build.zeros(old.shape)


def _zero_id(op: Operation, build: OpBuilder, old: Instruction, module: Module) -> Instruction:
    return build.constant(0, PrimitiveType.U32)


_EXPANDERS.add(PartitionId, _zero_id)
_EXPANDERS.add(ReplicaId, _zero_id)
