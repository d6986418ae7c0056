"""Fusions of random programs, for proofs of the nests that they become."""

from __future__ import annotations

import hloom as hl
from backends.cpu.fused_programs import ProgramGenerator
from hloom.backends.cpu.elements.ops import can_apply
from hloom.backends.cpu.pipeline import Topology, cpu_pipeline
from hloom.loops.lower import can_lower
from hloom.ops.control_flow import Fusion
from hloom.passes.pipeline import run_passes


class SmallPrograms(ProgramGenerator):
    """Programs of all operations on small arrays."""

    def draw_sizes(self) -> list[int]:
        return [*self.pick([[3], [8], [2, 3], [4, 5], [2, 1, 3], [2, 2, 2], []])]


def fusions(seed: int) -> list[hl.Instruction]:
    """The instructions of a random program, after the passes of the backend, that become loop nests."""
    module = SmallPrograms(seed).program()
    run_passes(module, cpu_pipeline(Topology.SINGLE))
    return [
        i for i in module.entry.instructions if isinstance(i.op, Fusion) or (i.operands and can_lower(i, can_apply))
    ]
