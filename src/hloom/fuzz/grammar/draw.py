"""Random choices: weighted, reproducible by their seed, and steered towards what has been reached least."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

import numpy as np

from hloom.ops.operation import Operation
from hloom.types import Kind, PrimitiveType

T = TypeVar("T")

TYPES = [t for t in PrimitiveType if t.is_array]
ARRAYS = frozenset(Kind) - {Kind.OTHER}
OFTEN = {PrimitiveType.F32: 4.0, PrimitiveType.S32: 3.0, PrimitiveType.F64: 2.0, PrimitiveType.BF16: 2.0}
"""Weights of element types other than 1."""
BOUNDS = (1, 24, 9, 6, 4, 3, 3)
"""The largest usual size of a dimension, by rank."""
LARGE = ((16, 17, 33, 64, 100, 129, 1000), (8, 17, 31, 40, 65), (5, 8, 16, 18))
"""Sizes that reach vectors, tiles and their remainders, for ranks 1, 2 and 3."""
LARGE_EVERY = 32
"""Distance of the seeds whose modules have arrays of thousands of elements."""
THOUSANDS = ((2000, 4099, 16384), (40, 129, 160), (17, 24, 25))
"""Sizes whose arrays reach threads, blocks, parts of sums and long sorts, for ranks 1, 2 and 3."""


class Draw:
    """A source of choices: `random` for attributes, `rng` for all others.

    `reached` counts what earlier modules had: opcodes, and pairs (opcode, element type).
    """

    def __init__(self, seed: int, reached: Mapping[tuple[str, str], int] | None = None) -> None:
        self.rng = np.random.default_rng(seed)
        self.random = random.Random(seed)
        self.reached: Counter[tuple[str, str]] = Counter(reached)
        self.is_large = seed % LARGE_EVERY == LARGE_EVERY - 1

    def chance(self, probability: float) -> bool:
        """Returns True with a probability."""
        return bool(self.rng.random() < probability)

    def below(self, limit: int) -> int:
        """Returns an integer in [0, limit)."""
        return int(self.rng.integers(limit))

    def between(self, low: int, high: int) -> int:
        """Returns an integer in [low, high]."""
        return int(self.rng.integers(low, high + 1))

    def pick(self, options: Sequence[T]) -> T:
        """Returns one of the options, which are equally likely."""
        return options[self.below(len(options))]

    def weighted(self, options: Mapping[T, float]) -> T:
        """Returns one of the options with a probability in proportion to its weight."""
        weights = np.array([*options.values()])
        position = int(np.searchsorted(np.cumsum(weights), self.rng.random() * weights.sum(), "right"))
        return [*options][min(position, len(options) - 1)]

    def some(self, options: Sequence[T], probability: float = 0.5) -> tuple[T, ...]:
        """Returns each of the options with a probability, in order."""
        return tuple(option for option in options if self.chance(probability))

    def shuffled(self, options: Iterable[T]) -> list[T]:
        """Returns the options in random order."""
        listed = [*options]
        return [listed[k] for k in self.rng.permutation(len(listed))]

    def rank(self, low: int = 0) -> int:
        """Returns a rank, mostly up to 3."""
        return self.weighted({rank: weight for rank, weight in enumerate((2, 4, 4, 3, 1.5, 0.5, 0.3)) if rank >= low})

    def sizes(self, low: int = 0) -> tuple[int, ...]:
        """Returns dimension sizes of a rank of at least `low`: mostly small, seldom 0, 1 or large."""
        rank = self.rank(low)
        if self.is_large and 1 <= rank <= len(THOUSANDS) and self.chance(0.6):
            return tuple(self.pick(THOUSANDS[rank - 1]) for _ in range(rank))
        sizes = [self.between(1, BOUNDS[rank]) for _ in range(rank)]
        if 1 <= rank <= len(LARGE) and self.chance(0.12):
            sizes[self.below(rank)] = self.pick(LARGE[rank - 1])
        if rank and self.chance(0.05):
            sizes[self.below(rank)] = self.pick((0, 1))
        return tuple(sizes)

    def element_type(self, opcode: str, kinds: Iterable[Kind] = ARRAYS) -> PrimitiveType:
        """Returns an element type of some kinds, rather one that the operation has not had."""
        allowed = frozenset(kinds)
        return self.weighted({t: self._novelty(opcode, t) for t in TYPES if t.kind in allowed})

    def _novelty(self, opcode: str, element_type: PrimitiveType) -> float:
        return OFTEN.get(element_type, 1.0) / math.sqrt(1 + self.reached[opcode, element_type.text])

    def operation(self, weights: Mapping[type[Operation], float]) -> type[Operation]:
        """Returns a declaration of an operation, rather one that modules have seldom had."""
        return self.weighted({op: w / math.sqrt(1 + self.reached[op.opcode, ""] / 50) for op, w in weights.items()})
