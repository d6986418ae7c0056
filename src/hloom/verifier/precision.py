"""Mixed precision: like XLA's verifier, hloom's lets floating-point types differ where an operation computes.

Operands, combiners and results of such an instruction may have several floating-point types; the instruction computes
in the widest of them, or in f32 if several are widest. `hloom.passes.legalize.mixed_precision` makes the conversions
explicit before a module runs.
"""

from __future__ import annotations

from dataclasses import replace

from hloom.errors import HloomError
from hloom.ir import Computation, Instruction
from hloom.ops.structure import ElidedConstant, Parameter
from hloom.shape import Shape
from hloom.types import PrimitiveType


def fits_in_one_precision(instruction: Instruction) -> bool:
    """Whether an instruction that violates its operation's rule satisfies it once all its floats have one type."""
    if not instruction.op.mixes_precision:
        return False
    wide = widest_float(instruction)
    if wide is None:
        return False
    op = instruction.op.with_computations(lambda computation: _signature(computation, wide))
    shapes = [with_float(shape, wide) for shape in instruction.operand_shapes]
    try:
        op.check(with_float(instruction.shape, wide), *op.bind(shapes))
    except HloomError:
        return False
    return True


def is_mixed(instruction: Instruction) -> bool:
    """Whether an instruction satisfies its operation's rule only once all its floats have one type."""
    if instruction.is_checked or widest_float(instruction) is None:
        return False
    try:
        instruction.check({})
    except HloomError:
        return True
    return False


def widest_float(instruction: Instruction) -> PrimitiveType | None:
    """Returns the widest floating-point type of operands, result and combiners; None if there are fewer than two
    types.
    """
    types = instruction.shape.leaf_types
    for operand in instruction.operands:
        if operand.shape.leaf_types is not types:
            types |= operand.shape.leaf_types
    for computation in instruction.op.computations if instruction.op.calling_fields else ():
        types = types.union(*[shape.leaf_types for shape in (*computation.parameter_shapes, computation.result_shape)])
    if len(types) < 2:  # most instructions
        return None
    floats = {type for type in types if type.is_float}
    if len(floats) < 2:
        return None
    most = max(type.bits for type in floats)
    widest = [type for type in floats if type.bits == most]
    # Of two types of one width neither holds all values of the other; f32 holds those of both.
    return widest[0] if len(widest) == 1 else PrimitiveType.F32


def with_float(shape: Shape, element_type: PrimitiveType) -> Shape:
    """Returns the shape with all its floating-point arrays in one type."""
    if shape.is_tuple:
        return Shape.tuple_of(with_float(element, element_type) for element in shape.elements)
    if not shape.element_type.is_float:
        return shape
    layout = replace(shape.layout, element_size_in_bits=0) if shape.layout else None
    return replace(shape, element_type=element_type, layout=layout)


def _signature(computation: Computation, element_type: PrimitiveType) -> Computation:
    """A computation with the signature of another, with floats of one type, and no body."""
    signature = Computation(computation.name)
    for parameter in computation.parameters:
        shape = with_float(parameter.shape, element_type)
        signature.add(Instruction(parameter.name, shape, Parameter(number=parameter.parameter_number)))
    result = with_float(computation.result_shape, element_type)
    signature.root = signature.add(Instruction("result", result, ElidedConstant(number=0)))
    return signature
