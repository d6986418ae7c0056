"""The base of generators of random programs for the code generators: inputs and parameters."""

from __future__ import annotations

from typing import Any

import numpy as np

import hloom as hl
from hloom.numerics import convert
from hloom.types import PrimitiveType

FLOATS = [hl.f32, hl.f32, hl.f64, hl.f16, hl.bf16]
INTEGERS = [hl.s8, hl.s16, hl.s32, hl.s64, hl.u8, hl.u16, hl.u32, hl.u64]
COMPLEX = [hl.c64, hl.c128]


class Generator:
    """Draws the inputs of a program; the same seed gives the same ones."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.builder = hl.XlaBuilder("generated")
        self.inputs: list[np.ndarray] = []

    def pick(self, options: Any) -> Any:
        return options[self.rng.integers(len(options))]

    def array(self, element_type: PrimitiveType, sizes: list[int], special: bool = False) -> np.ndarray:
        if element_type.is_pred:
            return np.asarray(self.rng.random(sizes) < 0.5)
        if element_type.is_integer:
            limits = np.iinfo(element_type.dtype)
            wide = self.rng.random() < 0.4
            low, high = (limits.min, limits.max) if wide else (max(limits.min, -20), min(limits.max, 20))
            return np.asarray(self.rng.integers(low, high, sizes, element_type.dtype, endpoint=True))
        values = self.rng.standard_normal(sizes) * self.pick([0.5, 1.0, 3.0])
        if element_type.is_complex:
            return np.asarray(values + 1j * self.rng.standard_normal(sizes)).astype(element_type.dtype)
        if special and self.rng.random() < 0.5:
            chosen = self.rng.random(sizes) < 0.3
            specials = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, 2.5, -1.5, 1e30, 100.0])
            values = np.where(chosen, specials[self.rng.integers(len(specials), size=sizes)], values)
        return convert(np.asarray(values, np.float64), element_type.dtype)

    def parameter(
        self, element_type: PrimitiveType, sizes: list[int], special: bool = False, array: np.ndarray | None = None
    ) -> hl.XlaOp:
        value = self.array(element_type, sizes, special) if array is None else array
        self.inputs.append(value)
        return self.builder.parameter(len(self.inputs) - 1, hl.Literal.from_numpy(value).shape)

    def any_type(self) -> PrimitiveType:
        return self.pick([*FLOATS, *INTEGERS, *COMPLEX, hl.pred])
