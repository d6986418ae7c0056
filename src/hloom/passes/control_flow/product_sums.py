"""product-sums: products that a loop adds up, as one product after the loop.

    state k: s + dot(x, y), in each iteration  ->  s + dot(xs, ys), after the loop, which collects the x and the y

The gradient of a recurrent network along its weights is such a sum: a product of few rows in each step, whose result,
of the size of the weights, takes longer to read and write than to compute.
"""

from __future__ import annotations

import math
from typing import ClassVar

from hloom.analysis.counted_loop import CountedLoop, carried_index, counted_loop
from hloom.ir import Computation, Instruction, Module
from hloom.ops.control_flow import While
from hloom.ops.dot import Dot
from hloom.ops.elementwise_binary import Add
from hloom.ops.slice import DynamicUpdateSlice
from hloom.ops.structure import GetTupleElement, Tuple
from hloom.passes.control_flow.while_loops import widen_loop
from hloom.passes.edit import Edit, callers, has_control_edges, is_dynamic, loops_of
from hloom.passes.op_builder import OpBuilder
from hloom.shape import Shape
from hloom.system.records import record
from hloom.types import PrimitiveType

FLOATS = {PrimitiveType.F32, PrimitiveType.F64}
MIN_TRIPS = 4
"""Iterations of a loop that is worth it."""


@record
class ProductSums:
    """Before: a loop of n iterations, a known number, with add(%s, dot(%x, %y)) as the next value of an element %s of
    its state. After: the loop collects %x and %y in arrays of n of them, whose product is added to %s after the loop.

    Only the sum may read %s, and the contracted dimensions are the first ones of both operands. The result has at least
    four times the elements of the operands, and the arrays take at most as much memory as the state. Sums have another
    order, and may overflow where partial sums do not.
    """

    name: ClassVar[str] = "product-sums"
    optional: ClassVar[bool] = True
    operations: ClassVar[tuple[type, ...]] = (While,)
    min_ratio: int = 4
    """Elements of the result for each element of the operands."""

    def run(self, module: Module) -> int:
        """Moves the products; returns their number."""
        loops = loops_of(module)
        calling = callers(module) if loops else {}
        return sum(self._move(loop) for loop in loops if _is_plain(loop, calling))

    def _move(self, loop: Instruction) -> int:
        op, counted = loop.op, counted_loop(loop)
        assert isinstance(op, While)
        if counted is None or counted.trips < MIN_TRIPS or (counted.start, counted.step) != (0, 1):
            return 0
        found = {k: dot for k in range(len(loop.shape.elements)) if (dot := self._added(op, k)) is not None}
        collected = [x for dot in found.values() for x in dot.operands]
        if not found or counted.trips * sum(x.shape.byte_size for x in collected) > loop.shape.byte_size:
            return 0
        _collect(loop, counted, found, collected)
        return len(found)

    def _added(self, op: While, k: int) -> Instruction | None:
        """Returns the dot that is added to an element of the state; None if there is none to move."""
        body, total = op.body, op.body.root.operands[k]
        dot = next((x for x in total.operands if isinstance(x.op, Dot)), None) if isinstance(total.op, Add) else None
        if dot is None or len(dot.users) > 1 or len(total.users) > 1 or body.root.operands.count(total) > 1:
            return None
        others = [x for x in total.operands if x is not dot]
        is_sum = [carried_index(x, body) for x in others] == [k]
        readers = [i for c in (body, op.condition) for i in c.parameters[0].users if carried_index(i, c) == k]
        is_alone = readers == others and all(len(reader.users) == 1 for reader in readers)
        return dot if is_sum and is_alone and self._is_worth_it(dot) else None

    def _is_worth_it(self, dot: Instruction) -> bool:
        op = dot.op
        assert isinstance(op, Dot)
        first = tuple(range(len(op.lhs_contracting_dims)))
        are_first = op.lhs_contracting_dims == op.rhs_contracting_dims == first != () and not op.lhs_batch_dims
        types = {shape.element_type for shape in (dot.shape, *dot.operand_shapes)}
        is_large = dot.shape.element_count >= self.min_ratio * sum(x.element_count for x in dot.operand_shapes) > 0
        return are_first and len(types) == 1 and types <= FLOATS and is_large and not is_dynamic(dot)


def _is_plain(loop: Instruction, calling: dict[Computation, list[Instruction]]) -> bool:
    """Whether a loop on a tuple has its computations for itself, which read the elements of the tuple alone."""
    op = loop.op
    assert isinstance(op, While)
    own = {op.body, op.condition}
    return (
        len(own) == 2
        and all(len(calling[computation]) == 1 for computation in own)
        and isinstance(op.body.root.op, Tuple)
        and all(isinstance(i.op, GetTupleElement) for c in own for i in c.parameters[0].users)
        and not has_control_edges(loop)
    )


def _collect(
    loop: Instruction, counted: CountedLoop, found: dict[int, Instruction], collected: list[Instruction]
) -> None:
    """Collects operands of dots, and adds the product of those of each dot to the result of the loop."""
    op = loop.op
    assert isinstance(op, While) and loop.parent is not None
    edit = Edit(loop.parent)
    build = OpBuilder.at(edit, loop)
    shapes = [Shape.array(x.shape.element_type, (counted.trips, *x.shape.dimensions)) for x in collected]
    results = widen_loop(edit, loop, [build.zeros(shape) for shape in shapes])
    count = len(loop.shape.elements)
    arrays = iter(results[count:])
    for k, dot in found.items():
        product = _product(build, dot, next(arrays), next(arrays))
        results[k] = build(Add(), results[k], product, shape=loop.shape.elements[k])
    _write(op.body, counted.index, found, collected)
    loop.replace_all_uses_with(edit.add(Tuple(), results[:count], loop.shape, loop))
    edit.remove(loop)
    edit.finish()


def _product(build: OpBuilder, dot: Instruction, *arrays: Instruction) -> Instruction:
    """Returns the product of collected operands over all summed dimensions as one."""
    assert isinstance(dot.op, Dot)
    summed = len(dot.op.lhs_contracting_dims) + 1
    sizes = [array.shape.dimensions for array in arrays]
    long = [build.reshape(a, (math.prod(s[:summed]), *s[summed:])) for a, s in zip(arrays, sizes, strict=True)]
    return build(dot.op.replace(lhs_contracting_dims=(0,), rhs_contracting_dims=(0,)), *long, shape=dot.shape)


def _write(body: Computation, counter: int, found: dict[int, Instruction], collected: list[Instruction]) -> None:
    """Leaves the sums as they are, and writes the operands into the last elements of the state instead."""
    (parameter,), root = body.parameters, body.root
    edit = Edit(body)
    build = OpBuilder.at(edit, root)
    index = build.element(parameter, counter)
    zero = build.constant(0, index.shape.element_type)
    state = [build.element(parameter, k) if k in found else value for k, value in enumerate(root.operands)]
    for array, x in enumerate(collected, len(state)):
        part = build.reshape(x, (1, *x.shape.dimensions))
        starts = (index, *(zero for _ in x.shape.dimensions))
        state.append(build(DynamicUpdateSlice(), build.element(parameter, array), part, *starts))
    body.root = edit.add(Tuple(), state, parameter.shape, root)
    edit.remove_unused(root)
    edit.finish()
