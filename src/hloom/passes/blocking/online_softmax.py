"""Rewrites a softmax to a loop over blocks of keys, each of which rescales the totals so far (online softmax).

    m = max(x)                  m' = max(m, max(block of x)), c = exp(m - m')
    l = sum(exp(x - m))         l' = l * c + sum(exp(block of x - m'))
    o = dot(exp(x - m), v)      o' = o * c + dot(exp(block of x - m'), block of v)

The division by l comes after the last block. Where a mask puts a constant far below the maximum of each row, masked
keys add exactly 0 if all of v is finite; the loop ends once that holds for all remaining keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from hloom.ir import Computation, Instruction, Module
from hloom.ops.attributes import ComparisonDirection
from hloom.ops.compare import Compare
from hloom.ops.convert import BitcastConvert
from hloom.ops.dot import Dot
from hloom.ops.elementwise_binary import Add, And, Maximum, Multiply, Or, Subtract
from hloom.ops.elementwise_unary import Exponential, Not
from hloom.ops.select import Select
from hloom.passes.blocking.block_loop import Block, block_inputs, replace_outputs, result_type
from hloom.passes.blocking.masks import masking_of, visible_key_count
from hloom.passes.blocking.regions import Region
from hloom.passes.blocking.softmax import Softmax
from hloom.passes.blocking.tiling import Tiling
from hloom.passes.edit import Edit
from hloom.passes.op_builder import OpBuilder, below, loop, reduced
from hloom.shape import Shape
from hloom.system.records import record
from hloom.types import PrimitiveType

S32, U32, PRED, F32 = PrimitiveType.S32, PrimitiveType.U32, PrimitiveType.PRED, PrimitiveType.F32
_UNDERFLOW = {F32: 104.0, PrimitiveType.F64: 746.0}
"""Exponentials of arguments below the negative of this underflow to 0."""


@record(slots=True)
class _State:
    """The maximum of each row and the totals, over the keys so far."""

    maximum: Instruction
    totals: Sequence[Instruction]


@record(slots=True)
class _End:
    """The condition for leaving the loop early.

    All keys from index `visible_keys` on have the score `masked`, and `finite` tells whether all values are finite.
    """

    masked: float
    visible_keys: Instruction
    finite: Instruction


def make_online_softmax(module: Module, computation: Computation, region: Region, softmax: Softmax, size: int) -> None:
    """Replaces the region's outputs by those of a loop over blocks of `size` keys."""
    edit = Edit(computation)
    build = OpBuilder.at(edit, region.members[-1])
    online = _Online(module, region, softmax, size)
    state = online.emit_loop(build)
    emit_finals = online.emit_finals(build, state)
    replace_outputs(edit, build, region.outputs, [emit_finals[output] for output in region.outputs])


class _Online:
    """Emits the loop and the values after it."""

    def __init__(self, module: Module, region: Region, softmax: Softmax, size: int) -> None:
        self.module, self.region, self.softmax, self.size = module, region, softmax, size
        self.tiling = Tiling(softmax.key_dimensions, softmax.totals, softmax.extent, size, is_batch=False)
        self.score_region = Region(softmax.score_members, [softmax.scores], region.products, region.cheap)
        self.inputs = block_inputs(region, self.tiling)

    def emit_loop(self, build: OpBuilder) -> _State:
        """Emits the loop and returns the state after all keys; a last partial block comes after the loop."""
        trips, rest = divmod(self.tiling.extent, self.size)
        inputs = len(self.inputs)
        end = self._end(build)
        ends = [end.visible_keys, end.finite, build.constant(False, PRED)] if end else []
        first = self._initial_state(build)

        def body(build: OpBuilder, step: Instruction, values: list[Instruction]) -> list[Instruction]:
            given, ended = values[:inputs], values[inputs : inputs + len(ends)]
            maximum, *totals = values[inputs + len(ends) :]
            start = build(Multiply(), step, build.constant(self.size, S32))
            read = dict(zip(self.inputs, given, strict=True))
            state = self._block(build, read, start, self.size, _State(maximum, totals))
            if end:
                ended[2] = self._masked_keys_vanish(build, state, end.masked, ended[1])
            return [*given, *ended, state.maximum, *state.totals]

        def condition(build: OpBuilder, step: Instruction, values: list[Instruction]) -> Instruction:
            has_blocks = below(build, step, trips)
            if end is None:
                return has_blocks
            visible_keys, _, vanishes = values[inputs : inputs + 3]
            start = build(Multiply(), step, build.constant(self.size, S32))
            within = build(Compare(direction=ComparisonDirection.LT), start, visible_keys)
            return build(And(), has_blocks, build(Or(), within, build(Not(), vanishes)))

        values = [*self.inputs, *ends, first.maximum, *first.totals]
        maximum, *totals = loop(build, self.module, "keys", values, body, condition)[inputs + len(ends) :]
        state = _State(maximum, totals)
        if rest:
            start = build.constant(trips * self.size, S32)
            state = self._block(build, {i: i for i in self.inputs}, start, rest, state)
        return state

    def _initial_state(self, build: OpBuilder) -> _State:
        """The state before the first key."""
        maximum = self.softmax.maximum
        zeros = []
        for total in self.softmax.totals:
            element_type = result_type(total, self.tiling)
            zeros.append(build.broadcast(build.constant(0, element_type), total.shape.with_element_type(element_type)))
        return _State(build.broadcast(maximum.operands[1], maximum.shape), zeros)

    def _block(
        self, build: OpBuilder, inputs: Mapping[Instruction, Instruction], start: Instruction, size: int, before: _State
    ) -> _State:
        """Emits the members for one block of keys, and returns the state after it."""
        softmax = self.softmax
        block = Block(build, self.score_region, self.tiling, inputs, start, size)

        def copied(member: Instruction) -> Instruction:
            operands = [block.operand(member, k) for k in range(len(member.operands))]
            return block.copy(member, operands, self.tiling.dimensions.get(member))

        maximum = build(Maximum(), before.maximum, copied(softmax.maximum))
        # exp(-inf - -inf) is NaN: a row whose scores have all been -inf so far has no weights yet.
        least = build.broadcast(build.constant(float("-inf"), maximum.shape.element_type), maximum.shape)
        zero = build.broadcast(build.constant(0, maximum.shape.element_type), maximum.shape)
        is_empty = build(Compare(direction=ComparisonDirection.EQ), maximum, least)
        block.copies[softmax.maximum] = shift = build(Select(), is_empty, zero, maximum)
        for member in (*softmax.shifts, *softmax.weights):
            is_scale = softmax.weights.get(member) is member
            block.copies[member] = block.copies[softmax.weight_of(member)] if is_scale else copied(member)
        correction = build(Exponential(), build(Subtract(), before.maximum, shift))
        totals = []
        for total, old in zip(softmax.totals, before.totals, strict=True):
            corrected = build(Multiply(), old, self._repeated(build, correction, total, old.shape))
            totals.append(build(Add(), corrected, copied(total)))
        return _State(maximum, totals)

    def _repeated(self, build: OpBuilder, value: Instruction, total: Instruction, shape: Shape) -> Instruction:
        """A value per row, such as the maximum, broadcast to the shape of a total."""
        if not isinstance(total.op, Dot):
            return build.reshape(value, shape.dimensions)
        softmax = self.softmax
        return self._broadcast_rows(
            build, value, softmax.row_dimensions(total, softmax.shift, softmax.exponentials), shape
        )

    def _broadcast_rows(
        self, build: OpBuilder, rows: Instruction, dimensions: tuple[int, ...] | None, shape: Shape
    ) -> Instruction:
        assert dimensions is not None
        rows = build.convert(rows, shape.element_type)
        sizes = tuple(shape.dimensions[d] for d in dimensions)
        return build.broadcast(build.reshape(rows, sizes), shape, dimensions)

    def emit_finals(self, build: OpBuilder, state: _State) -> dict[Instruction, Instruction]:
        """Emits the members without keys, from the state after all keys; returns all such members."""
        softmax = self.softmax
        found = {softmax.maximum: state.maximum}
        totals = dict(zip(softmax.totals, state.totals, strict=True))
        for member in self.region.members:
            if member in totals:
                found[member] = self._scaled(build, member, totals[member], found)
            elif member in softmax.small or (member in softmax.shifts and member not in softmax.key_dimensions):
                found[member] = build(member.op, *(found.get(o, o) for o in member.operands), shape=member.shape)
        return found

    def _scaled(
        self, build: OpBuilder, total: Instruction, value: Instruction, found: Mapping[Instruction, Instruction]
    ) -> Instruction:
        """A total of weights, computed from that of the exponentials."""
        found_scale = self.softmax.scale_of(total)
        if found_scale is None:
            return value
        scale, repeated = found_scale
        (rows,) = repeated.operands
        dimensions = self.softmax.row_dimensions(total, repeated, scale)
        return build(scale.op, value, self._broadcast_rows(build, found.get(rows, rows), dimensions, value.shape))

    # Leaving the loop early

    def _end(self, build: OpBuilder) -> _End | None:
        """Emits the values on which leaving the loop depends; None if the scores are not masked."""
        masking = masking_of(self.softmax.scores)
        values = [*self._values()]
        if masking is None or masking.mask in self.region.members:
            return None
        if not all(value.shape.element_type.is_float and value.shape.element_type.bits >= 8 for value in values):
            return None
        visible_keys = visible_key_count(build, self.module, masking.mask, self.softmax.dimension, masking.kept_where)
        finite = build.constant(True, PRED)
        for value in values:
            finite = build(And(), finite, self._is_finite(build, value))
        return _End(masking.value, visible_keys, finite)

    def _values(self) -> Iterator[Instruction]:
        """Yields the operands that weights are multiplied by."""
        for total in self.softmax.totals:
            if isinstance(total.op, Dot):
                yield from (operand for operand in total.operands if operand not in self.softmax.weights)

    # Elements are compared as integers, since comparisons with NaN are always false.

    def _is_finite(self, build: OpBuilder, values: Instruction) -> Instruction:
        """Emits whether the exponents of all elements are below the largest one."""
        element_type = values.shape.element_type
        word = element_type.unsigned
        infinity = int(np.array(np.inf, element_type.dtype).view(word.dtype))
        bits = build(BitcastConvert(), values, shape=values.shape.with_element_type(word))
        exponents = build(And(), bits, build.broadcast(build.constant(infinity, word), bits.shape))
        most = reduced(build, self.module, Maximum(), exponents, 0)
        return build(Compare(direction=ComparisonDirection.LT), most, build.constant(infinity, word))

    def _masked_keys_vanish(self, build: OpBuilder, state: _State, masked: float, finite: Instruction) -> Instruction:
        """Emits whether masked keys add 0 to every row."""
        shape = state.maximum.shape
        value = build.broadcast(build.constant(masked, shape.element_type), shape)
        limit = build.broadcast(build.constant(_UNDERFLOW[shape.element_type], shape.element_type), shape)
        above = build(Compare(direction=ComparisonDirection.GT), build(Subtract(), state.maximum, value), limit)
        counted = (build.broadcast(build.constant(k, U32), shape) for k in (0, 1))
        remaining = reduced(build, self.module, Maximum(), build(Select(), above, *counted), 0)
        none_remain = build(Compare(direction=ComparisonDirection.EQ), remaining, build.constant(0, U32))
        return build(And(), finite, none_remain)
