"""Exhaustion: two modules of scalars on all values of their parameters, where these are few."""

from __future__ import annotations

import numpy as np

from hloom.faults.case import interpret
from hloom.ir import Computation, Instruction, Module, clone_computation
from hloom.ops.reduce import Map
from hloom.ops.structure import Constant, Parameter
from hloom.prove.equivalence import difference
from hloom.shape import Shape
from hloom.types import PrimitiveType
from hloom.values import Array

MAX_BITS = 16
"""Bits of all parameters together, up to which all values are tried."""


def differs_on_some_value(before: Module, after: Module) -> str | None:
    """Runs modules of scalars on all values; describes the first difference, "" if there is none.

    None if the modules have arrays, operations that are not element-wise, no parameters, or too many bits.
    """
    types = [shape.element_type for shape in before.entry.parameter_shapes]
    if not all(map(_is_of_scalars, (before, after))) or not types or sum(map(_bits, types)) > MAX_BITS:
        return None
    arrays = _all_values(types)
    results = [interpret(_mapped(module, arrays), arrays) for module in (before, after)]
    return difference(results[0], results[1])


def _is_of_scalars(module: Module) -> bool:
    return all(
        i.shape.is_scalar and (i.op.elementwise or isinstance(i.op, (Parameter, Constant)))
        for i in module.instructions()
    )


def _bits(type: PrimitiveType) -> int:
    return 1 if type.is_pred else type.bits


def _all_values(types: list[PrimitiveType]) -> list[Array]:
    """Returns an array of each type, which together hold each combination of values once."""
    each = [_values(type) for type in types]
    return [grid.reshape(-1) for grid in np.meshgrid(*each, indexing="ij")]


def _values(type: PrimitiveType) -> Array:
    if type.is_pred:
        return np.array([False, True])
    if type.is_integer and type.bits < 8:
        low = -(1 << (type.bits - 1)) if type.is_signed else 0
        return np.arange(low, low + (1 << type.bits)).astype(type.dtype)
    return np.arange(1 << type.bits).astype(f"u{type.byte_width}").view(type.dtype)


def _mapped(module: Module, arrays: list[Array]) -> Module:
    """Returns a module that applies a module of scalars to each element of arrays."""
    count, made = arrays[0].size, Module("every-value")
    function = made.add(clone_computation(module.entry, lambda computation: computation))
    entry = made.add(Computation("all"), entry=True)
    for k, shape in enumerate(module.entry.parameter_shapes):
        entry.add(Instruction(f"p{k}", Shape.array(shape.element_type, [count]), Parameter(number=k)))
    shape = Shape.array(module.entry.result_shape.element_type, [count])
    entry.add(Instruction("mapped", shape, Map(dimensions=(0,), computation=function), [*entry.instructions]))
    return made
