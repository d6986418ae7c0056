"""OpBuilder: construction of instructions in an edited or a new computation; and of computations and loops with it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from hloom.ir import Computation, Instruction, Module, callees_first
from hloom.literal import Literal
from hloom.numerics import convert
from hloom.ops.attributes import ComparisonDirection, SliceDimension
from hloom.ops.broadcast import Broadcast
from hloom.ops.compare import Compare
from hloom.ops.control_flow import While
from hloom.ops.convert import Convert
from hloom.ops.elementwise_binary import Add
from hloom.ops.operation import Operation
from hloom.ops.reduce import Reduce
from hloom.ops.registry import Op, Registry, Rule
from hloom.ops.reshape import Reshape
from hloom.ops.slice import Slice
from hloom.ops.structure import AfterAll, Constant, GetTupleElement, Parameter, Tuple
from hloom.ops.transpose import Transpose
from hloom.passes.edit import Edit, callees_first_of, edits, has_control_edges, is_dynamic
from hloom.shape import Shape, scalar
from hloom.types import PrimitiveType

S32 = PrimitiveType.S32


class OpBuilder:
    """Creates instructions with inferred shapes.

    A builder is called with an operation and its operands: `build(Add(), x, y)`. `add` puts each new instruction into a
    computation; `at` and `of` return builders for an edit and for a new computation.
    """

    def __init__(self, add: Callable[[Operation, Iterable[Instruction], Shape], Instruction]) -> None:
        self._add = add

    @staticmethod
    def at(edit: Edit, before: Instruction) -> OpBuilder:
        """Returns a builder that adds instructions to an edit, before an instruction and with its metadata."""
        return OpBuilder(lambda op, operands, shape: edit.add(op, operands, shape, before))

    @staticmethod
    def of(computation: Computation) -> OpBuilder:
        """Returns a builder that appends instructions to a computation, whose root is the last one."""

        def add(op: Operation, operands: Iterable[Instruction], shape: Shape) -> Instruction:
            name = f"{op.opcode}.{len(computation.instructions)}"
            return computation.add(Instruction(name, shape, op, operands))

        return OpBuilder(add)

    def __call__(self, op: Operation, *operands: Instruction, shape: Shape | None = None) -> Instruction:
        """Creates an instruction; its shape is inferred from the operands unless `shape` is given."""
        return self._add(op, operands, shape or op.infer(*op.bind([operand.shape for operand in operands])))

    def parameter(self, number: int, shape: Shape) -> Instruction:
        """Creates a parameter of the computation."""
        return self(Parameter(number=number), shape=shape)

    def constant(self, value: Any, element_type: PrimitiveType) -> Instruction:
        """Creates a constant: a scalar for a number, an array for an array or nested sequence of numbers."""
        return self(Constant(literal=Literal.from_numpy(convert(np.asarray(value), element_type.dtype))))

    def broadcast(self, operand: Instruction, shape: Shape, dimensions: tuple[int, ...] = ()) -> Instruction:
        """Broadcasts the operand, in its own element type, to the dimensions of a shape.

        Dimension d of the operand becomes dimension dimensions[d]. Equal dimensions need no instruction.
        """
        if operand.shape.dimensions == shape.dimensions:
            return operand
        target = Shape.array(operand.shape.element_type, shape.dimensions)
        return self(Broadcast(broadcast_dimensions=dimensions), operand, shape=target)

    def convert(self, operand: Instruction, element_type: PrimitiveType) -> Instruction:
        """Converts the operand to an element type, if it has another one."""
        if operand.shape.element_type is element_type:
            return operand
        return self(Convert(), operand, shape=operand.shape.with_element_type(element_type))

    def reshape(self, operand: Instruction, dimensions: tuple[int, ...]) -> Instruction:
        """Reshapes the operand to dimension sizes, if it has others."""
        if operand.shape.dimensions == dimensions:
            return operand
        return self(Reshape(), operand, shape=Shape.array(operand.shape.element_type, dimensions))

    def transpose(self, operand: Instruction, order: tuple[int, ...]) -> Instruction:
        """Transposes the operand so that its dimension order[d] becomes dimension d, unless the order is the same."""
        return operand if order == tuple(range(len(order))) else self(Transpose(permutation=order), operand)

    def slice_dimension(self, operand: Instruction, dimension: int, start: int, size: int) -> Instruction:
        """Slices the operand along one dimension, unless the part is all of it."""
        if size == operand.shape.dimensions[dimension]:
            return operand
        parts = [SliceDimension(0, n) for n in operand.shape.dimensions]
        parts[dimension] = SliceDimension(start, start + size)
        return self(Slice(slice=tuple(parts)), operand)

    def element(self, operand: Instruction, index: int) -> Instruction:
        """Creates a get-tuple-element."""
        return self(GetTupleElement(index=index), operand)

    def elements(self, operand: Instruction) -> list[Instruction]:
        """Creates a get-tuple-element for each element; anything but a tuple is its only element."""
        count = len(operand.shape.elements)
        return [self.element(operand, k) for k in range(count)] if operand.shape.is_tuple else [operand]

    def leaves(self, operand: Instruction) -> list[Instruction]:
        """Takes the leaves of a value out of its tuples."""
        if not operand.shape.is_tuple:
            return [operand]
        elements = operand.operands if isinstance(operand.op, Tuple) else self.elements(operand)
        return [leaf for element in elements for leaf in self.leaves(element)]

    def assemble(self, shape: Shape, leaves: Iterator[Instruction]) -> Instruction:
        """Creates the tuples of a value of some shape around its leaves."""
        if not shape.is_tuple:
            return next(leaves)
        return self.tuple(*[self.assemble(element, leaves) for element in shape.elements])

    def tuple(self, *operands: Instruction) -> Instruction:
        """Creates a tuple of the operands."""
        return self(Tuple(), *operands)

    def zeros(self, shape: Shape) -> Instruction:
        """Creates zeros of a shape; tokens for tokens."""
        if shape.is_tuple:
            return self.tuple(*(self.zeros(element) for element in shape.elements))
        if shape.is_token:
            return self(AfterAll())
        # Not the number 0 converted, which f8e8m0fnu does not have: zeros are what NumPy's are.
        zero = Constant(literal=Literal.from_numpy(np.zeros((), shape.element_type.dtype)))
        return self.broadcast(self(zero), shape)


def new_computation(module: Module, name: str) -> Computation:
    """Adds an empty computation to the module, with a unique name that starts with `name`."""
    names = {computation.name for computation in module.computations}
    suffix = len(names)
    while f"{name}.{suffix}" in names:
        suffix += 1
    computation = Computation(f"{name}.{suffix}")
    computation.parent = module
    module.computations.insert(0, computation)  # before its callers
    return computation


def adopt(module: Module, computation: Computation) -> None:
    """Moves a computation of another module, and all that it calls, into the module under unique names."""
    names = {computation.name for computation in module.computations}
    for callee in callees_first(computation):
        while callee.name in names:
            callee.name += ".adopted"
        names.add(callee.name)
        callee.parent = module
        for instruction in callee.instructions:
            instruction.metadata.pop("stack_frame_id", None)  # an index into tables of the other module
    module.computations[:0] = callees_first(computation)


def scalar_computation(module: Module, op: Operation, element_type: PrimitiveType) -> Computation:
    """Adds a computation to the module that applies an operation to two scalars, such as a combiner."""
    computation = new_computation(module, op.opcode)
    build = OpBuilder.of(computation)
    build(op, build.parameter(0, scalar(element_type)), build.parameter(1, scalar(element_type)))
    return computation


def reduced(
    build: OpBuilder,
    module: Module,
    op: Operation,
    operand: Instruction,
    init: Any,
    dimensions: tuple[int, ...] | None = None,
) -> Instruction:
    """Reduces the operand with a binary operation along dimensions, by default all; `init` is the initial value."""
    element_type = operand.shape.element_type
    every = tuple(range(operand.shape.rank)) if dimensions is None else dimensions
    reduction = Reduce(dimensions=every, computation=scalar_computation(module, op, element_type))
    return build(reduction, operand, build.constant(init, element_type))


LoopBody = Callable[[OpBuilder, Instruction, list[Instruction]], Sequence[Instruction]]
"""Builds the body of a loop: (builder, index of the iteration as s32[], values before it) -> values after it."""
LoopCondition = Callable[[OpBuilder, Instruction, list[Instruction]], Instruction]
"""Builds the condition of a loop: (builder, index of the iteration as s32[], values before it) -> pred[]."""


def counted_loop(
    build: OpBuilder, module: Module, name: str, trips: int, values: Sequence[Instruction], body: LoopBody
) -> list[Instruction]:
    """Builds a while loop of `trips` iterations that starts from `values`; returns the values after the last one."""
    return loop(build, module, name, values, body, lambda build, step, _: below(build, step, trips))


def below(build: OpBuilder, step: Instruction, limit: int) -> Instruction:
    """Builds the comparison of a scalar with a constant, `step < limit`, as pred[]."""
    return build(Compare(direction=ComparisonDirection.LT), step, build.constant(limit, step.shape.element_type))


def loop(
    build: OpBuilder, module: Module, name: str, values: Sequence[Instruction], body: LoopBody, continues: LoopCondition
) -> list[Instruction]:
    """Builds a while loop that runs as long as `continues` is true; returns the values after the last iteration.

    `body` is called before `continues`.
    """
    init = build.tuple(build.constant(0, S32), *values)
    body_computation = new_computation(module, f"{name}-body")
    inner = OpBuilder.of(body_computation)
    step, *state = inner.elements(inner.parameter(0, init.shape))
    next_values = body(inner, step, state)
    inner.tuple(inner(Add(), step, inner.constant(1, S32)), *next_values)
    condition = new_computation(module, f"{name}-condition")
    inner = OpBuilder.of(condition)
    step, *state = inner.elements(inner.parameter(0, init.shape))
    continues(inner, step, state)
    results = build(While(condition=condition, body=body_computation), init)
    return build.elements(results)[1:]


class ScalarComputations:
    """A cache of the computations of a module that apply an operation to two scalars.

    Calling it with an operation and an element type returns the computation, which the first call adds to the module.
    """

    def __init__(self, module: Module) -> None:
        self._module = module
        self._made: dict[tuple[str, PrimitiveType], Computation] = {}

    def __call__(self, op: Operation, element_type: PrimitiveType) -> Computation:
        key = op.opcode, element_type
        if key not in self._made:
            self._made[key] = scalar_computation(self._module, op, element_type)
        return self._made[key]


class Expanders(Registry[[OpBuilder, Instruction, Module], Instruction | None]):
    """Functions that build the replacement of an instruction, of the same shape, by the class of its operation.

    They return None, and build nothing, if the expansion does not apply to the instruction.
    """


def expand_each(
    module: Module, operation: type[Op], expander: Rule[Op, [OpBuilder, Instruction, Module], Instruction | None]
) -> int:
    """Replaces the instructions of one operation, like `expand_all`; returns the number of replacements."""
    expanders = Expanders()
    expanders.add(operation, expander)
    return expand_all(module, expanders)


def expand_all(module: Module, expanders: Expanders) -> int:
    """Replaces instructions by the results of the expanders; returns the number of replacements.

    Instructions with control edges or dynamic shapes are left alone.
    """
    changes = 0
    for edit in edits([*module.computations]):
        for old in [old for old in edit.computation.instructions if expanders.get(old.op) is not None]:
            expander = expanders[old.op]
            if has_control_edges(old) or is_dynamic(old):
                continue
            new = expander(old.op, OpBuilder.at(edit, old), old, module)
            if new is not None:
                if new not in old.operands:
                    new.sharding = old.sharding
                edit.replace(old, new)
                if old not in edit.removed:
                    edit.remove(old)  # It stayed because of its effects, which the replacement has too.
                changes += 1
    if changes:
        module.computations = callees_first_of(module)
    return changes
