"""Proposals for control flow: call, fusion, while, conditional, and asynchronous calls; tuples and their elements."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hloom.fuzz.grammar.body import Body
from hloom.fuzz.grammar.proposals import grow, proposal
from hloom.fuzz.grammar.values import draw_array
from hloom.ir import Instruction
from hloom.literal import Literal
from hloom.ops.attributes import ComparisonDirection, FusionKind
from hloom.ops.communication import CopyDone, CopyStart
from hloom.ops.compare import Compare
from hloom.ops.control_flow import AsyncDone, AsyncStart, AsyncUpdate, Call, Conditional, Fusion, While
from hloom.ops.elementwise_binary import Add
from hloom.ops.rules import result_shapes
from hloom.ops.structure import (
    AddDependency,
    AfterAll,
    Constant,
    GetTupleElement,
    OptimizationBarrier,
    Parameter,
    Tuple,
)
from hloom.shape import TOKEN, Shape, scalar
from hloom.types import PrimitiveType

PRED, S32 = scalar(PrimitiveType.PRED), scalar(PrimitiveType.S32)


def _some_values(body: Body, most: int) -> list[Instruction]:
    """Returns one to `most` values: arrays, seldom tuples."""
    draw = body.draw
    known = body.values(lambda s: (s.is_array and s.is_static) or (s.is_tuple and draw.chance(0.2) and _is_static(s)))
    chosen = [body.recent(known) for _ in range(draw.below(most + 1))] if known else []
    return chosen or [body.array("call")]


def _is_static(shape: Shape) -> bool:
    return all(leaf.is_array and leaf.is_static for leaf in shape.leaves())


def _called(body: Body, name: str, operands: Sequence[Instruction], uniform: bool = True) -> Body:
    """Returns the body of a computation that is called with some operands, with a result."""
    inner = body.child(name, [operand.shape for operand in operands], uniform=uniform)
    for parameter in inner.computation.parameters:
        inner.opened(parameter)
    grow(inner, body.draw.between(1, 5))
    arrays = inner.values(lambda s: s.is_array and s.is_static)
    count = body.draw.weighted({1: 3, 2: 1, 3: 0.5})
    inner.end([inner.recent(arrays) for _ in range(count)] if arrays else [inner.array(name)])
    return inner


def _opened(body: Body, made: Instruction) -> Instruction:
    body.opened(made)
    return made


@proposal(Call)
def _call(body: Body, declaration: type[Call]) -> Instruction:
    operands = _some_values(body, 3)
    return _opened(body, body.add(Call(computation=_called(body, "called", operands).computation), *operands))


@proposal(Fusion)
def _fusion(body: Body, declaration: type[Fusion]) -> Instruction:
    operands = [o for o in _some_values(body, 3) if o.shape.is_array] or [body.array("fusion")]
    kind = body.draw.pick([FusionKind.LOOP, FusionKind.INPUT, FusionKind.OUTPUT])
    op = Fusion(kind=kind, calls=_called(body, "fused", operands, uniform=False).computation)
    return _opened(body, body.add(op, *operands))


@proposal(AsyncStart)
def _async(body: Body, declaration: type[AsyncStart]) -> Instruction:
    operands = _some_values(body, 2)
    called = _called(body, "beside", operands, uniform=False).computation
    op = AsyncStart(calls=called)
    context = Shape.tuple_of([Shape.tuple_of(o.shape for o in operands), called.result_shape])
    made = body.add(op, *operands, shape=context)
    for _ in range(body.draw.below(2)):
        made = body.add(AsyncUpdate(calls=called), made)
    return _opened(body, body.add(AsyncDone(calls=called), made))


@proposal(CopyStart)
def _copy(body: Body, declaration: type[CopyStart]) -> Instruction:
    return body.add(CopyDone(), body.add(CopyStart(), body.array("copy-start")))


@proposal(While)
def _while(body: Body, declaration: type[While]) -> Instruction:
    """A loop of up to 4 iterations whose number the compiler may know."""
    draw = body.draw
    values = [body.array("while") for _ in range(draw.between(1, 3))]
    limit = body.constant(Literal.from_value(draw.between(0, 4)).value)
    if draw.chance(0.4):
        limit = body.add(OptimizationBarrier(), limit)

    def step(inner: Body, counter: Instruction, state: list[Instruction]) -> list[Instruction]:
        grow(inner, draw.between(1, 5))
        return [inner.computed(v.shape) if draw.chance(0.8) else v for v in state]

    return loop(body, limit, values, step)


Step = Callable[[Body, Instruction, list[Instruction]], list[Instruction]]
"""Computes the values of the next iteration in the body of a loop, from its counter and the values."""


def loop(
    body: Body, limit: Instruction, values: Sequence[Instruction], step: Step, start: int = 0, increment: int = 1
) -> Instruction:
    """Adds a loop with a counter on one side of a limit, and values that each iteration computes from those before."""
    init = body.add(Tuple(), body.constant(Literal.from_value(start).value), limit, *values)
    condition = body.child("condition", [init.shape])
    direction = ComparisonDirection.LT if increment > 0 else ComparisonDirection.GT
    condition.computation.root = condition.add(Compare(direction=direction), *_elements(condition, 2))
    inner = body.child("body", [init.shape])
    counter, bound, *state = _elements(inner, len(init.shape.elements))
    by = inner.constant(Literal.from_value(increment).value)
    after = step(inner, counter, state)
    inner.computation.root = inner.add(Tuple(), inner.add(Add(), counter, by), bound, *after)
    op = While(condition=condition.computation, body=inner.computation)
    return _opened(body, body.add(op, init))


def _elements(body: Body, count: int) -> list[Instruction]:
    (state,) = body.computation.parameters
    return [body.add(GetTupleElement(index=k), state) for k in range(count)]


@proposal(Conditional)
def _conditional(body: Body, declaration: type[Conditional]) -> Instruction:
    draw = body.draw
    by_predicate = draw.chance(0.5)
    count = 2 if by_predicate else draw.between(1, 4)
    index = body.want(PRED) if by_predicate else body.indices(PrimitiveType.S32, (), count)
    operands = [_some_values(body, 1)[0] for _ in range(count)]
    branches = [_called(body, "branch", [operands[0]], uniform=False)]
    result = branches[0].computation.result_shape
    for operand in operands[1:]:
        branches.append(_branch(body, operand, result))
    op = Conditional(branch_computations=tuple(branch.computation for branch in branches))
    return _opened(body, body.add(op, index, *operands))


def _branch(body: Body, operand: Instruction, result: Shape) -> Body:
    inner = body.child("branch", [operand.shape], uniform=False)
    inner.opened(inner.computation.parameters[0])
    grow(inner, body.draw.between(0, 3))
    leaves = [inner.computed(element) for element in result_shapes(result)]
    inner.computation.root = inner.add(Tuple(), *leaves) if result.is_tuple else leaves[0]
    return inner


@proposal(Tuple)
def _tuple(body: Body, declaration: type[Tuple]) -> Instruction:
    return body.add(Tuple(), *_some_values(body, 3))


@proposal(GetTupleElement)
def _element(body: Body, declaration: type[GetTupleElement]) -> Instruction:
    tuples = body.values(lambda s: s.is_tuple and bool(s.elements)) or [_tuple(body, Tuple)]
    chosen = body.recent(tuples)
    return body.add(GetTupleElement(index=body.draw.below(len(chosen.shape.elements))), chosen)


@proposal(OptimizationBarrier)
def _barrier(body: Body, declaration: type[OptimizationBarrier]) -> Instruction:
    return body.add(OptimizationBarrier(), _some_values(body, 1)[0])


@proposal(AfterAll)
def _after_all(body: Body, declaration: type[AfterAll]) -> Instruction:
    return body.add(AfterAll(), *body.values(lambda s: s.is_token)[:3])


@proposal(AddDependency)
def _dependency(body: Body, declaration: type[AddDependency]) -> Instruction:
    return body.add(AddDependency(), body.array("add-dependency"), body.want(TOKEN))


@proposal(Constant)
def _constant(body: Body, declaration: type[Constant]) -> Instruction:
    literals = [
        Literal.from_numpy(
            draw_array(body.draw, body.draw.element_type("constant"), () if body.scalar else body.draw.sizes())
        )
        for _ in range(1 if body.scalar or body.draw.chance(0.7) else body.draw.between(1, 3))
    ]
    made = body.add(Constant(literal=literals[0] if len(literals) == 1 else Literal.tuple_of(literals)))
    body.opened(made)
    return made


@proposal(Parameter)
def _parameter(body: Body, declaration: type[Parameter]) -> Instruction:
    if body.depth:
        declaration(number=0).reject("GEN-12", "parameters of called computations are those of the call")
    shape = Shape.array(body.draw.element_type("parameter"), body.draw.sizes())
    return body.parameter(draw_array(body.draw, shape.element_type, shape.dimensions))
