"""mixed-precision: makes the implicit conversions of instructions in mixed precision explicit."""

from __future__ import annotations

from typing import ClassVar

from hloom.ir import Computation, Instruction, Module
from hloom.ops.control_flow import Call
from hloom.passes.edit import Edit
from hloom.passes.op_builder import OpBuilder, new_computation
from hloom.shape import Shape
from hloom.system.records import record
from hloom.types import PrimitiveType
from hloom.verifier.precision import is_mixed, widest_float, with_float


@record
class MixedPrecisionExpander:
    """Before: f32[] add(bf16[] %x, f32[] %y). After: the operands converted to f32, and the result to its own type.

    An instruction computes in the widest floating-point type of its operands, result and combiners. A combiner of
    another type is wrapped in a computation that converts its arguments and result.
    """

    name: ClassVar[str] = "mixed-precision"

    def run(self, module: Module) -> int:
        """Converts operands and results; returns the number of instructions changed."""
        changes = 0
        for computation in [*module.computations]:
            mixed = [instruction for instruction in computation.instructions if is_mixed(instruction)]
            if mixed:
                edit = Edit(computation)
                for instruction in mixed:
                    edit.replace(instruction, _explicit(OpBuilder.at(edit, instruction), instruction, module))
                    if instruction not in edit.removed:
                        edit.remove(instruction)
                edit.finish()
                changes += len(mixed)
        return changes


def _explicit(build: OpBuilder, old: Instruction, module: Module) -> Instruction:
    wide = widest_float(old)
    assert wide is not None
    operands = [_converted(build, operand, with_float(operand.shape, wide)) for operand in old.operands]
    op = old.op.with_computations(lambda computation: _widened(module, computation, wide))
    return _converted(build, build(op, *operands, shape=with_float(old.shape, wide)), old.shape)


def _converted(build: OpBuilder, value: Instruction, shape: Shape) -> Instruction:
    """Converts a value, or the elements of a tuple, to the floating-point types of a shape."""
    if value.shape.is_tuple:
        parts = [_converted(build, build.element(value, k), element) for k, element in enumerate(shape.elements)]
        return build.tuple(*parts)
    return build.convert(value, shape.element_type) if shape.element_type.is_float else value


def _widened(module: Module, computation: Computation, wide: PrimitiveType) -> Computation:
    """Wraps a computation in one whose floats are of the type `wide`; returns it unchanged if they are already."""
    shapes = [with_float(shape, wide) for shape in computation.parameter_shapes]
    result = with_float(computation.result_shape, wide)
    if all(a.compatible(b) for a, b in zip(shapes, computation.parameter_shapes, strict=True)) and result.compatible(
        computation.result_shape
    ):
        return computation
    widened = new_computation(module, f"{computation.name}.widened")
    build = OpBuilder.of(widened)
    parameters = [build.parameter(number, shape) for number, shape in enumerate(shapes)]
    arguments = [_converted(build, p, s) for p, s in zip(parameters, computation.parameter_shapes, strict=True)]
    called = build(Call(computation=computation), *arguments)
    converted = _converted(build, called, result)
    if converted is not widened.instructions[-1]:
        widened.root = converted
    module.computations.remove(widened)
    module.computations.insert(module.computations.index(computation) + 1, widened)
    return widened
