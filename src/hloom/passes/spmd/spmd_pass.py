"""spmd: the pass that replaces a program with shardings by the program of one partition."""

from __future__ import annotations

from typing import ClassVar

from hloom.ir import Module
from hloom.system.records import record


@record
class SpmdPartitioner:
    """Before: a program on whole arrays, with shardings. After: the program that each partition runs, on its blocks.

    Parameters and results become blocks, collectives are inserted where data has to move, and annotations are removed.
    """

    name: ClassVar[str] = "spmd"
    partitions: int = 2

    def run(self, module: Module) -> int:
        """Replaces the module's computations in place; returns the number of its instructions."""
        from hloom.passes.spmd.partitioner import partition

        partitioned = partition(module, self.partitions).module
        changes = sum(len(computation.instructions) for computation in partitioned.computations)
        module.computations, module.entry_computation = partitioned.computations, partitioned.entry_computation
        for computation in partitioned.computations:
            computation.parent = module
        module.num_partitions = partitioned.num_partitions
        module.set_default_entry_layouts()
        return changes
