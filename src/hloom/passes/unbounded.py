"""Specialisation of modules with unbounded dimensions, `f32[?,3]`, to static shapes of the parameters (SL-25).

The shape of each result is inferred from its operands by the operation's own rule. If the rule leaves a size open, as
that of a broadcast scalar, the size is taken from the other operands of an element-wise user.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from hloom.errors import HloomError, RuleError
from hloom.ir import Computation, Instruction, Module, clone_computation
from hloom.ops.broadcast import Broadcast
from hloom.ops.control_flow import Conditional
from hloom.ops.dynamic_size import GetDimensionSize, SetDimensionSize
from hloom.ops.operation import Operation
from hloom.ops.reshape import DynamicReshape, Reshape
from hloom.ops.structure import Parameter
from hloom.ops.traits import CallLike
from hloom.passes.edit import Edit
from hloom.passes.op_builder import OpBuilder
from hloom.shape import UNBOUNDED, Shape
from hloom.stablehlo.embedded_text import embedded_text
from hloom.stablehlo.importer.constant_folding import ConstantFolder
from hloom.stablehlo.importer.module import specialized_stablehlo


def specialized(module: Module, parameters: Sequence[Shape]) -> Module:
    """Returns a copy of the module for parameters of these shapes, without unbounded dimensions.

    Raises RuleError if the sizes of parameters contradict each other, or do not determine a size (SL-25).
    """
    text = embedded_text(module)
    if text is not None:
        return specialized_stablehlo(text, parameters)
    specializer = _Specializer()
    entry = specializer.computation(module.entry, parameters)
    result = replace(module, computations=[], entry_computation=None)
    for computation in specializer.computations.values():
        result.add(computation, entry=computation is entry)
    result.set_default_entry_layouts()
    return result


class _Specializer:
    """The state of specialising one module.

    `computations` maps the `id` of a computation and the shapes of its parameters to its specialised copy, callees
    first.
    """

    def __init__(self) -> None:
        self.folder = ConstantFolder()
        self.computations: dict[tuple[int, tuple[Shape, ...]], Computation] = {}

    def computation(self, original: Computation, parameters: Sequence[Shape]) -> Computation:
        """Returns the copy of a computation for parameters of these shapes, made by the first call."""
        key = id(original), tuple(parameters)
        if key in self.computations:
            return self.computations[key]
        copy = clone_computation(original, lambda called: called)
        edit = Edit(copy)
        for instruction in copy.instructions:
            try:
                self._specialize(instruction, parameters, edit)
            except HloomError as error:
                raise error.at(repr(instruction)) from None
        edit.finish()
        for instruction in copy.instructions:
            if instruction.shape.is_unbounded:
                message = "its sizes do not follow from those of the parameters"
                raise RuleError(instruction.opcode, "SL-25", message).at(repr(instruction))
        copies = sum(of == id(original) for of, _ in self.computations)
        copy.name += f".{copies}" if copies else ""
        self.computations[key] = copy
        return copy

    def _specialize(self, instruction: Instruction, parameters: Sequence[Shape], edit: Edit) -> None:
        op = instruction.op
        if isinstance(op, Parameter):
            instruction.shape = parameters[op.number]
            return
        called = iter(
            [
                self.computation(c, s)
                for c, s in zip(op.computations, _callee_parameter_shapes(instruction), strict=True)
            ]
        )
        instruction.op = op.with_computations(lambda _: next(called))
        if instruction.shape.is_unbounded:
            if op.elementwise:
                self._infer_operand_sizes(instruction, edit)
            instruction.shape = self._shape(instruction)

    def _shape(self, instruction: Instruction) -> Shape:
        op = instruction.op
        shapes = instruction.operand_shapes
        if isinstance(op, Broadcast):
            return _with_sizes(instruction.shape, dict(zip(op.broadcast_dimensions, _sizes(shapes[0]), strict=True)))
        if isinstance(op, Reshape):
            return _reshaped_shape(instruction.shape, shapes[0])
        if isinstance(op, DynamicReshape):
            return self._dynamic_reshape(instruction)
        if isinstance(op, SetDimensionSize):
            return _with_sizes(instruction.shape, dict(enumerate(_sizes(shapes[0]))))
        if type(op).infer is Operation.infer:
            same = len(shapes) == 1 and shapes[0].is_array and shapes[0].rank == instruction.shape.rank
            return _with_sizes(instruction.shape, dict(enumerate(_sizes(shapes[0])))) if same else instruction.shape
        return op.infer(*op.bind(shapes))

    def _infer_operand_sizes(self, instruction: Instruction, edit: Edit) -> None:
        """Sets the open sizes of operands of an element-wise instruction to the known sizes of other operands.

        Sizes below a bound are set at run time.
        """
        known: dict[int, Instruction] = {}
        for operand in instruction.operands:
            for d, size in enumerate(operand.shape.dimensions):
                if size != UNBOUNDED:
                    known.setdefault(d, operand)
        sizes = {d: (operand.shape.dimensions[d], False) for d, operand in known.items()}
        for k, operand in enumerate(instruction.operands):
            if operand.shape.is_unbounded:
                self._set_sizes(operand, sizes)
                dynamic = {d: other for d, other in known.items() if other.shape.dynamic_dimensions[d]}
                instruction.replace_operand(k, _sized_as(operand, dynamic, OpBuilder.at(edit, instruction)))

    def _set_sizes(self, instruction: Instruction, sizes: Sizes) -> None:
        if not instruction.shape.is_unbounded or isinstance(instruction.op, Parameter):
            return
        instruction.shape = _with_sizes(instruction.shape, sizes)
        if instruction.op.elementwise:
            for operand in instruction.operands:
                self._set_sizes(operand, sizes)

    def _dynamic_reshape(self, instruction: Instruction) -> Shape:
        values = [self.folder.value(operand) for operand in instruction.operands[1:]]
        found = {d: (int(value), False) for d, value in enumerate(values) if value is not None}
        shape = _with_sizes(instruction.shape, found)
        if not shape.is_dynamic:
            instruction.set_operands(instruction.operands[:1])
            instruction.op = Reshape()
        return shape


def _callee_parameter_shapes(instruction: Instruction) -> list[Sequence[Shape]]:
    """Returns the shapes of the arguments that the instruction passes to each computation that it calls."""
    shapes, called = instruction.operand_shapes, list(instruction.op.computations)
    if isinstance(instruction.op, Conditional):
        return [[shape] for shape in shapes[1:]]
    if isinstance(instruction.op, CallLike):
        return [shapes for _ in called]
    return [computation.parameter_shapes for computation in called]


Sizes = Mapping[int, tuple[int, bool]]
"""Sizes of dimensions, and whether they are bounds of dynamic ones."""


def _sizes(shape: Shape) -> Iterator[tuple[int, bool]]:
    return zip(shape.dimensions, shape.dynamic_dimensions, strict=True)


def _with_sizes(shape: Shape, sizes: Sizes) -> Shape:
    """Returns the shape with sizes for some of its unbounded dimensions."""
    pairs = [sizes.get(d, pair) if pair[0] == UNBOUNDED else pair for d, pair in enumerate(_sizes(shape))]
    return Shape.array(shape.element_type, [size for size, _ in pairs], [flag for _, flag in pairs], shape.layout)


def _sized_as(operand: Instruction, others: Mapping[int, Instruction], build: OpBuilder) -> Instruction:
    """Gives dimensions of an operand the dynamic sizes that other arrays have there."""
    for d, other in others.items():
        if not operand.shape.dynamic_dimensions[d]:
            size = build(GetDimensionSize(dimension=d), other)
            operand = build(SetDimensionSize(dimension=d), operand, size, shape=operand.shape.with_dynamic(d))
    return operand


def _reshaped_shape(shape: Shape, operand: Shape) -> Shape:
    """Returns the shape of a reshape, whose only unbounded size follows from the operand's number of elements."""
    count = operand.element_count
    unknown = [d for d, size in enumerate(shape.dimensions) if size == UNBOUNDED]
    rest = math.prod(size for size in shape.dimensions if size != UNBOUNDED)
    if len(unknown) != 1 or operand.is_unbounded:
        return shape
    if rest == 0 or count % rest:
        raise RuleError("reshape", "RESHAPE-2", f"{count} elements do not fill {shape}")
    return _with_sizes(shape, {unknown[0]: (count // rest, operand.is_dynamic)})
