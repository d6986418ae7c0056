"""Proofs of loop nests: the expressions that a kernel stores are the elements of the instruction's result.

Nests are evaluated on buffers of terms, in the order of their loops; how loops are vectorised and shared by threads
changes nothing in what is stored. Reductions run in the interpreter's order, since it is free (GEN-13, REDUCE-3).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hloom.affine import Atom, Expression, Index, RuntimeIndex, Variable
from hloom.ir import Instruction
from hloom.loops.expressions import (
    Apply,
    Argument,
    Constant,
    FromIndex,
    InRange,
    Load,
    Reduction,
    ReductionResult,
    Where,
    is_function_call,
)
from hloom.loops.lower import lower
from hloom.loops.nest import Kernel, Nest, atoms_of
from hloom.loops.schedule import schedule
from hloom.numerics import convert
from hloom.ops.convert import BitcastConvert
from hloom.ops.select import Select
from hloom.prove.equivalence import Proved, Undecided, parts_of, variables
from hloom.prove.meanings.evaluator import Evaluator, arrays_of
from hloom.prove.meanings.reads import MAX_POSITIONS, clamps_to, value_of
from hloom.prove.meanings.reductions import combination
from hloom.prove.solver.decide import Deadline, Found, decide
from hloom.prove.terms.functions import FALSE, TRUE, apply, both, choose
from hloom.prove.terms.normal import normal
from hloom.prove.terms.term import Combination, Term, Unknown, Unsupported, constant, from_code, node
from hloom.target import Target
from hloom.types import PrimitiveType

Counters = Mapping[Atom, int]
"""The values of loop counters, and of integers that are computed at run time."""
MAX_STORES = 1 << 16
"""Stores of a kernel, up to which it is evaluated."""


def prove_lowering(
    instruction: Instruction, target: Target | None = None, seconds: float = 60.0
) -> Proved | Undecided | Found:
    """Decides whether the kernel of a fusion, or of an instruction that `can_lower` accepts, stores what it computes.

    With a target, the nests are those that are scheduled for it. Returns values of the operands' elements, named
    `x0[0]` .., for which an element differs.
    """
    deadline = Deadline(seconds)
    lowered = lower(instruction)
    if target is not None:
        schedule(lowered.kernel, target)
    try:
        given = {operand: variables(operand.shape, f"x{k}") for k, operand in enumerate(instruction.operands)}
        operands = [given[operand] for operand in instruction.operands]
        wanted = arrays_of(Evaluator(deadline).value(instruction, operands))
        inputs = [list(operands[k].reshape(-1)) for k in lowered.operands]
        outputs = _Machine(lowered.kernel, deadline).run(inputs, dict(lowered.copies))
        pairs = [
            pair
            for array, output in zip(wanted, outputs, strict=True)
            for a, b in zip(array.reshape(-1), output, strict=True)
            for pair in parts_of(a, _as(a.type, b))
        ]
        outcome = decide(pairs, deadline)
    except Unsupported as error:
        return Undecided(str(error))
    if outcome.found is not None:
        return outcome.found
    return Undecided(outcome.reason) if outcome.reason else Proved(tuple(sorted(outcome.clauses)))


def _as(type: PrimitiveType, term: Term) -> Term:
    """Returns the bits of an element as another type: f16 that is only moved is moved as u16, and c64 as u64.

    The latter stay complex terms; their constants become such terms.
    """
    if term.type is type or term.type.is_complex:
        return term
    if type.is_complex and term.known is not None:
        return from_code(type, term.known)
    return apply(BitcastConvert(), type, (term,))


def _alike(terms: Sequence[Term]) -> list[Term]:
    """Returns terms of one type, complex if one is."""
    type = next((term.type for term in terms if term.type.is_complex), terms[0].type)
    return [_as(type, term) for term in terms]


@dataclass
class _Machine:
    """Runs the nests of a kernel."""

    kernel: Kernel
    deadline: Deadline
    buffers: list[list[Term]] = field(default_factory=list)
    known: dict[Any, Term] = field(default_factory=dict)
    """Values of expressions, by their counters, as long as buffers are not stored to."""

    def run(self, inputs: Sequence[list[Term]], copies: Mapping[int, int]) -> list[list[Term]]:
        """Returns the contents of the output buffers. `copies` maps outputs to inputs that they start as."""
        stores = sum(nest.iterations * len(nest.stores) for nest in self.kernel.nests)
        if stores > MAX_STORES:
            raise Unsupported(f"more than {MAX_STORES} stores")
        self.buffers = [list(x) for x in inputs]
        for k, buffer in enumerate(self.kernel.buffers[len(inputs) :], len(inputs)):
            is_copy = k in copies
            self.buffers.append(list(inputs[copies[k]]) if is_copy else [_unset(buffer.type, k)] * buffer.size)
        for nest in self.kernel.nests:
            self.known.clear()
            for values in itertools.product(*(range(loop.extent) for loop in nest.loops)):
                self.deadline.check("the evaluation of nests")
                self._iteration(nest, dict(zip(nest.loops, values, strict=True)))
        return [b for b, kind in zip(self.buffers, self.kernel.buffers, strict=True) if kind.role == "output"]

    def _iteration(self, nest: Nest, counters: dict[Atom, int]) -> None:
        for expression, buffer, index in nest.schedule.staged:
            inner = [v for v in expression.variables | index.variables if v not in counters]
            for environment in _inner(inner, counters):
                self._store(buffer, index, self.value(expression, environment), environment)
        for store in nest.stores:
            self._store(store.buffer, store.index, self.value(store.value, counters), counters)
            if nest.reads_written_buffers:
                self.known.clear()

    def _store(self, buffer: int, index: Index, value: Term, counters: Counters) -> None:
        contents = self.buffers[buffer]
        for here, environment in self._cases(index, counters):
            at = value_of(index, environment)
            if not 0 <= at < len(contents):
                raise Unsupported("a store outside of its buffer")
            contents[at] = choose(here, value, contents[at]) if here is not TRUE else value

    def value(self, expression: Expression, counters: Counters, arguments: Sequence[Term] = ()) -> Term:
        """Returns the value of an expression. `arguments` are those of the combiner that it belongs to."""
        key = (id(expression), *((v.ordinal, counters[v]) for v in sorted(expression.variables, key=_ordinal)))
        if arguments:
            return self._value(expression, counters, arguments)
        if key not in self.known:
            self.known[key] = self._value(expression, counters, arguments)
        return self.known[key]

    def _value(self, e: Expression, counters: Counters, arguments: Sequence[Term]) -> Term:
        match e:
            case Constant():
                return constant(e.type, e.value)
            case Argument():
                return arguments[e.number]
            case Apply():
                if is_function_call(e):
                    raise Unsupported("a call of a function with loops")
                operands = [self.value(operand, counters, arguments) for operand in e.operands]
                if isinstance(e.op, Select):
                    operands[1:] = _alike(operands[1:])
                    return apply(e.op, operands[1].type, operands)
                return apply(e.op, e.type, operands)
            case Where():
                return self._where(e, counters, arguments)
            case ReductionResult():
                return self._reduced(e.reduction, counters)[e.position]
            case Load() | FromIndex() | InRange():
                return self._by_index(e, counters)
        raise Unsupported(f"the expression {e}")

    def _where(self, e: Where, counters: Counters, arguments: Sequence[Term]) -> Term:
        condition = self.value(e.condition, counters, arguments)
        if condition in (TRUE, FALSE):
            return self.value(e.then if condition is TRUE else e.otherwise, counters, arguments)
        return choose(condition, *_alike([self.value(x, counters, arguments) for x in (e.then, e.otherwise)]))

    def _by_index(self, e: Load | FromIndex | InRange, counters: Counters) -> Term:
        """Returns the value of an expression of an index: a choice, if integers in it are unknown."""
        result: Term | None = None
        for here, environment in self._cases(e.index, counters):
            found = self._at(e, value_of(e.index, environment))
            result = found if result is None else choose(here, found, result)
        assert result is not None
        return result

    def _at(self, e: Load | FromIndex | InRange, index: int) -> Term:
        match e:
            case InRange():
                return TRUE if e.low <= index < e.high else FALSE
            case FromIndex():
                return constant(e.type, convert(np.asarray(index), e.type.dtype))
        contents = self.buffers[e.buffer]
        return _as(e.type, contents[index]) if 0 <= index < len(contents) else _unset(e.type, e.buffer)

    def _cases(self, index: Index, counters: Counters) -> Iterator[tuple[Term, Counters]]:
        """Yields the values that unknown integers in an index may have, with the condition that they have them."""
        atoms = [atom for atom in atoms_of(index) if isinstance(atom, RuntimeIndex)]
        if not atoms:
            yield TRUE, counters
            return
        if math.prod(atom.high - atom.low + 1 for atom in atoms) > MAX_POSITIONS:
            raise Unsupported(f"more than {MAX_POSITIONS} combinations of start indices")
        terms = [normal(self.value(atom.value, counters)) for atom in atoms]
        for values in itertools.product(*(range(atom.low, atom.high + 1) for atom in atoms)):
            here = [clamps_to(x, a.low, a.high, v) for x, a, v in zip(terms, atoms, values, strict=True)]
            yield both(here), {**counters, **dict(zip(atoms, values, strict=True))}

    def _reduced(self, reduction: Reduction, counters: Counters) -> list[Term]:
        initial = [self.value(e, counters) for e in reduction.initial]
        rows = [[self.value(e, inner) for e in reduction.values] for inner in _inner(reduction.over, counters)]
        if not rows:
            return initial
        if reduction.monoid is not None and len(initial) == len(rows[0]) == 1:
            combined_by = Combination(reduction.monoid())
            return [combination(combined_by, [initial[0], combination(combined_by, [row[0] for row in rows])])]
        while len(rows) > 1 and len(rows[0]) == len(initial):
            pairs = [self._combined(reduction, rows[k], rows[k + 1], counters) for k in range(0, len(rows) - 1, 2)]
            rows = [*pairs, *rows[len(rows) & ~1 :]]
        for row in rows:
            initial = self._combined(reduction, initial, row, counters)
        return initial

    def _combined(self, reduction: Reduction, a: list[Term], b: list[Term], counters: Counters) -> list[Term]:
        return [self.value(e, counters, [*a, *b]) for e in reduction.combine]


def _ordinal(variable: Variable) -> int:
    return variable.ordinal


def _inner(loops: Sequence[Variable], counters: Counters) -> Iterator[dict[Atom, int]]:
    for values in itertools.product(*(range(loop.extent) for loop in loops)):
        yield {**counters, **dict(zip(loops, values, strict=True))}


def _unset(type: PrimitiveType, buffer: int) -> Term:
    """Returns an unknown element: memory outside of a buffer, or that nothing was stored to."""
    return node(type, Unknown(f"memory beside buffer {buffer}"), ())
