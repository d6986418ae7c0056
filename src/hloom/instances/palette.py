"""The shapes of an instance: a main element type and sizes, from which most of its operands are drawn."""

from __future__ import annotations

import random

from hloom.shape import Shape
from hloom.system.records import record
from hloom.types import PrimitiveType

_FIRST = (PrimitiveType.F32, PrimitiveType.S32, PrimitiveType.PRED, PrimitiveType.U32)
ARRAY_TYPES = (*_FIRST, *(type for type in PrimitiveType if type.is_array and type not in _FIRST))
"""Element types of instances, the most common ones first."""


@record
class Palette:
    """A source of chance, the main element type and the main sizes of an instance.

    Operands that are alike are valid more often than independent ones.
    """

    chance: random.Random
    main_type: PrimitiveType
    sizes: tuple[int, ...]

    def happens(self, probability: float) -> bool:
        """Returns True with a probability."""
        return self.chance.random() < probability

    def shape(self) -> Shape:
        """Draws the shape of an operand: the main one, most often."""
        return Shape.array(self.element_type(), self.sizes if self.happens(0.7) else self.other_sizes())

    def element_type(self) -> PrimitiveType:
        """Draws an element type: the main one, most often."""
        others = [PrimitiveType.PRED, PrimitiveType.S32, *ARRAY_TYPES]
        return self.main_type if self.happens(0.85) else self.chance.choice(others)

    def index_type(self) -> PrimitiveType:
        """Draws an integer type, of indices."""
        return self.chance.choice([PrimitiveType.S32, PrimitiveType.S32, PrimitiveType.U8, PrimitiveType.S64])

    def other_sizes(self) -> list[int]:
        """Draws sizes from the main ones, with 1 among them, or a permutation of these."""
        if self.happens(0.5):
            return self.chance.sample(self.sizes, len(self.sizes))
        rank = self.chance.randint(0, 3)
        return [self.chance.choice([*self.sizes, 1, self.chance.randint(0, 3)]) for _ in range(rank)]
