"""nan-signs: makes the signs of computed NaNs positive where an instruction can observe them.

HLO does not specify which NaN an operation returns (GEN-7): processors, LLVM and rewrite rules differ in its sign. Only
few instructions observe the sign. This pass fixes the sign for these, before other passes change the module; programs
without them pay nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

import numpy as np

from hloom.ir import Computation, Instruction, Module
from hloom.numerics import has_signed_nans
from hloom.ops.attributes import ComparisonDirection
from hloom.ops.broadcast import Iota
from hloom.ops.communication import Infeed
from hloom.ops.compare import Compare
from hloom.ops.convert import BitcastConvert, Convert, ReducePrecision
from hloom.ops.custom_call import TOP_K_TARGETS, CustomCall
from hloom.ops.dynamic_size import SetDimensionSize
from hloom.ops.elementwise_unary import Negate
from hloom.ops.operation import Operation
from hloom.ops.rng import Rng, RngBitGenerator
from hloom.ops.select import Select
from hloom.ops.sort import TopK
from hloom.ops.structure import Constant
from hloom.passes.edit import Edit
from hloom.passes.op_builder import OpBuilder
from hloom.passes.origins import Origins, Position, ShapeIndex
from hloom.shape import Shape
from hloom.system.records import record

_FORWARDING = (Convert, Negate, ReducePrecision, SetDimensionSize)
"""Operations that copy NaNs of their first operand, besides those that move it. Negate inverts the signs of data."""
_OBSERVERS = (BitcastConvert, Compare, Convert, CustomCall, TopK)
"""Operations whose results may depend on the sign of NaNs."""
_SOURCES = (BitcastConvert, Constant, Infeed, Iota, Rng, RngBitGenerator)
"""Operations whose results are data, or are never NaN; the operand of a bitcast-convert is examined at the latter."""


@record
class NanSigns:
    """Before: compare(log(%x), %y), type=TOTALORDER. After: l = log(%x), compare(select(l != l, nan, l), %y).

    Comparisons by total order, also in comparators, top-k, bitcasts of floats, and conversions to floats without signed
    NaNs observe the sign. NaNs that are only moved, selected or negated on the way from a parameter or constant are
    data, and keep their sign. Arrays of dynamic sizes are left alone.
    """

    name: ClassVar[str] = "nan-signs"

    def run(self, module: Module) -> int:
        """Adds the selects; returns the number of instructions whose NaNs are changed."""
        computed = computed_nans(module)
        for computation in module.computations:
            own = [instruction for instruction in computed if instruction.parent is computation]
            if own:
                _settle(computation, own)
        return len(computed)


def tells_nans_apart(instruction: Instruction) -> bool:
    """Whether an instruction's result may depend on the sign of NaNs in its operands."""
    return isinstance(instruction.op, _OBSERVERS) and bool(_observed(instruction))


def _observed(instruction: Instruction) -> Iterable[Position]:
    """Returns the operands whose signs of NaNs an instruction observes."""
    match instruction.op:
        case Compare() as op:
            operands = instruction.operands if op.is_total_order else ()
        case BitcastConvert() | TopK():
            operands = instruction.operands
        case CustomCall() as op:
            operands = instruction.operands[:1] if op.target_name in TOP_K_TARGETS else ()
        case Convert():
            result = instruction.shape.element_type
            operands = instruction.operands if result.is_float and not has_signed_nans(result.dtype) else ()
        case _:
            return ()
    return [(operand, ()) for operand in operands]


def computed_nans(module: Module) -> list[Instruction]:
    """Returns the instructions that may compute a NaN whose sign is observed."""
    worklist = [position for i in module.instructions() if isinstance(i.op, _OBSERVERS) for position in _observed(i)]
    if not worklist:
        return []
    origins = _Origins(module)
    seen = set(worklist)
    computed: dict[Instruction, None] = {}
    while worklist:
        instruction, index = worklist.pop()
        before = origins.of(instruction, index)
        if before is None:
            if instruction.shape.is_array and not instruction.shape.is_dynamic:
                computed[instruction] = None
            continue
        new = [position for position in before if position not in seen]
        seen.update(new)
        worklist += new
    return list(computed)


class _Origins(Origins):
    """The origins of NaNs."""

    def of(self, instruction: Instruction, index: ShapeIndex) -> list[Position] | None:
        """Returns the positions that a NaN may be copied from; None if the instruction computes it."""
        shape = instruction.shape
        for k in index:
            shape = shape.elements[k]
        if not shape.is_array or not shape.element_type.is_float or not has_signed_nans(shape.element_type.dtype):
            return []
        match instruction.op:
            case op if isinstance(op, _SOURCES):
                return []
            case op if isinstance(op, _FORWARDING):
                return [(instruction.operands[0], index)]
            case Select() if _is_nan_test(instruction):
                return [(instruction.operands[1], ())]
        return super().of(instruction, index)


def _is_nan_test(select: Instruction) -> bool:
    """Whether a select returns elements of its last operand only if they are not NaN."""
    test, _, value = select.operands
    op = test.op
    is_unequal = isinstance(op, Compare) and op.direction is ComparisonDirection.NE and not op.is_total_order
    return is_unequal and [*test.operands] == [value, value]


def _settle(computation: Computation, computed: list[Instruction]) -> None:
    """Adds a select of the positive NaN after each instruction, and makes all of its users read that."""
    edit, after = Edit(computation), dict[Instruction, list[Instruction]]()
    for old in computed:
        made: list[Instruction] = []

        def add(
            op: Operation, operands: Iterable[Instruction], shape: Shape, made: list[Instruction] = made
        ) -> Instruction:
            made.append(Instruction(edit.unique_name(op.opcode), shape, op, operands))
            made[-1].parent = computation
            return made[-1]

        build = OpBuilder(add)
        users = [*old.users]
        is_nan = build(Compare(direction=ComparisonDirection.NE), old, old)
        nan = build.broadcast(build.constant(np.nan, old.shape.element_type), old.shape)
        chosen = build(Select(), is_nan, nan, old, shape=old.shape)
        chosen.sharding = old.sharding
        for user in users:
            for position, operand in enumerate(user.operands):
                if operand is old:
                    user.replace_operand(position, chosen)
        if computation.root is old:
            computation.root = chosen
        after[old] = made
    computation.instructions = [each for old in computation.instructions for each in (old, *after.get(old, ()))]
