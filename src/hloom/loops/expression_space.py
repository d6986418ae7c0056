"""ExpressionSpace: construction of expressions, in which equal ones are one object."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from hloom.affine import Atom, Expression, Index, IndexSpace, Quotient, Remainder, RuntimeIndex, Variable
from hloom.loops.expressions import (
    PRED,
    Apply,
    Argument,
    Constant,
    FromIndex,
    InRange,
    Load,
    Reduction,
    ReductionResult,
    Where,
    walk,
)
from hloom.ops.elementwise_binary import Monoid
from hloom.ops.operation import Operation
from hloom.types import PrimitiveType


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
