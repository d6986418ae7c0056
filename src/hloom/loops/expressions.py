"""Scalar expressions over loop variables: the immutable graph from which one element of a result is computed.

Expressions of an `ExpressionSpace` are hash-consed: equal ones are one object, so common subexpressions are shared.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hloom.affine import Expression, Index, Name, Variable
from hloom.ops.elementwise_binary import Monoid
from hloom.ops.operation import Operation
from hloom.types import PrimitiveType
from hloom.values import Array

PRED = PrimitiveType.PRED


class Constant(Expression):
    """A constant of an element type."""

    __slots__ = ("value",)

    def __init__(self, type: PrimitiveType, value: Any) -> None:
        self.type, self.value = type, value
        self.variables, self.children = frozenset(), ()

    def text(self, name: Name) -> str:
        return f"{self.value}"


class Indexed(Expression):
    """An expression that uses one index."""

    __slots__ = ("index",)

    index: Index

    @property
    def indices(self) -> tuple[Index, ...]:
        return (self.index,)


class Load(Indexed):
    """The element of a buffer at a linear index; `in_bounds`: whether ranges prove that it is inside the buffer."""

    __slots__ = ("buffer", "in_bounds")

    def __init__(self, type: PrimitiveType, buffer: int, index: Index, size: int) -> None:
        self.type, self.buffer, self.index = type, buffer, index
        self.in_bounds = index.low >= 0 and index.high < size
        self.variables, self.children = index.variables, index.reads

    def text(self, name: Name) -> str:
        return f"b{self.buffer}[{self.index.text(name)}]"


class FromIndex(Indexed):
    """The value of an index converted to an element type, as in iota."""

    __slots__ = ()

    def __init__(self, type: PrimitiveType, index: Index) -> None:
        self.type, self.index = type, index
        self.variables, self.children = index.variables, index.reads

    def text(self, name: Name) -> str:
        return f"{self.type}({self.index.text(name)})"


class InRange(Indexed):
    """Whether low <= index < high, as PRED."""

    __slots__ = ("high", "low")

    def __init__(self, index: Index, low: int, high: int) -> None:
        self.type, self.index, self.low, self.high = PRED, index, low, high
        self.variables, self.children = index.variables, index.reads

    def text(self, name: Name) -> str:
        return f"({self.low} <= {self.index.text(name)} < {self.high})"


class Apply(Expression):
    """An element-wise operation on scalar operands."""

    __slots__ = ("op", "operands")

    def __init__(self, op: Operation, type: PrimitiveType, operands: tuple[Expression, ...]) -> None:
        self.op, self.type, self.operands = op, type, operands
        self.variables, self.children = _union(operands), operands

    def text(self, name: Name) -> str:
        return f"{self.op.opcode}({', '.join(map(name, self.operands))})"


class FunctionCall(Operation):
    """An element-wise operation that calls a function, which may contain loops; the backend defines it."""

    elementwise = True

    def guarded(self) -> FunctionCall:
        """The call that takes a predicate as its first operand, and calls the function only where it holds."""
        raise NotImplementedError


def is_function_call(expression: Expression) -> bool:
    """Whether an expression calls a function, which may contain loops."""
    return isinstance(expression, Apply) and isinstance(expression.op, FunctionCall)


class Where(Expression):
    """`then` if the condition holds, else `otherwise`; loads of the other value must not access memory."""

    __slots__ = ("condition", "otherwise", "then")

    def __init__(self, condition: Expression, then: Expression, otherwise: Expression) -> None:
        self.type, self.condition, self.then, self.otherwise = then.type, condition, then, otherwise
        self.children = (condition, then, otherwise)
        self.variables = _union(self.children)

    def text(self, name: Name) -> str:
        return f"({name(self.then)} if {name(self.condition)} else {name(self.otherwise)})"


class Argument(Expression):
    """A parameter of a reduction's combiner, bound by the emitter."""

    __slots__ = ("number",)

    def __init__(self, type: PrimitiveType, number: int) -> None:
        self.type, self.number = type, number
        self.variables, self.children = frozenset(), ()

    def text(self, name: Name) -> str:
        return f"%{self.number}"


class Reduction:
    """A reduction over loops: accumulators = combine(accumulators, values) in each iteration, starting from `initial`.

    `combine` consists of expressions of Arguments: first the accumulators, then the values, of which there may be more.
    `monoid` is the operation of a combiner that is one; reductions by other combiners run in order.
    """

    __slots__ = ("combine", "initial", "monoid", "over", "values", "variables")

    def __init__(
        self,
        over: tuple[Variable, ...],
        values: tuple[Expression, ...],
        initial: tuple[Expression, ...],
        combine: tuple[Expression, ...],
        monoid: type[Monoid] | None,
    ) -> None:
        self.over, self.values, self.initial, self.combine, self.monoid = over, values, initial, combine, monoid
        self.variables = (_union(values) - frozenset(over)) | _union(initial)

    @property
    def identity(self) -> Array:
        """The identity of the monoid, in the element type of the accumulator."""
        assert self.monoid is not None
        return self.monoid.identity(self.initial[0].type)

    def text(self, name: Name) -> str:
        """Prints the reduction, with the names of its values; a long combiner is left out unless it is a monoid."""
        loops = ", ".join(f"{v} < {v.extent}" for v in self.over)
        combiner = self.monoid.opcode if self.monoid else self.combine if text_size(self.combine) <= MAX_TEXT else ""
        return f"reduce[{loops}; {combiner}]({', '.join(map(name, self.values))})"

    def __repr__(self) -> str:
        return self.text(str)


class ReductionResult(Expression):
    """The final value of an accumulator of a reduction; the only child of results after the first is the first one."""

    __slots__ = ("position", "reduction")

    def __init__(self, reduction: Reduction, position: int, first: ReductionResult | None) -> None:
        self.reduction, self.position = reduction, position
        self.type = reduction.initial[position].type
        self.variables = reduction.variables
        self.children = (*reduction.values, *reduction.initial) if first is None else (first,)

    def text(self, name: Name) -> str:
        whole = self.reduction.text(name)
        return whole if len(self.reduction.initial) == 1 else f"{whole}.{self.position}"


def _union(expressions: Sequence[Expression]) -> frozenset[Variable]:
    if len(expressions) == 1:
        return expressions[0].variables
    result: frozenset[Variable] = frozenset()
    for expression in expressions:
        if expression.variables and expression.variables is not result:
            result = result | expression.variables
    return result


def walk(roots: Sequence[Expression]) -> list[Expression]:
    """The expressions reachable from the roots, operands before users."""
    order: list[Expression] = []
    done: set[Expression] = set()
    begun: list[Expression] = []
    stack: list[Expression | None] = list(reversed(roots))
    while stack:
        expression = stack.pop()
        if expression is None:  # all children of the innermost open expression are done
            order.append(begun.pop())
        elif expression not in done:
            done.add(expression)
            if expression.children:
                begun.append(expression)
                stack.append(None)
                stack += expression.children
            else:
                order.append(expression)
    return order


MAX_TEXT = 400
"""The largest number of expressions, shared ones counted at each use, that are printed as one line."""


def text_size(roots: Sequence[Expression]) -> int:
    """The number of expressions reachable from the roots, with shared ones counted at each use."""
    sizes: dict[Expression, int] = {}
    for expression in walk(roots):
        sizes[expression] = 1 + sum(sizes[child] for child in expression.children)
    return sum(sizes[root] for root in roots)
