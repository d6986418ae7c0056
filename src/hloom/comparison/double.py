"""Modules in double precision: all floats are f64, all complex numbers c128."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import ml_dtypes
import numpy as np

from hloom.api import compile
from hloom.errors import HloomError
from hloom.files.arrays import flat
from hloom.ir import Computation, Instruction, Module
from hloom.literal import Literal
from hloom.numerics import widen
from hloom.ops.convert import BitcastConvert
from hloom.ops.custom_call import CustomCall
from hloom.ops.structure import Constant
from hloom.ops.traits import Communication
from hloom.passes import clone_module
from hloom.passes.edit import Edit
from hloom.passes.op_builder import OpBuilder
from hloom.shape import Shape
from hloom.types import BY_DTYPE, PrimitiveType
from hloom.values import Array, Value
from hloom.verifier import verify_module

PERTURBATION = 4.0
"""The relative change of perturbed arguments, in units in the last place of their type.

Numbers with less than half of its digits, such as 1 or 0.5, are meant exactly and do not change.
"""


def exact_results(module: Module, lists: Sequence[Sequence[Value]]) -> list[tuple[Array, Array]] | None:
    """Runs a module in double precision, on lists of arguments and on perturbed ones.

    Returns both values of each array of the results, device by device; None if the module cannot run so: it draws
    random numbers, calls functions or reinterprets bits in ways that depend on the type.
    """
    if any(_depends_on_the_run(instruction) for instruction in module.instructions()):
        return None
    try:
        executable = compile(in_double(module), "interpreter", replicas=len(lists), seed=0)
        rng = np.random.default_rng(0)
        runs = [
            executable.run_replicas([[_doubled(value, ulps, rng) for value in values] for values in lists])
            for ulps in (0.0, PERTURBATION)
        ]
    except (HloomError, MemoryError):
        return None
    exact, perturbed = ([leaf for result in run for leaf in flat(result)] for run in runs)
    return list(zip(exact, perturbed, strict=True))


def _depends_on_the_run(instruction: Instruction) -> bool:
    op = instruction.op
    return isinstance(op, CustomCall) or (op.has_side_effect and not isinstance(op, Communication))


def in_double(module: Module) -> Module:
    """Returns a copy of a module that computes in double precision. Raises HloomError if there is none.

    Bits are still those of the narrow type: a bitcast-convert is between conversions.
    """
    copy = clone_module(module)
    copy.entry_parameter_layouts = copy.entry_result_layout = None
    for computation in copy.computations:
        casts = [i for i in computation.instructions if isinstance(i.op, BitcastConvert)]
        shapes = {i: (i.shape, i.operands[0].shape) for i in casts}
        for instruction in computation.instructions:
            instruction.shape = _wide(instruction.shape)
            if isinstance(instruction.op, Constant):
                literal = instruction.op.literal
                value = _doubled(literal.value, 0.0, np.random.default_rng(0))
                instruction.op = Constant(literal=Literal(_wide(literal.shape), value))
        _keep_bits(computation, shapes)
    verify_module(copy)
    return copy


def _keep_bits(computation: Computation, casts: dict[Instruction, tuple[Shape, Shape]]) -> None:
    """Converts operands of bitcast-converts to their narrow types, and results from them; `casts` has the shapes."""
    edit = Edit(computation)
    for old, (result, operand) in casts.items():
        build = OpBuilder.at(edit, old)
        cast = build(old.op, build.convert(old.operands[0], operand.element_type), shape=result)
        edit.replace(old, build.convert(cast, old.shape.element_type))
    edit.finish()


def _wide(shape: Shape) -> Shape:
    if shape.is_tuple:
        return Shape.tuple_of(map(_wide, shape.elements))
    element_type = shape.element_type
    if not (element_type.is_float or element_type.is_complex):
        return shape
    layout = replace(shape.layout, element_size_in_bits=0) if shape.layout else None
    return replace(shape, element_type=_double(element_type), layout=layout)


def _double(element_type: PrimitiveType) -> PrimitiveType:
    return PrimitiveType.F64 if element_type.is_float else PrimitiveType.C128


def _doubled(value: Value, ulps: float, rng: np.random.Generator) -> Value:
    """A value in double precision, whose floats change by up to some units in the last place of their type."""
    if isinstance(value, tuple):
        return tuple(_doubled(element, ulps, rng) for element in value)
    if not isinstance(value, np.ndarray):
        return value
    element_type = BY_DTYPE[value.dtype]
    if not (element_type.is_float or element_type.is_complex):
        return value
    wide = np.asarray(widen(value)).astype(_double(element_type).dtype)
    return _perturbed(wide, ulps, float(ml_dtypes.finfo(element_type.real.dtype).eps), rng) if ulps else wide


def _perturbed(wide: Array, ulps: float, epsilon: float, rng: np.random.Generator) -> Array:
    if wide.dtype.kind == "c":
        return np.asarray(_perturbed(wide.real, ulps, epsilon, rng) + 1j * _perturbed(wide.imag, ulps, epsilon, rng))
    digits = np.frexp(wide)[0] * 2.0 ** round(-np.log2(epsilon) / 2)
    change = ulps * epsilon * rng.uniform(-1, 1, wide.shape)
    return np.where(digits == np.round(digits), wide, wide * (1 + change))
