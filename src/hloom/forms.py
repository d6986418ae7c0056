"""Normalisation of alternative forms of instructions, which XLA reads too, to those that operations declare.

The alternatives carry no more information: operands that repeat the result shape, results without contexts, combiners
that return a tuple of one element. Text and protos are normalised before they are verified.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hloom.ir import Computation, Instruction, Module, clone_computation
from hloom.literal import Literal
from hloom.ops.async_collectives import AllGatherStart, AllReduceStart, CollectivePermuteStart
from hloom.ops.broadcast import Broadcast
from hloom.ops.collectives import AllReduce, ReduceScatter
from hloom.ops.convolution import Convolution
from hloom.ops.dynamic_size import SetDimensionSize
from hloom.ops.gather import Gather
from hloom.ops.operation import Operation
from hloom.ops.reduce import Map, Reduce
from hloom.ops.reduce_window import ReduceWindow, SelectAndScatter
from hloom.ops.registry import Registry
from hloom.ops.reshape import Reshape
from hloom.ops.rng import Rng, RngBitGenerator
from hloom.ops.scatter import Scatter
from hloom.ops.structure import Constant, GetTupleElement, Tuple
from hloom.shape import Shape, scalar

FORMS = Registry[[Instruction], None]()
"""Functions that rewrite an alternative form of an instruction in place."""


def write_declared_forms(module: Module) -> None:
    """Rewrites alternative forms in place; instructions that match none are left to the verifier."""
    for computation in [*module.computations]:
        for instruction in [*computation.instructions]:
            rewrite = FORMS.get(instruction.op)
            if rewrite is not None and instruction.operands:
                rewrite(instruction.op, instruction)
    _type_entry_layouts(module)


def _type_entry_layouts(module: Module) -> None:
    if module.entry_computation is None or module.entry_parameter_layouts is None:
        return
    shapes = module.entry.parameter_shapes
    if len(shapes) == len(module.entry_parameter_layouts):
        module.entry_parameter_layouts = list(map(_typed_as, module.entry_parameter_layouts, shapes))
    if module.entry_result_layout is not None:
        module.entry_result_layout = _typed_as(module.entry_result_layout, module.entry.result_shape)


def _typed_as(shape: Shape, entry: Shape) -> Shape:
    """A shape of the module header with the floating-point types of the entry: only its layouts matter."""
    if shape.is_tuple and entry.is_tuple and len(shape.elements) == len(entry.elements):
        return Shape.tuple_of(map(_typed_as, shape.elements, entry.elements))
    if shape.element_type.is_float and entry.element_type.is_float and shape.element_type is not entry.element_type:
        return shape.with_element_type(entry.element_type)
    return shape


@FORMS.rule(Rng)
def _rng(op: Rng, instruction: Instruction) -> None:
    """Removes the third operand, the sizes of the result (RNGUNIFORM-1)."""
    instruction.set_operands(instruction.operands[:2])


@FORMS.rule(RngBitGenerator)
def _rng_bit_generator(op: RngBitGenerator, instruction: Instruction) -> None:
    """Adds the new state to a result that has the bits alone (RNGBITGENERATOR-1)."""
    if instruction.shape.is_array:
        bits = instruction.shape
        instruction.shape = Shape.tuple_of([instruction.operands[0].shape, bits])
        _replace_by(instruction, GetTupleElement(index=1), bits)


def _combiner(op: Operation, instruction: Instruction) -> None:
    """Makes a combiner return a scalar instead of a tuple of one scalar, and the result an array (REDUCE-2)."""
    if not any(map(_returns_tuple_of_one, op.computations)):
        return
    instruction.op = op.with_computations(_returning_scalar)
    if instruction.shape.is_tuple and len(instruction.shape.elements) == 1:
        whole = instruction.shape
        (instruction.shape,) = whole.elements
        _replace_by(instruction, Tuple(), whole)


for _declaration in (AllReduce, Map, Reduce, ReduceScatter, ReduceWindow, Scatter, SelectAndScatter):
    FORMS.add(_declaration, _combiner)


def _returns_tuple_of_one(computation: Computation) -> bool:
    shape = computation.result_shape if computation.instructions else None
    return shape is not None and shape.is_tuple and len(shape.elements) == 1 and shape.elements[0].is_scalar


def _returning_scalar(computation: Computation) -> Computation:
    module = computation.parent
    if module is None or not _returns_tuple_of_one(computation):
        return computation
    copy = clone_computation(computation, lambda called: called)
    copy.name = _new_name(f"{computation.name}.scalar", {c.name for c in module.computations})
    root = copy.root
    if isinstance(root.op, Tuple):
        copy.root = root.operands[0]
        copy.remove(root)
    else:
        name = _new_name(f"{root.name}.element", {i.name for i in copy.instructions})
        copy.root = copy.add(Instruction(name, root.shape.elements[0], GetTupleElement(index=0), [root]))
    module.add(copy)
    module.computations.insert(module.computations.index(computation), module.computations.pop())
    return copy


@FORMS.rule(Broadcast)
def _broadcast(op: Broadcast, instruction: Instruction) -> None:
    """Removes operand dimensions of size 1 that would grow, by a reshape of the operand (BROADCASTINDIM-3)."""
    operand, targets = instruction.operands[0], op.broadcast_dimensions
    if len(targets) != operand.shape.rank or not all(0 <= t < instruction.shape.rank for t in targets):
        return
    sizes = operand.shape.dimensions
    grows = [sizes[d] == 1 != instruction.shape.dimensions[target] for d, target in enumerate(targets)]
    if any(grows):
        kept = [d for d, grown in enumerate(grows) if not grown]
        flags = operand.shape.dynamic_dimensions
        shape = Shape.array(operand.shape.element_type, [sizes[d] for d in kept], [flags[d] for d in kept])
        instruction.replace_operand(0, _insert(instruction, 0, Reshape(), shape, [operand]))
        instruction.op = Broadcast(broadcast_dimensions=tuple(targets[d] for d in kept))


@FORMS.rule(Convolution)
def _convolution(op: Convolution, instruction: Instruction) -> None:
    """Sets the window sizes to those of the kernel (CONVGENERAL-11)."""
    kernel = instruction.operands[-1].shape
    spatial = op.dimension_numbers.kernel_spatial_dimensions
    if len(spatial) == len(op.window) and all(0 <= d < kernel.rank for d in spatial):
        sizes = [kernel.dimensions[d] for d in spatial]
        if sizes != [w.size for w in op.window]:
            instruction.op = op.replace(window=tuple(map(lambda w, n: replace(w, size=n), op.window, sizes)))


@FORMS.rule(Gather)
def _gather(op: Gather, instruction: Instruction) -> None:
    """Replaces a gather of empty slices along a collapsed dimension by zeros (GATHER-11)."""
    if any(0 <= d < len(op.slice_sizes) and op.slice_sizes[d] == 0 for d in op.collapsed_slice_dims):
        element = scalar(instruction.shape.element_type)
        zero = Literal(element, np.zeros((), element.element_type.dtype))
        constant = _insert(instruction, 0, Constant(literal=zero), element, [])
        instruction.op = Broadcast()
        instruction.set_operands([constant])


def _start(op: AllGatherStart | CollectivePermuteStart, instruction: Instruction) -> None:
    """Adds the operand to the result of a start that has the result of the done alone (COLL-7)."""
    if instruction.shape.is_array and all(isinstance(user.op, op.done) for user in instruction.users):
        instruction.shape = Shape.tuple_of([instruction.operands[0].shape, instruction.shape])


FORMS.add(AllGatherStart, _start)
FORMS.add(CollectivePermuteStart, _start)


@FORMS.rule(AllReduceStart)
def _all_reduce_start(op: AllReduceStart, instruction: Instruction) -> None:
    """Removes the operand from the result of an all-reduce-start (COLL-7)."""
    shape = instruction.shape
    if shape.is_tuple and len(shape.elements) == 2 and len(instruction.operands) == 1:
        instruction.shape = shape.elements[1]


@FORMS.rule(SetDimensionSize)
def _set_dimension_size(op: SetDimensionSize, instruction: Instruction) -> None:
    """Gives the other dimensions the dynamic flags of the operand (SETDIMENSIONSIZE-3)."""
    shape, operand = instruction.shape, instruction.operands[0].shape
    if shape.is_array and shape.dimensions == operand.dimensions and 0 <= op.dimension < shape.rank:
        flags = list(operand.dynamic_dimensions)
        flags[op.dimension] = shape.dynamic_dimensions[op.dimension]
        instruction.shape = Shape.array(shape.element_type, shape.dimensions, flags, shape.layout)


def _replace_by(instruction: Instruction, op: Operation, shape: Shape) -> None:
    """Inserts an operation after the instruction; users, and the root, refer to the operation instead."""
    users, is_root = [*instruction.users], instruction.parent is not None and instruction.parent.root is instruction
    made = _insert(instruction, 1, op, shape, [instruction])
    for user in users:
        for position, operand in enumerate(user.operands):
            if operand is instruction:
                user.replace_operand(position, made)
    if is_root and made.parent is not None:
        made.parent.root = made
    made.sharding, instruction.sharding = instruction.sharding, None


def _insert(at: Instruction, offset: int, op: Operation, shape: Shape, operands: list[Instruction]) -> Instruction:
    """Inserts a new instruction at `offset` positions after the instruction `at`; 0 is before it."""
    computation = at.parent
    assert computation is not None
    name = _new_name(f"{at.name}.{op.opcode}", {i.name for i in computation.instructions})
    made = Instruction(name, shape, op, operands)
    made.parent, made.metadata, made.location = computation, dict(at.metadata), at.location
    computation.instructions.insert(computation.instructions.index(at) + offset, made)
    return made


def _new_name(name: str, taken: set[str]) -> str:
    number = 0
    while f"{name}.{number}" in taken:
        number += 1
    return f"{name}.{number}"
