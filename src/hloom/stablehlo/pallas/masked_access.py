"""Masked loads and stores of Pallas as values: a slice that exceeds its array costs as much as the slice.

JAX's rules pad the whole array for each access, so that slices at its end are not moved. Here the slice is clamped to
the array, and shifted by as much as it was moved.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax._src import core
from jax._src.pallas import primitives
from jax._src.state import discharge, indexing
from jax.experimental.pallas import Slice

from hloom.stablehlo.pallas.blocks import uninitialized
from hloom.system.records import record


@record
class _Window:
    """The slice of an array that an access names, which may begin anywhere."""

    array: Any
    starts: Sequence[Any]
    sizes: Sequence[int]
    scalars: Sequence[int]
    """The dimensions that are indexed by a scalar."""

    @property
    def kept(self) -> list[int]:
        """The sizes of the clamped slice."""
        return [min(size, n) for size, n in zip(self.sizes, self.array.shape, strict=True)]

    @property
    def moving(self) -> list[int]:
        """The dimensions in which the slice may exceed the array; accesses by a wrong scalar index are masked."""
        ranges = enumerate(zip(self.starts, self.sizes, self.array.shape, strict=True))
        return [d for d, (start, size, n) in ranges if d not in self.scalars and not _is_inside(start, size, n)]

    @property
    def clamped(self) -> list[Any]:
        """The starts of the clamped slice."""
        limits = zip(self.starts, self.kept, self.array.shape, strict=True)
        return [_clip(start, n - size) for start, size, n in limits]

    def shift(self, dimension: int) -> Any:
        """Returns how far clamping moves the slice towards the front."""
        return _clip(self.starts[dimension], self.array.shape[dimension]) - self.clamped[dimension]

    def read(self) -> Any:
        """The elements of the array that clamping leaves."""
        return _slice(self.array, self.clamped, self.kept)

    def load(self) -> Any:
        """The slice, with uninitialized elements beyond the end of the array."""
        part = self.read()
        if self.moving:
            ends = [(0, size if d in self.moving else 0, 0) for d, size in enumerate(self.sizes)]
            starts = [self.shift(d) if d in self.moving else 0 for d in range(len(ends))]
            part = _slice(lax.pad(part, uninitialized((), part.dtype), ends), starts, self.sizes)
        return lax.squeeze(part, self.scalars)

    def store(self, value: Any, mask: Any) -> Any:
        """The array with another value of the slice where it is in bounds and the mask holds."""
        value = lax.expand_dims(value, self.scalars)
        if self.moving or mask is not None:
            mask = jnp.ones(value.shape, bool) if mask is None else self._whole(mask)
            value = jnp.where(self._moved(mask), self._moved(value), self.read())
        if value.shape == self.array.shape:
            return value
        return lax.dynamic_update_slice(self.array, value, self.clamped, allow_negative_indices=False)

    def _whole(self, mask: Any) -> Any:
        sizes = [size for d, size in enumerate(self.sizes) if d not in self.scalars]
        return lax.expand_dims(jnp.broadcast_to(mask, sizes), self.scalars)

    def _moved(self, value: Any) -> Any:
        """The elements of a slice that belong to the clamped slice, there; zeros before them."""
        if not self.moving:
            return value
        ends = [(size if d in self.moving else 0, 0, 0) for d, size in enumerate(self.kept)]
        starts = [self.kept[d] - self.shift(d) if d in self.moving else 0 for d in range(len(ends))]
        return _slice(lax.pad(value, np.zeros((), value.dtype), ends), starts, self.kept)


def _is_known(index: Any) -> bool:
    return isinstance(index, (int, np.integer))


def _is_inside(start: Any, size: int, extent: int) -> bool:
    return _is_known(start) and 0 <= int(start) <= extent - size


def _clip(index: Any, last: int) -> Any:
    """An index of s32, or a number, moved to between 0 and the last one."""
    if _is_known(index):
        return min(max(int(index), 0), last)
    return jnp.clip(lax.convert_element_type(index, np.int32), 0, last)


def _slice(array: Any, starts: Sequence[Any], sizes: Sequence[int]) -> Any:
    """A slice that is in bounds; one that is known does not depend on the iteration."""
    if all(map(_is_known, starts)):
        return lax.slice(array, starts, [start + size for start, size in zip(starts, sizes, strict=True)])
    return lax.dynamic_slice(array, starts, sizes, allow_negative_indices=False)


def _window(array: Any, transforms: Sequence[Any]) -> _Window | None:
    """The slice that transforms name; None for gathers, strides and other transforms, which JAX's rules handle."""
    if not transforms:
        return _Window(array, [0] * array.ndim, array.shape, ())
    if len(transforms) > 1 or not isinstance(transforms[0], indexing.NDIndexer):
        return None
    indices: Sequence[Any] = transforms[0].indices
    scalars = [d for d, index in enumerate(indices) if not isinstance(index, Slice)]
    if any(np.shape(indices[d]) for d in scalars):
        return None
    slices = [index if isinstance(index, Slice) else Slice(index, 1) for index in indices]
    if any(part.stride != 1 or not isinstance(part.size, int) for part in slices):
        return None
    sizes: list[Any] = [part.size for part in slices]
    return _Window(array, [part.start for part in slices], sizes, scalars)


Access = tuple[Any, Any] | None
"""The new array, None if it is the same, and the value read; None for an access that JAX's rule handles."""


def _load(array: Any, transforms: Sequence[Any], mask: Any, other: Any) -> Access:
    if (window := _window(array, transforms)) is None:
        return None
    value = window.load()
    return None, value if mask is None or other is None else jnp.where(mask, value, other)


def _swap(array: Any, transforms: Sequence[Any], value: Any, mask: Any) -> Access:
    if (window := _window(array, transforms)) is None:
        return None
    old = window.load()
    return window.store(value, mask), old if mask is None else jnp.where(mask, old, value)


def _rule(primitive: core.Primitive, access: Callable[..., Access]) -> Callable[..., Any]:
    """Returns the discharge rule, whose last arguments are those of the access: versions of JAX differ in the first."""
    standard = discharge._discharge_rules[primitive]

    def rule(*context_and_arguments: Any, args_tree: Any, **options: Any) -> Any:
        arguments = context_and_arguments[-args_tree.num_leaves :]
        if (found := access(*args_tree.unflatten(arguments))) is None:
            return standard(*context_and_arguments, args_tree=args_tree, **options)
        array, value = found
        return (array, *[None] * (len(arguments) - 1)), value

    return rule


RULES = {
    primitive: _rule(primitive, access)
    for primitive, access in ((primitives.load_p, _load), (primitives.swap_p, _swap))
}
"""The discharge rules, in place of JAX's while a kernel is lowered."""
