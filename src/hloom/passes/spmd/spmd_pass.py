"""spmd: a program with shardings becomes that of one partition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hloom.ir import Module
from hloom.passes.spmd.partitioner import partition


@dataclass(frozen=True)
class SpmdPartitioner:
    """Before: a program on whole arrays, with shardings. After: what each of `partitions` partitions runs on blocks.

    Parameters and results become blocks, collectives are put where values have to move, and annotations go.
    """

    name: ClassVar[str] = "spmd"
    partitions: int = 2

    def run(self, module: Module) -> int:
        partitioned = partition(module, self.partitions).module
        changes = sum(len(computation.instructions) for computation in partitioned.computations)
        module.computations, module.entry_computation = partitioned.computations, partitioned.entry_computation
        for computation in partitioned.computations:
            computation.parent = module
        module.num_partitions = partitioned.num_partitions
        module.set_default_entry_layouts()
        return changes
