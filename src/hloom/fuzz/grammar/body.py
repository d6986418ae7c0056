"""Bodies: computations under construction, with the values that later instructions can read."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from hloom.fuzz.grammar.draw import ARRAYS, Draw
from hloom.fuzz.grammar.values import draw_array, draw_indices
from hloom.ir import Computation, Instruction
from hloom.literal import Literal
from hloom.ops.broadcast import Broadcast, Iota
from hloom.ops.control_flow import AsyncStart, AsyncUpdate
from hloom.ops.convert import Convert
from hloom.ops.operation import Operation
from hloom.ops.reshape import Reshape
from hloom.ops.structure import AfterAll, Constant, GetTupleElement, Parameter, Tuple
from hloom.ops.traits import Start
from hloom.passes.op_builder import OpBuilder
from hloom.shape import Shape
from hloom.types import Kind, PrimitiveType
from hloom.values import Array, Value

MAX_ELEMENTS = 1 << 14
"""Elements of an array beyond which no proposal makes one larger."""

CONTEXTS = (Start, AsyncStart, AsyncUpdate)
"""Operations whose results are contexts of asynchronous operations."""


@dataclass
class Program:
    """Data that the computations of a module share: choices, arguments so far, numbers of computations and channels."""

    draw: Draw
    arguments: list[Value] = field(default_factory=list)
    replicas: int = 1
    alone: bool = False
    computations: int = 0
    channels: int = 0
    queue_token: Instruction | None = None
    """The token of the last infeed or outfeed."""

    def new_computation(self, name: str) -> Computation:
        """Returns an empty computation with a unique name."""
        self.computations += 1
        return Computation(f"{name}.{self.computations}")

    def new_channel(self) -> int:
        """Returns the id of a channel that nothing else uses."""
        self.channels += 1
        return self.channels


class Body:
    """A computation under construction.

    Only the entry gets parameters while it grows. `depth` is the number of callers, and `scalar` says whether the
    computation is applied to elements, so that all its values are scalars. Collectives are for `uniform` bodies, which
    all replicas run equally often.
    """

    def __init__(self, program: Program, name: str, depth: int = 0, scalar: bool = False, uniform: bool = True) -> None:
        self.program, self.draw = program, program.draw
        self.depth, self.scalar, self.uniform = depth, scalar, uniform
        self.computation = program.new_computation(name)
        self._build = OpBuilder.of(self.computation)

    def child(self, name: str, shapes: Sequence[Shape], scalar: bool = False, uniform: bool = True) -> Body:
        """Returns the body of a computation to be called, with parameters of some shapes."""
        body = Body(self.program, name, self.depth + 1, scalar, self.uniform and uniform and not scalar)
        for number, shape in enumerate(shapes):
            body.opened(body.add(Parameter(number=number), shape=shape))
        return body

    def opened(self, value: Instruction) -> None:
        """Adds the elements of a tuple, and of tuples in it, as values."""
        for index in range(len(value.shape.elements) if value.shape.is_tuple else 0):
            self.opened(self.add(GetTupleElement(index=index), value))

    def add(self, op: Operation, *operands: Instruction, shape: Shape | None = None) -> Instruction:
        """Adds an instruction. Raises RuleError if the operation refuses its operands, or the declared shape."""
        shapes = op.bind([operand.shape for operand in operands])
        if shape is not None:
            op.check(shape, *shapes)
        result = shape if shape is not None else op.infer(*shapes)
        if any(leaf.is_array and leaf.element_count > 4 * MAX_ELEMENTS for leaf in result.leaves()):
            op.reject("SHAPE-1", f"is too large: {result}")
        return self._build(op, *operands, shape=result)

    # Values

    def values(self, fits: Callable[[Shape], bool]) -> list[Instruction]:
        """Returns the values so far whose shapes fit, in order; contexts are for the operations that end them."""
        return [i for i in self.computation.instructions if fits(i.shape) and not isinstance(i.op, CONTEXTS)]

    def recent(self, values: Sequence[Instruction]) -> Instruction:
        """Returns one of some values, rather a late one, so that chains get long."""
        return values[max(self.draw.below(len(values)), self.draw.below(len(values)))]

    def array(
        self, opcode: str, kinds: Iterable[Kind] = ARRAYS, low: int = 0, fits: Callable[[Shape], bool] | None = None
    ) -> Instruction:
        """Returns an array of some kinds and a rank of at least `low` as the operand of an operation."""
        allowed = frozenset(kinds)

        def suits(shape: Shape) -> bool:
            return shape.is_array and shape.is_static and shape.rank >= low and (fits is None or fits(shape))

        found = self.values(suits)
        if not found or self.draw.chance(0.25):
            sizes = () if self.scalar else self.draw.sizes(low)
            shape = Shape.array(self.draw.element_type(opcode, allowed), sizes)
            if fits is None or fits(shape):
                return self.want(shape)
            return self.recent([i for i in found if i.shape.element_type.kind in allowed] or self._refuse())
        chosen = self.recent(found)
        if chosen.shape.element_type.kind in allowed and self.draw.chance(0.6):
            return chosen
        return self.want(chosen.shape.with_element_type(self.draw.element_type(opcode, allowed)))

    def _refuse(self) -> list[Instruction]:
        Constant(literal=Literal.from_value(0)).reject("SHAPE-1", "no value fits")

    def want(self, shape: Shape) -> Instruction:
        """Returns a value of a shape: one of those so far, one made from them, or a new one."""
        if shape.is_tuple:
            return self.add(Tuple(), *(self.want(element) for element in shape.elements))
        if shape.is_token:
            return self.add(AfterAll())
        found = self.values(shape.compatible)
        if found and self.draw.chance(0.65):
            return self.recent(found)
        adapted = self._adapted(shape) if self.draw.chance(0.6) else None
        return self.fresh(shape) if adapted is None else adapted

    def _adapted(self, shape: Shape) -> Instruction | None:
        """Makes a value of a shape by converting, reshaping or broadcasting another one."""
        draw, element_type = self.draw, shape.element_type
        similar = self.values(lambda s: s.is_array and s.is_static and s.dimensions == shape.dimensions)
        if similar and draw.chance(0.5):
            return self.add(Convert(), self.recent(similar), shape=shape)
        same_type = self.values(lambda s: s.is_array and s.is_static and s.element_type is element_type)
        reshaped = [i for i in same_type if i.shape.element_count == shape.element_count]
        if reshaped and draw.chance(0.5):
            return self.add(Reshape(), self.recent(reshaped), shape=shape)
        lower = [i for i in same_type if _is_part(i.shape.dimensions, shape.dimensions)]
        if lower and shape.rank:
            source = self.recent(lower)
            dimensions = _first_match(source.shape.dimensions, shape.dimensions)
            return self.add(Broadcast(broadcast_dimensions=dimensions), source, shape=shape)
        return None

    def fresh(self, shape: Shape) -> Instruction:
        """Makes a new value of an array shape: a parameter, where the body may have one, an iota, or a constant."""
        draw = self.draw
        if not self.depth and draw.chance(0.7):
            return self.parameter(draw_array(draw, shape.element_type, shape.dimensions))
        if shape.rank and not shape.element_type.is_pred and draw.chance(0.3):
            return self.add(Iota(iota_dimension=draw.below(shape.rank)), shape=shape)
        if shape.element_count > 64:
            scalar = self.constant(draw_array(draw, shape.element_type, ()))
            return self.add(Broadcast(), scalar, shape=shape)
        return self.constant(draw_array(draw, shape.element_type, shape.dimensions))

    def computed(self, shape: Shape) -> Instruction:
        """Returns a value of an array shape as a result: the last one computed, converted if it has another type."""
        steps = self.values(lambda s: s.is_array and s.is_static and s.dimensions == shape.dimensions)
        steps = [i for i in steps if not isinstance(i.op, Parameter | Constant)]
        exact = [i for i in steps if i.shape.compatible(shape)]
        if exact and self.draw.chance(0.8):
            return exact[-1]
        return self.add(Convert(), steps[-1], shape=shape) if steps else self.want(shape)

    def end(self, results: Sequence[Instruction]) -> None:
        """Makes the results the root: a tuple of several."""
        self.computation.root = results[0] if len(results) == 1 else self.add(Tuple(), *results)

    def parameter(self, value: Array) -> Instruction:
        """Adds a parameter of the entry with its argument."""
        number = len(self.program.arguments)
        added = self.add(Parameter(number=number), shape=Literal.from_numpy(value).shape)
        self.program.arguments.append(value)
        return added

    def constant(self, value: Array) -> Instruction:
        """Adds a constant."""
        return self.add(Constant(literal=Literal.from_numpy(value)))

    def indices(self, element_type: PrimitiveType, sizes: tuple[int, ...], bound: int) -> Instruction:
        """Returns new indices into a dimension of `bound` elements, some out of bounds."""
        value = draw_indices(self.draw, element_type, sizes, bound)
        return self.constant(value) if self.depth or self.draw.chance(0.3) else self.parameter(value)


def _is_part(dimensions: Sequence[int], whole: Sequence[int]) -> bool:
    return len(dimensions) < len(whole) and len(_first_match(dimensions, whole)) == len(dimensions)


def _first_match(dimensions: Sequence[int], whole: Sequence[int]) -> tuple[int, ...]:
    """Returns positions in `whole` of the dimensions, in order; fewer if they are not a subsequence."""
    found: list[int] = []
    for d, size in enumerate(whole):
        if len(found) < len(dimensions) and dimensions[len(found)] == size:
            found.append(d)
    return tuple(found)


def split_product(draw: Draw, count: int) -> tuple[int, ...]:
    """Returns sizes with a product: the prime factors of `count`, some merged, in random order, with ones."""
    if not count:
        return tuple(draw.shuffled([0, *(draw.between(1, 4) for _ in range(draw.below(3)))]))
    factors, rest = [1] * draw.below(3), count
    for prime in (2, 3, 5, 7, 11, 13):
        while rest % prime == 0:
            factors.append(prime)
            rest //= prime
    factors = draw.shuffled([*factors, *([rest] if rest > 1 else [])])
    while len(factors) > draw.between(0, 6):
        factors[:2] = [math.prod(factors[:2])]
    return tuple(factors) if factors or count == 1 else (count,)
