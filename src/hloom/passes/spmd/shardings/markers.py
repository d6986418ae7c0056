"""Markers: custom calls that only annotate shardings, by target."""

from __future__ import annotations

from hloom.ir import Instruction
from hloom.ops.custom_call import CustomCall
from hloom.sharding import Sharding, ShardingType

CONSTRAINTS = frozenset({"Sharding", "xla.sdy.FuncResultSharding", "annotate_device_placement", "LayoutConstraint"})
ENTRIES = frozenset({"SPMDFullToShardShape", "xla.sdy.GlobalToLocalShape"})
EXITS = frozenset({"SPMDShardToFullShape", "xla.sdy.LocalToGlobalShape"})
GROUPS = frozenset({"xla.sdy.ShardingGroup"})
IDENTITIES = frozenset({"xla.sdy.PropagationBarrier"})
MANUAL = Sharding(ShardingType.MANUAL)
MARKERS = CONSTRAINTS | ENTRIES | EXITS | GROUPS | IDENTITIES


def marker(instruction: Instruction) -> str:
    """The target of a custom call that only annotates shardings; "" for any other instruction."""
    op = instruction.op
    return op.target_name if isinstance(op, CustomCall) and op.target_name in MARKERS else ""
