"""The blocks of an array of a `pallas_call`, as its `BlockSpec` says: sizes, starts, reading and writing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jax import lax
from jax._src import core
from jax._src.pallas import core as pallas_core
from jax._src.pallas import primitives

from hloom.system.lazy import cached_property
from hloom.system.records import record

Indices = Sequence[Any]
"""Scalars of s32, for each dimension of an array or axis of the grid."""


def uninitialized(shape: tuple[int, ...], dtype: Any) -> Any:
    """The contents of memory that nobody has written, as JAX's interpreter has them: NaN, or the least integer."""
    return primitives.uninitialized_value(shape, dtype)


@record
class Blocks:
    """The blocks of one array."""

    mapping: Any  # pallas_core.BlockMapping

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """The sizes of a block within the array; squeezed dimensions have size 1."""
        return tuple(1 if d in self.squeezed else size.block_size for d, size in enumerate(self.mapping.block_shape))

    @cached_property
    def squeezed(self) -> tuple[int, ...]:
        """The dimensions of the array that its blocks do not have."""
        kinds = enumerate(self.mapping.block_shape)
        return tuple(d for d, kind in kinds if isinstance(kind, pallas_core.Squeezed))

    @cached_property
    def array_sizes(self) -> tuple[int, ...]:
        """The sizes of the array without padding."""
        return tuple(self.mapping.array_aval.shape)

    @property
    def block_sizes(self) -> tuple[int, ...]:
        """The sizes of a block as the kernel sees it."""
        return tuple(self.mapping.block_aval.shape)

    @property
    def element_type(self) -> Any:
        """The element type of the array."""
        return self.mapping.array_aval.dtype

    @cached_property
    def padding(self) -> tuple[tuple[int, int], ...]:
        """Elements before and after the array in each dimension, so that it consists of whole blocks."""
        return tuple(map(_padding, self.mapping.block_shape, self.array_sizes, self.sizes))

    @property
    def is_whole(self) -> bool:
        """Whether the only block is the array itself."""
        outputs = self.mapping.index_map_jaxpr.jaxpr.outvars
        fixed = all(isinstance(start, core.Literal) and start.val == 0 for start in outputs)
        return fixed and self.sizes == self.array_sizes and not self.squeezed

    def axes(self, count: int) -> set[int]:
        """The axes, of the first `count` parameters of the index map, on which the position of a block depends."""
        jaxpr = self.mapping.index_map_jaxpr.jaxpr
        sources: dict[Any, set[int]] = {axis: {k} for k, axis in enumerate(jaxpr.invars[:count])}
        for equation in jaxpr.eqns:
            found = set[int]().union(*(sources.get(v, set()) for v in equation.invars if isinstance(v, core.Var)))
            sources |= dict.fromkeys(equation.outvars, found)
        return set[int]().union(*(sources.get(v, set()) for v in jaxpr.outvars if isinstance(v, core.Var)))

    def axis_of_dimensions(self, count: int) -> list[int | None] | None:
        """The axis, of `count`, that numbers the blocks of each dimension, and None where there is one block.

        Returns None if some dimension has other blocks, or an axis numbers those of several.
        """
        jaxpr = self.mapping.index_map_jaxpr.jaxpr
        known: dict[Any, int] = {axis: k for k, axis in enumerate(jaxpr.invars[:count])}
        found: list[int | None] = []
        for kind, index, size in zip(self.mapping.block_shape, jaxpr.outvars, self.array_sizes, strict=True):
            is_fixed = isinstance(index, core.Literal)
            is_only = is_fixed and index.val == 0 and getattr(kind, "block_size", 1) >= size
            axis = None if is_fixed else known.get(index)
            if isinstance(kind, pallas_core.Element) or (axis is None and not is_only):
                return None
            found.append(axis)
        axes = [axis for axis in found if axis is not None]
        return found if len({*axes}) == len(axes) else None

    def starts(self, position: Indices, scalars: Sequence[Any]) -> Indices:
        """The first index of the block of an iteration, within the padded array."""
        found: Indices = self.mapping.compute_start_indices_interpret(tuple(position), *scalars)
        return [lax.convert_element_type(start, np.int32) for start in found]

    def pad(self, array: Any) -> Any:
        """Pads an array to whole blocks, with uninitialized values."""
        if not any(map(any, self.padding)):
            return array
        return lax.pad(array, uninitialized((), array.dtype), [(low, high, 0) for low, high in self.padding])

    def unpad(self, array: Any) -> Any:
        """Removes what `pad` added."""
        ends = [low + size for (low, _), size in zip(self.padding, self.array_sizes, strict=True)]
        return lax.slice(array, [low for low, _ in self.padding], ends) if any(map(any, self.padding)) else array

    def read(self, array: Any, starts: Indices) -> Any:
        """The block of a padded array."""
        if self.is_whole:
            return array
        block = lax.dynamic_slice(array, starts, self.sizes, allow_negative_indices=False)
        return lax.squeeze(block, self.squeezed)

    def write(self, array: Any, block: Any, starts: Indices) -> Any:
        """The padded array with another block."""
        if self.is_whole:
            return block
        block = lax.expand_dims(block, self.squeezed)
        return lax.dynamic_update_slice(array, block, starts, allow_negative_indices=False)


def _padding(kind: Any, array: int, block: int) -> tuple[int, int]:
    low, high = kind.padding if isinstance(kind, pallas_core.Element) else (0, 0)
    return low, high + -(low + array + high) % block
