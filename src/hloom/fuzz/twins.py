"""Twins: programs with the same results, made by rewrites that hold for every value, bit for bit.

A rewrite takes an operand of an instruction and replaces it by an equal value: transposed twice, passed through a
loop, computed in a call .. Prior art: PolyJuice (Zhou et al., 2024), which finds miscompilations of tensor compilers
with equivalent graphs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from hloom.faults.case import Case
from hloom.fuzz.grammar.body import split_product
from hloom.fuzz.grammar.draw import Draw
from hloom.ir import Instruction, Module
from hloom.literal import Literal
from hloom.ops.attributes import FusionKind, PaddingDimension, SliceDimension
from hloom.ops.broadcast import Broadcast
from hloom.ops.control_flow import Call, Conditional, Fusion
from hloom.ops.convert import BitcastConvert
from hloom.ops.elementwise_binary import Add, Monoid, Xor
from hloom.ops.elementwise_unary import Negate, Not
from hloom.ops.pad import Concatenate, Pad
from hloom.ops.reshape import Copy, Reshape
from hloom.ops.select import Select
from hloom.ops.slice import DynamicSlice, DynamicUpdateSlice, Slice
from hloom.ops.structure import Constant, OptimizationBarrier, Parameter
from hloom.ops.traits import Asynchronous
from hloom.ops.transpose import Reverse, Transpose
from hloom.passes import clone_module
from hloom.passes.edit import Edit, callees_first_of, running_computations
from hloom.passes.op_builder import OpBuilder, counted_loop, new_computation
from hloom.shape import Shape
from hloom.types import REALS, Kind, PrimitiveType

Rewrite = Callable[[OpBuilder, Module, Instruction, Draw], Instruction | None]
"""Builds an instruction that is equal to another one; None if it does not apply."""
MOST_REWRITES = 5


def twin(case: Case, draw: Draw) -> Case:
    """Returns a case with the same results, and a module that computes them in another way."""
    module = clone_module(case.module)
    if draw.chance(0.3):
        _embed(module, case, draw)
    for _ in range(draw.between(1, MOST_REWRITES)):
        _rewrite(module, draw)
    return Case(module, case.arguments)


def _rewrite(module: Module, draw: Draw) -> None:
    """Replaces an operand of a random instruction by an equal value."""
    computations = [c for c in running_computations(module) if len(c.instructions) > 1]
    if not computations:
        return
    edit = Edit(draw.pick(computations))
    users = [i for i in edit.computation.instructions if any(map(_is_plain, i.operands)) and not _is_part_of_async(i)]
    if users:
        user = draw.pick(users)
        position = draw.pick([k for k, operand in enumerate(user.operands) if _is_plain(operand)])
        equal = draw.pick(REWRITES)(OpBuilder.at(edit, user), module, user.operands[position], draw)
        if equal is not None:
            user.replace_operand(position, equal)
    edit.finish()
    module.computations = callees_first_of(module)


def _is_plain(value: Instruction) -> bool:
    return value.shape.is_array and value.shape.is_static


def _is_part_of_async(user: Instruction) -> bool:
    return isinstance(user.op, Asynchronous)


def _embed(module: Module, case: Case, draw: Draw) -> None:
    """Makes constants of some arguments, which passes then compute with."""
    edit = Edit(module.entry)
    for parameter in module.entry.parameters:
        users = [user for user in parameter.users if _is_plain(parameter)]
        if users and case.arguments is not None and draw.chance(0.5):
            literal = Literal.from_numpy(np.asarray(case.arguments[parameter.parameter_number]))
            first = next(i for i in module.entry.instructions if i in parameter.users)
            constant = edit.add(Constant(literal=literal), (), literal.shape, first)
            parameter.replace_all_uses_with(constant)
    edit.finish()


def _twice(build: OpBuilder, module: Module, x: Instruction, draw: Draw) -> Instruction | None:
    kind = x.shape.element_type.kind
    if kind is Kind.COMPLEX or x.shape.element_type is PrimitiveType.F8E8M0FNU:
        return None
    op = Not() if kind is Kind.PRED or (kind is not Kind.FLOAT and draw.chance(0.5)) else Negate()
    return build(op, build(op, x))


def _transposed(build: OpBuilder, module: Module, x: Instruction, draw: Draw) -> Instruction | None:
    order = tuple(draw.shuffled(range(x.shape.rank)))
    back = tuple(int(d) for d in np.argsort(order))
    return build(Transpose(permutation=back), build(Transpose(permutation=order), x))


def _reshaped(build: OpBuilder, module: Module, x: Instruction, draw: Draw) -> Instruction | None:
    sizes = split_product(draw, x.shape.element_count)
    middle = build(Reshape(), x, shape=Shape.array(x.shape.element_type, sizes))
    return build(Reshape(), middle, shape=x.shape)


def _reversed(build: OpBuilder, module: Module, x: Instruction, draw: Draw) -> Instruction | None:
    op = Reverse(dimensions=draw.some(range(x.shape.rank)))
    return build(op, build(op, x))


def _split(build: OpBuilder, module: Module, x: Instruction, draw: Draw) -> Instruction | None:
    if not x.shape.rank:
        return None
    d = draw.below(x.shape.rank)
    at = draw.between(0, x.shape.dimensions[d])
    parts = [_slice(build, x, d, low, high) for low, high in ((0, at), (at, x.shape.dimensions[d]))]
    return build(Concatenate(dimension=d), *parts)


def _slice(build: OpBuilder, x: Instruction, d: int, low: int, high: int) -> Instruction:
    whole = [SliceDimension(0, size) for size in x.shape.dimensions]
    whole[d] = SliceDimension(low, high)
    return build(Slice(slice=tuple(whole)), x)


def _padded(build: OpBuilder, module: Module, x: Instruction, draw: Draw) -> Instruction | None:
    """Padding, negative in the second step."""
    pads = [(draw.below(3), draw.below(3)) for _ in range(x.shape.rank)]
    value = build.constant(0, x.shape.element_type)
    padded = build(Pad(padding_config=tuple(PaddingDimension(low, high) for low, high in pads)), x, value)
    return build(Pad(padding_config=tuple(PaddingDimension(-low, -high) for low, high in pads)), padded, value)


def _added(build: OpBuilder, module: Module, x: Instruction, draw: Draw) -> Instruction | None:
    if not x.shape.element_type.is_integer:
        return None
    if draw.chance(0.5):
        return build(Xor(), build(Xor(), x, x), x)
    zero = build.broadcast(_hidden(build, build.constant(0, x.shape.element_type)), x.shape)
    return build(Add(), x, zero)


def _hidden(build: OpBuilder, x: Instruction) -> Instruction:
    """A value that passes know nothing about."""
    return build(OptimizationBarrier(), x)


def _selected(build: OpBuilder, module: Module, x: Instruction, draw: Draw) -> Instruction | None:
    predicate = _hidden(build, build.constant(draw.chance(0.5), PrimitiveType.PRED))
    return build(Select(), predicate, x, x)


def _called(build: OpBuilder, module: Module, x: Instruction, draw: Draw) -> Instruction | None:
    """The instruction that computes the value, in a call or a fusion of its own."""
    if isinstance(x.op, Parameter) or x.op.has_side_effect or x.op.is_pinned or not all(map(_is_plain, x.operands)):
        return None
    callee = new_computation(module, "outlined")
    inner = OpBuilder.of(callee)
    inner(x.op, *(inner.parameter(k, o.shape) for k, o in enumerate(x.operands)), shape=x.shape)
    op = Call(computation=callee) if draw.chance(0.5) else Fusion(kind=FusionKind.LOOP, calls=callee)
    return build(op, *x.operands)


def _through_a_loop(build: OpBuilder, module: Module, x: Instruction, draw: Draw) -> Instruction | None:
    def body(inner: OpBuilder, step: Instruction, values: list[Instruction]) -> Sequence[Instruction]:
        return values

    return counted_loop(build, module, "loop", draw.below(3), [x], body)[0]


def _in_a_branch(build: OpBuilder, module: Module, x: Instruction, draw: Draw) -> Instruction | None:
    """A conditional whose predicate is constant; the other branch returns zeros."""
    branches = []
    for is_taken in (True, False):
        branches.append(new_computation(module, "branch"))
        inner = OpBuilder.of(branches[-1])
        value = inner.parameter(0, x.shape)
        branches[-1].root = inner(Copy(), value) if is_taken else inner.zeros(x.shape)
    predicate = build.constant(True, PrimitiveType.PRED)
    if draw.chance(0.5):
        predicate = _hidden(build, predicate)
    return build(Conditional(branch_computations=tuple(branches)), predicate, x, x)


def _as_bits(build: OpBuilder, module: Module, x: Instruction, draw: Draw) -> Instruction | None:
    if x.shape.element_type.kind not in REALS:
        return None
    bits = build(BitcastConvert(), x, shape=x.shape.with_element_type(x.shape.element_type.unsigned))
    return build(BitcastConvert(), bits, shape=x.shape)


def _wider(build: OpBuilder, module: Module, x: Instruction, draw: Draw) -> Instruction | None:
    """A conversion to a type that has all the values, and back."""
    wide = {Kind.SIGNED: PrimitiveType.S64, Kind.UNSIGNED: PrimitiveType.U64, Kind.FLOAT: PrimitiveType.F64}
    target = wide.get(x.shape.element_type.kind)
    return None if target is None else build.convert(build.convert(x, target), x.shape.element_type)


def _sliced_at_run_time(build: OpBuilder, module: Module, x: Instruction, draw: Draw) -> Instruction | None:
    """The whole array by a dynamic slice, whose start is clamped to 0, or updated with itself."""
    starts = [_hidden(build, build.constant(draw.between(-1, 2), PrimitiveType.S32)) for _ in range(x.shape.rank)]
    if draw.chance(0.5):
        return build(DynamicUpdateSlice(), x, x, *starts)
    return build(DynamicSlice(size_indices=x.shape.dimensions), x, *starts)


def _swapped(build: OpBuilder, module: Module, x: Instruction, draw: Draw) -> Instruction | None:
    if not isinstance(x.op, Monoid):
        return None
    return build(x.op, x.operands[1], x.operands[0])


def _repeated(build: OpBuilder, module: Module, x: Instruction, draw: Draw) -> Instruction | None:
    """A broadcast along a new dimension, and the slice at one of its indices."""
    d, count = draw.between(0, x.shape.rank), draw.between(1, 3)
    larger = x.shape.insert_dimension(d, count)
    kept = tuple(k for k in range(larger.rank) if k != d)
    many = build(Broadcast(broadcast_dimensions=kept), x, shape=larger)
    index = draw.below(count)
    return build(Reshape(), _slice(build, many, d, index, index + 1), shape=x.shape)


def _element(build: OpBuilder, module: Module, x: Instruction, draw: Draw) -> Instruction | None:
    return build.element(build.tuple(x, _hidden(build, x)), draw.below(2))


def _copied(build: OpBuilder, module: Module, x: Instruction, draw: Draw) -> Instruction | None:
    return build(Copy(), _hidden(build, x))


REWRITES: tuple[Rewrite, ...] = (
    _twice, _transposed, _reshaped, _reversed, _split, _padded, _added, _selected, _called, _through_a_loop,
    _in_a_branch, _as_bits, _wider, _sliced_at_run_time, _swapped, _repeated, _element, _copied,
)  # fmt: skip
