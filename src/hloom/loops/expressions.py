"""Scalar expressions over loop variables: the immutable graph from which one element of a result is computed.

Expressions of an `ExpressionSpace` are hash-consed: equal ones are one object, so common subexpressions are shared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from hloom.affine import Atom, Expression, Index, IndexSpace, Quotient, Remainder, RuntimeIndex, Variable
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

    def __repr__(self) -> str:
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

    def __repr__(self) -> str:
        return f"b{self.buffer}[{self.index}]"


class FromIndex(Indexed):
    """The value of an index converted to an element type, as in iota."""

    __slots__ = ()

    def __init__(self, type: PrimitiveType, index: Index) -> None:
        self.type, self.index = type, index
        self.variables, self.children = index.variables, index.reads

    def __repr__(self) -> str:
        return f"{self.type}({self.index})"


class InRange(Indexed):
    """Whether low <= index < high, as PRED."""

    __slots__ = ("high", "low")

    def __init__(self, index: Index, low: int, high: int) -> None:
        self.type, self.index, self.low, self.high = PRED, index, low, high
        self.variables, self.children = index.variables, index.reads

    def __repr__(self) -> str:
        return f"({self.low} <= {self.index} < {self.high})"


class Apply(Expression):
    """An element-wise operation on scalar operands."""

    __slots__ = ("op", "operands")

    def __init__(self, op: Operation, type: PrimitiveType, operands: tuple[Expression, ...]) -> None:
        self.op, self.type, self.operands = op, type, operands
        self.variables, self.children = _union(operands), operands

    def __repr__(self) -> str:
        return f"{self.op.opcode}({', '.join(map(str, self.operands))})"


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

    def __repr__(self) -> str:
        return f"({self.then} if {self.condition} else {self.otherwise})"


class Argument(Expression):
    """A parameter of a reduction's combiner, bound by the emitter."""

    __slots__ = ("number",)

    def __init__(self, type: PrimitiveType, number: int) -> None:
        self.type, self.number = type, number
        self.variables, self.children = frozenset(), ()

    def __repr__(self) -> str:
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

    def __repr__(self) -> str:
        loops = ", ".join(f"{v} < {v.extent}" for v in self.over)
        combiner = self.monoid.opcode if self.monoid else self.combine
        return f"reduce[{loops}; {combiner}]({', '.join(map(str, self.values))})"


class ReductionResult(Expression):
    """The final value of an accumulator of a reduction; the only child of results after the first is the first one."""

    __slots__ = ("position", "reduction")

    def __init__(self, reduction: Reduction, position: int, first: ReductionResult | None) -> None:
        self.reduction, self.position = reduction, position
        self.type = reduction.initial[position].type
        self.variables = reduction.variables
        self.children = (*reduction.values, *reduction.initial) if first is None else (first,)

    def __repr__(self) -> str:
        return repr(self.reduction) if len(self.reduction.initial) == 1 else f"{self.reduction!r}.{self.position}"


def _union(expressions: Sequence[Expression]) -> frozenset[Variable]:
    if len(expressions) == 1:
        return expressions[0].variables
    result: frozenset[Variable] = frozenset()
    for expression in expressions:
        if expression.variables and expression.variables is not result:
            result = result | expression.variables
    return result


class ExpressionSpace:
    """A factory of hash-consed expressions, and of the loop variables of reductions."""

    def __init__(self, buffer_sizes: Sequence[int]) -> None:
        self.indices = IndexSpace()
        self.buffer_sizes = list(buffer_sizes)
        self._expressions: dict[Any, Any] = {}
        self._reduction_variables: dict[tuple[int, int, int], Variable] = {}

    def constant(self, type: PrimitiveType, value: Any) -> Expression:
        """A constant, given as a NumPy scalar or array of rank 0."""
        return self._interned((Constant, type, value.tobytes()), lambda: Constant(type, value))

    def load(self, type: PrimitiveType, buffer: int, index: Index) -> Expression:
        """The element of a buffer at a linear index."""
        return self._interned((Load, type, buffer, index), lambda: Load(type, buffer, index, self.buffer_sizes[buffer]))

    def from_index(self, type: PrimitiveType, index: Index) -> Expression:
        """The value of an index as an element."""
        return self._interned((FromIndex, type, index), lambda: FromIndex(type, index))

    def apply(self, op: Operation, type: PrimitiveType, *operands: Expression) -> Expression:
        """An element-wise operation with a result of element type `type`."""
        return self._interned((op, type, *map(id, operands)), lambda: Apply(op, type, operands))

    def in_range(self, index: Index, low: int, high: int) -> Expression | bool:
        """Whether low <= index < high; a Python bool if the range of the index decides it."""
        if low <= index.low and index.high < high:
            return True
        if index.high < low or index.low >= high:
            return False
        return self._interned((InRange, index, low, high), lambda: InRange(index, low, high))

    def where(self, condition: Expression | bool, then: Expression, otherwise: Expression) -> Expression:
        """`then` if the condition holds, else `otherwise`."""
        if isinstance(condition, bool):
            return then if condition else otherwise
        if then is otherwise:
            return then
        return self._interned(
            (Where, id(condition), id(then), id(otherwise)), lambda: Where(condition, then, otherwise)
        )

    def argument(self, type: PrimitiveType, number: int) -> Expression:
        """A parameter of a combiner, by its parameter number."""
        return self._interned((Argument, type, number), lambda: Argument(type, number))

    def reduction(
        self,
        over: tuple[Variable, ...],
        values: tuple[Expression, ...],
        initial: tuple[Expression, ...],
        combine: tuple[Expression, ...],
        monoid: type[Monoid] | None,
    ) -> list[Expression]:
        """The results of a reduction, one for each accumulator."""
        key = (Reduction, over, *map(id, values), *map(id, initial), *map(id, combine))
        reduction: Reduction = self._interned(key, lambda: Reduction(over, values, initial, combine, monoid))
        first = self._result(reduction, 0, None)
        return [first, *(self._result(reduction, position, first) for position in range(1, len(initial)))]

    def _result(self, reduction: Reduction, position: int, first: ReductionResult | None) -> ReductionResult:
        result: ReductionResult = self._interned(
            (ReductionResult, id(reduction), position), lambda: ReductionResult(reduction, position, first)
        )
        return result

    def reduction_variable(self, extent: int, depth: int, position: int) -> Variable:
        """The variable of a reduction's loop: reductions of the same extent, depth and position share it.

        The depth of a reduction is greater than that of every reduction inside its values, so no loop contains itself.
        """
        key = (extent, depth, position)
        variable = self._reduction_variables.get(key)
        if variable is None:
            variable = self._reduction_variables[key] = self.indices.variable(f"r{self.indices.next_ordinal()}", extent)
        return variable

    def _interned(self, key: Any, make: Callable[[], Any]) -> Any:
        """The expression of a key, made at its first use."""
        found = self._expressions.get(key)
        if found is None:
            found = self._expressions[key] = make()
        return found

    def substitute(
        self, roots: Sequence[Expression], values: Mapping[Variable, Index], in_reductions: bool = True
    ) -> list[Expression]:
        """Replaces loop variables by indices; `in_reductions` includes variables of the loops of reductions."""
        new: dict[int, Expression] = {}
        done: dict[Atom, Index] = {}
        for expression in walk(roots):
            if expression.variables.isdisjoint(values) and not (in_reductions and _reduces_over(expression, values)):
                new[id(expression)] = expression
            else:
                new[id(expression)] = self._substituted(expression, values, new, done)
        return [new[id(root)] for root in roots]

    def replace(
        self, roots: Sequence[Expression], new: Mapping[int, Expression], in_reductions: bool = True
    ) -> list[Expression]:
        """Replaces expressions, given by their ids, by others; `in_reductions` includes those inside reductions."""
        done: dict[int, Expression] = {}
        atoms: dict[Atom, Index] = {}
        for expression in walk(roots):
            found = new.get(id(expression))
            if found is None:
                changed = any(done[id(child)] is not child for child in expression.children)
                if isinstance(expression, ReductionResult) and not in_reductions:
                    changed = False
                found = self._substituted(expression, {}, done, atoms) if changed else expression
            done[id(expression)] = found
        return [done[id(root)] for root in roots]

    def _substituted(
        self,
        expression: Expression,
        values: Mapping[Variable, Index],
        new: dict[int, Expression],
        atoms: dict[Atom, Index],
    ) -> Expression:
        if isinstance(expression, Apply):
            return self.apply(expression.op, expression.type, *(new[id(o)] for o in expression.operands))
        if isinstance(expression, Where):
            condition, then, otherwise = (new[id(child)] for child in expression.children)
            return self.where(bool(condition.value) if isinstance(condition, Constant) else condition, then, otherwise)
        if isinstance(expression, ReductionResult):
            return self._substituted_reduction(expression, values, new)
        index = self.substitute_index(expression.indices[0], values, new, atoms)
        if isinstance(expression, Load):
            return self.load(expression.type, expression.buffer, index)
        if isinstance(expression, FromIndex):
            return self.from_index(expression.type, index)
        assert isinstance(expression, InRange)
        inside = self.in_range(index, expression.low, expression.high)
        return self.constant(PRED, np.asarray(inside)) if isinstance(inside, bool) else inside

    def _substituted_reduction(
        self, expression: ReductionResult, values: Mapping[Variable, Index], new: dict[int, Expression]
    ) -> Expression:
        reduction = expression.reduction
        if expression.position:
            first = new[id(expression.children[0])]
            assert isinstance(first, ReductionResult)
            return self._result(first.reduction, expression.position, first)
        over = (_replaced(variable, values) for variable in reduction.over)
        terms, initial = (tuple(new[id(e)] for e in group) for group in (reduction.values, reduction.initial))
        return self.reduction(tuple(v for v in over if v), terms, initial, reduction.combine, reduction.monoid)[0]

    def substitute_index(
        self,
        index: Index,
        values: Mapping[Variable, Index],
        new: Mapping[int, Expression] | None = None,
        atoms: dict[Atom, Index] | None = None,
    ) -> Index:
        """Replaces variables in an index.

        `new` maps the ids of expressions inside it to their replacements; `atoms` caches the replacements of atoms,
        across indices.
        """
        if new is None and index.variables.isdisjoint(values):
            return index
        done = {} if atoms is None else atoms
        parts = [self.indices.constant(index.constant)]
        for atom, coefficient in index.terms:
            if atom not in done:
                done[atom] = self._substituted_atom(atom, values, new, done)
            parts.append(self.indices.scale(done[atom], coefficient))
        return self.indices.add(*parts)

    def _substituted_atom(
        self,
        atom: Atom,
        values: Mapping[Variable, Index],
        new: Mapping[int, Expression] | None,
        done: dict[Atom, Index],
    ) -> Index:
        if isinstance(atom, Variable):
            return values.get(atom) or self.indices.of(atom)
        if isinstance(atom, RuntimeIndex):
            value = new[id(atom.value)] if new is not None else self.substitute([atom.value], values)[0]
            return self.indices.runtime(value, atom.low, atom.high)
        assert isinstance(atom, (Quotient, Remainder))
        operand = self.substitute_index(atom.operand, values, new, done)
        divide = self.indices.quotient if isinstance(atom, Quotient) else self.indices.remainder
        return divide(operand, atom.divisor)


def _reduces_over(expression: Expression, values: Mapping[Variable, Index]) -> bool:
    return isinstance(expression, ReductionResult) and not values.keys().isdisjoint(expression.reduction.over)


def _replaced(variable: Variable, values: Mapping[Variable, Index]) -> Variable | None:
    """The variable that replaces one of a reduction's loop; None if a constant replaces it."""
    new = values.get(variable)
    if new is None:
        return variable
    if not new.terms:
        return None
    atom = new.terms[0][0]
    assert isinstance(atom, Variable)
    return atom


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
