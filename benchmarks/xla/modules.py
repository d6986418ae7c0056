"""XLA's list of modules in a checkout, and arguments for them that keep results finite."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product, starmap
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from hloom.ir import Module
from hloom.types import BY_DTYPE
from hloom.values import Array

FOLDER = Path("xla/backends/cpu/benchmarks")
LISTS = ("hlo/hlo_files.bzl", "huge_hlo/hlo_files.bzl")
MOST_DRAWN = 4_194_319
"""A prime, so that rows of arrays that repeat their elements differ."""
Parameter = tuple[str, tuple[int, ...]]
"""The type of the elements and the dimensions of a parameter."""


@dataclass(frozen=True)
class Listed:
    """A module of XLA's list, of which the checkout may lack the file."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.stem


@dataclass(frozen=True)
class Recipe:
    """A distribution of numbers: floats are normal or uniform from 0, times a scale; integers are less than a limit.

    Integers are positions in arrays, lengths of loops and tokens; where JAX reads outside of an array, it gives NaN.
    """

    limit: int
    is_positive: bool
    scale: float


RECIPES = tuple(starmap(Recipe, product((10, 2), (False, True), (1.0, 0.02))))
"""Recipes in the order in which they are tried."""


def listed(checkout: Path) -> list[Listed]:
    """Returns the modules that XLA's lists name. Raises OSError if the checkout lacks the lists."""
    return [
        Listed(checkout / FOLDER / Path(file).parent / name)
        for file in LISTS
        for name in _names((checkout / FOLDER / file).read_text())
    ]


def _names(text: str) -> Iterator[str]:
    """The names in the lists of a Starlark file, which is also Python."""
    for statement in ast.parse(text).body:
        if isinstance(statement, ast.Assign):
            yield from ast.literal_eval(statement.value)


def parameters(module: Module) -> list[Parameter]:
    """Returns the parameters of the entry computation, which have to be arrays."""
    shapes = module.entry.parameter_shapes
    return [(shape.element_type.dtype.name, shape.dimensions) for shape in shapes]


def arguments(found: Sequence[Parameter], recipe: Recipe) -> Iterator[Array]:
    """Draws arguments from seeds, one after another: XLA's are copied to its device, where no two copies of large ones
    must be held.
    """
    for number, (name, sizes) in enumerate(found):
        rng = np.random.default_rng([0, number])
        dtype = np.dtype(name)
        element_type = BY_DTYPE[dtype]
        if element_type.is_pred:
            yield rng.random(sizes, np.float32) < 0.5
        elif element_type.is_integer:
            yield rng.integers(0, min(recipe.limit, ml_dtypes.iinfo(dtype).max + 1), sizes).astype(dtype)
        else:
            yield _floats(rng, sizes, dtype, recipe)


def _floats(rng: np.random.Generator, sizes: tuple[int, ...], dtype: np.dtype[Any], recipe: Recipe) -> Array:
    """Draws floats, which large arrays repeat from the start."""
    count = min(math.prod(sizes), MOST_DRAWN)
    drawn = rng.random(count, np.float32) if recipe.is_positive else rng.standard_normal(count, np.float32)
    return np.resize((np.asarray(drawn) * np.float32(recipe.scale)).astype(dtype), sizes)
