"""Smaller sizes for proofs: copies of modules in which equal sizes are replaced by equal, smaller ones.

A size is kept if some dimension of that size is read by position, as by slices, windows and concatenations, or if a
constant has different elements along it. All other dimensions of a size pass through operations as a whole
(`IndexingMap.independent`), or their elements are counted, sorted or reduced.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from hloom.errors import HloomError
from hloom.ir import Instruction, Module
from hloom.literal import Literal
from hloom.ops.broadcast import Iota
from hloom.ops.control_flow import Fusion
from hloom.ops.sort import Sort
from hloom.ops.structure import Constant
from hloom.ops.traits import ControlFlow, Identity, Structural
from hloom.passes.pipeline import clone_module
from hloom.shape import Shape
from hloom.values import Array, Value
from hloom.verifier import verify_module

MIN_REPLACED = 5
"""The least size that is replaced."""

Sizes = Mapping[int, int]
"""New sizes of dimensions, by their sizes."""


def work(module: Module) -> int:
    """Returns the largest number of elements that an instruction of a module computes or reduces."""
    return max((_elements(instruction) for instruction in module.instructions()), default=0)


def _elements(instruction: Instruction) -> int:
    count = sum(leaf.element_count for leaf in instruction.shape.leaves() if leaf.is_array)
    mapped = instruction.indexing_map()
    return count * math.prod(variable.extent for variable in mapped.reductions) if mapped is not None else count


def smaller_sizes(*modules: Module) -> Sizes:
    """Returns smaller sizes for dimensions of some modules, different ones for different sizes."""
    instructions = [instruction for module in modules for instruction in module.instructions()]
    sizes = {size for i in instructions for leaf in i.shape.leaves() for size in leaf.dimensions}
    kept = {size for instruction in instructions for size in _sizes_by_position(instruction)}
    replaced = sorted(size for size in sizes - kept if size >= MIN_REPLACED)
    small = (size for size in itertools.count(2) if size not in sizes - {*replaced})
    return {size: new for size, new in zip(replaced, small, strict=False) if new < size}


def _sizes_by_position(instruction: Instruction) -> Iterator[int]:
    """Yields the sizes of the dimensions of an instruction and its operands in which positions matter."""
    op = instruction.op
    if isinstance(op, Constant):
        if not _is_splat(op.literal.value):
            yield from op.literal.shape.dimensions
        return
    if isinstance(op, (Structural, ControlFlow, Fusion, Identity, Iota, Sort)):
        return
    mapped = instruction.indexing_map()
    if mapped is None:
        for shape in (instruction.shape, *instruction.operand_shapes):
            yield from (size for leaf in shape.leaves() for size in leaf.dimensions)
        return
    yield from (v.extent for v in (*mapped.dimensions, *mapped.reductions) if v not in mapped.independent)
    for shape, variables in zip(mapped.operands, mapped.dimension_variables, strict=True):
        yield from (size for size, v in zip(shape.dimensions, variables, strict=True) if v is None)


def _is_splat(value: Value) -> bool:
    array = np.asarray(value)
    return array.size > 0 and array.tobytes() == array.reshape(-1)[:1].tobytes() * array.size


def with_sizes(module: Module, sizes: Sizes) -> Module | None:
    """Returns a copy of a module with other sizes; None if an operation does not take them."""
    copy = clone_module(module)
    try:
        for one, other in zip(module.computations, copy.computations, strict=True):
            for old, new in zip(one.instructions, other.instructions, strict=True):
                _resize(old, new, sizes)
        copy.set_default_entry_layouts()
        verify_module(copy)
    except HloomError:
        return None
    return copy


def _resize(old: Instruction, new: Instruction, sizes: Sizes) -> None:
    shape = _replaced(old.shape, sizes)
    if isinstance(old.op, Constant):
        new.op = _constant(old.op, shape)
    elif shape.is_array:
        new.op = new.op.on_blocks(old.operand_shapes, new.operand_shapes, shape)
    new.shape = shape


def _replaced(shape: Shape, sizes: Sizes) -> Shape:
    if shape.is_tuple:
        return Shape.tuple_of([_replaced(element, sizes) for element in shape.elements])
    if not shape.is_array:
        return shape
    dimensions = [sizes.get(size, size) for size in shape.dimensions]
    return Shape.array(shape.element_type, dimensions, shape.dynamic_dimensions, shape.layout)


def _constant(op: Constant, shape: Shape) -> Constant:
    if not shape.is_array or shape.dimensions == op.literal.shape.dimensions:
        return op
    return Constant(literal=Literal.from_numpy(np.full(shape.dimensions, np.asarray(op.literal.value).reshape(-1)[0])))


def stretched(values: Iterable[Value], shapes: Iterable[Shape]) -> tuple[Value, ...]:
    """Returns values of larger shapes, whose elements repeat those of smaller values along each dimension."""
    return tuple(_stretched(value, shape) for value, shape in zip(values, shapes, strict=True))


def _stretched(value: Value, shape: Shape) -> Value:
    if isinstance(value, tuple):
        return stretched(value, shape.elements)
    if not isinstance(value, np.ndarray):
        return value
    indices = [np.arange(size) % max(1, small) for size, small in zip(shape.dimensions, value.shape, strict=True)]
    result: Array = value[np.ix_(*indices)]
    return result
