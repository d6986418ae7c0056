"""Random programs over arrays that are divisible by many partition counts, with random shardings."""

from __future__ import annotations

import numpy as np

import hloom as hl
from backends.cpu.fused_programs import LoopGenerator, ProgramGenerator
from hloom.fuzz.shardings import annotate

SIZES = [[8], [24], [8, 4], [4, 24], [2, 8, 4], [12, 12], [8, 1, 6], [16, 8], [4, 4, 4], [2, 4, 2, 6], []]


class DivisibleGenerator(ProgramGenerator):
    """Programs of all operations, most of whose dimensions can be sharded."""

    def draw_sizes(self) -> list[int]:
        return [*self.pick(SIZES)]


class DivisibleLoops(LoopGenerator):
    """Programs of loops and branches, whose state can be sharded."""

    def draw_sizes(self) -> list[int]:
        return [*self.pick(SIZES)]


def draw(kind: str, seed: int) -> tuple[hl.Module, list[np.ndarray], int, float]:
    """The annotated program of a seed, its inputs, the number of partitions and the tolerance."""
    rng = np.random.default_rng(seed)
    count, tolerance = int(rng.choice([2, 3, 4, 6, 8])), 0.0
    generator = (DivisibleGenerator if kind == "fused" else DivisibleLoops)(seed)
    module, inputs = generator.program(), generator.inputs
    annotate(module, rng, count)
    return module, inputs, count, tolerance
